"""Three yeses and a best grade make a proof; nothing less does."""

import pytest

from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.core.records import Answer, Blame, Grade, PhaseName, Question


def event(*answers: Answer, best: Grade = Grade.PROVED) -> Event:
    happened, ended, differs = (Question(answer=a) for a in answers)
    return Event(
        cause="node.oom",
        blame=Blame.INFRA,
        best=best,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=1,
        phase=PhaseName.AGENT,
        at_ns=0,
        happened=happened,
        ended_or_distorted=ended,
        outcome_differs=differs,
        sentence="It happened.",
        advice="",
    )


YES, NO, UNKNOWN = Answer.YES, Answer.NO, Answer.UNKNOWN


def test_three_yeses_are_a_proof_if_the_evidence_allows_it() -> None:
    assert event(YES, YES, YES).proved
    assert not event(YES, YES, YES, best=Grade.SUSPECTED).proved


@pytest.mark.parametrize("answers", [(YES, YES, UNKNOWN), (YES, UNKNOWN, YES), (UNKNOWN, YES, YES), (YES, YES, NO)])
def test_anything_less_is_none(answers: tuple[Answer, Answer, Answer]) -> None:
    assert not event(*answers).proved


def test_the_strength_orders_the_answers() -> None:
    assert event(YES, YES, UNKNOWN).strength > event(YES, UNKNOWN, UNKNOWN).strength > event(YES, NO, NO).strength
