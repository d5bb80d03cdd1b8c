"""What a machine lets us see is said as it is: rights, ceilings, ports, the clock."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fairtrial.middleware.doctor import machine
from tests.collectors.trees import Tree, v1_host, v1_lines, v2_host


def looked_at(tree: Tree, cgroup: str) -> machine.OwnCgroup:
    tree.process("self", cgroup)
    return machine.own_cgroup(tree.proc, tree.root)


def test_a_v1_cgroup_whose_files_cannot_be_written_is_seen_by_sampling(tmp_path: Path) -> None:
    found = looked_at(v1_host(tmp_path, "/job"), v1_lines("/job"))
    assert (found.version, found.kills is not None, found.doorbell) == ("hybrid", True, False)
    assert "kills seen 10 times a second" in machine.cgroup_finding(found).text


def test_a_v1_cgroup_that_takes_a_descriptor_tells_of_kills_at_once(tmp_path: Path) -> None:
    tree = v1_host(tmp_path, "/job")
    (tmp_path / "sys/fs/cgroup/memory/job/cgroup.event_control").touch()
    assert looked_at(tree, v1_lines("/job")).doorbell


def test_a_v2_cgroup_tells_of_kills_at_once(tmp_path: Path) -> None:
    found = looked_at(v2_host(tmp_path, "/job"), "0::/job\n")
    assert (found.version, found.doorbell) == ("v2", True)
    assert "kills told at once" in machine.cgroup_finding(found).text


def test_a_hierarchy_that_is_not_mounted_is_said_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir(parents=True)
    (tmp_path / "self" / "cgroup").write_text("0::/job\n")
    (tmp_path / "self" / "mountinfo").write_text("")
    finding = machine.cgroup_finding(machine.own_cgroup(tmp_path, tmp_path))
    assert (finding.state, "not mounted here" in finding.text) == ("no", True)


def test_a_missing_proc_is_a_finding(tmp_path: Path) -> None:
    assert "cannot be read" in machine.cgroup_finding(machine.own_cgroup(tmp_path / "none")).text


def test_a_port_of_serve_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(machine, "SERVE_PORTS", {port: "health"})
        door, serve = machine.ports()
    assert door.state == "ok"
    assert (serve.state, f"{port} (health) in use" in serve.text) == ("partial", True)


def test_the_clock_is_one_line_whatever_the_kernel_says() -> None:
    finding = machine.clock()
    assert finding.state in ("ok", "partial")
    assert "time server" in finding.text


def test_a_node_without_a_counter_of_kills_cannot_clear_the_memory(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("oom_kill 3\n")
    assert machine.host_kills(tmp_path / "vmstat").state == "ok"
    (tmp_path / "vmstat").write_text("nr_free_pages 3\n")
    assert machine.host_kills(tmp_path / "vmstat").state == "no"
