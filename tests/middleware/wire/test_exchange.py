"""The tracker tells what happened to each request; failures of client, upstream and fairtrial are kept apart."""

import gzip
import json
from typing import Any

import pytest

from fairtrial.middleware.core.claims import Assigned, Claims
from fairtrial.middleware.core.observations import AttemptEnded, GapSeen, Note, ReplyFacts
from fairtrial.middleware.wire.dialects import anthropic_messages
from fairtrial.middleware.wire.feed import Flag, Kind
from fairtrial.middleware.wire.redact import digest
from fairtrial.middleware.wire.session import KeyDigest
from tests.middleware.wire.traffic import (
    ANTHROPIC_STREAM,
    MONO_NS,
    OPENAI_STREAM,
    TOKEN,
    TRIAL,
    WALL_NS,
    Wire,
    anthropic_request,
    openai_request,
    pieces,
    sse,
    typed,
)


def one_call(wire: Wire, *, cuts: int = 1) -> Wire:
    wire.request(anthropic_request(), cuts=cuts)
    wire.dial()
    wire.head()
    for piece in pieces(ANTHROPIC_STREAM, cuts):
        wire.data(piece)
    wire.end()
    return wire


def test_a_whole_call_is_ok_and_carries_what_was_measured() -> None:
    wire = one_call(Wire())
    (ended,) = wire.ended()
    assert (ended.outcome, ended.dialect, ended.provider) == ("ok", "anthropic_messages", "anthropic")
    assert (ended.upstream_host, ended.method, ended.path) == ("api.test:443", "POST", "/v1/messages?beta=true")
    assert ended.started_wall_ns == WALL_NS
    assert (ended.request_sent, ended.ttfb, ended.first_token) == (0.001, 0.011, 0.012)
    assert (ended.dns, ended.connect, ended.tls, ended.reused) == (0.001, 0.002, 0.003, False)
    assert (ended.bytes_up, ended.bytes_down) == (len(anthropic_request()) + 300, 1000)
    assert (ended.first_failure, ended.closed_by, ended.close_kind) == (None, None, "framed")
    assert (ended.parse, ended.reply.request_id, ended.reply.provider_id) == ("full", "req_1", True)
    assert (ended.reply.input_tokens, ended.reply.output_tokens, ended.reply.cache_read_tokens) == (11, 42, 5)
    (started,) = wire.started()
    assert started.attempt == ended.attempt
    assert started.request == ended.request
    assert {o.subject.trial for o in wire.observations} == {TRIAL}
    assert wire.edges == ["call_started", "call_ended"]


@pytest.mark.parametrize("cuts", [2, 17, 400])
def test_any_cut_of_the_bytes_gives_the_same_facts(cuts: int) -> None:
    whole, cut = one_call(Wire()).ended()[0], one_call(Wire(), cuts=cuts).ended()[0]
    assert cut.reply == whole.reply
    assert cut.request == whole.request


def test_no_content_and_no_secret_leaves() -> None:
    wire = one_call(Wire())
    written = json.dumps([o.value for o in wire.observations])
    for secret in ("make test", "sk-secret", "Welt", "do it", "You are", "tok-", '"s-1"'):
        assert secret not in written


def test_the_second_request_of_a_connection_did_not_dial() -> None:
    wire = one_call(Wire())
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    second = wire.ended()[1]
    assert (second.reused, second.dns, second.connect, second.remote) == (True, None, None, None)


def test_a_request_without_a_known_token_belongs_to_no_trial() -> None:
    wire = Wire()
    wire.request(anthropic_request(), token=None)
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request(), token="guessed")
    wire.end()
    assert {o.subject.trial for o in wire.observations} == {None}
    assert wire.edges == []
    assert "guessed" not in json.dumps([o.value for o in wire.observations])


