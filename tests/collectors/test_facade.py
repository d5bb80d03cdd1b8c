"""All collectors of one trial, without an engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairtrial.collectors.docker_state import container_seen
from fairtrial.collectors.facade import Collectors, DockerUpstream
from fairtrial.collectors.parse.docker import ContainerFacts
from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerSeen,
    CoverageChanged,
    HostCounters,
    KernelOomKill,
    MutationSeen,
    OomKill,
)
from fairtrial.middleware.core.sink import this_host
from tests.collectors.hand_cgroups import memory_cgroup, v1_memory
from tests.collectors.keep import Kept, eventually
from tests.collectors.trees import CONTAINER, Tree, v1_host, v1_lines, v2_host

V2_PATH = f"/docker/{CONTAINER}"


def collectors(kept: Kept, *, docker: DockerUpstream | None = None, tree: Tree | None = None) -> Collectors:
    return Collectors(
        sink=kept.all.append,
        host=this_host(),
        trial_id="t",
        docker=docker,
        started_wall_ns=time.time_ns(),
        on_mutation=MUTATIONS.append,
        on_container_count=lambda _: None,
        proc=Path("/proc") if tree is None else tree.proc,
        root=Path("/") if tree is None else tree.root,
        kernel_log=Path("/dev/kmsg") if tree is None else tree.root / "kmsg",
    )


def watch(them: Collectors, container_id: str = CONTAINER, *, started_ns: int | None = None) -> ContainerSeen:
    """As the containers' life does it."""
    told = ContainerFacts(id=container_id, init_pid=7, started_ns=started_ns)
    return them.watch(told, container_seen(told, join="env"))


MUTATIONS: list[MutationSeen] = []


@pytest.fixture(autouse=True)
def _no_mutations() -> None:
    MUTATIONS.clear()


@pytest.fixture
async def on_v2(tmp_path: Path) -> AsyncIterator[tuple[Collectors, Kept, Path]]:
    """A v2 host as a tree: we live in /user.slice, a container beside us."""
    tree = v2_host(tmp_path, "/user.slice")
    v2_host_dir = tmp_path / "sys/fs/cgroup"
    (v2_host_dir / "docker").mkdir()
    for file in (v2_host_dir / "user.slice").iterdir():
        target = v2_host_dir / V2_PATH.lstrip("/")
        target.mkdir(exist_ok=True)
        (target / file.name).write_bytes(file.read_bytes())
    tree.process("self", "0::/user.slice\n")
    tree.process(7, f"0::{V2_PATH}\n")
    kept = Kept()
    them = collectors(kept, tree=tree)
    await them.start()
    yield them, kept, v2_host_dir / V2_PATH.lstrip("/")
    await them.close()


async def test_baselines_come_before_start_returns_and_every_source_says_whether_it_watches() -> None:
    kept = Kept()
    them = collectors(kept)
    await them.start()
    assert kept.of(HostCounters)[0].edge == "baseline"
    assert [r.edge for r in kept.of(CgroupReading)] == ["baseline"]
    assert {v.source for v in kept.of(CoverageChanged)} >= {
        "collector.vmstat",
        "collector.cgroup",
        "collector.network",
        "collector.kernel_log",
        "collector.docker_events",
    }
    docker = next(v for v in kept.of(CoverageChanged) if v.source == "collector.docker_events")
    assert (docker.state, docker.why) == ("off", "no Docker engine is in use")
    await them.close()
    await them.close()


async def test_the_commands_own_cgroup_is_watched_as_found_and_said_to_be_shared() -> None:
    kept = Kept()
    them = collectors(kept)
    await them.start()
    them.child_started(os.getpid())
    (own,) = kept.of(ContainerSeen)
    assert (own.container_id, own.role, own.join) == ("own", "own", "own")
    reading = kept.of(CgroupReading)[0]
    assert reading.memory_peak_kind == "shared"
    memory = next(v for v in kept.of(CoverageChanged) if v.source == "collector.cgroup" and v.families == ["memory"])
    assert memory.why is not None
    assert memory.why.startswith("partial: ")
    assert MUTATIONS == []
    await them.close()


