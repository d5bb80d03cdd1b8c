"""The kernel log's reader."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fairtrial.collectors.kernel_log import KernelClock, KernelLog, VictimRecord
from fairtrial.middleware.core.observations import CoverageChanged, GapSeen
from tests.collectors.keep import Kept, eventually

VERDICT = (
    "6,{seq},{us},-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,"
    "oom_memcg=/docker/{c},task_memcg=/docker/{c},task=tail,pid={pid},uid=0\n"
)
KILLED = (
    "3,{seq},{us},-;Memory cgroup out of memory: Killed process {pid} (tail) total-vm:9kB, anon-rss:2kB, "
    "file-rss:1kB, shmem-rss:4kB, UID:0 pgtables:1kB oom_score_adj:0\n"
)


def now_us() -> int:
    return time.monotonic_ns() // 1000


def log(kept: Kept, victims: list[VictimRecord], path: Path = Path("/dev/kmsg")) -> KernelLog:
    return KernelLog(
        kept.source("collector.kernel_log"),
        path=path,
        started_mono_ns=time.monotonic_ns() - 1_000_000,
        on_victim=victims.append,
    )


def test_a_victim_is_paired_with_its_verdict() -> None:
    victims: list[VictimRecord] = []
    it = log(Kept(), victims)
    us = now_us()
    it._take(VERDICT.format(seq=1, us=us, c="a", pid=9).encode(), time.monotonic_ns())
    it._take(KILLED.format(seq=2, us=us + 40, pid=9).encode(), time.monotonic_ns())
    (victim,) = victims
    assert victim.verdict is not None
    assert victim.verdict.task_memcg == "/docker/a"
    assert victim.killed.rss_bytes == 7 * 1024
    assert abs(victim.mono_ns - us * 1000) < 1_000_000
    assert abs(victim.wall_ns - time.time_ns()) < 1_000_000_000


def test_all_victims_of_a_group_kill_carry_the_verdict_and_a_later_stranger_does_not() -> None:
    victims: list[VictimRecord] = []
    it = log(Kept(), victims)
    us = now_us()
    it._take(VERDICT.format(seq=1, us=us, c="a", pid=9).encode(), time.monotonic_ns())
    it._take(KILLED.format(seq=2, us=us + 40, pid=9).encode(), time.monotonic_ns())
    group = f"6,3,{us + 50},-;Tasks in /docker/a are going to be killed due to memory.oom.group set\n"
    it._take(group.encode(), time.monotonic_ns())
    for seq, pid in enumerate((10, 11)):
        it._take(KILLED.format(seq=4 + seq, us=us + 60, pid=pid).encode(), time.monotonic_ns())
    it._take(KILLED.format(seq=9, us=us + 5_000_000, pid=77).encode(), time.monotonic_ns())
    assert [v.verdict is not None for v in victims] == [True, True, True, False]
    assert [v.named for v in victims] == [True, False, False, False]
    assert victims[1].verdict is not None
    assert victims[1].verdict.task_memcg == "/docker/a"


def test_a_kill_whose_verdict_the_kernel_left_out_is_not_given_that_of_the_kill_before() -> None:
    victims: list[VictimRecord] = []
    it = log(Kept(), victims)
    us = now_us()
    it._take(VERDICT.format(seq=1, us=us, c="a", pid=9).encode(), time.monotonic_ns())
    it._take(KILLED.format(seq=2, us=us + 40, pid=9).encode(), time.monotonic_ns())
    it._take(KILLED.format(seq=3, us=us + 90, pid=10).encode(), time.monotonic_ns())
    assert [v.verdict is not None for v in victims] == [True, False]


def test_a_record_from_before_the_trial_is_left_out() -> None:
    victims: list[VictimRecord] = []
    it = log(Kept(), victims)
    it._take(KILLED.format(seq=1, us=now_us() - 60_000_000, pid=9).encode(), time.monotonic_ns())
    assert victims == []


def test_a_process_that_writes_a_kill_into_the_log_is_not_believed() -> None:
    victims: list[VictimRecord] = []
    it = log(Kept(), victims)
    it._take(KILLED.format(seq=1, us=now_us(), pid=9).replace("3,", "12,", 1).encode(), time.monotonic_ns())
    assert victims == []


def test_junk_is_skipped() -> None:
    it = log(Kept(), [])
    it._take(b"\xff\xfe", time.monotonic_ns())


def test_an_overrun_is_a_gap_with_the_number_of_lost_records() -> None:
    kept = Kept()
    it = log(kept, [])
    it._take(f"6,100,{now_us()},-;hello\n".encode(), time.monotonic_ns())
    it._lost_since = it._seq
    it._take(f"6,141,{now_us()},-;hello\n".encode(), time.monotonic_ns())
    (gap,) = kept.of(GapSeen)
    assert gap.lost_records == 40


async def test_a_file_that_is_no_device_and_one_that_is_not_there_are_said(tmp_path: Path) -> None:
    kept = Kept()
    plain = tmp_path / "plain"
    plain.touch()
    for path in (plain, tmp_path / "missing"):
        it = log(kept, [], path)
        it.start()
        assert not it.on
        it.close()
    assert [v.state for v in kept.of(CoverageChanged)] == ["off", "off"]
    assert all(v.why for v in kept.of(CoverageChanged))


async def test_the_real_device_is_read_where_it_may_be() -> None:
    kept = Kept()
    it = log(kept, [])
    it.start()
    readable = os.access("/dev/kmsg", os.R_OK)
    assert it.on is readable
    if readable:
        await eventually(lambda: it._live)
    it.close()
    it.close()
    assert not it.on


def test_the_printk_clock_is_corrected_when_it_is_off_and_left_when_only_reading_was_late() -> None:
    clock = KernelClock()
    assert clock.to_monotonic(1000) == (1000, 0.05)
    clock.note_live(1_000_000_000, 1_003_000_000)
    assert clock.to_monotonic(5_000_000_000) == (5_000_000_000, 0.003)
    ahead = KernelClock()
    ahead.note_live(1_000_000_000, 700_000_000)
    assert ahead.to_monotonic(2_000_000_000) == (1_700_000_000, 0.005)
    behind = KernelClock()
    behind.note_live(1_000_000_000, 3_000_000_000)
    assert behind.to_monotonic(2_000_000_000)[0] == 4_000_000_000
