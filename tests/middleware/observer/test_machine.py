"""Facts of the machine, and files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairtrial.middleware.observer.machine import cpu_model, start_ticks, write_whole


def test_our_own_start_is_known_and_a_dead_processs_is_not() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None and ticks > 0
    assert start_ticks(os.getpid(), Path("/nowhere")) is None


def test_the_processors_name_is_the_kernels(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A Thing @ 3 GHz\n")
    assert cpu_model(file) == "A Thing @ 3 GHz"
    assert cpu_model(tmp_path / "none") is None


def test_a_file_is_replaced_whole_and_a_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "record.json"
    target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_whole(link, b"new")
    assert target.read_bytes() == b"new" and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "record.json"]


def test_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "x", b"")
