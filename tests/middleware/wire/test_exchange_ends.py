"""How an attempt ended: failures of client, upstream and fairtrial are kept apart, and a truncation from an error."""

import json

import pytest

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, Wire, anthropic_request, openai_request, sse, typed


def test_a_broken_attempt_says_when_each_side_was_last_heard_and_whether_the_machine_slept() -> None:
    wire = Wire()
    wire.ms = 1000
    wire.request(anthropic_request())
    at = wire.now_ns
    wire.head()
    wire.broken("cut", "upstream", client_last_ns=at, upstream_last_ns=at + 10_000_000, suspend_gap_s=7.5)
    (ended,) = wire.ended()
    assert (ended.client_last, ended.upstream_last, ended.suspended) == (0.001, 0.011, 7.5)


@pytest.mark.parametrize("at_first, at_close, told", [(True, False, False), (False, None, False), (True, True, True)])
def test_a_server_of_this_machine_that_listens_no_more_is_told(
    at_first: bool, at_close: bool | None, told: bool
) -> None:
    """One that is being ended closes what it holds one by one: it may listen for a moment longer."""
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    facts: dict[str, object] = {"first": "upstream", "errno": 104, "first_ns": wire.now_ns}
    end: dict[str, object] = {
        "wire_bytes": 10,
        "complete": False,
        "how": "cut",
        "close_how": "fin",
        "far_listens": at_first,
    }
    wire.json(Kind.RESPONSE_END, end | facts)
    wire.json(Kind.CLOSE, {"how": "fin", "far_listens": at_close, **facts})
    assert [ended.far_listens for ended in wire.ended()] == [told]


def test_a_stream_cut_by_the_upstream_is_truncated() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.dial()
    wire.head()
    wire.data(ANTHROPIC_STREAM[: len(ANTHROPIC_STREAM) // 2])
    wire.broken("cut", "upstream", after_ms=500)
    (ended,) = wire.ended()
    assert (ended.outcome, ended.first_failure, ended.closed_by) == ("truncated", "upstream", "upstream")
    assert (ended.close_kind, ended.errno, ended.silence_at_end) == ("rst", "ECONNRESET", 0.5)
    assert ended.max_gap_with_pings == 0.5
    assert (ended.reply.usage_partial, ended.reply.output_tokens, ended.reply.terminator) == (True, None, False)
    assert wire.edges == ["call_started", "call_ended"]


def test_a_stream_that_ends_well_framed_without_its_end_mark_is_truncated() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(sse(*typed({"type": "message_start", "message": {"type": "message", "usage": {"input_tokens": 1}}})))
    wire.end()
    assert wire.ended()[0].outcome == "truncated"


def test_a_client_that_hangs_up_behind_the_end_mark_has_its_answer() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.broken("client_gone", "client", close="fin", errno=None)
    (ended,) = wire.ended()
    assert (ended.outcome, ended.first_failure, ended.closed_by) == ("ok", None, "client")


@pytest.mark.parametrize(
    "how, first, outcome",
    [
        ("client_gone", "client", "client_disconnect"),
        ("cut", "upstream", "error"),
        ("aborted", "fairtrial", "proxy_shutdown"),
    ],
)
def test_who_failed_before_any_answer_is_told_apart(how: str, first: str, outcome: str) -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.broken(how, first)
    (ended,) = wire.ended()
    assert (ended.outcome, ended.first_failure, ended.closed_by) == (outcome, first, first)
    assert (ended.ttfb, ended.max_gap, ended.reply.status) == (None, None, None)


def test_a_failed_dial_says_where_it_failed() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.dial(ok=False, stage="dns", errno=-2, error="Name or service not known", connect_s=None, tls_s=None)
    wire.broken("cut", "upstream", close="dial", errno=None)
    (ended,) = wire.ended()
    assert (ended.outcome, ended.dial_stage, ended.first_failure) == ("error", "dns", "upstream")
    assert ended.dial_error == "Name or service not known"


@pytest.mark.parametrize("status, kind", [(529, "overloaded_error"), (401, "authentication_error")])
def test_an_error_status_is_an_error_with_the_providers_type(status: int, kind: str) -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head(status, media="application/json", headers=["Retry-After: 2", "x-should-retry: true"])
    wire.data(json.dumps({"type": "error", "error": {"type": kind, "message": "secret words"}}).encode())
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.reply.status, ended.reply.error_type) == ("error", status, kind)
    assert (ended.reply.retry_after, ended.reply.should_retry, ended.first_failure) == (2.0, True, "upstream")
    assert "secret words" not in json.dumps([o.value for o in wire.observations])


def test_an_error_event_in_a_200_is_an_error() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(sse(*typed({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})))
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.reply.status, ended.reply.error_in_stream) == ("error", 200, True)
    assert ended.reply.error_type == "overloaded_error"


def test_html_in_a_200_is_an_error() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head(media="text/html")
    wire.data(b"<!DOCTYPE html><html>Bad gateway</html>")
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.reply.html) == ("error", True)


def test_a_json_reply_cut_in_its_body_is_truncated() -> None:
    wire = Wire(door="model:openai")
    wire.request(openai_request(stream=False), path="/v1/chat/completions")
    wire.head(media="application/json")
    wire.data(b'{"id":"c","choices":[{"message":{"content":"half')
    wire.broken("cut", "upstream", close="fin", errno=None)
    assert wire.ended()[0].outcome == "truncated"


def test_what_is_open_at_the_end_of_observing_was_shut_down() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    assert wire.tracker.open_attempts == 1
    wire.tracker.close()
    assert [ended.outcome for ended in wire.ended()] == ["proxy_shutdown"]
    assert wire.tracker.open_attempts == 0
    wire.tracker.close()
    assert len(wire.ended()) == 1