class Desk:
    """Gives every second request to a trial, and remembers what it was told."""

    def __init__(self) -> None:
        self.asked: list[Claims] = []
        self.over: list[tuple[str, str | None, bool]] = []

    def resolve(self, claims: Claims) -> Assigned:
        self.asked.append(claims)
        if len(self.asked) % 2:
            return Assigned(why="no_identity", hint="trial-9")
        return Assigned(trial="trial-8", how="id:session-id")

    def ended(self, attempt: str, reply: ReplyFacts, *, whole: bool) -> None:
        self.over.append((attempt, reply.response_id, whole))


def test_whose_a_request_is_is_asked_once_when_head_and_body_are_known() -> None:
    desk = Desk()
    wire = Wire(assigns=desk)
    one_call(wire)
    one_call(wire)
    wire.request(anthropic_request(), headers=["x-fairtrial-trial: t42"])
    wire.broken("cut", "upstream")
    started, ended = wire.started(), wire.ended()
    assert [claims.attempt for claims in desk.asked] == [value.attempt for value in started]
    assert [(c.token, c.peer, c.named) for c in desk.asked] == [
        (TOKEN, "127.0.0.1", None),
        (TOKEN, "127.0.0.1", None),
        (TOKEN, "127.0.0.1", "t42"),
    ]
    assert [claims.request for claims in desk.asked] == [value.request for value in started]
    assert desk.asked[0].request.history_len == 3
    for values in (started, ended):
        assert [(v.assigned_by, v.unassigned_why, v.trial_hint) for v in values] == [
            (None, "no_identity", "trial-9"),
            ("id:session-id", None, None),
            (None, "no_identity", "trial-9"),
        ]
    trials = [o.subject.trial for o in wire.observations if o.kind.startswith("attempt.")]
    assert trials == [None, None, "trial-8", "trial-8", None, None]
    assert [(name, whole) for _, name, whole in desk.over] == [("msg_1", True), ("msg_1", True), (None, False)]
    assert wire.edges == ["call_started", "call_ended"]


def test_the_key_of_a_request_leaves_the_observers_memory_as_a_keyed_digest_only() -> None:
    desk, keys = Desk(), KeyDigest(b"k")
    wire = one_call(Wire(assigns=desk, keys=keys))
    assert desk.asked[0].key == keys.of("sk-secret")
    assert keys.of("sk-secret") not in json.dumps([o.value for o in wire.observations])


@pytest.mark.parametrize(
    "said, expected",
    [
        ({"lag_max_s": 3.0}, 0.0),
        ({"lag_max_s": 3.0, "lag_now_s": 1.5}, 1.5),
        ({"lag_max_s": 4.0}, 4.0),
    ],
    ids=str,
)
def test_lag_from_before_an_exchange_on_its_connection_is_not_charged_to_it(
    said: dict[str, Any], expected: float
) -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.json(Kind.LAG, {"lag_s": 3.0})
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request())
    wire.broken("cut", "upstream", **said)
    assert [value.our_lag for value in wire.ended()] == [3.0, expected]


def test_a_broken_attempt_says_when_each_side_was_last_heard_and_whether_the_machine_slept() -> None:
    wire = Wire()
    wire.ms = 1000
    wire.request(anthropic_request())
    at = wire.now_ns
    wire.head()
    wire.broken("cut", "upstream", client_last_ns=at, upstream_last_ns=at + 10_000_000, suspend_gap_s=7.5)
    (ended,) = wire.ended()
    assert (ended.client_last, ended.upstream_last, ended.suspended) == (0.001, 0.011, 7.5)


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


def test_openai_chat_is_read_through_its_own_door() -> None:
    wire = Wire(door="model:openai")
    wire.request(openai_request(), path="/v1/chat/completions")
    wire.head(headers=["x-request-id: r2"])
    wire.data(OPENAI_STREAM)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.dialect, ended.provider) == ("ok", "openai_chat", "openai")
    assert (ended.reply.input_tokens, ended.reply.output_tokens, ended.reply.stop_reason) == (20, 7, "tool_calls")
    assert ended.reply.tool_calls[0].text_digest == digest("make test")


