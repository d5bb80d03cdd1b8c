"""OOM records of the kernel log."""

from pathlib import Path

import pytest

from fairtrial.collectors.parse.kmsg import parse_group, parse_killed, parse_oom_verdict, parse_record

DATA = Path(__file__).parents[2] / "data" / "kmsg" / "memcg_6.18.txt"
ID = "a410d4d030fb9039172e84427b950b5595ef71eea4ad316b33645dc35d946b8d"


def test_the_recorded_kill_names_victim_limit_and_cgroup() -> None:
    texts = [parse_record(line).text for line in DATA.read_bytes().splitlines()]
    (verdict,) = [x for x in map(parse_oom_verdict, texts) if x is not None]
    (killed,) = [x for x in map(parse_killed, texts) if x is not None]
    assert verdict.constraint == "CONSTRAINT_MEMCG"
    assert verdict.task_memcg == verdict.oom_memcg == f"/docker/{ID}"
    assert (verdict.comm, verdict.pid) == ("runc:[2:INIT]", 1612)
    assert (killed.comm, killed.pid, killed.memcg_oom) == ("runc:[2:INIT]", 1612, True)
    assert killed.rss_bytes == (2560 + 7836) * 1024


def test_a_kill_of_the_whole_node_has_no_cgroup_of_the_limit() -> None:
    verdict = parse_oom_verdict(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/user.slice,task=node,pid=77,uid=1000"
    )
    assert verdict is not None
    assert (verdict.constraint, verdict.oom_memcg, verdict.task_memcg) == ("CONSTRAINT_NONE", None, "/user.slice")
    killed = parse_killed("Out of memory: Killed process 77 (node) total-vm:1kB, anon-rss:2kB, file-rss:3kB")
    assert killed is not None
    assert not killed.memcg_oom
    assert killed.shmem_bytes is None


def test_a_process_name_with_commas_and_parentheses_does_not_fool_the_reader() -> None:
    verdict = parse_oom_verdict(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/docker/a,"
        "task_memcg=/docker/a,task=x,pid=1,uid=0,pid=9,uid=5"
    )
    assert verdict is not None
    assert (verdict.comm, verdict.pid) == ("x,pid=1,uid=0", 9)
    killed = parse_killed(
        "Memory cgroup out of memory: Killed process 9 (a) (b)) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB"
    )
    assert killed is not None
    assert killed.comm == "a) (b)"


def test_a_process_name_with_a_line_feed_hides_nothing() -> None:
    verdict = parse_oom_verdict(
        parse_record(
            b"6,7,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/docker/a,"
            b"task_memcg=/docker/a,task=a\\x0ab,pid=9,uid=5\n"
        ).text
    )
    assert verdict is not None
    assert (verdict.comm, verdict.pid) == ("a\nb", 9)
    killed = parse_killed(
        parse_record(
            b"3,8,6,-;Memory cgroup out of memory: Killed process 9 (a\\x0ab) total-vm:1kB, anon-rss:2kB, file-rss:3kB"
        ).text
    )
    assert killed is not None
    assert killed.comm == "a\nb"


def test_what_a_process_writes_to_the_log_has_another_facility() -> None:
    assert parse_record(b"6,1,5,-;oom-kill:x").facility == 0
    assert parse_record(b"12,1,5,-;oom-kill:x").facility == 1


def test_continuation_lines_are_dropped_and_escapes_undone() -> None:
    record = parse_record(b"6,339,5140900,-;caf\\xc3\\xa9\n SUBSYSTEM=acpi\n")
    assert record.text == "caf\u00c3\u00a9"
    assert (record.seq, record.since_boot_us) == (339, 5140900)


def test_a_group_kill_announces_its_cgroup() -> None:
    line = "Tasks in /kubepods/a b are going to be killed due to memory.oom.group set"
    assert parse_group(line) == "/kubepods/a b"
    assert parse_group("Tasks in a hurry") is None


def test_other_lines_are_neither() -> None:
    assert parse_oom_verdict("usb 1-1: new device") is None
    assert parse_killed("oom_reaper: reaped process 9 (x)") is None
    with pytest.raises(ValueError, match="kmsg"):
        parse_record(b"plain text")
