"""Whether a limit that was reached mattered: the same for tasks, disk, open files and memory."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import DiskFull, FdLimit, PidsHit, Value
from fairtrial.middleware.core.records import Grade
from tests.middleware.attribution.scene import BOX, Scene

_FULL = DiskFull(container_id=BOX, mount="/", size=100, free=0, at_start=False)
_FILES = FdLimit(container_id=BOX, pid=9, open_files=64, limit=64)
_TASKS = PidsHit(container_id=BOX, hits=7, limit=64, tasks=64)
_REACHED = pytest.mark.parametrize("fact", [_FULL, _FILES, _TASKS], ids=["disk", "files", "tasks"])


def reached(fact: Value, exit_code: int) -> Scene:
    told = Scene()
    told.also["pids_max_hits"] = 0
    told.read("baseline").call()
    if isinstance(fact, PidsHit):
        told.also["pids_max_hits"] = fact.hits
        told.read("change")
    told.tell(fact)
    return told.ran(exit_code)


@_REACHED
def test_a_command_that_ended_well_and_a_later_step_that_did_make_it_present(fact: Value) -> None:
    assert reached(fact, 0).end(1).verdict().present != []
    assert reached(fact, 1).call().ran(0).call(tools=0).end(1).verdict().present != []


@_REACHED
def test_no_limit_is_ever_proved_to_have_decided(fact: Value) -> None:
    verdict = reached(fact, 1).end(1).verdict()
    assert verdict.terminated_by is not None
    assert verdict.grade is not Grade.PROVED
