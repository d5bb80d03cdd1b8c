"""The life of containers as an engine tells it: joins, losses of the stream, what ended what."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairtrial.collectors.docker_adapter import DockerUpstream
from fairtrial.collectors.docker_events import DockerEvents
from fairtrial.collectors.parse.docker import ContainerFacts
from fairtrial.middleware.core import presence
from fairtrial.middleware.core.commands import text_digest
from fairtrial.middleware.core.observations import (
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    ExecEnded,
    ExecStarted,
    GapSeen,
    OomKill,
)
from tests.collectors.fake_engine import FakeEngine
from tests.collectors.keep import Kept, eventually

A = "a" * 64
B = "b" * 64
MARK = ("FAIRTRIAL_TRIAL=t",)


class Watch:
    """Cgroups that say what the test wants."""

    def __init__(self) -> None:
        self.watched: list[str] = []
        self.rung: list[str] = []
        self.released: list[str] = []
        self.counted = 0
        self.named: list[int] = []
        self.unexplained: int | None = 0

    def watch(self, facts: ContainerFacts, seen: ContainerSeen) -> ContainerSeen:
        self.watched.append(facts.id)
        return seen

    def ring(self, container_id: str) -> None:
        self.rung.append(container_id)

    def settle(self, container_id: str) -> bool:
        return True

    def kills_counted(self, container_id: str) -> int:
        return self.counted

    def victims_named(self, container_id: str) -> list[int]:
        return self.named

    def release(self, container_id: str) -> None:
        self.released.append(container_id)

    def unexplained_kills(self) -> int | None:
        return self.unexplained


class Case:
    """A fake engine, the collector under test, and what it wrote."""

    def __init__(self, folder: Path, *, from_ns: int | None = None) -> None:
        self.engine = FakeEngine(folder / "e.sock")
        self.kept = Kept()
        self.watch = Watch()
        self.counts: list[int] = []
        self.started_ns = time.time_ns()
        self.events = DockerEvents(
            self.kept.source("collector.docker_events"),
            upstream=DockerUpstream(url=self.engine.url),
            trial_id="t",
            started_ns=self.started_ns,
            from_ns=self.started_ns if from_ns is None else from_ns,
            watch=self.watch,
            others_at_start=0,
            on_count=self.counts.append,
        )

    async def begin(self) -> None:
        self.events.start()
        await eventually(lambda: self.engine.listening and self.events.up)

    def gone(self) -> list[ContainerGone]:
        return self.kept.of(ContainerGone)

    def seen(self) -> list[ContainerSeen]:
        return self.kept.of(ContainerSeen)

    async def ours(self, container_id: str = A, *, pid: int = 77) -> None:
        """A container of ours that runs."""
        self.engine.add(container_id, pid=pid, env=MARK)
        self.engine.say(container_id, "create")
        self.engine.say(container_id, "start")
        await eventually(lambda: container_id in self.watch.watched)

    async def died(self, container_id: str, code: int, **state: object) -> ContainerGone:
        """It dies; gives how that was read."""
        inner = self.engine.containers[container_id]["State"]
        assert isinstance(inner, dict)
        inner.update({"Running": False, "Pid": 0, "ExitCode": code, **state})
        self.engine.say(container_id, "die", exitCode=str(code))
        await eventually(self.gone)
        return self.gone()[-1]


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    it = Case(tmp_path)
    await it.engine.start()
    yield it
    it.events.close()
    await it.engine.stop()


async def test_events_between_the_trials_start_and_the_subscription_are_replayed(case: Case) -> None:
    case.engine.add(A, pid=77, env=MARK)
    case.engine.say(A, "create")
    case.engine.say(A, "start")
    await case.begin()
    await eventually(lambda: case.watch.watched == [A])
    assert [v.action for v in case.kept.of(ContainerEvent)] == ["create", "start"]
    assert case.engine.since[0] <= case.started_ns / 1e9


async def test_a_running_container_without_events_is_found_by_the_list(case: Case) -> None:
    case.engine.add(A, pid=77, env=MARK)
    await case.begin()
    await eventually(lambda: case.watch.watched == [A])
    assert case.kept.of(ContainerSeen)[0].join == "env"
    assert case.counts == [1]


async def test_a_repeated_event_is_written_once(case: Case) -> None:
    await case.begin()
    await case.ours()
    event = case.engine.say(A, "pause")
    case.engine.repeat(event)
    case.engine.say(A, "unpause")
    await eventually(lambda: any(v.action == "unpause" for v in case.kept.of(ContainerEvent)))
    assert [v.action for v in case.kept.of(ContainerEvent)].count("pause") == 1


async def test_an_unmarked_container_is_joined_while_we_are_alone_and_the_coverage_says_so(case: Case) -> None:
    await case.begin()
    case.engine.add(A, pid=77)
    case.engine.say(A, "start")
    await eventually(lambda: case.watch.watched == [A])
    assert case.kept.of(ContainerSeen)[-1].join == "started_after"
    partial = [v.why for v in case.kept.of(CoverageChanged) if v.state == "on" and v.why is not None]
    assert len(partial) == 1
    assert partial[0].startswith("partial: containers without a mark")


async def test_with_another_trial_on_the_engine_an_unmarked_container_is_left_alone_and_that_is_said(
    case: Case,
) -> None:
    other = presence.announce(f"unix://{case.engine.path}", "other")
    assert other is not None
    await case.begin()
    case.engine.add(A, pid=77)
    case.engine.say(A, "start")
    await eventually(lambda: any("not joined" in (v.why or "") for v in case.kept.of(CoverageChanged)))
    assert case.watch.watched == []
    assert case.kept.of(ContainerEvent) == []
    other.close()


async def test_what_passed_our_door_is_ours_whoever_else_is_there_and_is_claimed(case: Case) -> None:
    """Its events may come before the door's word, and after it."""
    other = presence.announce(f"unix://{case.engine.path}", "other")
    assert other is not None
    await case.begin()
    case.events.created_here(A)
    assert presence.is_claimed(case.engine.url, A)
    for container_id in (A, B):
        case.engine.add(container_id, pid=77)
        case.engine.say(container_id, "create")
        case.engine.say(container_id, "start")
    await eventually(lambda: any("not joined" in (v.why or "") for v in case.kept.of(CoverageChanged)))
    assert case.watch.watched == [A]
    case.events.created_here(B)
    case.engine.say(B, "start")
    await eventually(lambda: case.watch.watched == [A, B])
    assert [seen.join for seen in case.kept.of(ContainerSeen)] == ["door", "door"]
    other.close()


