"""The contracts of RECORDS.md in code: every field is there, also those that nothing fills yet."""

from __future__ import annotations

import json

import msgspec
import pytest

from fairtrial.middleware.core import records
from fairtrial.middleware.core.observations import (
    VALUES,
    AttemptEnded,
    Host,
    Observation,
    OomKill,
    Subject,
    decode,
    encode_value,
)
from fairtrial.middleware.core.records import Run, Trial, Trust

TRIAL_FIELDS = """schema trial name run harness task try started ended closed trace_id fairtrial_version ruleset command
exit_code signal outcome outcome_source booked marks phases environment limits mutations verdict steps side_calls
connections unassigned coverage""".split()  # noqa: SIM905 - as RECORDS.md lists them, with what was added since

FIELDS = {
    "Phase": "name started ended outcome source",
    "Environment": """runtime node node_boot_id namespace pod pod_uid container_ids image_digest qos_class region
        cpu_model cores kernel cgroup concurrency_at_start hour_of_week""",
    "Limits": "memory cpu pids disk egress_rate time headroom enforced_by",
    "MemoryLimits": "declared floor ceiling swap oom_group floor_guaranteed",
    "CpuLimits": "declared floor ceiling",
    "TimeLimits": "agent tool verifier setup multiplier source",
    "Mutation": "what old new why side_effects",
    "Verdict": """blame grade cause step phase sentence terminated_by ended_as questions evidence against present ledger
        thresholds flips_if answers revision final_after""",
    "TerminatedBy": "cause grade step phase",
    "Questions": "happened ended_or_distorted outcome_differs",
    "Question": "answer by",
    "Evidence": "id at step phase source trust claim",
    "Present": "cause step why",
    "Ledger": "limit elapsed need infra_seconds by_cause",
    "Answers": "retry grade reward_valid",
    "Step": "index phase started ended calls tools containers",
    "Call": """id span_id role dialect provider upstream_host model stream outcome ttft duration max_gap
        max_gap_with_pings downstream_blocked our_lag input_tokens output_tokens cache_read_tokens cache_write_tokens
        stop_reason fell_back attempts""",
    "Attempt": """status error_type outcome started wait_before dns connect tls ttfb first_token duration retry_after
        request_id closed_by close_kind via_proxy remote bytes_up bytes_down""",
    "Tool": """name call_id started ended exit_code signal timed_out_by exec_id exec_via join dispatch_delay
        bytes_out bytes_err bytes_in exec_duration ended_by container_id command""",
    "ContainerUse": """id name role memory_peak memory_peak_kind memory_limit memory_anon memory_shmem memory_file
        swap_peak oom_kills oom_group_kill oom_victims cpu_used cpu_throttled psi_cpu psi_memory psi_io steal
        pids_max_hits disk_written egress_bytes ingress_bytes egress_rate_max tcp_retrans tcp_attempt_fails exit_code
        ended_by""",
    "Victim": "comm pid rss role",
    "Coverage": "doors collectors families gaps dropped",
    "Run": "schema run command exit_code counts coverage trials unassigned",
}


def test_a_trial_has_every_field_of_its_schema_and_unobserved_ones_are_null() -> None:
    written = json.loads(msgspec.json.encode(Trial(trial="t")))
    assert list(written) == TRIAL_FIELDS
    assert written["schema"] == "fairtrial.trial/1"
    assert written["exit_code"] is written["verdict"] is written["started"] is None


@pytest.mark.parametrize("name", FIELDS)
def test_a_record_has_every_field_that_the_schema_names(name: str) -> None:
    struct = getattr(records, name)
    missing = set(FIELDS[name].split()) - set(struct.__struct_encode_fields__)
    assert not missing


def test_a_run_holds_trials() -> None:
    run = Run(run="nightly", trials=[Trial(trial="t")])
    assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run
    assert run.schema == "fairtrial.run/1"


def test_a_newer_writers_field_is_skipped_and_a_trial_reads_back_equal() -> None:
    trial = Trial(trial="t", try_=3, command=["a"])
    written = json.loads(msgspec.json.encode(trial))
    assert msgspec.json.decode(json.dumps(written | {"later": 1}).encode(), type=Trial) == trial


def test_an_observation_has_every_field_of_its_schema() -> None:
    named = ["id", "source", "source_id", "seq", "host", "subject", "phase", "trust", "kind", "value"]
    assert set(named) <= set(Observation.__struct_encode_fields__)
    assert set(Subject.__struct_encode_fields__) == {
        "trial",
        "call",
        "exec",
        "container_id",
        "pod_uid",
        "cgroup",
        "pid",
        "node",
    }
    assert {trust.value for trust in Trust} == {"host", "same_uid", "inside"}
    assert set(Host.__struct_encode_fields__) == {"name", "boot_id"}


def made(kind: str, value: dict[str, object]) -> Observation:
    return Observation(id="1", source="s", source_id="s/1", seq=1, wall_ns=1, mono_ns=1, kind=kind, value=value)


def test_a_value_survives_the_way_through_an_observation_and_unobserved_stays_unobserved() -> None:
    kill = OomKill(container_id="c", delta=1, total=0)
    plain = encode_value(kill)
    assert plain == {"container_id": "c", "delta": 1, "total": 0}
    assert decode(made("cgroup.oom_kill", plain)) == kill


@pytest.mark.parametrize("value", [{}, {"container_id": 3, "delta": 1}, {"container_id": "c", "delta": "much"}])
def test_a_value_of_the_wrong_shape_or_kind_is_none_not_an_exception(value: dict[str, object]) -> None:
    assert decode(made("cgroup.oom_kill", value)) is None
    assert decode(made("a.kind.of.tomorrow", value)) is None


def test_every_value_has_a_kind_of_its_own() -> None:
    assert len({value.kind for value in VALUES.values()}) == len(VALUES)
    assert all(kind == value.kind for kind, value in VALUES.items())
    assert AttemptEnded.kind in VALUES
