"""What a container did in a step is the difference between the step's edges, or None."""

import pytest

from fairtrial.middleware.core.observations import ContainerSeen, HostCounters, KernelOomKill
from fairtrial.middleware.core.records import ContainerUse, Victim
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.window import ContainerFacts, victim_role
from tests.middleware.steps.story import BOX, TRIAL, Story


def uses(told: Story) -> list[list[ContainerUse]]:
    return [step.containers for step in assemble(told.end().observations, TRIAL).trial.steps]


def test_the_reading_at_a_calls_start_closes_one_step_and_opens_the_next() -> None:
    told = Story().begin().box()
    for turn in range(3):
        told.attempt(turns=turn, advance=False)
        told.s += 0.02
        told.read("call_started", cpu_used=10.0 * turn, egress_bytes=1000 * turn, pids_max_hits=turn)
        told.s += 2
    told.read("end", cpu_used=25.0, egress_bytes=2500, pids_max_hits=2)
    rows = [row[0] for row in uses(told)]
    assert [row.cpu_used for row in rows] == [10.0, 10.0, 5.0]
    assert [row.egress_bytes for row in rows] == [1000, 1000, 500]
    assert [row.pids_max_hits for row in rows] == [1, 1, 0]


def test_counters_that_could_not_be_read_stay_none() -> None:
    told = Story().begin().box()
    told.s += 1
    told.attempt(turns=0)
    told.read("end", cpu_used=None, oom_kill=None, disk_written=7)
    (row,) = uses(told)[0]
    assert (row.cpu_used, row.oom_kills, row.disk_written, row.psi_memory) == (None, None, None, None)


def test_a_counter_that_fell_counts_from_its_new_zero() -> None:
    told = Story().begin().box()
    told.s += 1
    told.read("change", cpu_used=100.0)
    told.attempt(turns=0)
    told.read("end", cpu_used=3.0)
    assert uses(told)[0][0].cpu_used == 3.0


def test_a_container_born_in_the_step_counts_from_zero() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.s += 1
    told.box()
    told.s += 1
    told.read("end", oom_kill=2, cpu_used=4.0)
    row = uses(told)[0][0]
    assert (row.oom_kills, row.cpu_used) == (2, 4.0)


@pytest.mark.parametrize(
    "readings, expected",
    [
        ([(50, "exact"), (40, "exact")], (50, "exact")),
        ([(50, "at_most"), (70, "at_most")], (70, "rose_in_step")),
        ([(50, "at_most"), (50, "at_most")], (50, "at_most")),
        ([(70, "shared")], (70, "shared")),
        ([(None, None)], (33, "sampled")),
    ],
)
def test_the_peak_says_how_it_is_known(
    readings: list[tuple[int | None, str | None]], expected: tuple[int, str]
) -> None:
    told = Story().begin().box()
    told.read("change", memory_peak=50, memory_peak_kind="at_most")
    told.s += 1
    told.attempt(turns=0)
    for peak, kind in readings:
        told.s += 1
        told.read("change", memory_peak=peak, memory_peak_kind=kind, memory_sampled_peak=33)
    row = uses(told)[0][0]
    assert (row.memory_peak, row.memory_peak_kind) == expected


@pytest.mark.parametrize("outer", [None, 8 << 30])
def test_the_peak_of_a_cgroup_that_the_command_left_is_not_told_beside_the_limit_of_another(outer: int | None) -> None:
    told = Story().begin()
    told.attempt(turns=0, advance=False)
    told.s += 0.1
    told.read("change", container="own", memory_peak=1 << 30, memory_peak_kind="at_most", memory_limit=outer)
    told.s += 1
    told.read("end", container="own", memory_peak=90 << 20, memory_peak_kind="at_most", memory_limit=96 << 20)
    (row,) = uses(told)[0]
    assert (row.memory_peak, row.memory_limit, row.memory_peak_kind) == (90 << 20, 96 << 20, "at_most")


def test_the_hosts_steal_is_shared_by_the_steps_containers() -> None:
    told = Story().begin().box()
    told.tell(HostCounters(steal_s=1.0))
    told.s += 1
    told.attempt(turns=0)
    told.tell(HostCounters(steal_s=1.5))
    assert uses(told)[0][0].steal == 0.5


def test_a_container_that_was_gone_has_no_row() -> None:
    told = Story().begin().box()
    told.attempt(turns=0)
    told.s += 1
    told.attempt(turns=1)
    told.s += 1
    told.box(container="d" * 64)
    assert [[row.id[0] for row in rows] for rows in uses(told)] == [["c"], ["c", "d"]]


@pytest.mark.parametrize(
    "kill, role",
    [
        (KernelOomKill(victim=Victim(comm="claude", pid=7), container_id=BOX), "agent CLI"),
        (KernelOomKill(victim=Victim(comm="tmux: server", pid=7), container_id=BOX), "tmux"),
        (KernelOomKill(victim=Victim(comm="sleep", pid=100), container_id=BOX), "main process"),
        (KernelOomKill(victim=Victim(comm="bash", pid=200), container_id=BOX, exec_id="e"), "exec shell"),
        (KernelOomKill(victim=Victim(comm="python3", pid=200), container_id=BOX, exec_id="e"), "tool child"),
        (KernelOomKill(victim=Victim(comm="cc1", pid=9), container_id=BOX, parents=["make", "sh"]), "tool child"),
        (KernelOomKill(victim=Victim(comm="redis", pid=9), container_id=BOX), None),
    ],
)
def test_a_victim_is_named_by_what_it_was(kill: KernelOomKill, role: str | None) -> None:
    box = ContainerFacts(BOX, seen=ContainerSeen(container_id=BOX, init_pid=100), exec_pids={"e": 200})
    assert victim_role(box, kill) == role