async def test_what_passed_another_trials_door_is_theirs_and_costs_no_coverage(case: Case) -> None:
    other = presence.announce(f"unix://{case.engine.path}", "other")
    theirs = presence.claim(f"unix://{case.engine.path}", A)
    assert other is not None
    assert theirs is not None
    await case.begin()
    case.engine.add(A, pid=77)
    case.engine.say(A, "start")
    await case.ours(B)
    assert case.watch.watched == [B]
    assert not any(v.containers_missed for v in case.kept.of(CoverageChanged))
    theirs.close()
    other.close()


async def test_a_cut_stream_that_is_replayed_whole_is_lost_and_back_without_a_gap(case: Case) -> None:
    await case.begin()
    await case.ours()
    case.engine.cut()
    await eventually(lambda: any(v.state == "lost" for v in case.kept.of(CoverageChanged)))
    case.engine.say(A, "pause")
    await eventually(lambda: any(v.action == "pause" for v in case.kept.of(ContainerEvent)))
    await eventually(case.events.settled)
    assert [v.state for v in case.kept.of(CoverageChanged)][-1] == "on"
    assert case.kept.of(GapSeen) == []


async def test_a_daemon_that_forgot_its_events_is_a_gap_and_its_containers_are_compared_with_the_list(
    case: Case,
) -> None:
    await case.begin()
    await case.ours()
    case.engine.buffer.clear()
    inner = case.engine.containers[A]["State"]
    assert isinstance(inner, dict)
    inner.update({"Running": False, "Pid": 0, "ExitCode": 3})
    case.engine.add(B, pid=78, env=MARK)
    case.engine.cut()
    await eventually(lambda: case.kept.of(GapSeen))
    (gap,) = case.kept.of(GapSeen)
    assert gap.since_ns is not None
    assert gap.until_ns is not None
    assert gap.until_ns > gap.since_ns
    await eventually(lambda: case.gone() and B in case.watch.watched)
    assert (case.gone()[0].container_id, case.gone()[0].exit_code) == (A, 3)