def test_pings_count_as_bytes_but_not_as_content() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[: ANTHROPIC_STREAM.index(b"event: content_block_delta")])
    for _ in range(4):
        wire.data(b'event: ping\ndata: {"type": "ping"}\n\n', after_ms=100)
    wire.data(ANTHROPIC_STREAM[ANTHROPIC_STREAM.index(b"event: content_block_delta") :], after_ms=100)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.max_gap, ended.max_gap_with_pings) == (0.5, 0.1)


def test_back_pressure_of_the_client_is_told_apart_even_when_it_then_hangs_up() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[:400])
    since = wire.now_ns
    wire.ms += 300
    ending: dict[str, object] = {"complete": False, "how": "client_gone", "first": "client", "first_ns": wire.now_ns}
    wire.json(Kind.RESPONSE_END, ending)
    wire.json(Kind.BLOCKED, {"side": "client", "since_ns": since, "until_ns": wire.now_ns})
    wire.json(Kind.CLOSE, {"first": "client", "how": "rst"})
    (ended,) = wire.ended()
    assert (ended.outcome, ended.downstream_blocked) == ("client_disconnect", 0.3)
    assert ended.blocked_before_end == 0.3


def test_a_cut_that_came_while_the_client_did_not_read_says_so_though_it_reads_again_later() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[:400])
    since = wire.now_ns
    wire.ms += 3000
    cut_at = wire.now_ns
    wire.ms += 2000
    wire.json(Kind.BLOCKED, {"side": "client", "since_ns": since, "until_ns": wire.now_ns})
    wire.json(Kind.RESPONSE_END, {"complete": False, "how": "cut", "first": "upstream", "first_ns": cut_at})
    wire.json(Kind.CLOSE, {"first": "upstream", "how": "rst"})
    (ended,) = wire.ended()
    assert (ended.outcome, ended.blocked_before_end) == ("truncated", 3.0)


def test_a_client_that_reads_again_long_before_the_cut_was_reading_at_the_cut() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    since = wire.now_ns
    wire.ms += 500
    wire.json(Kind.BLOCKED, {"side": "client", "since_ns": since, "until_ns": wire.now_ns})
    wire.data(ANTHROPIC_STREAM[:400])
    wire.broken("cut", "upstream", after_ms=400)
    (ended,) = wire.ended()
    assert (ended.downstream_blocked, ended.blocked_before_end) == (0.5, 0.0)


# --- whose connection it was ----------------------------------------------------------------------------------------


def test_a_whole_request_on_an_open_connection_is_both() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.broken("cut", "upstream")
    (ended,) = wire.ended()
    assert (ended.request_whole, ended.after_close) == (True, False)


@pytest.mark.parametrize("told", [True, False])
def test_a_request_that_the_client_never_finished_is_not_whole(told: bool) -> None:
    wire = Wire()
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, f"POST /t/{TOKEN}/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wire.write(Kind.REQUEST_DATA, b'{"model"')
    if told:
        wire.json(Kind.REQUEST_END, {"wire_bytes": None, "complete": False})
    wire.broken("cut", "upstream", after_ms=60_000)
    (ended,) = wire.ended()
    assert ended.request_whole is False


def test_a_request_of_which_the_copy_has_a_hole_may_have_been_whole() -> None:
    wire = Wire()
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, f"POST /t/{TOKEN}/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wire.json(Kind.LOST, {"records": 3, "bytes": 900, "since_ns": wire.now_ns, "until_ns": wire.now_ns})
    wire.broken("cut", "upstream")
    assert wire.ended()[0].request_whole is None


def test_a_request_behind_the_clients_own_close_is_owed_no_answer() -> None:
    wire = Wire()
    wire.request(anthropic_request(), headers=["Connection: keep-alive, Close"])
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request())
    wire.broken("cut", "upstream")
    assert [e.after_close for e in wire.ended()] == [False, True]


