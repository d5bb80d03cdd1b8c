"""A stream of events that was away: what ran, ended and began meanwhile, told by list and inspect."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import ContainerGone, ContainerSeen, ExecEnded, GapSeen, RuntimeState
from tests.collectors.fake_engine import rfc3339_ns
from tests.collectors.keep import eventually
from tests.collectors.test_docker_events import MARK, A, B, Case


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    it = Case(tmp_path)
    await it.engine.start()
    await it.begin()
    yield it
    it.events.close()
    await it.engine.stop()


async def away(case: Case) -> None:
    """The stream breaks; what the test does next happens before the return."""
    case.engine.cut()
    await eventually(lambda: not case.events.up)


async def back(case: Case) -> None:
    await eventually(lambda: case.events.up and not case.events.busy)


def state_of(case: Case, container_id: str = A) -> dict[str, object]:
    inner = case.engine.containers[container_id]["State"]
    assert isinstance(inner, dict)
    return inner


async def test_a_command_that_the_engine_knows_no_more_ended_with_an_unknown_code(case: Case) -> None:
    """As after a restart with --live-restore, where it is not known that the engine is another one."""
    await case.ours()
    case.engine.execs["e"] = {"ID": "e", "Running": True, "Pid": 9}
    case.engine.say(A, "exec_start: sh -c x", execID="e")
    await eventually(lambda: case.events.live_execs(A) == ["e"])
    await away(case)
    case.engine.execs.clear()
    await back(case)
    await eventually(lambda: case.kept.of(ExecEnded))
    assert [v.exit_code for v in case.kept.of(ExecEnded)] == [None]
    assert case.events.live_execs(A) == []


async def test_a_command_that_ended_meanwhile_has_its_code_by_inspect(case: Case) -> None:
    await case.ours()
    case.engine.execs["e"] = {"ID": "e", "Running": True, "Pid": 9}
    case.engine.say(A, "exec_start: sh -c x", execID="e")
    await eventually(lambda: case.events.live_execs(A) == ["e"])
    await away(case)
    case.engine.execs["e"] = {"ID": "e", "Running": False, "Pid": 9, "ExitCode": 7}
    await eventually(lambda: case.kept.of(ExecEnded))
    assert case.kept.of(ExecEnded)[0].exit_code == 7


async def test_another_first_process_is_another_life_and_the_one_before_ended_unseen(case: Case) -> None:
    await case.ours(pid=77)
    await away(case)
    case.engine.buffer.clear()
    state_of(case).update({"Pid": 88, "StartedAt": rfc3339_ns(time.time_ns())})
    await eventually(lambda: len(case.watch.watched) == 2)
    (gone,) = case.gone()
    assert (gone.container_id, gone.exit_code, gone.ended_by) == (A, None, "unknown")
    kinds = [
        o.kind
        for o in sorted(case.kept.all, key=lambda o: o.wall_ns)
        if o.kind in (ContainerGone.kind, ContainerSeen.kind)
    ]
    assert kinds[-2:] == [ContainerGone.kind, ContainerSeen.kind]


async def test_a_container_that_came_and_went_meanwhile_is_told_with_its_end_once(case: Case) -> None:
    await case.ours()
    await away(case)
    case.engine.add(B, env=MARK, running=False)
    state_of(case, B).update({"ExitCode": 5, "FinishedAt": rfc3339_ns(time.time_ns())})
    await eventually(case.gone)
    (gone,) = case.gone()
    assert (gone.container_id, gone.exit_code, gone.ended_by) == (B, 5, "exit")
    assert case.counts == [1, 2]
    case.engine.say(B, "die", exitCode="5")
    case.engine.say(B, "destroy")
    await back(case)
    assert len(case.gone()) == 1


async def test_an_end_told_late_does_not_end_the_life_after_it(case: Case) -> None:
    await case.ours(pid=77)
    died = case.engine.say(A, "pause")
    died["Action"], died["timeNano"] = "die", int(str(died["timeNano"])) - 10**9
    await away(case)
    state_of(case).update({"Pid": 88, "StartedAt": rfc3339_ns(time.time_ns())})
    await eventually(lambda: len(case.watch.watched) == 2)
    case.engine.repeat(died)
    await back(case)
    assert len(case.gone()) == 1


async def test_a_trial_that_ends_before_it_is_known_what_was_missed_has_a_hole(case: Case) -> None:
    await case.ours()
    await away(case)
    case.events.end_watch()
    case.events.end_watch()
    (hole,) = case.kept.of(GapSeen)
    assert hole.why == "the engine's events broke off and did not come back"


async def test_commands_of_an_engine_that_never_came_back_end_when_it_went(case: Case) -> None:
    await case.ours()
    case.engine.say(A, "exec_start: sh -c x", execID="e")
    await eventually(lambda: case.events.live_execs(A) == ["e"])
    await case.engine.stop()
    await eventually(lambda: not case.events.up)
    case.events.end_watch()
    assert [v.exit_code for v in case.kept.of(ExecEnded)] == [None]


async def test_each_loss_and_return_is_told(case: Case) -> None:
    await away(case)
    await back(case)
    told = [(v.state, v.restarted) for v in case.kept.of(RuntimeState)]
    assert told == [("up", None), ("lost", None), ("back", False)], "the fake lives in this very process"
    assert case.kept.of(RuntimeState)[0].api_version == "1.41"
    assert case.kept.of(GapSeen) == []


async def test_a_life_that_was_over_before_we_looked_is_told_with_its_end_and_not_charged_to_the_next(
    tmp_path: Path,
) -> None:
    """As with an observer that is slow to start: it was stopped and started again before it was asked for."""
    it = Case(tmp_path)
    await it.engine.start()
    it.engine.add(A, pid=77, env=MARK)
    it.engine.say(A, "create")
    it.engine.say(A, "start")
    it.engine.say(A, "kill", signal="9")
    it.engine.say(A, "die", exitCode="137")
    state_of(it).update({"Pid": 88, "StartedAt": rfc3339_ns(time.time_ns())})
    it.engine.say(A, "start")
    await it.begin()
    await eventually(it.gone)
    assert [(v.exit_code, v.ended_by) for v in it.gone()] == [(137, "runtime_kill:9")]
    assert it.watch.watched == [A]
    await it.died(A, 0)
    await eventually(lambda: len(it.gone()) == 2)
    assert [(v.exit_code, v.ended_by) for v in it.gone()] == [(137, "runtime_kill:9"), (0, "exit")]
    it.events.close()
    await it.engine.stop()
