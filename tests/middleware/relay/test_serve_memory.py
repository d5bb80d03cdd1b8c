"""`fairtrial serve` for a long time: what a trial took is given back when it is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.middleware.relay.serving import AnsweringUpstream, Running, Serve, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WARM_UP = 1500
"""As many at once as will ever be: the heap has its size then."""
TRIALS = 1000
SLACK_KB = 4096
"""An arena of the allocator or two; 1 000 trials of a leaked 20 KB each would be 20 MB."""


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1])


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def live_through(running: Running, first: int, count: int) -> None:
    """Some trials, each with one call, all closed and stored at the end."""
    for number in range(first, first + count):
        assert running.call("anthropic", f"/t/trial-{number}/v1/messages")[0] == 200
    until(lambda: statuses(running).get("closed") == first + count, "all are closed", deadline_s=120)


def statuses(running: Running) -> dict[str, object]:
    said = running.report("healthz")[1]["observer"].get("last_status") or {}
    assert isinstance(said, dict)
    return said


def test_memory_and_descriptors_are_flat_over_a_thousand_short_trials(serve: Serve) -> None:
    upstream = AnsweringUpstream()
    running = serve.start({"anthropic": upstream.url}, "--idle", "1")
    running.wait_for_observer()
    pids = {"relay": running.process.pid, "observer": running.observer_pid()}
    live_through(running, 0, WARM_UP)
    before = {name: (resident_kb(pid), descriptors(pid)) for name, pid in pids.items()}
    live_through(running, WARM_UP, TRIALS)
    for name, pid in pids.items():
        memory, open_files = before[name]
        grown = resident_kb(pid) - memory
        assert grown < SLACK_KB, f"the {name} grew by {grown} KB over {TRIALS} trials, from {memory} KB"
        assert descriptors(pid) <= open_files + 2, f"the {name} keeps descriptors open"
    assert running.report("healthz")[1]["observer"]["deaths"] == 0
    assert running.end() == 0
    assert len(serve.rows()) == WARM_UP + TRIALS
    upstream.close()
