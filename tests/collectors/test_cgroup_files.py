"""Files of one cgroup, v1 and v2, as trees on disk."""

from pathlib import Path

import pytest

from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.cgroup_paths import locate
from tests.collectors.trees import CONTAINER, v1_host, v1_lines, v2_host

PATH = f"/docker/{CONTAINER}"


def v1(folder: Path, *, may_reset: bool) -> tuple[CgroupFiles, Path]:
    tree = v1_host(folder, PATH)
    tree.process(7, v1_lines(PATH))
    files = CgroupFiles(locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER), may_reset=may_reset)
    return files, folder / "sys/fs/cgroup/memory" / PATH.lstrip("/")


def v2(folder: Path) -> tuple[CgroupFiles, Path]:
    tree = v2_host(folder, PATH)
    tree.process(7, f"0::{PATH}\n")
    files = CgroupFiles(locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER), may_reset=True)
    return files, folder / "sys/fs/cgroup" / PATH.lstrip("/")


def test_v1_counters_come_from_each_controller_and_pressure_from_the_unified_mount(tmp_path: Path) -> None:
    files, _ = v1(tmp_path, may_reset=False)
    counters = files.counters(take_peak=True)
    assert counters.oom_kill == 4
    assert counters.limit_bytes == 64 << 20
    assert counters.cpu_throttled_periods == 3
    assert counters.pids_limit == 16
    assert counters.psi_memory_s is not None
    assert counters.populated is True
    assert counters.disk_written_bytes is None  # no device was written yet: not observed, not zero
    assert files.quick().oom_kill == 4
    assert files.oom_group() is False
    files.close()


def test_the_v1_peak_is_never_set_back_where_that_is_not_allowed(tmp_path: Path) -> None:
    files, directory = v1(tmp_path, may_reset=False)
    before = (directory / "memory.max_usage_in_bytes").read_bytes()
    first = files.counters(take_peak=True)
    assert (directory / "memory.max_usage_in_bytes").read_bytes() == before
    assert not files.resets_shared_peak
    assert first.peak_kind == "at_most"
    (directory / "memory.max_usage_in_bytes").write_bytes(b"67108865\n")
    assert files.counters(take_peak=True).peak_kind == "rose_in_step"
    assert files.counters(take_peak=True).peak_kind == "at_most"
    files.close()


def test_the_v1_peak_of_our_container_is_exact_and_set_back_only_at_an_edge(tmp_path: Path) -> None:
    files, directory = v1(tmp_path, may_reset=True)
    peak = directory / "memory.max_usage_in_bytes"
    before = peak.read_bytes()
    looked = files.counters(take_peak=False)
    assert (looked.peak_bytes, looked.peak_kind) == (int(before), "exact")
    assert peak.read_bytes() == before
    assert files.counters(take_peak=True).peak_bytes == int(before)
    assert peak.read_bytes().startswith(b"0\n")
    files.close()


def test_v2_counters_come_from_one_directory(tmp_path: Path) -> None:
    files, directory = v2(tmp_path)
    counters = files.counters(take_peak=True)
    assert (counters.oom_kill, counters.oom, counters.limit_hits, counters.oom_group_kill) == (1, 1, 35, 0)
    assert counters.cpu_used_s == 1.834567
    assert counters.cpu_throttled_s == 1.203456
    assert counters.disk_written_bytes == 314773504 + 4096
    assert counters.swap_bytes == 0
    assert files.kill_counter == directory / "memory.events"
    assert files.local_oom() == 0
    assert files.oom_group() is True
    files.close()


def test_a_kernel_before_6_12_refuses_to_set_memory_peak_back_and_the_peak_is_at_most(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, PATH)
    tree.process(7, f"0::{PATH}\n")
    peak = tmp_path / "sys/fs/cgroup" / PATH.lstrip("/") / "memory.peak"
    peak.unlink()
    peak.symlink_to("/proc/sys/kernel/cap_last_cap")  # a number that not even root may write
    places = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    files = CgroupFiles(places, may_reset=True)
    counters = files.counters(take_peak=True)
    assert counters.peak_bytes == int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    assert counters.peak_kind == "at_most"
    files.close()


def test_a_missing_file_is_none_with_a_reason_and_never_zero(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, PATH)
    tree.process(7, f"0::{PATH}\n")
    directory = tmp_path / "sys/fs/cgroup" / PATH.lstrip("/")
    for name in ("memory.peak", "memory.swap.current", "memory.events", "io.stat"):
        (directory / name).unlink()
    files = CgroupFiles(locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER), may_reset=True)
    counters = files.counters(take_peak=True)
    assert (counters.peak_bytes, counters.swap_bytes, counters.oom_kill, counters.disk_written_bytes) == (
        None,
        None,
        None,
        None,
    )
    assert files.kill_counter is None
    assert "memory.events" in files.missing["kills"]
    files.close()


def test_the_limit_of_a_parent_counts(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, PATH)
    tree.process(7, f"0::{PATH}\n")
    top = tmp_path / "sys/fs/cgroup"
    (top / PATH.lstrip("/") / "memory.max").write_bytes(b"max\n")
    (top / "docker" / "memory.max").write_bytes(b"33554432\n")
    (top / "memory.max").write_bytes(b"1048576\n")  # the mount's own file is above nothing that is ours
    files = CgroupFiles(locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER), may_reset=False)
    assert files.own_limit() is None
    assert files.effective_limit() in (1048576, 33554432)
    assert files.counters(take_peak=True).limit_bytes == files.effective_limit()
    files.close()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    files, _ = v2(tmp_path)
    files.close()
    files.close()
    assert files.quick().usage_bytes is None


@pytest.mark.parametrize("content", [b"", b"many\n"])
def test_a_file_with_unreadable_content_is_not_a_number(tmp_path: Path, content: bytes) -> None:
    files, directory = v2(tmp_path)
    (directory / "memory.current").write_bytes(content)
    assert files.quick().usage_bytes is None
    files.close()
