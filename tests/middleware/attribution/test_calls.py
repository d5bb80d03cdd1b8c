"""Turns and their troubles: terminal, distorting, recovered."""

import msgspec

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Standing
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import ReplyFacts, RequestFacts
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


def aside(told: Scene, agent: str, turns: int) -> RequestFacts:
    return msgspec.structs.replace(
        told.request(),
        agent=agent,
        first_user_digest=agent,
        assistant_turns=turns,
        history_len=2 * turns + 1,
        message_digests=[f"{agent}{i}" for i in range(2 * turns + 1)],
        body_digest=f"{agent}-{turns}",
    )


def with_subagent(*, comes_back: bool) -> Scene:
    """A subagent whose first call fails while the main agent waits, and either comes back or does not."""
    told = Scene().call()
    told.attempt(ReplyFacts(status=529), outcome="error", request=aside(told, "helper", 0))
    told.waited(200)
    if comes_back:
        whole = ReplyFacts(status=200, stop_reason="end_turn", terminator=True)
        told.attempt(whole, request=aside(told, "helper", 1))
    return told.call(tools=0).end(1)


def test_a_subagent_that_never_came_back_bends_the_rest_and_one_that_did_is_recovered() -> None:
    (lost,) = context(with_subagent(comes_back=False)).troubles
    assert lost.standing is Standing.DISTORTING
    verdict = with_subagent(comes_back=False).verdict()
    assert (verdict.blame, verdict.grade) == ("infra", "suspected")
    assert "subagent" in verdict.sentence
    (mended,) = context(with_subagent(comes_back=True)).troubles
    assert mended.standing is Standing.RECOVERED