@pytest.mark.parametrize("close", ["Connection: close", "HTTP/1.0"])
def test_a_request_pipelined_behind_a_response_that_closes_is_owed_no_answer(close: str) -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.request(anthropic_request())
    wire.msg = 1
    if close == "HTTP/1.0":
        wire.write(Kind.RESPONSE_HEAD, b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    else:
        wire.head(headers=[close])
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.msg = 2
    wire.broken("cut", "upstream")
    assert [e.after_close for e in wire.ended()] == [False, True]


def test_a_request_after_the_upstreams_fin_was_passed_on_is_owed_no_answer() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    fin_ns = wire.now_ns
    wire.ms += 50
    wire.request(anthropic_request())
    wire.json(Kind.RESPONSE_END, {"complete": False, "how": "cut", "first": "upstream", "first_ns": fin_ns})
    wire.json(Kind.CLOSE, {"how": "fin", "first": "upstream", "first_ns": fin_ns})
    assert [e.after_close for e in wire.ended()] == [False, True]


def test_our_own_lag_is_noted_on_the_attempts_that_were_open() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.json(Kind.LAG, {"lag_s": 0.25})
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    assert [ended.our_lag for ended in wire.ended()] == [0.25, 0.0]


def test_what_the_feed_lost_is_a_gap_and_no_truncation() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[:500])
    wire.json(Kind.LOST, {"records": 3, "bytes": 900, "since_ns": wire.now_ns, "until_ns": wire.now_ns})
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.parse, ended.reply.terminator) == ("ok", "partial", None)
    gap = next(value for value in wire.values() if isinstance(value, GapSeen))
    assert (gap.source, gap.families, gap.lost_records, gap.lost_bytes) == ("feed", ["model_api"], 3, 900)
    assert gap.since_ns is not None
    assert gap.since_ns > WALL_NS


def test_a_dropped_payload_leaves_a_hole_and_no_claim() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data((5).to_bytes(8, "big"), flags=Flag.DROPPED)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.parse) == ("ok", "partial")
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, b"POST /v1/messages HTTP/1.1\r\n\r\n")
    wire.write(Kind.REQUEST_DATA, (5).to_bytes(8, "big"), Flag.DROPPED)
    wire.json(Kind.REQUEST_END, {"wire_bytes": 5, "complete": True})
    assert wire.started()[1].request.unreadable is not None
    assert wire.started()[1].request.operation == "chat"


def test_a_blind_connection_is_noted_and_a_gap() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.json(Kind.BLIND, {"side": "response", "reason": "bad chunk"})
    wire.json(Kind.RESPONSE_END, {"wire_bytes": None, "complete": None, "how": "blind"})
    (ended,) = wire.ended()
    assert (ended.parse, ended.outcome) == ("none", "ok")
    assert any(isinstance(value, Note) and value.event == "blind" for value in wire.values())
    since = wire.now_ns
    wire.ms += 2000
    wire.json(Kind.CLOSE, {"how": "fin", "first": "client"})
    (gap,) = [value for value in wire.values() if isinstance(value, GapSeen)]
    assert (gap.since_ns, gap.until_ns) == (WALL_NS + since - MONO_NS, WALL_NS + wire.now_ns - MONO_NS)


def test_a_blind_connection_is_a_gap_of_each_trial_that_used_it() -> None:
    wire = Wire(assigns=Desk())
    for _ in range(4):
        one_call(wire)
    wire.json(Kind.BLIND, {"side": "request", "reason": "x"})
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    told = [(o.kind, o.subject.trial) for o in wire.observations if not o.kind.startswith("attempt.")]
    assert told == [("trial.note", "trial-8"), ("coverage.gap", "trial-8")]


def test_a_blind_connection_that_is_open_at_the_end_is_a_gap_up_to_it() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.json(Kind.BLIND, {"side": "request", "reason": "junk"})
    wire.json(Kind.BYE, {})
    assert [value.until_ns for value in wire.values() if isinstance(value, GapSeen)] == [
        WALL_NS + wire.now_ns - MONO_NS
    ]


