"""What is counted, with bounded labels and an exemplar that leads to the trace; pages parse as scrapers parse them."""

from __future__ import annotations

import itertools

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from prometheus_client.samples import Sample

from fairtrial.exporters.prometheus import OTHER, Metrics
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    Host,
    Observation,
    OomKill,
    ReplyFacts,
    RequestFacts,
    Subject,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import (
    Blame,
    ContainerUse,
    Grade,
    Outcome,
    Step,
    TerminatedBy,
    Tool,
    Trial,
    Verdict,
)
from fairtrial.middleware.core.sink import Source

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TRACE = "ab" * 16
_NUMBERS = itertools.count()


def seen(value: Value, trial: str | None = "t") -> Observation:
    kept: list[Observation] = []
    Source("x", kept.append, host=Host()).emit(value, subject=Subject(trial=trial))
    return kept[0]


def attempt(**more: object) -> AttemptEnded:
    facts: dict[str, object] = {
        "attempt": f"a{next(_NUMBERS)}",
        "provider": "anthropic",
        "dialect": "anthropic_messages",
        "request": RequestFacts(operation="chat", model="m-1", stream=True),
        "reply": ReplyFacts(status=200, output_tokens=100),
        "first_token": 1.2,
        "duration": 3.2,
        **more,
    }
    return AttemptEnded(**facts)  # type: ignore[arg-type]  # a test's keywords


def samples(metrics: Metrics, accept: str = OPENMETRICS) -> list[Sample]:
    content_type, page = metrics.render(accept)
    parse = openmetrics if "openmetrics" in content_type else plain
    return [sample for family in parse(page.decode()) for sample in family.samples]


