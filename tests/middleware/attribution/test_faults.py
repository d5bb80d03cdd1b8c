"""One attempt, one fault: who failed first, and on whose side."""

import pytest

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.faults import classify, silence_s, watchdog_s
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import ReplyFacts
from tests.middleware.attribution.scene import CLAUDE, Scene


def cause(told: Scene, *, answered: bool = True, ends_with: bool = False) -> str | None:
    attempt = Case(told.waited(9).end(1).assembly()).calls[-1].attempts[-1]
    fault = classify(
        attempt,
        answered_at_ns=attempt.started_ns - 1 if answered else None,
        ends_with=ends_with,
        thresholds=DEFAULT_THRESHOLDS,
    )
    return None if fault is None else fault.cause


def test_a_whole_reply_has_no_fault() -> None:
    assert cause(Scene().call()) is None


def test_a_web_page_in_place_of_a_reply_is_a_gateways() -> None:
    page = ReplyFacts(status=200, html=True, provider_id=False, content_type="text/html")
    assert cause(Scene().attempt(page)) == "gateway.error"


def test_an_html_page_with_404_is_a_wrong_path_and_with_403_a_gateways() -> None:
    assert cause(Scene().refused(404, html=True)) == "operator.endpoint"
    assert cause(Scene().refused(403, html=True)) == "gateway.error"


def test_a_close_before_the_head_depends_on_whether_the_upstream_ever_answered() -> None:
    def closed() -> Scene:
        return Scene().attempt(ReplyFacts(), outcome="error", first_failure="upstream", close_kind="fin")

    assert cause(closed(), answered=True) == "model_api.unreachable"
    assert cause(closed(), answered=False) == "operator.endpoint"


def test_an_error_reply_that_the_client_did_not_wait_for_is_still_the_error() -> None:
    told = Scene().attempt(ReplyFacts(status=529), outcome="client_disconnect")
    assert cause(told) == "model_api.overloaded"


@pytest.mark.parametrize(
    "agent, wait",
    [(CLAUDE, 300.0), ("OpenAI/Python 3.57.0", 600.0), ("codex_exec/0.171.0", 300.0), ("who", 90.0), (None, 90.0)],
)
def test_known_clients_have_their_own_watchdog(agent: str | None, wait: float) -> None:
    assert watchdog_s(agent, DEFAULT_THRESHOLDS) == wait


def test_a_call_without_a_head_was_silent_since_its_request_was_sent() -> None:
    told = Scene().attempt(ReplyFacts(), outcome="client_disconnect", seconds=40.0, request_sent=1.0)
    attempt = Case(told.end(1).assembly()).calls[-1].attempts[-1]
    assert silence_s(attempt) == pytest.approx(39.0)


def test_what_the_observer_measured_as_the_upstreams_silence_is_the_silence() -> None:
    """Not what our own lag, or a client that did not read, made of it."""
    told = Scene().attempt(
        ReplyFacts(status=200, terminator=False, events=3),
        outcome="client_disconnect",
        seconds=40.0,
        ttfb=1.0,
        max_gap_with_pings=39.0,
        silence_at_end=39.0,
        downstream_blocked=30.0,
        upstream_gap_with_pings=12.5,
    )
    attempt = Case(told.end(1).assembly()).calls[-1].attempts[-1]
    assert silence_s(attempt) == 12.5


def test_a_proxy_that_wants_or_refuses_a_login_is_the_operators() -> None:
    def told(status: int | None, code: str | None) -> str | None:
        scene = Scene().attempt(
            ReplyFacts(),
            outcome="error",
            first_failure="upstream",
            close_kind="dial",
            dial_stage="proxy",
            via_proxy="p:1",
            proxy_status=status,
            errno=code,
        )
        return cause(scene)

    assert told(407, None) == "operator.auth"
    assert told(None, "EACCES") == "operator.auth"
    assert told(None, "ECONNREFUSED") == "network.proxy"
    assert told(502, None) == "network.proxy"
