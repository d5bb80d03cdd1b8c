"""Responses over a WebSocket are calls of their own, however the tunnel's bytes were cut."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol

from fairtrial.middleware.wire.dialects import responses_socket
from fairtrial.middleware.wire.dialects.responses_socket import ResponsesSocket, SocketCall
from fairtrial.middleware.wire.feed import Flag, Kind
from fairtrial.middleware.wire.http1 import Headers, RequestHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.dialects.test_openai_responses import BEGUN, CALL, DONE, MESSAGE, TURN, ended
from tests.middleware.wire.traffic import Wire

PATH = "/v1/responses"
HEAD = RequestHead("GET", PATH, Headers((("session-id", "s"), ("thread-id", "s"))))

Json = dict[str, object]


class Peers:
    """Writes what client and server send."""

    def __init__(self, extensions: str | None = None) -> None:
        self._client = FrameProtocol(client=True, extensions=self._agreed(extensions))
        self._server = FrameProtocol(client=False, extensions=self._agreed(extensions))

    @staticmethod
    def _agreed(extensions: str | None) -> list[Extension]:
        if extensions is None:
            return []
        deflate = PerMessageDeflate()
        deflate.finalize(extensions)
        return [deflate]

    def create(self, **changes: object) -> bytes:
        fields: Json = {
            "type": "response.create",
            "model": "gpt-test",
            "tools": [{"type": "function", "name": "exec_command"}],
            "input": TURN[:2],
        }
        return bytes(self._client.send_data(json.dumps(fields | changes), fin=True))

    def says(self, *events: object, **more: object) -> bytes:
        texts = [json.dumps(e | more if isinstance(e, dict) else e, ensure_ascii=False, indent=1) for e in events]
        return b"".join(bytes(self._server.send_data(text, fin=True)) for text in texts)

    def close(self) -> bytes:
        return bytes(self._client.close(1000))


def socket(extensions: str | None = None) -> ResponsesSocket:
    return ResponsesSocket(HEAD, PATH, extensions)


def down(at: ResponsesSocket, data: bytes, *, size: int = 1 << 20) -> list[tuple[SocketCall, bool]]:
    return [each for i in range(0, len(data), size) for each in at.down(data[i : i + size], 1000 + i)]


@pytest.mark.parametrize("extensions", [None, "permessage-deflate"])
@given(size=st.integers(1, 900))
def test_a_call_is_read_as_its_stream_would_be(extensions: str | None, size: int) -> None:
    peers, at = Peers(extensions), socket(extensions)
    body = peers.create()
    (call,) = [each for i in range(0, len(body), size) for each in at.up(body[i : i + size])]
    assert (call.request.operation, call.request.stream, call.request.model) == ("chat", True, "gpt-test")
    assert (call.request.session, call.request.assistant_turns) == (digest("s"), 0)
    said = down(at, peers.says(*BEGUN, *DONE), size=size)
    assert {id(each) for each, _ in said} == {id(call)}
    assert any(spoke for _, spoke in said)
    tally = call.reader.tally
    assert (tally.terminator, tally.output_tokens, tally.pings, tally.events) == (True, 7, 1, 10)
    assert [tool.id for tool in tally.tool_calls] == ["call_3"]
    assert (at.failed, at.forget()) == (None, [])


def test_a_message_that_continues_a_response_has_its_history() -> None:
    peers, at = Peers(), socket()
    (first,) = at.up(peers.create())
    down(at, peers.says(*BEGUN, *DONE))
    output: Json = {"type": "function_call_output", "call_id": "call_3", "output": "x"}
    (second,) = at.up(peers.create(previous_response_id="resp_1", input=[output]))
    request = second.request
    assert (request.history_len, request.assistant_turns) == (2 + 2 + 1, 1)
    assert (request.tool_result_ids, request.first_user_digest) == (["call_3"], first.request.first_user_digest)
    assert (len(request.message_digests), request.body_digest) == (1, None)
    (stranger,) = at.up(peers.create(previous_response_id="resp_other", input=[output]))
    assert stranger.request.history_len is None


def test_a_read_of_nothing_but_keepalives_does_not_speak() -> None:
    peers, at = Peers(), socket()
    at.up(peers.create())
    assert [spoke for _, spoke in at.down(peers.says(BEGUN[3], BEGUN[3]), 1)] == [False]
    assert [spoke for _, spoke in at.down(peers.says(BEGUN[3], BEGUN[4], BEGUN[3]), 1)] == [True]


def test_a_warm_up_is_no_chat_and_no_turn() -> None:
    peers, at = Peers(), socket()
    (warm,) = at.up(peers.create(generate=False))
    assert warm.request.operation == "other"
    down(at, peers.says({"type": "response.completed", "response": ended()}))
    (call,) = at.up(peers.create(previous_response_id="resp_1", input=[]))
    assert (call.request.operation, call.request.history_len, call.request.assistant_turns) == ("chat", 2, 0)


def test_events_go_to_the_call_of_their_stream_and_else_to_the_oldest() -> None:
    peers, at = Peers(), socket()
    (one,) = at.up(peers.create(stream_id="a"))
    (other,) = at.up(peers.create(stream_id="b"))
    down(at, peers.says(DONE[-1], stream_id="b"))
    assert (one.over, other.over) == (False, True)
    down(at, peers.says(DONE[-1], stream_id="c"))
    assert not one.over
    down(at, peers.says(DONE[-1]))
    assert one.over


def test_an_error_event_names_its_status_and_its_wait() -> None:
    peers, at = Peers(), socket()
    (call,) = at.up(peers.create())
    error: Json = {
        "type": "error",
        "status": 429,
        "error": {"type": "rate_limit_exceeded", "message": "x"},
        "headers": {"Retry-After": "3"},
    }
    down(at, peers.says(error))
    assert (call.over, call.status, call.reader.tally.error_type, call.reader.tally.retry_after) == (
        True,
        429,
        "rate_limit_exceeded",
        3.0,
    )
    assert down(at, peers.says(error)) == []


def test_what_is_too_long_or_too_much_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_socket, "MAX_OPEN", 2)
    peers, at = Peers(), socket()
    for _ in range(3):
        at.up(peers.create())
    assert at.failed is not None
    assert len(at.forget()) == 3
    monkeypatch.setattr(responses_socket, "MAX_CLIENT_MESSAGE_BYTES", 10)
    long = socket()
    assert (long.up(Peers().create()), long.failed is not None) == ([], True)


def test_responses_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_socket, "MAX_REMEMBERED", 2)
    peers, at = Peers(), socket()
    for number in range(4):
        at.up(peers.create())
        down(at, peers.says({"type": "response.completed", "response": ended(id=f"resp_{number}")}))
    assert set(at._known) == {"resp_2", "resp_3"}


@given(junk=st.lists(st.binary(max_size=80), max_size=5), extensions=st.sampled_from([None, "permessage-deflate", "x"]))
def test_junk_never_raises(junk: Iterable[bytes], extensions: str | None) -> None:
    at = socket(extensions)
    for piece in junk:
        at.up(piece)
        at.down(piece, 1)


@given(junk=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_messages_of_any_other_form_never_raise(junk: object) -> None:
    peers, at = Peers(), socket()
    for name in ("type", "input", "previous_response_id", "stream_id", "client_metadata", "generate"):
        at.up(peers.create(**{name: junk}))
    down(at, peers.says(junk, *BEGUN, {"type": junk}, {"type": "error", "status": junk, "headers": junk}))
    assert at.failed is None


# --- behind the door ------------------------------------------------------------------------------------------------


def opened(extensions: str | None = "permessage-deflate") -> Wire:
    wire = Wire(door="model:openai")
    wire.request(method="GET", path=PATH, headers=["Upgrade: websocket", "session-id: s"])
    more = [] if extensions is None else [f"Sec-WebSocket-Extensions: {extensions}"]
    wire.head(101, headers=more)
    wire.json(Kind.RESPONSE_END, {"wire_bytes": 0, "complete": True, "how": "tunnel"})
    return wire


def test_calls_over_a_websocket_are_attempts_with_edges_of_their_own() -> None:
    wire, peers = opened(), Peers("permessage-deflate")
    output: Json = {"type": "function_call_output", "call_id": "call_3", "output": "x"}
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.ms += 5
    wire.write(Kind.TUNNEL_DOWN, peers.says(*BEGUN))
    wire.ms += 5
    wire.write(Kind.TUNNEL_DOWN, peers.says(*DONE))
    wire.ms += 50
    wire.write(Kind.TUNNEL_UP, peers.create(previous_response_id="resp_1", input=[output]))
    wire.ms += 5
    wire.write(Kind.TUNNEL_DOWN, peers.says({"type": "response.completed", "response": ended(output=[MESSAGE])}))
    wire.write(Kind.TUNNEL_UP, peers.close())
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    first, second, handshake = wire.ended()
    assert [(each.request.operation, each.outcome, each.parse) for each in (first, second, handshake)] == [
        ("chat", "ok", "full"),
        ("chat", "ok", "full"),
        ("hello", "ok", "full"),
    ]
    assert (first.ttfb, first.first_token, first.duration, first.reply.status) == (0.005, 0.005, 0.01, 101)
    assert (first.request.assistant_turns, second.request.assistant_turns) == (0, 1)
    assert second.request.tool_result_ids == [tool.id for tool in first.reply.tool_calls]
    assert len({each.attempt for each in wire.ended()} & {each.attempt for each in wire.started()}) == 3
    assert wire.edges == ["call_started", "call_ended"] * 2
    assert wire.tracker.faults == 0
    assert wire.tracker.open_attempts == 0


@pytest.mark.parametrize(
    "first, outcome, failed", [("upstream", "truncated", "upstream"), ("client", "client_disconnect", "client")]
)
def test_a_websocket_that_ends_with_a_call_open_cuts_that_call(first: str, outcome: str, failed: str) -> None:
    wire, peers = opened(None), Peers()
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.write(Kind.TUNNEL_DOWN, peers.says(*BEGUN))
    wire.json(Kind.CLOSE, {"first": first, "how": "rst"})
    call = next(each for each in wire.ended() if each.request.operation == "chat")
    assert (call.outcome, call.first_failure, call.reply.open_tool_calls) == (outcome, failed, 1)
    assert wire.edges == ["call_started", "call_ended"]


def test_an_error_event_is_the_calls_error_and_the_socket_goes_on() -> None:
    wire, peers = opened(None), Peers()
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.write(Kind.TUNNEL_DOWN, peers.says({"type": "error", "status": 503, "error": {"type": "server_error"}}))
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.write(Kind.TUNNEL_DOWN, peers.says(*BEGUN, *DONE))
    assert [(each.outcome, each.reply.status, each.first_failure) for each in wire.ended()] == [
        ("error", 503, "upstream"),
        ("ok", 101, None),
    ]


def test_a_hole_in_the_tunnel_is_no_truncation() -> None:
    wire, peers = opened(None), Peers()
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.write(Kind.TUNNEL_DOWN, (100).to_bytes(8, "big"), Flag.DROPPED)
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    call, handshake = wire.ended()
    assert (call.outcome, call.parse, call.reply.terminator) == ("ok", "partial", None)
    assert (handshake.parse, handshake.outcome) == ("none", "ok")


def test_a_tunnel_that_speaks_no_websocket_is_given_up() -> None:
    wire = opened(None)
    wire.write(Kind.TUNNEL_UP, b"GET / HTTP/1.1\r\n\r\n" * 10)
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    (handshake,) = wire.ended()
    assert handshake.parse == "none"
    assert "websocket" in (handshake.parse_why or "")


def test_a_fault_of_ours_disables_the_socket_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[SocketCall]:
        raise ValueError("a fault of ours")

    wire, peers = opened(None), Peers()
    monkeypatch.setattr(ResponsesSocket, "up", broken)
    wire.write(Kind.TUNNEL_UP, peers.create(input=[CALL]))
    wire.write(Kind.TUNNEL_UP, peers.create())
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    assert (wire.tracker.faults, len(wire.ended())) == (1, 1)