async def test_an_edge_is_cheap_and_a_storm_of_edges_is_thinned_but_its_last_is_kept() -> None:
    kept = Kept()
    them = collectors(kept)
    await them.start()
    for _ in range(200):
        them.edge("call_started")
        them.edge("call_ended")
    written = len(kept.of(HostCounters))
    assert written < 40
    await eventually(lambda: len(kept.of(HostCounters)) > written)
    assert kept.of(HostCounters)[-1].edge == "call_ended"
    await them.close()


async def test_the_end_of_a_trial_without_containers_does_not_wait() -> None:
    kept = Kept()
    them = collectors(kept)
    await them.start()
    them.edge("end")
    began_s = time.monotonic()
    await them.finish(5.0)
    assert time.monotonic() - began_s < 0.5
    assert [r.edge for r in kept.of(CgroupReading)] == ["baseline", "end", "last"]
    await them.close()


async def test_a_broken_socket_is_said_once_and_nothing_is_raised(tmp_path: Path) -> None:
    kept = Kept()
    them = collectors(kept, docker=DockerUpstream(url=f"unix://{tmp_path}/nobody.sock"))
    await them.start()
    await eventually(lambda: any(v.source == "collector.docker_events" for v in kept.of(CoverageChanged)))
    await them.finish(1.0)
    await them.close()
    said = [v for v in kept.of(CoverageChanged) if v.source == "collector.docker_events"]
    assert [v.state for v in said] == ["off"]
    assert said[0].why is not None
    assert "nobody.sock: No such file or directory" in said[0].why


async def test_a_kill_under_v2_is_written_with_its_group_and_whose_limit_it_was(
    on_v2: tuple[Collectors, Kept, Path],
) -> None:
    them, kept, directory = on_v2
    seen = watch(them)
    assert (seen.cgroup, seen.cgroup_version, seen.oom_group) == (V2_PATH, "v2", True)
    # Born with us: the kill that its counter shows at the first reading happened in this trial.
    first = next(v for v in kept.of(OomKill) if v.container_id == CONTAINER)
    assert (first.delta, first.total) == (1, 1)
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 40\noom 1\noom_kill 5\noom_group_kill 1\n")
    await eventually(lambda: len([v for v in kept.of(OomKill) if v.container_id == CONTAINER]) == 2)
    second = [v for v in kept.of(OomKill) if v.container_id == CONTAINER][1]
    assert (second.delta, second.total, second.group_delta) == (4, 5, 1)
    assert second.parent_limit_hit is True  # its own memory.events.local did not move
    assert second.source_file == str(directory / "memory.events")


async def test_a_limit_of_its_own_that_was_hit_is_not_the_parents(on_v2: tuple[Collectors, Kept, Path]) -> None:
    them, kept, directory = on_v2
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n")
    watch(them)
    (directory / "memory.events.local").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n")
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n")
    await eventually(lambda: any(v.container_id == CONTAINER for v in kept.of(OomKill)))
    assert next(v for v in kept.of(OomKill) if v.container_id == CONTAINER).parent_limit_hit is False


async def test_a_pids_hit_is_written_and_samples_are_not(on_v2: tuple[Collectors, Kept, Path]) -> None:
    them, kept, directory = on_v2
    watch(them)
    before = len([r for r in kept.of(CgroupReading) if r.container_id == CONTAINER])
    (directory / "pids.events").write_text("max 9\n")
    await eventually(lambda: len([r for r in kept.of(CgroupReading) if r.container_id == CONTAINER]) > before)
    after = [r for r in kept.of(CgroupReading) if r.container_id == CONTAINER][before:]
    assert [(r.edge, r.pids_max_hits) for r in after] == [("change", 9)]
    (directory / "memory.current").write_text("60000000\n")
    ticks_from = time.monotonic()
    await eventually(lambda: time.monotonic() - ticks_from > 0.35)
    assert len([r for r in kept.of(CgroupReading) if r.container_id == CONTAINER]) == before + 1
    them.edge("call_started")
    await asyncio.sleep(0)
    last = [r for r in kept.of(CgroupReading) if r.container_id == CONTAINER][-1]
    assert last.memory_sampled_peak == 60000000


