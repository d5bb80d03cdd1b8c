"""The engine's JSON."""

import json
from pathlib import Path

from fairtrial.collectors.parse.docker import (
    parse_container,
    parse_event,
    parse_exec,
    parse_stamp,
)

DATA = Path(__file__).parents[2] / "data" / "docker"


def test_a_recorded_container_gives_limits_marks_and_no_secret() -> None:
    facts = parse_container(json.loads((DATA / "inspect_20.10.json").read_bytes()))
    assert facts is not None
    assert facts.memory_limit == 64 << 20
    assert facts.cpu_limit == 0.2
    assert facts.pids_limit == 16
    assert facts.trial_in_env == "t-rec"
    assert facts.labels == {"com.docker.compose.service": "main"}
    assert facts.tmpfs == ("/t=",)
    assert facts.healthcheck == ("CMD-SHELL", "true")
    assert facts.created_ns is not None
    assert facts.created_ns > 1_700_000_000_000_000_000


def test_limits_that_are_not_set_are_none() -> None:
    facts = parse_container(
        {"Id": "a", "HostConfig": {"Memory": 0, "PidsLimit": -1, "CpuQuota": 0}, "State": {"Pid": 0}}
    )
    assert facts is not None
    assert (facts.memory_limit, facts.pids_limit, facts.cpu_limit, facts.init_pid) == (None, None, None, None)


def test_a_cpu_quota_is_divided_by_its_period() -> None:
    facts = parse_container({"Id": "a", "HostConfig": {"CpuQuota": 50_000, "CpuPeriod": 25_000}})
    assert facts is not None
    assert facts.cpu_limit == 2.0


def test_junk_is_nobody() -> None:
    junks: tuple[object, ...] = (None, [], "x", {"Id": 7}, {"Id": ""})
    for junk in junks:
        assert parse_container(junk) is None
        assert parse_exec(junk) is None
        assert parse_event(junk) is None


def test_a_running_exec_has_no_exit_code_whatever_it_says() -> None:
    running = parse_exec({"ID": "e", "Running": True, "ExitCode": 0, "Pid": 9, "ProcessConfig": {}})
    assert running is not None
    assert (running.exit_code, running.pid) == (None, 9)
    lost = parse_exec({"ID": "e", "Running": False, "ExitCode": None})
    assert lost is not None
    assert lost.exit_code is None


def test_recorded_events_keep_exec_ids_commands_and_codes() -> None:
    lines = (DATA / "events_20.10.ndjson").read_text().splitlines()
    events = [event for event in (parse_event(json.loads(line)) for line in lines) if event is not None]
    assert [event.action for event in events][:6] == ["create", "start", "exec_create", "exec_start", "oom", "exec_die"]
    start = events[3]
    assert start.command is not None
    assert start.command.startswith("sh -c dd if=/dev/zero")
    assert start.exec_id == events[5].exec_id
    assert events[5].exit_code == 137
    assert len({event.key for event in events}) == len(events)


def test_stamps_keep_nanoseconds_and_time_zones() -> None:
    assert parse_stamp("2026-11-29T23:50:00.123456789Z") == 1795996200123456789
    assert parse_stamp("2026-11-30T00:50:00.5+01:00") == 1795996200500000000
    assert parse_stamp("0001-01-01T00:00:00Z") is None
    assert parse_stamp("yesterday") is None
