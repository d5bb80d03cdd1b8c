"""Open files of real processes, and of a /proc on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fairtrial.collectors.descriptors import Descriptors
from fairtrial.middleware.core.observations import FdLimit
from tests.collectors.keep import Kept

LEAK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True: held.append(open("/dev/null"))
except OSError:
    pass
print("full", flush=True)
sys.stdin.read()
"""
FEW = "import sys; print('calm', flush=True); sys.stdin.read()"


def watch(code: str, first_reply_s: float | None) -> list[FdLimit]:
    kept = Kept()
    it = Descriptors(kept.source("collector.cgroup"), Path("/proc"), trial_id="t")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(3):
            it.look("c", [process.pid, 4_000_000], first_reply_s)
        process.communicate()
    return kept.of(FdLimit)


def test_a_process_at_its_limit_is_told_once_with_its_age() -> None:
    (told,) = watch(LEAK, 0.0)
    assert (told.open_files, told.limit, told.since_first_reply) == (64, 64, True)
    assert told.comm is not None
    assert [v.since_first_reply for v in watch(LEAK, 1e12)] == [False]
    assert [v.since_first_reply for v in watch(LEAK, None)] == [None]


def test_what_a_process_had_open_at_the_first_reply_is_told_beside_it() -> None:
    """It is then told to open more, under a limit that was lowered."""
    later = LEAK.replace(
        "import resource, sys", "import resource, sys; print('calm', flush=True); sys.stdin.readline()"
    )
    kept = Kept()
    it = Descriptors(kept.source("collector.cgroup"), Path("/proc"), trial_id="t")
    with subprocess.Popen([sys.executable, "-c", later], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        it.remember([process.pid, 4_000_000])
        process.stdin.write(b"go\n")
        process.stdin.flush()
        process.stdout.readline()
        it.look("c", [process.pid], 1e12)
        process.communicate()
    (told,) = kept.of(FdLimit)
    assert told.open_before is not None
    assert told.limit_before is not None
    assert told.open_before < 32
    assert told.limit_before > 64
    assert (told.open_files, told.limit) == (64, 64)


def test_a_process_with_room_is_not_told() -> None:
    assert watch(FEW, 0.0) == []


def test_where_the_size_of_the_folder_is_not_the_count_it_is_listed(tmp_path: Path) -> None:
    """Kernels before 6.2: the size is 0."""
    fd = tmp_path / "7" / "fd"
    fd.mkdir(parents=True)
    (tmp_path / "7" / "limits").write_text(
        "Max open files            unlimited            unlimited            files\n"
    )
    kept = Kept()
    Descriptors(kept.source("x"), tmp_path, trial_id="t").look("c", [7], None)
    assert kept.all == []