async def test_a_process_of_another_machine_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    tree = v1_host(tmp_path, "/user.slice")
    tree.process("self", v1_lines("/user.slice"))
    tree.process(7, v1_lines("/user.slice"))
    peak = tmp_path / "sys/fs/cgroup/memory/user.slice/memory.max_usage_in_bytes"
    before = peak.read_bytes()
    kept = Kept()
    them = collectors(kept, tree=tree)
    await them.start()
    watch(them)
    watch(them, "")
    them.edge("end")
    await them.close()
    off = [v for v in kept.of(CoverageChanged) if v.state == "off" and v.source == "collector.cgroup"]
    assert any("does not name the container" in (v.why or "") for v in off)
    assert any("too short" in (v.why or "") for v in off)
    assert peak.read_bytes() == before
    assert MUTATIONS == []


async def test_a_child_in_a_cgroup_of_its_own_is_watched_there(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, "/user.slice/agent.scope")
    tree.process("self", "0::/user.slice\n")
    tree.process(55, "0::/user.slice/agent.scope\n")
    kept = Kept()
    them = collectors(kept, tree=tree)
    await them.start()
    them.child_started(55)
    assert [v.cgroup for v in kept.of(ContainerSeen)] == ["/user.slice", "/user.slice/agent.scope"]
    await them.close()


async def test_a_command_that_is_moved_after_its_start_is_followed(tmp_path: Path) -> None:
    """A wrapper such as systemd-run or cgexec; on a busy machine the move comes after our first look."""
    tree = v2_host(tmp_path, "/user.slice/agent.scope")
    tree.process("self", "0::/user.slice\n")
    tree.process(55, "0::/user.slice\n")
    kept = Kept()
    them = collectors(kept, tree=tree)
    await them.start()
    them.child_started(55)
    assert [v.cgroup for v in kept.of(ContainerSeen)] == ["/user.slice"]
    tree.process(55, "0::/user.slice/agent.scope\n")
    them.edge("call_started")
    assert [v.cgroup for v in kept.of(ContainerSeen)] == ["/user.slice", "/user.slice/agent.scope"]
    them.edge("call_ended")
    assert len(kept.of(ContainerSeen)) == 2
    tree.process(55, "0::/user.slice\n")
    await eventually(lambda: len(kept.of(ContainerSeen)) == 3)
    await them.close()


async def test_a_command_that_ended_before_the_first_look_is_watched_where_the_run_process_saw_it(
    tmp_path: Path,
) -> None:
    tree = v2_host(tmp_path, "/user.slice/agent.scope")
    tree.process("self", "0::/user.slice\n")
    kept = Kept()
    them = collectors(kept, tree=tree)
    await them.start()
    them.child_seen_in("0::/user.slice/agent.scope\n")  # the feed may have lost the record of its start
    assert [v.cgroup for v in kept.of(ContainerSeen)] == ["/user.slice"]
    them.child_started(55)
    them.child_seen_in("0::/user.slice\n")
    them.child_seen_in("0::/user.slice/agent.scope\n")
    assert [v.cgroup for v in kept.of(ContainerSeen)] == ["/user.slice", "/user.slice/agent.scope"]
    them.child_seen_in("garbage")
    await them.close()


async def test_where_a_command_is_now_beats_where_it_was_seen(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, "/user.slice/agent.scope")
    tree.process("self", "0::/user.slice\n")
    tree.process(55, "0::/user.slice/agent.scope\n")
    kept = Kept()
    them = collectors(kept, tree=tree)
    await them.start()
    them.child_started(55)
    them.child_seen_in("0::/user.slice\n")
    tree.process(55, "0::/\n", exiting=True)  # so the kernel shows one that exits
    them.edge("call_ended")
    tree.gone(55)
    them.edge("end")
    assert [v.cgroup for v in kept.of(ContainerSeen)] == ["/user.slice", "/user.slice/agent.scope"]
    await them.close()


