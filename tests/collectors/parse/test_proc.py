"""Files of /proc."""

from pathlib import Path

import pytest

from fairtrial.collectors.parse.flat import find_flat
from fairtrial.collectors.parse.proc import (
    parse_busy_ticks,
    parse_cgroup,
    parse_load1,
    parse_mem_available,
    parse_mountinfo,
    parse_net_dev,
    parse_open_files_limit,
    parse_stat,
    parse_steal_ticks,
    parse_tables,
    parse_tcp,
)

DATA = Path(__file__).parents[2] / "data" / "proc"


def read(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_every_hierarchy_of_a_hybrid_host_is_listed() -> None:
    lines = parse_cgroup(read("cgroup.txt"))
    assert {x for line in lines for x in line.controllers} >= {"memory", "cpu", "cpuacct", "pids", "name=systemd"}
    unified = next(line for line in lines if line.hierarchy == 0)
    assert unified.controllers == ()
    assert unified.path.startswith("/docker/")


def test_a_path_with_colons_and_a_removed_cgroup_are_read() -> None:
    (line,) = parse_cgroup(b"4:memory:/a:b/c (deleted)\n")
    assert line.path == "/a:b/c"


def test_junk_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line"):
        parse_cgroup(b"hello\n")


def test_mounts_tell_controllers_and_roots() -> None:
    mounts = parse_mountinfo(read("mountinfo_hybrid.txt"))
    memory = next(m for m in mounts if m.fs_type == "cgroup" and "memory" in m.super_options)
    assert (memory.root, memory.mount_point) == ("/", "/sys/fs/cgroup/memory")
    assert any(m.fs_type == "cgroup2" for m in mounts)


def test_spaces_in_a_mount_point_are_unescaped() -> None:
    (mount,) = parse_mountinfo(b"1 2 0:3 /a\\040b /mnt/c\\134d rw shared:1 master:2 - cgroup2 none rw\n")
    assert (mount.root, mount.mount_point) == ("/a b", "/mnt/c\\d")


def test_a_process_may_call_itself_anything() -> None:
    line = parse_stat(b"42 (a) R 1 (b) S 7 " + b" ".join(b"%d" % i for i in range(5, 60)))
    assert (line.pid, line.comm, line.state, line.ppid) == (42, "a) R 1 (b", "S", 7)
    assert line.start_ticks == 22


def test_a_process_that_exits_is_told_from_one_that_runs() -> None:
    def line(state: str, flags: int) -> bytes:
        return f"7 (sh) {state} 1 7 7 0 -1 {flags} ".encode() + b" ".join(b"0" for _ in range(20))

    assert not parse_stat(line("S", 0x400100)).exiting
    assert parse_stat(line("R", 0x400104)).exiting  # its memory is being let go of
    assert parse_stat(line("Z", 0x40010C)).exiting


def test_a_recorded_process_has_its_parent_and_start() -> None:
    line = parse_stat(read("stat.txt"))
    assert (line.pid, line.comm, line.ppid, line.start_ticks) == (1492, "sleep", 1473, 185040)


def test_loopback_is_not_traffic() -> None:
    traffic = parse_net_dev(
        b"h1\nh2\n    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: 200 2 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n"
        b"  eth1:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n"
    )
    assert (traffic.received_bytes, traffic.sent_bytes) == (207, 58)
    assert parse_net_dev(read("net_dev.txt")).received_bytes > 0


def test_tcp_trouble_is_read_from_snmp() -> None:
    assert parse_tcp(read("net_snmp.txt")).retransmitted_segments == 0
    assert parse_tcp(b"Udp: A\nUdp: 1\n").failed_attempts is None


def test_netstat_has_the_same_shape() -> None:
    assert "TCPTimeouts" in parse_tables(read("net_netstat.txt"))["TcpExt"]


def test_the_nodes_counters_are_found() -> None:
    kills = find_flat(read("vmstat.txt"), b"oom_kill")
    assert kills is not None
    assert kills > 0
    available = parse_mem_available(read("meminfo.txt"))
    assert available is not None
    assert available > 1 << 30
    assert parse_steal_ticks(read("stat_host.txt")) is not None
    assert parse_load1(b"0.52 0.4 0.3 1/200 7\n") == 0.52


def test_work_of_all_cores_leaves_out_idle_waiting_and_stolen_time() -> None:
    assert parse_busy_ticks(b"cpu  100 10 30 5000 70 5 5 900 0 0\ncpu0 1 1 1\n") == 150
    assert parse_busy_ticks(b"cpu  100\n") is None
    assert parse_busy_ticks(b"intr 1 2 3 4 5 6 7 8\n") is None


@pytest.mark.parametrize("soft, limit", [("1024", 1024), ("unlimited", None)])
def test_the_soft_limit_of_open_files_is_read_and_unlimited_is_none(soft: str, limit: int | None) -> None:
    raw = f"Max processes 1 2 x\nMax open files            {soft}                 4096    files\n"
    assert parse_open_files_limit(raw.encode()) == limit
    assert parse_open_files_limit(b"") is None
