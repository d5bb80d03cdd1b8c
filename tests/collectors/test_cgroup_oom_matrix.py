"""The OOM matrix: what looks like a kill for memory and is none, and what is one and does not look like it.

Real containers with a limit of 64 MiB on a real engine; the rows that test_live_containers.py does not hold.  Exit
codes and the engine's own flag are claimed beside the counter, because they are what everybody else goes by.
**Source:** measured on cgroup v1; the guest of test_cgroup_v2.py holds what differs on v2.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

import pytest

from fairtrial.middleware.core.observations import ContainerSeen, DiskFull, FdLimit, PidsHit
from tests.collectors.keep import eventually
from tests.collectors.live import Bench

pytestmark = [pytest.mark.docker, pytest.mark.root]


@dataclass(frozen=True, slots=True, kw_only=True)
class InExec:
    """A command in a running container; `exit_code` is what the exec ends with, `kills` what the kernel counts."""

    name: str
    command: str
    exit_code: int
    kills: int


@pytest.mark.parametrize(
    "row",
    [
        InExec(name="hidden by a pipe", command="tail /dev/zero | cat", exit_code=0, kills=1),
        InExec(name="refused by ulimit", command="ulimit -v 20000; tail /dev/zero", exit_code=1, kills=0),
        InExec(name="refused and caught", command="ulimit -v 20000; tail /dev/zero; exit 0", exit_code=0, kills=0),
        InExec(name="an exit code of its own", command="exit 137", exit_code=137, kills=0),
    ],
    ids=lambda row: row.name,
)
async def test_in_an_exec_only_the_counter_tells_a_kill(bench: Bench, row: InExec) -> None:
    cid = await bench.up("sleep", "300")
    status, _ = await bench.docker("exec", cid, "sh", "-c", row.command)
    assert status == row.exit_code
    await eventually(lambda: bench.exec_codes(cid) and bench.kills(cid) >= row.kills)
    assert bench.exec_codes(cid) == [row.exit_code]
    if row.kills:
        await eventually(lambda: len(bench.victims(cid)) == row.kills)
    assert (bench.kills(cid), len(bench.victims(cid))) == (row.kills, row.kills)


async def test_the_page_cache_hits_the_limit_hundreds_of_times_and_is_no_kill(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    status, _ = await bench.docker(
        "exec", cid, "sh", "-c", "dd if=/dev/zero of=/f bs=1M count=150 && cat /f >/dev/null"
    )
    assert status == 0
    bench.collectors.edge("call_started")
    await eventually(lambda: any(r.edge == "call_started" for r in bench.readings(cid)))
    reading = next(r for r in bench.readings(cid) if r.edge == "call_started")
    assert (reading.memory_max_hits or 0) > 0
    assert (reading.oom_kill, bench.kills(cid)) == (0, 0)
    assert reading.memory_current is not None
    assert reading.memory_file is not None
    assert reading.memory_slab is not None
    # Usage stands at the limit, and almost all of it is files.
    assert reading.memory_file > reading.memory_current / 2


async def test_an_engine_told_not_to_kill_refuses_or_lets_wait_and_the_counter_of_kills_is_at_rest(
    bench: Bench,
) -> None:
    cid = await bench.up("sleep", "300", options=("--oom-kill-disable",))
    await bench.docker("exec", "-d", cid, "tail", "/dev/zero")

    def waiting() -> bool:
        bench.collectors.edge("call_started")
        refused = bench.exec_codes(cid) == [1] and any(r.memory_max_hits for r in bench.readings(cid))
        return refused or any(r.memory_under_oom for r in bench.readings(cid))

    await eventually(waiting)
    assert bench.kills(cid) == 0
    assert next(v for v in bench.kept.of(ContainerSeen) if v.container_id == cid).oom_kill_disabled is True
    assert bench.readings(cid)[0].memory_under_oom is False


async def test_with_an_init_a_killed_child_ends_the_container_as_if_it_had_been_killed_itself(bench: Bench) -> None:
    cid = await bench.create("sh", "-c", "exec tail /dev/zero", options=("--init",))
    status, text = await bench.docker("start", cid)
    if status:
        pytest.skip(f"the engine has no docker-init: {text.splitlines()[0][:80]}")
    await eventually(lambda: bench.is_gone(cid))
    gone = bench.gone(cid)
    assert (gone.exit_code, gone.oom_killed_flag, bench.kills(cid)) == (137, True, 1)
    assert bench.victims(cid)[0].victim.role == "main"


async def test_an_exec_that_takes_the_memory_ends_with_137_though_the_first_process_was_the_victim(
    bench: Bench,
) -> None:
    cid = await bench.up("dd", "if=/dev/zero", "of=/dev/null", "bs=40M")
    status, _ = await bench.docker("exec", cid, "sh", "-c", "echo 1000 > /proc/1/oom_score_adj; tail /dev/zero")
    assert status == 137
    await eventually(lambda: bench.is_gone(cid))
    assert bench.kills(cid) >= 1
    assert bench.gone(cid).ended_by == "oom"
    assert "init" in {v.victim.role for v in bench.victims(cid)}


async def test_a_stop_that_the_process_obeys_is_143_and_no_kill(bench: Bench) -> None:
    cid = await bench.up("sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.1; done")
    await bench.docker("stop", "-t", "10", cid)
    await eventually(lambda: bench.is_gone(cid))
    assert (bench.gone(cid).exit_code, bench.gone(cid).ended_by) == (143, "runtime_kill:15")
    assert bench.kills(cid) == 0


async def test_sigkill_to_the_first_process_from_the_host_has_no_author_and_is_no_oom(bench: Bench) -> None:
    cid = await bench.up("sleep", "300")
    await eventually(lambda: [v for v in bench.kept.of(ContainerSeen) if v.container_id == cid and v.init_pid])
    seen = next(v for v in bench.kept.of(ContainerSeen) if v.container_id == cid and v.init_pid)
    assert seen.init_pid is not None
    os.kill(seen.init_pid, signal.SIGKILL)
    await eventually(lambda: bench.is_gone(cid))
    gone = bench.gone(cid)
    assert (gone.exit_code, gone.ended_by, gone.oom_killed_flag, bench.kills(cid)) == (137, "unknown", False, 0)


async def test_a_kill_in_an_exec_marks_the_container_for_ever_although_it_ends_well(bench: Bench) -> None:
    cid = await bench.up("sh", "-c", "while [ ! -e /stop ]; do sleep 0.1; done")
    await bench.docker("exec", cid, "sh", "-c", "tail /dev/zero; true")
    await eventually(lambda: bench.kills(cid) == 1)
    await bench.docker("exec", cid, "touch", "/stop")
    await eventually(lambda: bench.is_gone(cid))
    gone = bench.gone(cid)
    assert (gone.exit_code, gone.ended_by, gone.oom_killed_flag, bench.kills(cid)) == (0, "exit", True, 1)


async def test_a_container_that_reads_more_than_it_may_hold_is_told_by_its_pressure_while_it_lasts(
    bench: Bench,
) -> None:
    cid = await bench.up("sleep", "300")
    if bench.readings(cid)[0].psi_memory is None:
        pytest.skip("no cgroup2 mount")
    await bench.docker("exec", cid, "dd", "if=/dev/zero", "of=/f", "bs=1M", "count=150")
    # Large blocks, so that what is read and the readers themselves push each other out, on a quick disk as well.
    reader = "while :; do dd if=/f of=/dev/null bs=8M 2>/dev/null; done"
    await bench.docker("exec", "-d", cid, "sh", "-c", " ".join([f"({reader}) &"] * 5) + " wait")
    await eventually(
        lambda: any(r.edge == "change" and (r.psi_memory or 0.0) >= 0.1 for r in bench.readings(cid)), within_s=60
    )
    assert bench.kills(cid) == 0


# --- limits that are not of memory ----------------------------------------------------------------------------------


async def test_at_a_refused_fork_the_tasks_are_counted_and_told_apart_by_age(bench: Bench) -> None:
    cid = await bench.up("sleep", "300", options=("--pids-limit", "8"))
    await asyncio.sleep(0.6)
    bench.collectors.edge("call_ended")
    await asyncio.sleep(0.6)
    await bench.docker("exec", cid, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 2 & done; wait")
    await eventually(lambda: bench.kept.of(PidsHit))
    hit = bench.kept.of(PidsHit)[0]
    assert (hit.container_id, hit.limit) == (cid, 8)
    assert hit.tasks is not None
    assert hit.since_first_reply is not None
    assert hit.since_last_reply is not None
    assert 1 <= hit.since_last_reply <= hit.since_first_reply < hit.tasks <= 8


async def test_a_full_tmpfs_and_a_full_dev_shm_are_told_with_whose_bytes_they_are(bench: Bench) -> None:
    cid = await bench.up("sleep", "300", options=("--tmpfs", "/t:size=1m", "--shm-size", "1m"))
    fill = "dd if=/dev/zero of=/t/f bs=64k; dd if=/dev/zero of=/dev/shm/f bs=64k; ln -s / /t2; true"
    await bench.docker("exec", cid, "sh", "-c", fill)
    bench.collectors.edge("call_started")
    await eventually(lambda: len(bench.kept.of(DiskFull)) == 2)
    told = {v.mount: v for v in bench.kept.of(DiskFull)}
    assert set(told) == {"/t", "/dev/shm"}
    assert (told["/t"].size, told["/t"].free, told["/t"].at_start) == (1 << 20, 0, False)
    assert (told["/t"].layer_bytes, told["/t"].used_at_start) == (1 << 20, 0)


async def test_a_process_at_its_limit_of_open_files_is_told_while_its_command_runs(bench: Bench) -> None:
    cid = await bench.up("sleep", "300", options=("--ulimit", "nofile=16:16"))
    # Ten files are open, 0 to 9, and then the limit is drawn below them: what a fuller table looks like from outside.
    fill = "i=3; while [ $i -lt 10 ]; do eval 'exec '$i'</dev/null'; i=$((i+1)); done; ulimit -n 9"
    await bench.docker("exec", cid, "sh", "-c", f"{fill}; sleep 3; exit 1")
    await eventually(lambda: bench.kept.of(FdLimit))
    told = bench.kept.of(FdLimit)[0]
    assert (told.container_id, told.since_first_reply) == (cid, None)
    assert (told.limit, told.open_files) == (9, 10)
