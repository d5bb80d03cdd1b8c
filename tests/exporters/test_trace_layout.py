"""A trial as spans: who is whose child, what is guilty, what stays out."""

from __future__ import annotations

import msgspec

from fairtrial.exporters.trace_layout import MAX_TEXT, Span, spans_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import (
    Attempt,
    Blame,
    Call,
    ContainerUse,
    Grade,
    Outcome,
    Phase,
    PhaseName,
    Step,
    TerminatedBy,
    Tool,
    Trial,
    Verdict,
    Victim,
)

T0, T1, T2, T3 = (f"2026-11-29T10:00:0{n}.000000Z" for n in range(4))


def a_trial(*, cause: str = "container.oom_kill") -> Trial:
    call = Call(
        id="c1",
        model="claude",
        provider="anthropic",
        outcome="ok",
        input_tokens=5,
        attempts=[
            Attempt(status=529, outcome="error", started=T0, duration=0.5, error_type="overloaded_error"),
            Attempt(status=200, outcome="ok", started=T1, duration=0.5, wait_before=0.5),
        ],
    )
    use = ContainerUse(
        id="abc",
        oom_kills=1,
        memory_peak=64 << 20,
        memory_limit=64 << 20,
        oom_victims=[Victim(comm="tail", pid=7)],
        cpu_throttled=0.25,
    )
    step = Step(
        index=1, started=T0, ended=T3, calls=[call], tools=[Tool(name="bash", started=T2, ended=T3)], containers=[use]
    )
    return Trial(
        trial="01930000-0000-7000-8000-00000000000a",
        trace_id="a" * 32,
        task="t",
        run="r",
        started=T0,
        ended=T3,
        outcome=Outcome.FAILED,
        exit_code=1,
        phases=[Phase(name=PhaseName.AGENT, started=T0, ended=T3)],
        steps=[step],
        verdict=Verdict(
            blame=Blame.INFRA,
            grade=Grade.SUSPECTED,
            cause=cause,
            step=1,
            sentence="x" * 1000,
            terminated_by=TerminatedBy(cause=cause, grade=Grade.PROVED, step=1),
        ),
    )


def by_name(spans: list[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


def test_parents_come_before_children_and_all_hang_on_the_root() -> None:
    spans = spans_of(a_trial(), root_span_id="b" * 16, parent_span_id="c" * 16)
    seen = {"c" * 16}
    for span in spans:
        assert span.parent_id in seen
        seen.add(span.span_id)
    assert spans[0].span_id == "b" * 16
    assert len(seen) == len(spans) + 1
    assert {span.service for span in spans} == {
        semconv.SERVICE_HARNESS,
        semconv.SERVICE_MODEL_API,
        semconv.SERVICE_CONTAINER,
    }


def test_the_root_carries_the_verdict_as_short_strings_and_links_to_the_guilty_span() -> None:
    spans = spans_of(a_trial())
    root = spans[0]
    assert root.attributes[semconv.CAUSE] == "container.oom_kill"
    assert root.attributes[semconv.TERMINATED_BY] == "container.oom_kill"
    assert all(len(v) <= MAX_TEXT for v in root.attributes.values() if isinstance(v, str))
    guilty = [span for span in spans if span.attributes.get(semconv.GUILTY) == "yes"]
    assert [span.name for span in guilty] == [semconv.SPAN_OOM_KILL]
    assert root.links == (guilty[0].span_id,)
    assert guilty[0].attributes[semconv.OOM_VICTIM] == "tail"


def test_an_api_cause_makes_the_failed_call_guilty() -> None:
    trial = a_trial(cause="model_api.overloaded")
    call = msgspec.structs.replace(trial.steps[0].calls[0], outcome="error")
    step = msgspec.structs.replace(trial.steps[0], calls=[call])
    spans = spans_of(msgspec.structs.replace(trial, steps=[step]))
    assert [span.name for span in spans if span.attributes.get(semconv.GUILTY) == "yes"] == ["chat claude"]


def test_the_step_carries_its_figures_and_attempts_their_status() -> None:
    spans = by_name(spans_of(a_trial()))
    step = spans["step 1"]
    assert step.attributes[semconv.STEP_OOM_KILLS] == 1
    assert step.attributes[semconv.STEP_API_SECONDS] == 1.0
    assert step.attributes[semconv.STEP_WAIT_SECONDS] == 0.5
    assert [event.name for event in step.events] == [semconv.EVENT_THROTTLED]
    first, second = spans["attempt 1"], spans["attempt 2"]
    assert (first.kind, first.attributes[semconv.ERROR_TYPE], first.error) == (
        "client",
        "overloaded_error",
        "overloaded_error",
    )
    assert second.error is None
    assert second.attributes[semconv.HTTP_RESEND] == 1


def test_unobserved_facts_are_absent_not_zero() -> None:
    trial = Trial(trial="t", trace_id="a" * 32, started=T0, steps=[Step(index=1, started=T1)])
    spans = by_name(spans_of(trial))
    assert spans["step 1"].attributes == {semconv.STEP_INDEX: 1}


def test_the_same_trial_gives_the_same_ids_and_no_trace_id_gives_no_span() -> None:
    assert spans_of(a_trial()) == spans_of(a_trial())
    assert spans_of(msgspec.structs.replace(a_trial(), trace_id=None)) == []


def test_a_provider_has_the_name_that_the_conventions_give_it() -> None:
    call = msgspec.structs.replace(a_trial().steps[0].calls[0], provider="bedrock")
    step = msgspec.structs.replace(a_trial().steps[0], calls=[call])
    spans = by_name(spans_of(msgspec.structs.replace(a_trial(), steps=[step])))
    assert spans["chat claude"].attributes[semconv.PROVIDER] == "aws.bedrock"