async def test_an_engine_that_comes_up_late_is_watched_from_then_on(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.events.start()
    await eventually(lambda: any(v.state == "off" for v in case.kept.of(CoverageChanged)))
    await case.engine.start()
    await eventually(lambda: any(v.state == "on" for v in case.kept.of(CoverageChanged)))
    case.events.close()
    await case.engine.stop()


async def test_an_exec_is_written_with_its_pid_and_the_digest_of_its_text(case: Case) -> None:
    await case.begin()
    await case.ours()
    process = {"entrypoint": "bash", "arguments": ["-lc", "make -c test"]}
    case.engine.execs["e"] = {"ID": "e", "Running": True, "Pid": 0, "ProcessConfig": process}
    case.engine.say(A, "exec_create: bash -lc make -c test", execID="e")
    case.engine.say(A, "exec_start: bash -lc make -c test", execID="e")
    # The engine starts the process after it said so.
    await eventually(lambda: "/v1.41/exec/e/json" in case.engine.asked)
    case.engine.execs["e"]["Pid"] = 4711
    await eventually(lambda: case.kept.of(ExecStarted))
    (started,) = case.kept.of(ExecStarted)
    assert (started.pid, started.text_digest, started.plumbing) == (4711, text_digest("make -c test"), False)
    assert case.events.live_execs(A) == ["e"]
    case.engine.say(A, "exec_die", execID="e", exitCode="2")
    await eventually(lambda: case.kept.of(ExecEnded))
    assert case.kept.of(ExecEnded)[0].exit_code == 2
    assert case.events.live_execs(A) == []
    assert [x.exec_id for x in case.events.recent_execs(A)] == ["e"]


async def test_an_exec_that_was_over_before_it_could_be_asked_for_is_written_in_order(case: Case) -> None:
    await case.begin()
    await case.ours()
    case.engine.say(A, "exec_create: sh -c ls", execID="e")
    case.engine.say(A, "exec_start: sh -c ls", execID="e")
    case.engine.say(A, "exec_die", execID="e", exitCode="0")
    await eventually(lambda: case.kept.of(ExecEnded))
    kinds = [o.kind for o in case.kept.all if o.kind.startswith("exec.")]
    assert kinds == ["exec.started", "exec.ended"]
    assert case.kept.of(ExecStarted)[0].text_digest == text_digest("ls")


async def test_an_exec_whose_container_died_without_telling_its_end_has_no_exit_code(case: Case) -> None:
    await case.begin()
    await case.ours()
    case.engine.say(A, "exec_start: sh -c x", execID="e")
    await eventually(lambda: case.kept.of(ExecStarted))
    await case.died(A, 0)
    assert [v.exit_code for v in case.kept.of(ExecEnded)] == [None]


@pytest.mark.parametrize(
    "before, code, state, reading",
    [
        ([], 0, {}, "exit"),
        ([], 1, {}, "exit"),
        ([], 137, {}, "unknown"),
        ([], 143, {}, "unknown"),
        ([("oom", "")], 137, {"OOMKilled": True}, "oom"),
        ([("oom", "")], 0, {"OOMKilled": True}, "exit"),
        ([("kill", "15")], 143, {}, "runtime_kill:15"),
        ([("kill", "15")], 0, {}, "runtime_kill:15"),
        ([("kill", "15"), ("kill", "9")], 137, {}, "runtime_kill:9"),
        ([("oom", ""), ("kill", "9")], 137, {"OOMKilled": True}, "runtime_kill:9"),
        ([("kill", "10")], 0, {}, "exit"),
        ([("kill", "1")], 129, {}, "runtime_kill:1"),
    ],
)
async def test_what_ended_a_container_is_read_from_the_order_of_its_events(
    case: Case, before: list[tuple[str, str]], code: int, state: dict[str, object], reading: str
) -> None:
    await case.begin()
    await case.ours()
    for action, signal in before:
        case.engine.say(A, action, **({"signal": signal} if signal else {}))
    gone = await case.died(A, code, **state)
    assert (gone.exit_code, gone.ended_by) == (code, reading)
    assert case.watch.released == [A]


async def test_the_kernels_word_on_the_first_process_settles_it(case: Case) -> None:
    await case.begin()
    await case.ours(pid=77)
    case.watch.named, case.watch.counted = [77], 1
    assert (await case.died(A, 137)).ended_by == "oom"


async def test_a_storm_of_oom_events_rings_each_time_and_is_written_a_few_times(case: Case) -> None:
    await case.begin()
    await case.ours()
    for _ in range(40):
        case.engine.say(A, "oom")
    await eventually(lambda: len(case.watch.rung) == 40)
    assert 1 <= len([v for v in case.kept.of(ContainerEvent) if v.action == "oom"]) < 10


async def test_a_kill_whose_counter_went_with_the_cgroup_is_written_from_the_kernel_log(case: Case) -> None:
    await case.begin()
    await case.ours(pid=77)
    case.watch.named = [77]
    await case.died(A, 137)
    (kill,) = case.kept.of(OomKill)
    assert (kill.delta, kill.source_file, kill.total) == (1, "kernel log", None)


async def test_without_a_word_of_the_kernel_the_oom_event_needs_an_unexplained_kill_of_the_node(case: Case) -> None:
    await case.begin()
    await case.ours()
    case.engine.say(A, "oom")
    await case.died(A, 137)
    assert case.kept.of(OomKill) == []
    case.watch.unexplained = 1
    await case.ours(B)
    case.engine.say(B, "oom")
    await eventually(lambda: case.watch.rung == [A, B])
    await case.died(B, 137)
    await eventually(lambda: case.kept.of(OomKill))
    (kill,) = case.kept.of(OomKill)
    assert (kill.container_id, kill.source_file) == (B, "docker oom event and /proc/vmstat")


async def test_a_second_life_of_a_container_is_watched_and_read_anew(case: Case) -> None:
    await case.begin()
    await case.ours(pid=77)
    case.engine.say(A, "kill", signal="9")
    assert (await case.died(A, 137)).ended_by == "runtime_kill:9"
    inner = case.engine.containers[A]["State"]
    assert isinstance(inner, dict)
    inner.update({"Running": True, "Pid": 88})
    case.engine.say(A, "start")
    await eventually(lambda: case.watch.watched == [A, A])
    await case.died(A, 5)
    await eventually(lambda: len(case.gone()) == 2)
    assert case.gone()[1].ended_by == "exit"


async def test_an_observer_that_took_over_does_not_write_twice_what_the_former_wrote(tmp_path: Path) -> None:
    case = Case(tmp_path, from_ns=time.time_ns() + 60_000_000_000)
    await case.engine.start()
    case.engine.add(A, pid=77, env=MARK)
    case.engine.say(A, "create")
    case.engine.say(A, "start")
    await case.begin()
    await eventually(lambda: case.watch.watched == [A])
    await eventually(case.events.settled)
    assert case.kept.of(ContainerEvent) == []
    case.events.close()
    await case.engine.stop()


async def test_other_types_of_events_and_junk_are_skipped(case: Case) -> None:
    await case.begin()
    case.engine.repeat({"Type": "network", "Action": "connect", "Actor": {"ID": "n"}})
    case.engine.repeat({"what": 1})
    await case.ours()
    assert {o.kind for o in case.kept.all} == {"runtime.state", "coverage", "container.seen", "container.event"}
