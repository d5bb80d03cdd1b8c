"""cgroup v1 files as read from a container of kernel 6.18."""

from pathlib import Path

import pytest

from fairtrial.collectors.parse.cgroup_v1 import (
    parse_blkio_written,
    parse_cpu_stat,
    parse_limit,
    parse_memory_stat,
    parse_oom_control,
)
from fairtrial.collectors.parse.psi import parse_pressure

DATA = Path(__file__).parents[2] / "data" / "cgroup" / "v1"


def read(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_the_largest_page_multiple_is_no_limit() -> None:
    assert parse_limit(read("unlimited")) is None
    assert parse_limit(read("memory.limit_in_bytes")) == 64 << 20


def test_kills_are_counted_by_oom_control() -> None:
    control = parse_oom_control(read("memory.oom_control"))
    assert control.oom_kill == 4
    assert not control.kill_disabled


def test_an_old_kernel_without_a_kill_counter_has_none_and_not_zero() -> None:
    assert parse_oom_control(b"oom_kill_disable 0\nunder_oom 0\n").oom_kill is None


def test_another_file_is_refused() -> None:
    with pytest.raises(ValueError, match="under_oom"):
        parse_oom_control(b"max 3\n")


def test_a_filled_tmpfs_shows_as_shared_memory_and_not_as_page_cache() -> None:
    parts = parse_memory_stat(read("memory.stat"))
    assert parts.shmem_bytes is not None
    assert parts.shmem_bytes > 50 << 20
    assert parts.file_bytes is not None
    assert 0 <= parts.file_bytes < 8 << 20
    assert parts.hierarchical_limit_bytes == 64 << 20


def test_throttled_time_is_nanoseconds() -> None:
    throttling = parse_cpu_stat(read("cpu.stat"))
    assert throttling.throttled_periods == 3
    assert throttling.throttled_ns == 122686699


def test_no_device_in_blkio_is_not_zero_bytes() -> None:
    assert parse_blkio_written(read("blkio.throttle.io_service_bytes_recursive")) is None
    assert parse_blkio_written(b"8:0 Read 10\n8:0 Write 20\n8:16 Write 5\nTotal 35\n") == 25


def test_pressure_is_there_on_a_hybrid_host() -> None:
    assert parse_pressure(read("memory.pressure")).some_us > 0
