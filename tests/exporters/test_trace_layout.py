"""A trial as spans: who is whose child, what is guilty, what stays out."""

from __future__ import annotations

import msgspec
import pytest

from fairtrial.exporters.spans import Link, Span
from fairtrial.exporters.trace_layout import ATTEMPT_SPANS, NAME_CHARS, STALL_EVENT_S, YES, spans_of, step_numbers
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Attempt, Call, ContainerUse, Mark, Phase, PhaseName, Step, Trial
from tests.fakes.traced import BEGUN_NS, T0, T1, T3, T4, a_step, a_trial, span_count


def by_name(spans: list[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


def with_call(trial: Trial, **changes: object) -> Trial:
    """The same trial, its first call changed."""
    call = msgspec.structs.replace(trial.steps[0].calls[0], **changes)
    return msgspec.structs.replace(trial, steps=[msgspec.structs.replace(trial.steps[0], calls=[call])])


def test_parents_come_before_children_and_all_hang_on_the_root() -> None:
    trial = a_trial()
    spans = spans_of(trial, root_span_id="b" * 16, parent_span_id="c" * 16)
    seen = {"c" * 16}
    for span in spans:
        assert span.parent_id in seen
        seen.add(span.span_id)
    assert spans[0].span_id == "b" * 16
    assert len(spans) == span_count(1) == len({span.span_id for span in spans})
    assert {span.trace_id for span in spans} == {trial.trace_id}
    assert {span.service for span in spans} == {
        semconv.SERVICE_HARNESS,
        semconv.SERVICE_MODEL_API,
        semconv.SERVICE_CONTAINER,
    }


def test_the_names_are_few_whatever_the_numbers_of_steps_and_attempts() -> None:
    assert {span.name for span in spans_of(a_trial(steps=30))} == {
        "trial",
        "phase",
        "step",
        "chat claude",
        "attempt",
        "execute_tool bash",
        "exec",
        "oom_kill",
    }


def test_an_exec_is_the_containers_child_of_the_agents_tool() -> None:
    spans = by_name(spans_of(a_trial()))
    tool, run = spans["execute_tool bash"], spans["exec"]
    assert (tool.service, run.service, run.parent_id) == (
        semconv.SERVICE_HARNESS,
        semconv.SERVICE_CONTAINER,
        tool.span_id,
    )
    assert run.attributes == {
        semconv.PROCESS_EXIT_CODE: 137,
        semconv.EXEC_ID: "exec1",
        semconv.EXEC_VIA: "docker",
    }


def test_the_root_carries_the_verdict_and_links_to_the_guilty_span() -> None:
    trial = a_trial()
    spans = spans_of(trial)
    root = spans[0]
    assert root.attributes[semconv.CAUSE] == "container.oom_kill"
    assert root.attributes[semconv.TERMINATED_BY] == "container.oom_kill"
    assert root.attributes[semconv.RUN] == "r"
    assert trial.verdict is not None
    assert root.error == trial.verdict.sentence
    guilty = [span for span in spans if span.attributes.get(semconv.GUILTY) == YES]
    assert [span.name for span in guilty] == [semconv.SPAN_OOM_KILL]
    assert root.links == (guilty[0].link,)
    assert guilty[0].attributes[semconv.OOM_VICTIM] == "tail"


def test_a_trial_that_nobody_is_to_blame_for_has_no_error_and_no_guilty_span() -> None:
    spans = spans_of(a_trial(cause=None))
    assert (spans[0].error, spans[0].links) == (None, ())
    assert not [span for span in spans if semconv.GUILTY in span.attributes]


def test_an_api_cause_makes_the_failed_call_guilty() -> None:
    trial = with_call(a_trial(cause="model_api.overloaded"), outcome="error")
    assert [span.name for span in spans_of(trial) if span.attributes.get(semconv.GUILTY) == YES] == ["chat claude"]


def test_the_step_carries_its_figures_and_attempts_their_status() -> None:
    spans = spans_of(a_trial())
    step = by_name(spans)["step"]
    assert step.attributes[semconv.STEP_OOM_KILLS] == 1
    assert step.attributes[semconv.STEP_API_SECONDS] == 1.0
    assert step.attributes[semconv.STEP_WAIT_SECONDS] == 0.5
    assert [event.name for event in step.events] == [semconv.EVENT_THROTTLED]
    first, second = [span for span in spans if span.name == "attempt"]
    assert (first.kind, first.attributes[semconv.ERROR_TYPE], first.error) == (
        "client",
        "overloaded_error",
        "overloaded_error",
    )
    assert second.error is None
    assert second.attributes[semconv.HTTP_RESEND] == 1


def test_unobserved_facts_are_absent_not_zero() -> None:
    trial = Trial(trial="t", trace_id="a" * 32, started=T0, closed="normal", steps=[Step(index=1, started=T1)])
    spans = by_name(spans_of(trial))
    assert spans["step"].attributes == {semconv.STEP_INDEX: 1}


def test_the_same_trial_gives_the_same_spans_and_no_trace_id_gives_none() -> None:
    trial = a_trial()
    assert spans_of(trial) == spans_of(trial)
    assert spans_of(msgspec.structs.replace(trial, trace_id=None)) == []
    assert spans_of(msgspec.structs.replace(trial, started=None)) == []


def test_a_provider_has_the_name_that_the_conventions_give_it() -> None:
    spans = by_name(spans_of(with_call(a_trial(), provider="bedrock")))
    assert spans["chat claude"].attributes[semconv.PROVIDER] == "aws.bedrock"


@pytest.mark.parametrize(
    "profile, name, other",
    [
        ("newest", semconv.CACHE_WRITE_TOKENS, semconv.CACHE_CREATION_TOKENS),
        ("1.41", semconv.CACHE_CREATION_TOKENS, semconv.CACHE_WRITE_TOKENS),
    ],
)
def test_the_profile_chooses_the_generation_of_genai_names(profile: str, name: str, other: str) -> None:
    chat = by_name(spans_of(a_trial(), profile=semconv.GENAI_PROFILES[profile]))["chat claude"]
    assert chat.attributes[name] == 7
    assert other not in chat.attributes


def test_of_a_storm_of_attempts_the_ends_are_shown_and_the_rest_is_counted() -> None:
    storm = [Attempt(status=529, outcome="error", started=T0, duration=0.0) for _ in range(1000)]
    spans = spans_of(with_call(a_trial(), attempts=storm))
    shown = [span.attributes.get(semconv.HTTP_RESEND, 0) for span in spans if span.name == "attempt"]
    assert shown == [*range(ATTEMPT_SPANS // 2), *range(1000 - ATTEMPT_SPANS // 2, 1000)]
    chat = by_name(spans)["chat claude"]
    assert chat.attributes[semconv.CALL_ATTEMPTS] == 1000
    assert chat.attributes[semconv.CALL_LEFT_OUT] == 1000 - ATTEMPT_SPANS


@pytest.mark.parametrize("gap, events", [(STALL_EVENT_S, 1), (STALL_EVENT_S - 1, 0), (None, 0)])
def test_a_long_silence_is_an_event_of_its_call(gap: float | None, events: int) -> None:
    chat = by_name(spans_of(with_call(a_trial(), max_gap=gap)))["chat claude"]
    assert [event.name for event in chat.events] == [semconv.EVENT_STALLED] * events


def test_a_model_or_tool_of_any_length_makes_a_short_name() -> None:
    spans = spans_of(with_call(a_trial(), model="m" * 5000))
    assert max(len(span.name) for span in spans) == len("chat ") + NAME_CHARS


def test_what_was_open_when_fairtrial_was_killed_is_closed_once_as_incomplete() -> None:
    call = Call(id="c", model="m", attempts=[Attempt(started=T1)])
    trial = a_trial(closed="recovered", cause=None, steps=1)
    trial = msgspec.structs.replace(
        trial, steps=[a_step(1), Step(index=2, started=T1, calls=[call])], verdict=None, phases=[]
    )
    spans = spans_of(trial)
    open_ones = [span for span in spans[1:] if span.attributes.get(semconv.INCOMPLETE) == YES]
    assert [span.name for span in open_ones] == ["step", "chat m", "attempt"]
    assert all(span.error for span in open_ones)
    assert {span.end_ns for span in open_ones} == {spans[0].end_ns} == {BEGUN_NS + 3_000_000_000}
    assert (spans[0].attributes[semconv.INCOMPLETE], spans[0].error is None) == (YES, False)


def test_no_child_reaches_beyond_the_trial() -> None:
    """A viewer takes a child that ends after its parent for a clock that is wrong."""
    later = Phase(name=PhaseName.TEARDOWN, started=T3, ended=T4)
    trial = msgspec.structs.replace(a_trial(), phases=[*a_trial().phases, later])
    spans = spans_of(trial)
    assert max(span.end_ns for span in spans[1:]) == spans[0].end_ns == BEGUN_NS + 4_000_000_000


def test_no_span_is_without_length_or_longer_than_its_parent() -> None:
    spans = {span.span_id: span for span in spans_of(a_trial())}
    for span in spans.values():
        parent = spans.get(span.parent_id or "", span)
        assert parent.start_ns <= span.start_ns < span.end_ns <= parent.end_ns


def test_a_moment_is_a_microsecond() -> None:
    assert all(span.end_ns > span.start_ns for span in spans_of(a_trial()))


def test_a_link_names_trace_and_span() -> None:
    spans = spans_of(a_trial())
    assert spans[0].links == (Link(spans[0].trace_id, by_name(spans)["oom_kill"].span_id),)


def test_the_memory_of_a_step_is_its_container_s_where_the_command_s_own_is_shared() -> None:
    own = ContainerUse(id="own", memory_peak=800 << 20, memory_peak_kind="shared")
    box = ContainerUse(id="c" * 64, memory_peak=32 << 20, memory_peak_kind="exact", memory_limit=32 << 20)
    both = step_numbers(Step(index=1, started=T1, containers=[own, box]))
    assert (both[semconv.STEP_MEMORY_PEAK], both[semconv.STEP_MEMORY_LIMIT]) == (32 << 20, 32 << 20)
    alone = step_numbers(Step(index=1, started=T1, containers=[own]))
    assert (alone[semconv.STEP_MEMORY_PEAK], alone[semconv.STEP_MEMORY_PEAK_KIND]) == (800 << 20, "shared")


def test_what_was_told_from_inside_is_an_event_of_its_step_or_of_the_trial() -> None:
    marks = [
        Mark(at=T1, told=T3, name="half", text="of it", step=1),
        Mark(at=T4, told=T4, name="over"),
        Mark(at=T4, told=T4, name="odd", step=99),
    ]
    spans = spans_of(a_trial(steps=1, marks=marks))
    told = {span.name: [event for event in span.events if event.name == semconv.EVENT_MARK] for span in spans}
    assert [event.attributes[semconv.MARK_NAME] for event in told.pop("step")] == ["half"]
    root = told.pop("trial")
    assert [event.attributes[semconv.MARK_NAME] for event in root] == ["over", "odd"]
    assert {str(event.attributes[semconv.MARK_TRUST]) for event in root} == {"inside"}
    assert not any(told.values())
    parts = spans_of(a_trial(steps=40, marks=marks), max_spans=60)
    assert sum(event.name == semconv.EVENT_MARK for span in parts for event in span.events) == 3
