"""The demo's agent against the stand-in itself, without fairtrial: what it does on its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fairtrial.middleware.demo.agent import ApiError, LocalBox, message
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin

DOES_IT = (shell("touch answer"), say("Done."))


def agent(steps: tuple[Step, ...], *faults: Fault) -> tuple[int, str, int]:
    """Exit status, output, and how many model calls there were."""
    with running_standin(steps, faults) as server:
        done = subprocess.run(
            [sys.executable, "-m", "fairtrial.middleware.demo.agent"],
            env=dict(os.environ) | {"ANTHROPIC_BASE_URL": server.url},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        server.settle()
        return done.returncode, done.stdout + done.stderr, len(server.model_calls)


@pytest.mark.parametrize(
    "steps, faults, status, calls, words",
    [
        (DOES_IT, (), 0, 2, "check passed"),
        ((say("Done."),), (), 1, 1, "check failed"),
        (DOES_IT, (Fault(kind="http", step=1, attempts=2, status=529),), 0, 4, "check passed"),
        (DOES_IT, (Fault(kind="http", step=1, attempts=None, status=529),), 1, 7, "model API: 529"),
        (DOES_IT, (Fault(kind="http", step=0, attempts=None, status=400),), 1, 1, "model API: 400"),
        (DOES_IT, (Fault(kind="cut", step=1, attempts=None, after_events=2),), 1, 2, "model API: the answer broke off"),
        (DOES_IT, (Fault(kind="short", step=1, attempts=None, after_events=2),), 1, 2, "ended before its last event"),
        (DOES_IT, (Fault(kind="error_event", step=1, attempts=None, after_events=1),), 1, 2, "error in the stream"),
    ],
)
def test_it_retries_what_is_overloaded_and_gives_up_on_the_rest(
    steps: tuple[Step, ...], faults: tuple[Fault, ...], status: int, calls: int, words: str
) -> None:
    code, said, made = agent(steps, *faults)
    assert (code, made) == (status, calls), said
    assert words in said


def test_a_tool_that_kills_itself_is_137_as_in_a_shell() -> None:
    box = LocalBox()
    assert box.run("kill -9 $$") == (137, "")
    assert box.run("echo a; exit 3") == (3, "a\n")
    box.close()


def test_a_stream_without_its_last_event_is_no_message() -> None:
    begun: dict[str, object] = {"type": "message_start"}
    with pytest.raises(ApiError):
        message(iter([begun]))
