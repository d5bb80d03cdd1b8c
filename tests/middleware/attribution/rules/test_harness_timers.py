"""A timer of the harness that ends a call at work is the harness's; a silent API is not."""

import pytest

from tests.middleware.attribution.scene import Scene, ended, summary


def thinking(told: Scene, *, quiet: float, since_ping: float = 0.4, **facts: object) -> Scene:
    """A reply that brings pings and no words, until its client closes it."""
    from fairtrial.middleware.core.observations import ReplyFacts

    pinged: dict[str, object] = {
        "first_failure": "client",
        "closed_by": "client",
        "max_gap": quiet,
        "max_gap_with_pings": 10.0,
        "silence_at_end": since_ping,
        "quiet_at_end": quiet,
        "ttfb": 0.1,
    }
    reply = ReplyFacts(status=200, provider_id=True, started_content=True, terminator=False, pings=round(quiet / 10))
    return told.attempt(reply, outcome="client_disconnect", seconds=quiet + 1, **(pinged | facts))  # type: ignore[arg-type]


def test_a_watchdog_that_ends_healthy_reasoning_while_pings_flow_is_the_harnesss() -> None:
    told = thinking(Scene().call().ran(0), quiet=60).waited(9)
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("harness", "proved", "harness.watchdog", 2)
    assert ended(verdict) is None
    assert "still sending pings" in verdict.sentence
    assert "no words for 60 s" in verdict.sentence


def test_a_silence_without_pings_is_no_watchdogs_doing() -> None:
    """Near-miss: the same length, and the last ping was as long ago as the last word."""
    told = thinking(Scene(user_agent="my-agent/1").call().ran(0), quiet=100, since_ping=100, max_gap_with_pings=100.0)
    assert summary(told.waited(9).end(1).verdict()) == ("infra", "proved", "model_api.stalled", 2)


def test_a_client_that_closes_a_moment_after_the_last_words_had_no_watchdog() -> None:
    """Near-miss: pings had come, and so had words."""
    told = thinking(Scene().call().ran(0), quiet=1, since_ping=0.3).waited(9)
    assert summary(told.end(1).verdict()) == ("harness", "proved", "harness.client_timeout", 2)


def test_long_reasoning_that_is_waited_for_is_nothing() -> None:
    """Innocent."""
    verdict = Scene().call().ran(0).call(tools=0, seconds=400.0).end(1).verdict()
    assert verdict.blame == "model"


def test_a_watchdog_that_a_later_attempt_outlived_is_present() -> None:
    verdict = thinking(Scene().call().ran(0), quiet=60).call(tools=0).waited(9).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["harness.watchdog"]


def test_what_the_end_of_the_command_closed_was_no_watchdog() -> None:
    told = thinking(Scene().call().ran(0), quiet=60).end(1)
    assert told.verdict().cause == "harness.client_timeout"


def timed(told: Scene, *lengths: float, silent: float = 0.5) -> Scene:
    for length in lengths:
        told.aborted(silence=silent, seconds=length).waited(1)
    return told.waited(9)


def test_calls_that_end_at_one_length_while_bytes_come_show_an_inner_timer() -> None:
    verdict = timed(Scene().call().ran(0), 180.0, 180.2, 179.9).end(1).verdict()
    assert summary(verdict) == ("harness", "proved", "harness.inner_timeout", 2)
    assert "ended 3 calls at the same length (180 s)" in verdict.sentence
    assert "No later model call succeeded" in verdict.sentence
    assert ended(verdict) is None


@pytest.mark.parametrize("lengths", [(180.0, 180.1), (20.0, 45.0, 170.0), (1.0, 1.0, 1.0)])
def test_two_ends_or_ends_of_many_lengths_or_short_ones_are_no_timer(lengths: tuple[float, ...]) -> None:
    """Near-miss."""
    assert timed(Scene().call().ran(0), *lengths).end(1).verdict().cause == "harness.client_timeout"


def test_silent_calls_that_end_at_one_length_are_judged_by_their_silence() -> None:
    """Near-miss: an idle timer fires at one length as well, and the API was silent."""
    told = timed(Scene(user_agent="my-agent/1").call().ran(0), 120.0, 120.0, 120.0, silent=119.0)
    assert told.end(1).verdict().cause == "model_api.stalled"


def test_replies_of_one_length_that_came_whole_are_no_timer() -> None:
    """Innocent."""
    told = Scene()
    for _ in range(4):
        told.call(seconds=60.0).ran(0)
    assert told.call(tools=0).end(1).verdict().blame == "model"
