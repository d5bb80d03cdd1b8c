"""Real containers that die in every way of the OOM matrix, on a real engine.

Each container carries this test's trial id in its environment, because the engine may be shared with other work.
The trial "sees" what `Collectors` wrote; nothing is faked.
"""

from __future__ import annotations

import time

import pytest

from fairtrial.middleware.core.commands import text_digest
from fairtrial.middleware.core.observations import (
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    ExecStarted,
    HostCounters,
    OomKill,
)
from tests.collectors.keep import eventually
from tests.collectors.live import LIMIT, Bench

pytestmark = [pytest.mark.docker, pytest.mark.root]


async def test_an_exec_killed_in_a_living_container_is_counted_named_and_joined_to_its_exec(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    command = "tail /dev/zero"
    status, _ = await bench.docker("exec", cid, "sh", "-c", command)
    assert status == 137
    await eventually(lambda: bench.exec_codes(cid) and bench.victims(cid))
    assert bench.kills(cid) == 1
    (kill,) = [v for v in bench.kept.of(OomKill) if v.container_id == cid]
    assert kill.memory_limit == LIMIT
    assert kill.memory_peak == LIMIT
    assert kill.memory_anon is not None
    assert kill.memory_anon > LIMIT // 2
    (started,) = [v for v in bench.kept.of(ExecStarted) if v.container_id == cid]
    assert started.text_digest == text_digest(command)
    assert kill.live_execs == [started.exec_id]
    (victim,) = bench.victims(cid)
    assert victim.victim.comm == "tail"
    assert victim.constraint == "CONSTRAINT_MEMCG"
    assert (victim.exec_id, victim.exec_join) == (started.exec_id, "process_tree")
    assert bench.exec_codes(cid) == [137]
    assert not bench.is_gone(cid)
    assert any(r.edge == "change" and r.oom_kill == 1 and r.memory_peak == LIMIT for r in bench.readings(cid))
    assert bench.mutations[0].what == "memory.max_usage_in_bytes reset"
    assert len(bench.mutations) == 1


async def test_kills_that_a_shell_swallowed_are_all_counted_though_the_exec_ends_with_zero(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    status, _ = await bench.docker("exec", cid, "sh", "-c", "tail /dev/zero; tail /dev/zero; tail /dev/zero; exit 0")
    assert status == 0
    await eventually(lambda: bench.exec_codes(cid) and len(bench.victims(cid)) == 3)
    assert bench.kills(cid) == 3
    assert bench.exec_codes(cid) == [0]
    assert {v.exec_join for v in bench.victims(cid)} <= {"process_tree", "only_live_exec"}
    assert len({v.exec_id for v in bench.victims(cid)}) == 1


async def test_a_main_process_that_is_killed_for_memory_is_counted_before_its_cgroup_vanishes(bench: Bench) -> None:
    cid = await bench.create("sh", "-c", "sleep 0.3; exec tail /dev/zero")
    assert (await bench.docker("start", cid))[0] == 0
    await eventually(lambda: bench.is_gone(cid))
    assert bench.kills(cid) == 1
    gone = bench.gone(cid)
    assert (gone.exit_code, gone.ended_by, gone.oom_killed_flag) == (137, "oom", True)
    assert bench.victims(cid)[0].victim.role == "init"
    assert any(r.edge == "last" and r.oom_kill == 1 for r in bench.readings(cid))


async def test_a_main_shell_whose_child_was_killed_ends_by_exit_whatever_the_flag_says(bench: Bench) -> None:
    cid = await bench.create("sh", "-c", "tail /dev/zero; sleep 0.3; exit 0")
    await bench.docker("start", cid)
    await eventually(lambda: bench.is_gone(cid))
    assert bench.kills(cid) == 1
    gone = bench.gone(cid)
    assert (gone.exit_code, gone.ended_by, gone.oom_killed_flag) == (0, "exit", True)


async def test_a_filled_tmpfs_shows_as_shared_memory_at_the_kill(bench: Bench) -> None:
    cid = await bench.up("sleep", "300", options=("--tmpfs", "/t"))
    await bench.docker("exec", cid, "sh", "-c", "dd if=/dev/zero of=/t/fill bs=1M count=90; true")
    await eventually(lambda: bench.kills(cid) and bench.exec_codes(cid))
    kill = next(v for v in bench.kept.of(OomKill) if v.container_id == cid)
    assert kill.memory_shmem is not None
    assert kill.memory_shmem > LIMIT * 3 // 4
    seen = [v for v in bench.kept.of(ContainerSeen) if v.container_id == cid][-1]
    assert seen.tmpfs == ["/t="]
    assert (seen.memory_limit, seen.join, seen.oom_group) == (LIMIT, "env", False)


async def test_docker_stop_of_a_deaf_process_is_the_runtimes_kill_and_no_oom(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    await bench.docker("stop", "-t", "1", cid)
    await eventually(lambda: bench.is_gone(cid))
    assert (bench.gone(cid).exit_code, bench.gone(cid).ended_by) == (137, "runtime_kill:9")
    assert bench.kills(cid) == 0
    actions = [(v.action, v.signal) for v in bench.kept.of(ContainerEvent) if v.container_id == cid]
    assert actions.index(("kill", 15)) < actions.index(("kill", 9)) < actions.index(("die", None))


async def test_an_exit_code_137_of_its_own_has_no_author_outside(bench: Bench) -> None:
    cid = await bench.create("sh", "-c", "sleep 0.2; exit 137")
    await bench.docker("start", cid)
    await eventually(lambda: bench.is_gone(cid))
    assert (bench.gone(cid).exit_code, bench.gone(cid).ended_by) == (137, "unknown")
    assert bench.kills(cid) == 0


async def test_a_kill_from_inside_is_no_oom(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    status, _ = await bench.docker("exec", cid, "sh", "-c", "sh -c 'kill -9 $$'; kill -9 $$")
    assert status == 137
    await eventually(lambda: bench.exec_codes(cid))
    assert bench.exec_codes(cid) == [137]
    assert bench.kills(cid) == 0
    assert bench.victims(cid) == []
    assert not bench.is_gone(cid)


async def test_a_fork_refused_by_the_pids_limit_moves_a_counter_and_nothing_else(bench: Bench) -> None:
    cid = await bench.up("sleep", "300", options=("--pids-limit", "8"))
    await bench.docker("exec", cid, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2 & done; wait")
    await eventually(lambda: any((r.pids_max_hits or 0) > 0 and r.edge == "change" for r in bench.readings(cid)))
    assert bench.readings(cid)[-1].pids_limit == 8
    assert bench.kills(cid) == 0


async def test_a_throttled_container_shows_it_at_the_next_edge(bench: Bench) -> None:
    cid = await bench.up("sleep", "300", options=("--cpus", "0.1"))
    await bench.docker("exec", cid, "sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
    bench.collectors.edge("call_started")
    await eventually(lambda: any(r.edge == "call_started" for r in bench.readings(cid)))
    reading = next(r for r in bench.readings(cid) if r.edge == "call_started")
    assert reading.cpu_throttled is not None
    assert reading.cpu_throttled > 0
    assert reading.cpu_used is not None


async def test_bytes_out_of_a_container_are_counted_and_their_highest_rate(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    gateway = "$(ip route | sed -n 's/default via //p' | cut -d' ' -f1)"
    # Nobody listens there, so the connection fails; the pings are real bytes.
    await bench.docker("exec", cid, "sh", "-c", f"echo x | nc -w 1 {gateway} 9; ping -c 2 -s 20000 {gateway}; true")
    bench.collectors.edge("call_started")
    await eventually(lambda: any(r.edge == "call_started" for r in bench.readings(cid)))
    reading = next(r for r in bench.readings(cid) if r.edge == "call_started")
    assert reading.egress_bytes is not None
    assert reading.egress_bytes > 1000
    assert reading.tcp_attempt_fails == 1
    assert reading.egress_rate_max is not None
    assert reading.egress_rate_max > 0


async def test_a_container_that_lived_for_a_blink_is_told_with_its_end(bench: Bench) -> None:
    status, _ = await bench.docker(
        "run", "--rm", "-m", str(LIMIT), "-e", f"FAIRTRIAL_TRIAL={bench.trial}", "ft-busybox", "true"
    )
    assert status == 0
    await eventually(lambda: bench.kept.of(ContainerGone))
    (gone,) = bench.kept.of(ContainerGone)
    assert (gone.exit_code, gone.ended_by) == (0, "exit")
    assert bench.counts == [1]


async def test_finish_takes_the_last_readings_and_is_quick_when_nothing_is_open(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    began_s = time.monotonic()
    bench.collectors.edge("end")
    await bench.collectors.finish(3.0)
    assert time.monotonic() - began_s < 1.3
    assert [r.edge for r in bench.readings(cid)][-2:] == ["end", "last"]
    edges = [v.edge for v in bench.kept.of(HostCounters)]
    assert edges[0] == "baseline"
    assert edges[-2:] == ["end", "last"]