@pytest.mark.parametrize("token", [None, "guessed"])
def test_junk_on_a_connection_that_never_carried_a_token_of_the_trial_hides_nothing_of_it(token: str | None) -> None:
    wire = Wire()
    if token is not None:
        wire.request(anthropic_request(), token=token)
    wire.json(Kind.BLIND, {"side": "request", "reason": "no HTTP"})
    wire.json(Kind.CLOSE, {"how": "fin", "first": "client"})
    assert [value for value in wire.values() if isinstance(value, GapSeen)] == []


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


def test_a_dialect_that_raises_is_given_up_for_that_message_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("bug")

    wire = Wire()
    with monkeypatch.context() as patch:
        patch.setattr(anthropic_messages, "_facts", fails)
        one_call(wire)
    one_call(wire)
    first, second = wire.ended()
    assert (first.parse, first.request.operation, first.bytes_down) == ("none", "other", 1000)
    assert (second.parse, second.outcome) == ("full", "ok")
    assert wire.tracker.faults == 1


def test_encoded_replies_and_requests_are_read_from_decoded_copies() -> None:
    wire = Wire()
    wire.request(gzip.compress(anthropic_request()), headers=["Content-Encoding: gzip"])
    wire.head(headers=["Content-Encoding: gzip"])
    for piece in pieces(gzip.compress(ANTHROPIC_STREAM), 30):
        wire.data(piece)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.request.model, ended.reply.output_tokens, ended.outcome) == ("claude-test", 42, "ok")


def test_a_corrupt_encoding_is_given_up_and_is_no_truncation() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head(headers=["Content-Encoding: gzip"])
    wire.data(b"not gzip at all")
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.parse) == ("ok", "partial")


def test_unknown_paths_pass_and_are_recorded() -> None:
    wire = Wire()
    wire.request(b"{}", path="/v1/embeddings?key=secret")
    wire.head(media="application/json")
    wire.data(b"{}")
    wire.end()
    (ended,) = wire.ended()
    assert (ended.dialect, ended.request.operation, ended.outcome) == ("unknown", "other", "ok")
    assert (ended.path, ended.reply.terminator) == ("/v1/embeddings", None)


def test_greetings_are_no_calls() -> None:
    wire = Wire()
    wire.request(method="HEAD", path="/")
    wire.head(404, media="text/plain")
    wire.end()
    assert wire.ended()[0].request.operation == "hello"
    assert wire.edges == []


def test_a_tunnel_is_one_attempt_with_its_bytes_counted() -> None:
    wire = Wire()
    wire.request(method="GET", path="/v1/responses", headers=["Upgrade: websocket"])
    wire.head(101)
    wire.json(Kind.RESPONSE_END, {"wire_bytes": 0, "complete": True, "how": "tunnel"})
    wire.write(Kind.TUNNEL_UP, b"x" * 10)
    wire.write(Kind.TUNNEL_DOWN, b"y" * 20)
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin", "client_last_ns": wire.now_ns})
    (ended,) = wire.ended()
    assert (ended.bytes_down, ended.parse, ended.closed_by) == (20, "none", "client")


def test_a_response_whose_request_was_lost_is_recorded_all_the_same() -> None:
    wire = Wire()
    wire.msg = 9
    wire.head()
    wire.end()
    (ended,) = wire.ended()
    assert (ended.parse, ended.method, ended.reply.status) == ("none", None, 200)


def test_junk_records_are_counted_and_skipped() -> None:
    wire = Wire()
    wire.write(Kind.DIAL, b"not json")
    wire.write(Kind.OPEN, b"[1,2]")
    assert wire.tracker.faults == 2
    assert wire.tracker.last_fault is not None


