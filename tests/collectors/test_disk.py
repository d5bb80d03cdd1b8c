"""Room on the file systems of a process: this very one, its mounts, and bad paths."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fairtrial.collectors.disk import DiskProbe
from fairtrial.middleware.core.observations import DiskFull, Subject
from tests.collectors.keep import Kept


def process(folder: Path, *mounts: str) -> Path:
    """A /proc with one process whose root is a folder; `mounts` are lines of its mountinfo."""
    proc = folder / "proc"
    (proc / "7").mkdir(parents=True)
    (folder / "root").mkdir()
    (proc / "7" / "mountinfo").write_text("\n".join(mounts) + "\n")
    (proc / "7" / "root").symlink_to(folder / "root")
    return proc


def line(point: str, fs_type: str, options: str = "rw", *, mount: str = "rw") -> str:
    return f"30 23 0:30 / {point} {mount} - {fs_type} none {options}"


def probe(proc: Path, kept: Kept, *pids: int) -> DiskProbe:
    return DiskProbe(kept.source("collector.cgroup"), Subject(), "c", proc=proc, pid=7, pids=lambda: pids)


def without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every file system of the test is full."""
    room = os.statvfs_result((1024, 1024, 86_487, 0, 0, 24_576, 24_166, 24_166, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda _: room)


def test_a_file_system_with_room_is_not_told(tmp_path: Path) -> None:
    kept = Kept()
    it = probe(process(tmp_path, line("/", "overlay"), line("/proc", "proc")), kept)
    it.look()
    it.look("call_started")
    assert kept.all == []
    it.close()
    it.close()
    it.look()


def test_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DiskProbe(Kept().source("x"), Subject(), "c", proc=tmp_path, pid=9)


def test_a_mount_point_that_became_a_link_leads_nowhere(tmp_path: Path) -> None:
    """The agent's own folders are not followed out of its root."""
    kept = Kept()
    proc = process(tmp_path, line("/data", "tmpfs"))
    (tmp_path / "root" / "data").symlink_to("/dev")
    it = probe(proc, kept)
    it.look()
    assert kept.of(DiskFull) == []
    it.close()


@pytest.mark.parametrize(
    "fs_type, free, told", [("overlay", 1 << 20, True), ("overlay", 4 << 20, False), ("tmpfs", 1 << 20, False)]
)
def test_a_disk_that_still_tells_of_a_folio_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fs_type: str, free: int, told: bool
) -> None:
    """As ext4 of 96 MiB stands when a write of 1 MiB was refused: 86 487 blocks of 1 KiB."""
    kept = Kept()
    it = probe(process(tmp_path, line("/", fs_type)), kept)
    it.look()
    room = os.statvfs_result((1024, 1024, 86_487, free >> 10, free >> 10, 24_576, 24_166, 24_166, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda _: room)
    it.look("call_started")
    assert [full.free for full in kept.of(DiskFull)] == ([free] if told else [])
    it.close()


@pytest.mark.parametrize("read_only", [{"mount": "ro,relatime"}, {"options": "ro,errors=continue"}])
def test_what_cannot_be_written_to_is_full_as_it_is_meant_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: dict[str, str]
) -> None:
    """A data set on a file system of just its size."""
    kept = Kept()
    it = probe(process(tmp_path, line("/", "overlay"), line("/set", "ext4", **read_only)), kept)
    (tmp_path / "root" / "set").mkdir()
    without_room(monkeypatch)
    it.look()
    assert [full.mount for full in kept.of(DiskFull)] == ["/"]
    it.close()


def layered(folder: Path, *more: str) -> Path:
    """A container with an empty layer of its own."""
    upper = folder / "upper"
    upper.mkdir()
    return process(folder, line("/", "overlay", f"rw,upperdir={upper}"), *more)


def test_a_file_without_a_name_that_the_container_still_has_open_is_the_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python's TemporaryFile is, or `exec 3>f; rm f`."""
    kept = Kept()
    proc = layered(tmp_path)
    (proc / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    it = probe(proc, kept, os.getpid())
    with (tmp_path / "f").open("wb", buffering=0) as file:
        (tmp_path / "f").unlink()
        file.write(bytes(3 << 20))
        os.fsync(file.fileno())
        without_room(monkeypatch)
        it.look()
    (told,) = kept.of(DiskFull)
    assert (told.layer_bytes or 0) >= 3 << 20
    it.close()


@pytest.mark.parametrize("kind, told", [("folder", True), ("large file", True), ("small file", False), ("none", False)])
def test_other_ways_to_the_same_file_system_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, told: bool
) -> None:
    kept = Kept()
    it = probe(layered(tmp_path, *([] if kind == "none" else [line("/work", "ext4")])), kept)
    work = tmp_path / "root" / "work"
    if kind == "folder":
        work.mkdir()
    elif kind != "none":
        work.write_bytes(bytes(2 << 20 if kind == "large file" else 4096))
    without_room(monkeypatch)
    it.look()
    assert next(full for full in kept.of(DiskFull) if full.mount == "/").other_ways is told
    it.close()


@pytest.mark.root
def test_what_a_container_fills_is_told_once_and_again_after_there_was_room(tmp_path: Path) -> None:
    """/proc of this very process, whose mounts the test adds to."""
    folder = tmp_path / "t"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    kept = Kept()
    try:
        proc = process(tmp_path / "p", line("/", "tmpfs"))
        (proc / "7" / "root").unlink()
        (proc / "7" / "root").symlink_to(folder)
        it = probe(proc, kept)
        it.look()
        (folder / "f").write_bytes(bytes(256 << 10))
        it.look("call_started")
        it.look()
        (told,) = kept.of(DiskFull)
        assert (told.mount, told.free, told.at_start, told.edge) == ("/", 0, False, "call_started")
        assert told.layer_bytes == told.size == 256 << 10
        (folder / "f").unlink()
        it.look()
        (folder / "f").write_bytes(bytes(256 << 10))
        it.look()
        assert len(kept.of(DiskFull)) == 2
        it.close()
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
