"""Storms: without end and without sense; patience, samples and long histories are none."""

import pytest

from fairtrial.middleware.core.observations import ReplyFacts, ToolUse
from tests.middleware.attribution.scene import Scene, ended, summary


def test_a_key_that_is_refused_forty_times_is_the_operators_and_the_storm_is_present() -> None:
    verdict = Scene().refused(401, times=40, wait=0.1).end(1).verdict()
    assert summary(verdict) == ("operator", "proved", "operator.auth", 1)
    assert [(p.cause, p.why) for p in verdict.present] == [
        ("harness.retry_storm", "40 attempts though no retry could mend it")
    ]


def test_a_request_of_the_harnesss_own_that_is_refused_sixty_times_is_a_storm() -> None:
    verdict = Scene().call().ran(0).refused(400, times=60, wait=0.1).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.retry_storm", 2)
    assert "asked 60 times" in verdict.sentence
    assert ended(verdict) is None


def test_a_key_that_is_refused_a_few_times_is_no_storm() -> None:
    """Near-miss."""
    assert Scene().refused(401, times=5).end(1).verdict().present == []


def test_patience_with_an_overloaded_provider_is_no_storm() -> None:
    """Innocent: a client is there to be patient."""
    verdict = Scene().call().ran(0).refused(529, times=60, error_type="overloaded_error").end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.overloaded", 2)
    assert verdict.present == []


@pytest.mark.parametrize("wait, cause", [(0.2, "harness.retry_storm"), (31.0, "model_api.rate_limited")])
def test_a_rate_limit_that_the_client_does_not_wait_for_is_put_on_the_client(wait: float, cause: str) -> None:
    told = Scene().call().ran(0).refused(429, times=10, wait=wait, retry_after=30.0)
    verdict = told.end(1).verdict()
    assert verdict.cause == cause
    assert ended(verdict) == ("model_api.rate_limited", "proved", 2)
    if cause.startswith("harness"):
        assert (verdict.blame, verdict.grade) == ("harness", "suspected")
        assert "sooner than the reply before had asked to wait" in verdict.sentence


def thrown(told: Scene, times: int, *, gap: float = 0.1) -> Scene:
    """The same request, answered whole each time with a tool call, asked again and again."""
    asked = told.request()
    for n in range(times):
        reply = ReplyFacts(status=200, terminator=True, stop_reason="tool_use", tool_calls=[ToolUse(id=f"t{n}")])
        told.attempt(reply, request=asked)
        told.s += gap
    return told


def test_whole_replies_thrown_away_without_end_are_a_storm() -> None:
    verdict = thrown(Scene().call().ran(0), 25).end(1).verdict()
    assert summary(verdict)[:3] == ("harness", "proved", "harness.retry_storm")
    assert "threw each whole reply away" in verdict.sentence
    assert "here 25" in (verdict.flips_if or "")


def test_samples_that_are_used_in_the_end_are_no_storm() -> None:
    """Near-miss: best of 25, and the conversation goes on."""
    assert thrown(Scene().call().ran(0), 25).call(tools=0).end(1).verdict().cause is None


def test_a_few_samples_as_the_last_step_are_no_storm() -> None:
    """Innocent."""
    assert thrown(Scene().call().ran(0), 5).end(1).verdict().cause is None


def summed_up(told: Scene) -> Scene:
    """One compaction, as a client that sends no tools with it makes it."""
    asked = told.request(has_tools=False, body_digest=told.name("summary"))
    told.attempt(ReplyFacts(status=200, terminator=True, stop_reason="end_turn"), request=asked)
    return told


def test_compactions_in_a_row_until_the_end_are_a_storm() -> None:
    told = Scene().call().ran(0).call().ran(0)
    for _ in range(4):
        summed_up(told).call().ran(0)
    verdict = told.end(1).verdict()
    assert summary(verdict)[:3] == ("harness", "suspected", "harness.compaction_storm")
    assert "4 times in a row" in verdict.sentence
    assert ended(verdict) is None


def test_a_storm_that_passed_is_none() -> None:
    """Near-miss: work went on after it."""
    told = Scene().call().ran(0).call().ran(0)
    for _ in range(4):
        summed_up(told).call().ran(0)
    assert told.call().ran(0).call(tools=0).end(1).verdict().blame == "model"


def test_compactions_with_work_between_are_no_storm() -> None:
    """Innocent: a long trial."""
    told = Scene().call().ran(0).call().ran(0)
    for _ in range(4):
        summed_up(told)
        for _ in range(3):
            told.call().ran(0)
    assert told.call(tools=0).end(1).verdict().blame == "model"


def summarising(told: Scene, times: int) -> Scene:
    """The same refused request again and again, and a short summary that succeeds after each (terminus-2, seen)."""
    for n in range(times):
        told.refused(400, wait=0.1)
        short = told.request(
            history_len=1,
            assistant_turns=0,
            has_tools=False,
            body_digest=f"summary-{n}",
            first_user_digest=f"s{n}",
            message_digests=[f"s{n}"],
            tool_result_ids=[],
        )
        told.attempt(ReplyFacts(status=200, terminator=True, stop_reason="stop"), request=short)
        told.s += 0.1
    return told


def test_summaries_that_succeed_between_refusals_do_not_mend_them() -> None:
    verdict = summarising(Scene().call().ran(0), 60).end(1).verdict()
    assert (verdict.blame, verdict.cause) == ("harness", "harness.retry_storm"), verdict.sentence
    assert ended(verdict) is None


def test_a_refused_history_that_was_answered_in_the_end_is_no_storm_that_ended_it() -> None:
    """Near-miss: the last summary made it short enough, and work went on."""
    told = summarising(Scene().call().ran(0), 60).call().ran(0).call(tools=0)
    assert told.end(1).verdict().cause is None