@pytest.mark.root
@pytest.mark.skipif(not v1_memory(), reason="no cgroup v1 memory hierarchy to add a cgroup to")
async def test_a_command_without_docker_that_is_killed_for_memory_is_counted_and_named_in_its_own_cgroup() -> None:
    kept = Kept()
    them = collectors(kept)
    await them.start()
    with memory_cgroup(32 << 20) as places:
        procs = places.places["memory"].path / "cgroup.procs"
        eat = "b = []\nwhile True: b.append(b'x' * (1 << 20))"
        script = f'echo $$ > {procs}; echo in; read go; {sys.executable} -c "{eat}"; exit 0'
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        them.child_started(process.pid)
        assert kept.of(ContainerSeen)[-1].memory_limit == 32 << 20
        await process.communicate(b"go\n")
        assert process.returncode == 0  # its shell swallowed the kill
        them.edge("end")
        await them.finish(1.0)
        assert [(v.container_id, v.delta) for v in kept.of(OomKill)] == [("own", 1)]
        if os.access("/dev/kmsg", os.R_OK):
            victims = [v for v in kept.of(KernelOomKill) if v.container_id == "own"]
            assert [v.victim.role for v in victims] == ["descendant"]
            assert "sh" in victims[0].parents
            assert victims[0].lived_s is not None
            assert 0 <= victims[0].lived_s < 60
        await them.close()
    assert MUTATIONS == []


async def test_kernel_content_that_nobody_understands_is_said_once_and_raises_nothing(
    on_v2: tuple[Collectors, Kept, Path],
) -> None:
    them, kept, directory = on_v2
    watch(them)
    (directory / "memory.events").write_text("oom_kill many\n")
    for _ in range(3):
        them.edge("call_started")
        await asyncio.sleep(0)
    lost = [v for v in kept.of(CoverageChanged) if v.state == "lost"]
    assert [v.container_id for v in lost] == [CONTAINER]


async def test_kills_of_a_container_that_is_older_than_this_observer_are_not_counted_again(
    on_v2: tuple[Collectors, Kept, Path],
) -> None:
    them, kept, directory = on_v2
    watch(them, started_ns=1)
    assert [v for v in kept.of(OomKill) if v.container_id == CONTAINER] == []
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
    await eventually(lambda: [v.delta for v in kept.of(OomKill) if v.container_id == CONTAINER] == [1])


async def test_a_missing_kernel_log_is_said(on_v2: tuple[Collectors, Kept, Path]) -> None:
    _, kept, _ = on_v2
    log = next(v for v in kept.of(CoverageChanged) if v.source == "collector.kernel_log")
    assert log.state == "off"
    assert log.why is not None
    assert "No such file" in log.why


async def test_a_process_last_seen_in_the_root_cgroup_is_not_the_commands_own(tmp_path: Path) -> None:
    """The root cgroup holds the whole node: where a victim was seen there, its cgroup's name decides."""
    tree = v2_host(tmp_path, "/")
    tree.process("self", "0::/\n")
    tree.process(os.getppid(), "0::/\n")
    them = collectors(Kept(), tree=tree)
    await them.start()
    assert them.container_in(tmp_path / "sys/fs/cgroup") is None
    assert them.container_of(f"/docker/{CONTAINER}") is None
    await them.close()


@pytest.mark.parametrize("containers", [3, 4])
async def test_with_the_containers_of_many_trials_a_call_is_no_reason_to_read_those_where_nothing_runs(
    on_v2: tuple[Collectors, Kept, Path], tmp_path: Path, containers: int
) -> None:
    """Own and three: one trial's, each read at each edge.  One more: whose edge it is nobody knows yet."""
    them, kept, place = on_v2
    for number in range(containers):
        container = f"{number:064x}"
        shutil.copytree(place, place.with_name(container))
        shutil.copytree(tmp_path / "proc" / "7", tmp_path / "proc" / f"{80 + number}")
        (tmp_path / "proc" / f"{80 + number}" / "cgroup").write_text(f"0::/docker/{container}\n")
        told = ContainerFacts(id=container, init_pid=80 + number)
        them.watch(told, container_seen(told, join="env"))
    them.edge("call_ended")
    few = containers == 3
    if few:
        await eventually(lambda: len([r for r in kept.of(CgroupReading) if r.edge == "call_ended"]) == 4)
    them.edge("end")
    readings = kept.of(CgroupReading)
    assert len([r for r in readings if r.edge == "call_ended"]) == (4 if few else 0)
    assert len([r for r in readings if r.edge == "end"]) == containers + 1, "the end is everybody's"
