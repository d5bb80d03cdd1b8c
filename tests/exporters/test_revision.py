"""What a revised verdict adds to a trace that was sent: linked spans with new ids, and only those."""

from __future__ import annotations

import msgspec

from fairtrial.exporters.revision import added_spans
from fairtrial.exporters.spans import Link, Span
from fairtrial.exporters.trace_layout import YES, spans_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Trial
from tests.fakes.traced import a_step, a_trial, a_verdict


def ids(spans: list[Span]) -> set[str]:
    return {span.span_id for span in spans}


def revised(trial: Trial, **changes: object) -> Trial:
    return msgspec.structs.replace(trial, **({"verdict": a_verdict(revision=2)} | changes))


BEFORE = msgspec.structs.replace(a_trial(cause=None), steps=[a_step(1, oom_kills=None), a_step(2, oom_kills=None)])


def test_a_new_verdict_alone_is_one_span_linked_to_the_trial() -> None:
    sent = spans_of(BEFORE)
    (verdict,) = added_spans(revised(BEFORE, verdict=a_verdict("model_api.overloaded", revision=2)), BEFORE, ids(sent))[
        :1
    ]
    assert (verdict.name, verdict.parent_id, verdict.trace_id) == ("verdict", sent[0].span_id, sent[0].trace_id)
    assert verdict.links[0] == sent[0].link
    assert verdict.attributes[semconv.VERDICT_REVISION] == 2
    assert verdict.attributes[semconv.CAUSE] == "model_api.overloaded"
    assert verdict.attributes[semconv.RUN] == "r"
    assert verdict.error


def test_evidence_that_came_late_is_a_new_span_and_changed_figures_hang_below_the_old_one() -> None:
    sent = spans_of(BEFORE)
    late = revised(BEFORE, steps=[a_step(1), a_step(2, oom_kills=None)])
    added = {span.name: span for span in added_spans(late, BEFORE, ids(sent))}
    assert set(added) == {"verdict", "oom_kill", "late_evidence"}
    step = next(span for span in sent if span.name == "step")
    kill, evidence = added["oom_kill"], added["late_evidence"]
    assert (kill.parent_id, kill.attributes[semconv.LATE], kill.attributes[semconv.GUILTY]) == (step.span_id, YES, YES)
    assert (evidence.parent_id, evidence.links) == (step.span_id, (step.link,))
    assert evidence.attributes == {semconv.STEP_OOM_KILLS: 1, semconv.LATE: YES}
    assert added["verdict"].links == (sent[0].link, kill.link)
    for span in added.values():
        parent = next(one for one in sent if one.span_id == span.parent_id)
        assert parent.start_ns <= span.start_ns < span.end_ns <= parent.end_ns, "a viewer would doubt the clocks"


def test_no_id_that_was_sent_comes_again_however_often_the_verdict_is_revised() -> None:
    used = ids(spans_of(BEFORE))
    before = BEFORE
    for revision in range(2, 6):
        after = revised(BEFORE, steps=[a_step(1), a_step(2)], verdict=a_verdict(revision=revision))
        added = added_spans(after, before, used)
        assert not ids(added) & used
        assert len(ids(added)) == len(added)
        used |= ids(added)
        before = after


def test_of_a_trial_whose_first_form_is_lost_only_new_ids_go() -> None:
    sent = ids(spans_of(BEFORE))
    added = added_spans(revised(BEFORE, steps=[a_step(1), a_step(2)]), None, sent)
    assert sorted(span.name for span in added) == ["oom_kill", "oom_kill", "verdict"]
    assert {span.trace_id for span in added} == {BEFORE.trace_id}


def test_what_comes_late_to_a_rotated_trial_lands_in_the_part_of_its_parent() -> None:
    many = msgspec.structs.replace(BEFORE, steps=[a_step(n, oom_kills=None) for n in range(1, 701)])
    sent = spans_of(many)
    steps = [a_step(n, oom_kills=1 if n == 690 else None) for n in range(1, 701)]
    added = added_spans(revised(many, steps=steps), many, ids(sent))
    kill = next(span for span in added if span.name == "oom_kill")
    parent = next(span for span in sent if span.span_id == kill.parent_id)
    assert kill.trace_id == parent.trace_id != many.trace_id
    assert all(Link(span.trace_id, span.parent_id or "") in {s.link for s in (*sent, *added)} for span in added)


def test_a_trial_without_a_trace_adds_nothing() -> None:
    assert added_spans(revised(BEFORE, trace_id=None), BEFORE, set()) == []
