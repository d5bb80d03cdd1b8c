"""Victims joined to containers and execs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fairtrial.collectors.kernel_log import VictimRecord
from fairtrial.collectors.parse.kmsg import KilledProcess, OomVerdict
from fairtrial.collectors.process_tree import TICKS_PER_S, ProcessTree
from fairtrial.collectors.victims import KnownExec, VictimJoiner
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import KernelOomKill
from tests.collectors.keep import Kept, eventually
from tests.collectors.trees import Tree


@dataclass
class Known:
    """What is known of containers, as the facade would say it."""

    execs: list[KnownExec] = field(default_factory=list)
    init: int | None = 100
    child: int | None = None
    directories: dict[Path, str] = field(default_factory=dict)
    judging: bool = False
    ours: tuple[str, ...] = ("/docker/c", "/own")

    def container_of(self, memcg: str | None) -> str | None:
        return {"/docker/c": "c", "/own": "own"}.get(memcg or "") if memcg in self.ours else None

    def container_in(self, directory: Path) -> str | None:
        return self.directories.get(directory)

    def container_of_pids(self, pids: list[int]) -> str | None:
        return "c" if self.init in pids or any(known.pid in pids for known in self.execs) else None

    def undecided(self) -> bool:
        return self.judging

    def init_pid_of(self, container_id: str) -> int | None:
        return self.init

    def execs_of(self, container_id: str) -> list[KnownExec]:
        return self.execs

    def child_pid(self) -> int | None:
        return self.child


def record(pid: int, memcg: str | None = "/docker/c") -> VictimRecord:
    killed = KilledProcess(pid=pid, comm="tail", anon_bytes=1, file_bytes=2, shmem_bytes=3, memcg_oom=True)
    verdict = (
        None
        if memcg is None
        else OomVerdict(constraint="CONSTRAINT_MEMCG", oom_memcg=memcg, task_memcg=memcg, comm="tail", pid=pid)
    )
    return VictimRecord(
        killed=killed, verdict=verdict, named=verdict is not None, wall_ns=10, mono_ns=20, uncertainty_s=0.001
    )


def known(name: str, pid: int | None, *, settled: bool = True) -> KnownExec:
    return KnownExec(exec_id=name, pid=pid, settled=settled)


class Case:
    """A joiner over a process tree on disk."""

    def __init__(self, folder: Path, context: Known) -> None:
        self.kept = Kept()
        files = Tree(folder)
        files.stat(100, "sleep", 90)
        for pid, comm, ppid in ((200, "sh", 91), (201, "make", 200), (202, "cc1", 201), (300, "bash", 92)):
            files.stat(pid, comm, ppid)
        files.stat(110, "child-of-init", 100)
        tree = ProcessTree(files.proc)
        (folder / "cgroup.procs").write_text("100 110 200 201 202 300")
        tree.scan(folder)
        self.joiner = VictimJoiner(self.kept.source("collector.kernel_log"), trial_id="t", tree=tree, context=context)

    def one(self) -> KernelOomKill:
        (value,) = self.kept.of(KernelOomKill)
        return value


def test_a_grandchild_of_an_exec_is_joined_by_the_process_tree(tmp_path: Path) -> None:
    case = Case(tmp_path, Known(execs=[known("e1", 200), known("e2", 300)]))
    case.joiner.take(record(202))
    value = case.one()
    assert (value.container_id, value.exec_id, value.exec_join) == ("c", "e1", "process_tree")
    assert value.victim.role == "tool"
    assert value.parents[:2] == ["make", "sh"]
    assert case.kept.all[0].wall_ns == 10


def test_a_victim_is_told_with_the_time_that_it_had_lived_when_the_kernel_killed_it(tmp_path: Path) -> None:
    """It started 1 s after boot (100 ticks); times in which the machine slept are part of it."""
    case = Case(tmp_path, Known())
    killed_ns = round((100 / TICKS_PER_S + 7.25) * 1e9) - clock.suspended_ns()
    case.joiner.take(replace(record(202), mono_ns=killed_ns))
    assert case.one().lived_s == pytest.approx(7.25, abs=0.02)


@pytest.mark.parametrize("pid", [999, 202])
def test_a_victim_that_nobody_saw_or_whose_pid_is_another_s_by_now_has_no_known_age(tmp_path: Path, pid: int) -> None:
    """`record` is of 20 ns after boot, before the process that has the pid."""
    case = Case(tmp_path, Known())
    case.joiner.take(replace(record(pid), mono_ns=20 - clock.suspended_ns()))
    assert case.one().lived_s is None


def test_the_first_process_of_the_container_is_its_init_and_no_execs(tmp_path: Path) -> None:
    case = Case(tmp_path, Known(execs=[known("e1", 200)]))
    case.joiner.take(record(100))
    assert (case.one().victim.role, case.one().exec_id) == ("init", None)


def test_a_child_of_the_first_process_is_not_given_to_the_exec_that_happens_to_run(tmp_path: Path) -> None:
    case = Case(tmp_path, Known(execs=[known("e1", 200)]))
    case.joiner.take(record(110))
    assert (case.one().victim.role, case.one().exec_id) == ("main", None)


def test_an_unknown_victim_goes_to_the_only_exec_and_to_none_of_several(tmp_path: Path) -> None:
    one = Case(tmp_path / "one", Known(execs=[known("e1", 200)]))
    one.joiner.take(record(999))
    assert (one.one().exec_id, one.one().exec_join) == ("e1", "only_live_exec")
    two = Case(tmp_path / "two", Known(execs=[known("e1", 200), known("e2", 300)]))
    two.joiner.take(record(999))
    assert (two.one().exec_id, two.one().exec_join) == (None, None)


def test_a_victim_elsewhere_on_the_node_is_written_without_a_container(tmp_path: Path) -> None:
    case = Case(tmp_path, Known())
    case.joiner.take(record(999, "/docker/other"))
    value = case.one()
    assert value.container_id is None
    assert value.task_memcg == "/docker/other"
    assert case.joiner.joined == {}
    assert case.joiner.seen == 1


def test_in_the_commands_own_cgroup_the_childs_processes_are_told_from_others(tmp_path: Path) -> None:
    case = Case(tmp_path, Known(child=200))
    case.joiner.take(record(202, "/own"))
    case.joiner.take(record(300, "/own"))
    case.joiner.take(record(200, "/own"))
    roles = [v.victim.role for v in case.kept.of(KernelOomKill)]
    assert roles == ["descendant", "outside", "command"]


def test_without_a_verdict_line_a_process_of_the_command_is_still_its_own(tmp_path: Path) -> None:
    case = Case(tmp_path, Known(child=200))
    case.joiner.take(record(202, None))
    assert case.one().container_id == "own"
    assert case.one().constraint is None


async def test_a_victim_waits_for_the_pid_of_its_exec_and_keeps_the_kernels_time(tmp_path: Path) -> None:
    context = Known(execs=[known("e1", None, settled=False)])
    case = Case(tmp_path, context)
    case.joiner.take(record(202))
    assert case.kept.all == []
    assert case.joiner.pending == 1
    context.execs = [known("e1", 200)]
    await eventually(lambda: case.kept.all)
    assert case.one().exec_join == "process_tree"
    assert case.kept.all[0].mono_ns == 20
    assert case.joiner.pending == 0


def test_a_victim_without_a_verdict_is_placed_by_the_cgroup_in_which_it_was_seen(tmp_path: Path) -> None:
    """The kernel leaves the verdict line out after ten kills in five seconds."""
    case = Case(tmp_path, Known(execs=[known("e1", 200)], directories={tmp_path: "c"}))
    case.joiner.take(record(202, None))
    assert (case.one().container_id, case.one().exec_id) == ("c", "e1")
    assert case.joiner.joined == {"c": [202]}


def test_a_victim_without_a_verdict_that_is_a_known_first_process_is_placed_by_it(tmp_path: Path) -> None:
    case = Case(tmp_path, Known())
    case.joiner.take(record(100, None))
    assert (case.one().container_id, case.one().victim.role) == ("c", "init")


async def test_a_victim_of_a_container_that_is_still_being_judged_waits_for_the_judgement(tmp_path: Path) -> None:
    context = Known(judging=True, ours=())
    case = Case(tmp_path, context)
    case.joiner.take(record(100))
    assert case.joiner.unplaced == 1
    context.judging, context.ours = False, ("/docker/c",)
    await eventually(lambda: case.kept.all)
    assert case.one().container_id == "c"
    assert case.joiner.elsewhere == 0


async def test_what_still_waits_at_the_end_is_written(tmp_path: Path) -> None:
    case = Case(tmp_path, Known(execs=[known("e1", None, settled=False), known("e2", None, settled=False)]))
    case.joiner.take(record(202))
    case.joiner.close()
    assert case.one().exec_id is None
    assert case.one().container_id == "c"


def test_a_victim_that_is_named_twice_at_once_is_one_and_a_reused_pid_is_another(tmp_path: Path) -> None:
    """A group kill names its first victim again among the members."""
    case = Case(tmp_path, Known())
    first, again, later = record(202), record(202), record(202)
    case.joiner.take(first)
    case.joiner.take(replace(again, mono_ns=first.mono_ns + 1_000_000))
    assert len(case.kept.of(KernelOomKill)) == 1
    assert case.joiner.seen == 2
    case.joiner.take(replace(later, mono_ns=first.mono_ns + 5_000_000_000))
    assert len(case.kept.of(KernelOomKill)) == 2
