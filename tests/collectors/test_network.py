"""Network counters of a namespace."""

import os
from pathlib import Path

import pytest

from fairtrial.collectors.network import NetworkCounters

DATA = Path(__file__).parents[1] / "data" / "proc"


def process(folder: Path, pid: int, namespace: Path) -> None:
    (folder / str(pid) / "net").mkdir(parents=True)
    (folder / str(pid) / "ns").mkdir()
    (folder / str(pid) / "ns" / "net").symlink_to(namespace)
    (folder / str(pid) / "net" / "dev").write_bytes((DATA / "net_dev.txt").read_bytes())
    (folder / str(pid) / "net" / "snmp").write_bytes((DATA / "net_snmp.txt").read_bytes())


def test_a_namespace_of_its_own_is_counted_and_a_dead_process_is_none(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a", tmp_path / "b"
    ours.touch()
    theirs.touch()
    process(tmp_path, 7, theirs)
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "net").symlink_to(ours)
    counters = NetworkCounters(tmp_path, 7)
    assert not counters.shared
    traffic = counters.traffic()
    assert traffic is not None
    assert traffic.received_bytes > 0
    assert counters.tcp() is not None
    (tmp_path / "7" / "net" / "dev").unlink()
    assert counters.traffic() is None
    counters.close()
    counters.close()
    assert counters.tcp() is None


def test_bytes_of_our_own_namespace_are_not_given() -> None:
    counters = NetworkCounters(Path("/proc"), os.getpid())
    assert counters.shared
    assert counters.traffic() is None
    assert counters.tcp() is not None
    counters.close()


def test_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        NetworkCounters(tmp_path, 4)