def value_of(metrics: Metrics, name: str, **labels: str) -> float:
    found = [s.value for s in samples(metrics) if s.name == name and labels.items() <= s.labels.items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_an_attempt_is_counted_with_its_times_and_its_rate() -> None:
    metrics = Metrics(version="1")
    metrics.take(seen(attempt()))
    labels = {"provider": "anthropic", "model": "m-1"}
    assert value_of(metrics, "fairtrial_api_attempts_total", status="200", outcome="ok", **labels) == 1
    assert value_of(metrics, "fairtrial_api_ttft_seconds_sum", **labels) == 1.2
    assert value_of(metrics, "fairtrial_api_attempt_duration_seconds_sum", outcome="ok", **labels) == 3.2
    assert value_of(metrics, "fairtrial_api_output_tokens_per_second_sum", **labels) == pytest.approx(50)
    assert value_of(metrics, "fairtrial_api_output_tokens_total", **labels) == 100


def test_an_attempt_without_a_head_has_no_status_and_no_time_to_a_token() -> None:
    metrics = Metrics(version="1")
    metrics.take(seen(attempt(outcome="error", reply=ReplyFacts(), first_token=None, duration=0.1)))
    assert value_of(metrics, "fairtrial_api_attempts_total", status="none", outcome="error") == 1
    assert not [s for s in samples(metrics) if s.name == "fairtrial_api_ttft_seconds_count"]


def test_probes_and_counts_are_no_calls() -> None:
    metrics = Metrics(version="1")
    for operation in ("hello", "models", "count_tokens"):
        metrics.take(seen(attempt(request=RequestFacts(operation=operation))))
    metrics.take(seen(attempt(dialect="unknown", request=RequestFacts(operation="other"))))
    assert not [s for s in samples(metrics) if s.name == "fairtrial_api_attempts_total"]


def test_a_stall_has_an_owner() -> None:
    metrics = Metrics(version="1", stall_s=90)
    metrics.take(seen(attempt(upstream_gap_with_pings=91.0, downstream_blocked=10.0)))
    metrics.take(seen(attempt(downstream_blocked=90.0)))
    metrics.take(seen(attempt(our_lag=95.0)))
    owners = {s.labels["owner"]: s.value for s in samples(metrics) if s.name == "fairtrial_api_stalls_total"}
    assert owners == {"upstream": 1, "client": 1, "fairtrial": 1}


def test_exemplars_carry_the_trace_and_only_openmetrics_has_them() -> None:
    metrics = Metrics(version="1")
    metrics.take(seen(TrialStarted(command=["x"], trace_id=TRACE)))
    metrics.take(seen(attempt()))
    exemplars = [s.exemplar for s in samples(metrics) if s.name == "fairtrial_api_ttft_seconds_bucket" and s.exemplar]
    assert [e.labels for e in exemplars] == [{"trace_id": TRACE}]
    assert metrics.render("text/plain")[0].startswith("text/plain")
    assert TRACE.encode() not in metrics.render("text/plain")[1]
    assert value_of(metrics, "fairtrial_api_ttft_seconds_count") == 1


def test_a_trial_that_was_said_to_be_open_has_exemplars_without_its_first_observation() -> None:
    metrics = Metrics(version="1")
    metrics.opened("t", TRACE)
    metrics.take(seen(attempt()))
    assert any(s.exemplar and s.exemplar.labels == {"trace_id": TRACE} for s in samples(metrics))


def test_the_clients_text_cannot_make_series_without_end() -> None:
    metrics = Metrics(version="1", max_values=5)
    for n in range(50):
        metrics.take(seen(attempt(request=RequestFacts(operation="chat", model=f"m\n{n}" + "x" * 500, stream=True))))
    models = {s.labels["model"] for s in samples(metrics) if s.name == "fairtrial_api_attempts_total"}
    assert len(models) == 6
    assert OTHER in models
    assert max(map(len, models)) <= 80
    assert not any("\n" in model for model in models)


def trial(**more: object) -> Trial:
    verdict = Verdict(
        blame=Blame.INFRA,
        grade=Grade.PROVED,
        cause="model_api.overloaded",
        sentence="…",
        terminated_by=TerminatedBy(cause="model_api.overloaded", grade=Grade.PROVED, step=1),
    )
    step = Step(
        index=1,
        tools=[Tool(name="Bash", started="2026-11-30T08:00:00.000000Z", ended="2026-11-30T08:00:02.500000Z")],
        containers=[
            ContainerUse(
                id="c", memory_peak=60, memory_limit=64, cpu_throttled=1.5, egress_bytes=1000, egress_rate_max=500.0
            )
        ],
    )
    facts: dict[str, object] = {"trial": "t", "outcome": Outcome.FAILED, "verdict": verdict, "steps": [step], **more}
    return Trial(**facts)  # type: ignore[arg-type]  # a test's keywords


def test_a_closed_trial_is_counted_once_and_a_revision_is_not() -> None:
    metrics = Metrics(version="1")
    metrics.opened("t")
    assert value_of(metrics, "fairtrial_open_trials") == 1
    metrics.take(seen(OomKill(container_id="c", delta=2)))
    metrics.closed(trial())
    metrics.closed(trial(verdict=Verdict(blame=Blame.MODEL, grade=Grade.PROVED, sentence="…", revision=2)))
    assert value_of(metrics, "fairtrial_open_trials") == 0
    counted = [s for s in samples(metrics) if s.name == "fairtrial_trials_total"]
    assert [(s.labels, s.value) for s in counted] == [
        ({"outcome": "failed", "blame": "infra", "grade": "proved", "cause": "model_api.overloaded"}, 1)
    ]
    assert value_of(metrics, "fairtrial_trials_terminated_total", cause="model_api.overloaded", grade="proved") == 1
    assert value_of(metrics, "fairtrial_container_oom_kills_total") == 2
    assert value_of(metrics, "fairtrial_tool_duration_seconds_sum", tool="Bash") == 2.5
    assert value_of(metrics, "fairtrial_container_memory_peak_ratio_sum") == pytest.approx(60 / 64)
    assert value_of(metrics, "fairtrial_container_cpu_throttled_seconds_total") == 1.5
    assert value_of(metrics, "fairtrial_container_egress_bytes_total") == 1000


def test_a_trial_that_is_silent_in_a_call_ages_and_one_without_a_call_may_be_over() -> None:
    clock = [100.0]
    metrics = Metrics(version="1", now=lambda: clock[0])
    silence = "fairtrial_longest_silent_trial_seconds"
    assert value_of(metrics, silence) == 0
    metrics.opened("t")
    metrics.opened("u")
    metrics.take(seen(AttemptStarted(attempt="a"), trial="t"))
    clock[0] = 160.0
    assert value_of(metrics, silence) == 60
    metrics.take(seen(AttemptStarted(attempt="b"), trial="u"))
    assert value_of(metrics, silence) == 60
    metrics.take(seen(attempt(), trial="t"))
    metrics.take(seen(attempt(), trial="nobody"))
    clock[0] = 170.0
    assert value_of(metrics, silence) == 10
    metrics.take(seen(attempt(), trial="u"))
    clock[0] = 900.0
    assert value_of(metrics, silence) == 0


def test_our_own_sums_only_grow() -> None:
    metrics = Metrics(version="1")
    metrics.own(dropped={"records": 3}, errors={"dialect": 1}, spans={"pending": 9})
    metrics.own(dropped={"records": 5}, errors={"dialect": 1}, spans={"pending": 2}, unassigned={"twins": 4})
    assert value_of(metrics, "fairtrial_own_dropped_total", what="records") == 5
    assert value_of(metrics, "fairtrial_own_errors_total", where="dialect") == 1
    assert value_of(metrics, "fairtrial_own_spans", state="pending") == 2
    assert value_of(metrics, "fairtrial_api_unassigned_total", why="twins") == 4


def test_an_observation_that_cannot_be_read_is_counted_and_raises_nothing() -> None:
    metrics = Metrics(version="1")
    metrics.take(
        Observation(
            id="x", source="s", source_id="s", seq=1, wall_ns=0, mono_ns=0, kind=AttemptEnded.kind, value={"attempt": 3}
        )
    )
    broken = trial(steps=[Step(index=1, tools=[Tool(name="x", started="yesterday", ended="today")])])
    metrics.closed(broken)
    assert value_of(metrics, "fairtrial_own_errors_total", where="metrics.trial") == 1
