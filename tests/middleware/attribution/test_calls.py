"""Turns and their troubles: terminal, distorting, recovered."""

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Standing
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from tests.middleware.attribution.scene import Scene, model_failed, storm


def context(told: Scene) -> Context:
    return Context.of(told.assembly(), DEFAULT_THRESHOLDS)


def test_a_turn_that_never_completed_and_that_nothing_followed_is_terminal() -> None:
    (trouble,) = context(storm(3)).troubles
    assert trouble.standing is Standing.TERMINAL
    assert len(trouble.failed) == 3
    assert trouble.turn.step == 2


def test_attempts_that_failed_before_a_whole_reply_are_recovered_one_trouble_per_cause() -> None:
    told = Scene().refused(529, times=2).refused(500).call(tools=0).end(1)
    found = context(told).troubles
    assert [(t.fault.cause, len(t.failed), t.standing) for t in found] == [
        ("model_api.overloaded", 2, Standing.RECOVERED),
        ("model_api.server_error", 1, Standing.RECOVERED),
    ]


def test_a_history_that_grew_over_a_failed_call_shows_that_the_client_kept_it() -> None:
    told = Scene().call().ran(0).cut()
    told.turns += 1
    (trouble,) = context(told.call(tools=0).end(1)).troubles
    assert trouble.standing is Standing.DISTORTING


def test_a_gap_after_a_failed_call_leaves_open_whether_it_ended_the_step() -> None:
    told = storm(3)
    told.gap(since=told.s - 1.5, until=told.s - 1.2)
    (trouble,) = context(told).troubles
    assert trouble.ended.answer == "unknown"


def test_a_healthy_trial_has_turns_and_no_trouble() -> None:
    seen = context(model_failed())
    assert [t.step for t in seen.turns] == [1, 2, 3]
    assert seen.troubles == ()