def test_request_bodies_are_let_go_when_they_were_read() -> None:
    wire = one_call(Wire(), cuts=5)
    assert wire.tracker.held_bytes == 0
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, b"POST /v1/messages HTTP/1.1\r\n\r\n")
    wire.write(Kind.REQUEST_DATA, b"x" * 1000)
    assert wire.tracker.held_bytes == 1000
    wire.broken("client_gone", "client")
    assert wire.tracker.held_bytes == 0


# --- what only our own reader refuses -------------------------------------------------------------------------------

WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 7},
}
CHAT = {
    "id": "c1",
    "model": "gpt-test",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}


def answered(body: bytes, *, chat: bool = False) -> AttemptEnded:
    wire = Wire(door="model:openai" if chat else "model:anthropic")
    asked = openai_request(stream=False) if chat else anthropic_request(stream=False)
    wire.request(asked, path="/v1/chat/completions" if chat else "/v1/messages")
    wire.head(media="application/json")
    wire.data(body)
    wire.end()
    (ended,) = wire.ended()
    return ended


@pytest.mark.parametrize(
    "change",
    [
        {"content": [{"type": "text", "text": "\ud83d"}]},
        {"usage": {"input_tokens": 5.0, "output_tokens": 7.5}},
        {"usage": {"input_tokens": "5"}},
        {"usage": None},
        {"id": 5},
        {"x": float("nan")},
    ],
)
def test_a_reply_that_every_client_reads_is_whole(change: dict[str, object]) -> None:
    ended = answered(json.dumps(WHOLE | change).encode())
    assert (ended.outcome, ended.reply.terminator, ended.reply.stop_reason) == ("ok", True, "end_turn")
    told = answered(json.dumps(CHAT | {k: v for k, v in change.items() if k != "content"}).encode(), chat=True)
    assert (told.outcome, told.reply.terminator) == ("ok", True)


@pytest.mark.parametrize("body", [b"\xef\xbb\xbf" + json.dumps(WHOLE).encode(), json.dumps(WHOLE).encode() + b"\n "])
def test_bytes_around_a_reply_cost_nothing(body: bytes) -> None:
    assert answered(body).outcome == "ok"


@pytest.mark.parametrize(
    "change", [{"content": "Done."}, {"content": [{"type": "tool_use", "id": 1, "name": "Bash", "input": "x"}]}]
)
def test_a_reply_whose_content_is_not_as_promised_is_read_in_part_and_no_error(change: dict[str, object]) -> None:
    ended = answered(json.dumps(WHOLE | change).encode())
    assert ended.outcome == "ok"
    assert ended.reply.terminator is None or ended.parse == "full"


def test_arguments_that_are_an_object_are_no_error() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    assert answered(json.dumps(CHAT | {"choices": choices}).encode(), chat=True).outcome == "ok"


@pytest.mark.parametrize("body", [b"[]", b"ok", b'{"error":{"type":"x"}}', b""])
def test_what_is_no_answer_to_anybody_stays_an_error(body: bytes) -> None:
    assert answered(body).outcome == "error"


def test_a_request_with_a_cut_emoji_is_read_as_its_client_meant_it() -> None:
    wire = Wire()
    cut = anthropic_request(messages=[{"role": "user", "content": "\ud83d do it"}])
    wire.request(cut)
    wire.broken("cut", "upstream")
    (ended,) = wire.ended()
    assert (ended.request.unreadable, ended.request.has_tools, ended.request.history_len) == (None, True, 1)


def test_a_request_with_a_hole_in_its_copy_was_not_seen_and_one_of_junk_was() -> None:
    wire = Wire()
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, f"POST /t/{TOKEN}/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wire.write(Kind.REQUEST_DATA, (5000).to_bytes(8, "big"), Flag.DROPPED)
    wire.json(Kind.REQUEST_END, {"wire_bytes": 5300, "complete": True})
    wire.broken("cut", "upstream")
    wire.request(b"no json")
    wire.broken("cut", "upstream")
    assert [(e.request.unreadable is None, e.request.unseen) for e in wire.ended()] == [(False, True), (False, False)]
