"""cgroup v2 files after the kernel's documentation."""

from pathlib import Path

import pytest

from fairtrial.collectors.parse.cgroup_v2 import (
    parse_cpu_stat,
    parse_io_written,
    parse_memory_events,
    parse_memory_stat,
)

DATA = Path(__file__).parents[2] / "data" / "cgroup" / "v2"


def test_oom_and_oom_kill_are_kept_apart() -> None:
    events = parse_memory_events((DATA / "memory.events").read_bytes())
    assert (events.max, events.oom, events.oom_kill, events.oom_group_kill) == (35, 1, 1, 0)


def test_a_kernel_without_group_kills_says_none() -> None:
    assert parse_memory_events(b"low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n").oom_group_kill is None


def test_a_file_without_oom_kill_is_refused() -> None:
    with pytest.raises(ValueError, match="oom_kill"):
        parse_memory_events(b"populated 1\n")


def test_file_memory_leaves_shared_memory_out_as_in_v1() -> None:
    parts = parse_memory_stat((DATA / "memory.stat").read_bytes())
    assert parts.shmem_bytes == 8388608
    assert parts.file_bytes == 11558912 - 8388608


def test_microseconds_become_nanoseconds() -> None:
    stat = parse_cpu_stat((DATA / "cpu.stat").read_bytes())
    assert stat.used_ns == 1834567000
    assert stat.throttling.throttled_ns == 1203456000


def test_cpu_without_a_controller_was_used_and_not_observed_as_throttled() -> None:
    stat = parse_cpu_stat(b"usage_usec 5\nuser_usec 3\nsystem_usec 2\n")
    assert stat.used_ns == 5000
    assert stat.throttling.throttled_ns is None


def test_written_bytes_are_summed_over_devices() -> None:
    assert parse_io_written((DATA / "io.stat").read_bytes()) == 314773504 + 4096
    assert parse_io_written(b"") is None


def test_slab_and_hits_of_the_high_limit_are_read_and_absent_ones_are_unknown() -> None:
    assert parse_memory_stat(b"anon 1\nfile 5\nshmem 2\nslab 7\n").slab_bytes == 7
    assert parse_memory_stat(b"anon 1\n").slab_bytes is None
    assert parse_memory_events(b"low 0\nhigh 12\nmax 3\noom 1\noom_kill 0\n").high == 12
    assert parse_memory_events(b"oom_kill 0\n").high is None
