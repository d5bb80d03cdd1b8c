"""Faults of other proxies with cut, failed and oddly ended answers, and with what is told of them (T13–T38).

T numbers are those of the reference page model-api.md section 5.3; `test_relay_t_cases.py` has the whole table.
"""

import http.client
import threading
import time

import pytest

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.observed import attempt, attempts
from tests.middleware.relay.rig import TOKEN, Rig, read_all, read_exactly, read_head, request, reset
from tests.middleware.relay.talk import ask, ask_stream, chunk, close_cleanly, json_answer, say, stream_head
from tests.middleware.wire.families import CHAT, FAMILIES, MESSAGES, RESPONSES, Family, response_event
from tests.middleware.wire.traffic import sse, typed

family_of_routes = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@family_of_routes
@pytest.mark.parametrize("ending", ["framed", "fin", "rst", "close_delimited"])
def test_a_stream_without_its_end_mark_is_truncated_and_passes_as_it_came(
    rig: Rig, family: Family, ending: str
) -> None:
    """T09, T13, T14, T20, T21, T23, T24: no mark is made up, the end stays what it was, the usage so far is kept."""
    client, up = ask_stream(rig, family)
    chunked = ending != "close_delimited"
    pieces = family.pieces[: family.cut]
    say(up, client, stream_head(family, chunked=chunked) + b"".join(chunk(p) if chunked else p for p in pieces))
    if ending == "framed":
        say(up, client, b"0\r\n\r\n")
    if ending == "rst":
        reset(up)
    else:
        up.close()
    assert read_all(client) == (b"", "rst" if ending == "rst" else "fin")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.dialect, ended.reply.status) == ("truncated", family.dialect, 200)
    assert ended.reply.terminator is False
    assert (ended.reply.input_tokens, ended.reply.output_tokens) == family.usage_at_cut
    assert ended.reply.usage_partial is not False
    assert ended.reply.started_content
    assert ended.first_failure == "upstream"


@family_of_routes
@pytest.mark.parametrize("size", [0, 3])
def test_a_whole_stream_is_ok_with_its_usage_however_its_events_are_cut(rig: Rig, family: Family, size: int) -> None:
    """T28, T29, T30, T38, T62: events and letters split over chunks are read whole; one call is one attempt."""
    client, up = ask_stream(rig, family)
    body = b"".join(family.pieces)
    cuts = [body[at : at + size] for at in range(0, len(body), size)] if size else list(family.pieces)
    say(up, client, stream_head(family))
    for start in range(0, len(cuts), 40):
        say(up, client, b"".join(map(chunk, cuts[start : start + 40])))
    say(up, client, b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.parse, ended.dialect) == ("ok", "full", family.dialect)
    assert (ended.reply.input_tokens, ended.reply.output_tokens) == family.usage
    assert (ended.reply.usage_partial, ended.reply.terminator) == (False, True)
    assert ended.first_token is not None


@family_of_routes
def test_a_last_event_without_its_line_end_is_read(rig: Rig, family: Family) -> None:
    """T31: the end of the body ends the last event too."""
    client, up = ask_stream(rig, family)
    body = b"".join(family.pieces).rstrip(b"\n") if "event-stream" not in family.media else b"".join(family.pieces)
    if family.media.startswith("text/"):
        body = body.removesuffix(b"\n\n")
    say(up, client, stream_head(family) + chunk(body) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.reply.terminator) == ("ok", True)
    assert (ended.reply.input_tokens, ended.reply.output_tokens) == family.usage


@family_of_routes
@pytest.mark.parametrize("ending", ["framed", "rst"])
def test_an_error_inside_a_200_is_the_attempts_error_and_passes_as_it_came(
    rig: Rig, family: Family, ending: str
) -> None:
    """T18, T21: typed as the provider says; the status stays 200, one outcome."""
    client, up = ask_stream(rig, family)
    say(up, client, stream_head(family) + b"".join(map(chunk, family.pieces[: family.cut])) + chunk(family.error))
    if ending == "framed":
        say(up, client, b"0\r\n\r\n")
        client.close()
    else:
        reset(up)
        assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.reply.status) == ("error", 200)
    assert (ended.reply.error_type, ended.reply.error_in_stream) == (family.error_type, True)
    assert ended.first_failure == "upstream"


@family_of_routes
def test_an_answer_without_a_stream_is_ok_and_has_no_first_token(rig: Rig, family: Family) -> None:
    """T36: the time to the first token is a figure of streams only."""
    client, up = ask(rig, family.unary_path, family.unary_body)
    say(up, client, json_answer(family.unary))
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.first_token, ended.dialect) == ("ok", None, family.dialect)
    assert (ended.reply.input_tokens, ended.reply.output_tokens) == family.usage
    assert ended.ttfb is not None


@pytest.mark.parametrize(
    "last, outcome",
    [
        (response_event("response.completed"), "ok"),
        (response_event("response.incomplete", incomplete_details={"reason": "max_output_tokens"}), "ok"),
        (response_event("response.failed", error={"code": "server_error", "message": "x"}), "error"),
        (sse(*typed({"type": "error", "code": "server_error", "message": "x"})), "error"),
    ],
)
def test_each_of_the_four_terminal_events_ends_a_response(rig: Rig, last: bytes, outcome: str) -> None:
    """T15, T28: completed, incomplete, failed and error; usage stands in the event."""
    client, up = ask_stream(rig, RESPONSES)
    say(up, client, stream_head(RESPONSES) + b"".join(map(chunk, (*RESPONSES.pieces[:-1], last))) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert ended.outcome == outcome
    if outcome == "ok":
        assert (ended.reply.input_tokens, ended.reply.output_tokens) == (20, 7)
        assert ended.reply.cache_read_tokens == 4


def test_a_chat_whose_server_leaves_done_out_is_whole(rig: Rig) -> None:
    """T17: a finish_reason is an end mark."""
    client, up = ask_stream(rig, CHAT)
    say(up, client, stream_head(CHAT) + b"".join(map(chunk, CHAT.pieces[:-1])) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    assert (attempt(rig).outcome, attempt(rig).reply.terminator) == ("ok", True)


def test_empty_choices_and_null_data_are_no_harm(rig: Rig) -> None:
    """T32: a usage-only chunk has no choices, some servers send `null`."""
    odd = b'data: {"choices": [], "usage": null}\n\ndata: null\n\ndata:\n\n'
    client, up = ask_stream(rig, CHAT)
    say(up, client, stream_head(CHAT) + chunk(odd) + b"".join(map(chunk, CHAT.pieces)) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.reply.input_tokens, ended.reply.output_tokens) == ("ok", 20, 7)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_of_http_sees_a_cut_as_an_incomplete_body(rig: Rig, how: str) -> None:
    """T16: the upstream's death within a chunked body is never smoothed into a clean end."""
    outcome: list[BaseException] = []

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", rig.door.port, timeout=10)
        try:
            connection.request("POST", f"/t/{TOKEN}/v1/messages", b"{}")
            connection.getresponse().read()
        except (http.client.IncompleteRead, ConnectionResetError) as error:
            outcome.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=call)
    thread.start()
    up = rig.upstream.accept()
    read_head(up)
    read_exactly(up, 2)
    up.sendall(stream_head(MESSAGES) + chunk(MESSAGES.pieces[0]) + b"ff\r\nhalf")
    if how == "fin":
        up.close()
    else:
        reset(up)
    thread.join(10)
    assert len(outcome) == 1
    rig.no_pair_open()
    assert attempt(rig).outcome == "truncated"


@pytest.mark.parametrize(
    "method, head",
    [
        ("GET", b"HTTP/1.1 204 No Content\r\nrequest-id: r\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 405 Method Not Allowed\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ],
)
def test_an_answer_without_a_body_ends_with_its_head(any_rig: Rig, method: str, head: bytes) -> None:
    """T22, T64: nothing is added to it, and the next answer on the connection is the next one's."""
    client = any_rig.client()
    client.sendall(request(method, "/api/hello"))
    up = any_rig.upstream.accept()
    read_head(up)
    say(up, client, head)
    client.sendall(request("GET", "/v1/models"))
    read_head(up)
    say(up, client, json_answer(b"{}"))
    client.close()
    any_rig.no_pair_open()
    first, second = attempts(any_rig)
    assert any_rig.observer.joined(Kind.RESPONSE_DATA, msg=1) == b""
    assert any_rig.observer.joined(Kind.RESPONSE_DATA, msg=2) == b"{}"
    assert (first.outcome, second.outcome) == ("ok" if b"405" not in head else "error", "ok")
    assert (first.request.operation, second.request.operation) == ("hello", "models")  # no calls of an agent


def test_head_first_byte_first_token_and_end_are_told_apart(any_rig: Rig) -> None:
    """T33, T34, T35, T37: stamped when the bytes were read; a control frame is no token; the end is behind the body."""
    client, up = ask_stream(any_rig, MESSAGES)
    stamps: list[int] = [time.monotonic_ns()]
    for part in (
        stream_head(MESSAGES),
        chunk(MESSAGES.pieces[0]),
        chunk(b"event: ping\ndata: {}\n\n"),
        chunk(MESSAGES.pieces[1] + MESSAGES.pieces[3]),
        b"".join(map(chunk, MESSAGES.pieces[4:])),
        b"0\r\n\r\n",
    ):
        say(up, client, part)
        stamps.append(time.monotonic_ns())
        time.sleep(0.02)
    client.close()
    any_rig.no_pair_open()
    ended = attempt(any_rig)
    assert ended.ttfb is not None
    assert ended.first_token is not None
    first_byte_ns = ended.started_ns + round(ended.ttfb * 1e9)
    token_ns = ended.started_ns + round(ended.first_token * 1e9)
    slack_ns = 1000  # durations are rounded to microseconds
    assert first_byte_ns <= stamps[1] + slack_ns
    assert stamps[3] - slack_ns <= token_ns <= stamps[4] + slack_ns
    assert stamps[5] - slack_ns <= ended.ended_ns <= stamps[6] + slack_ns
    assert ended.reply.pings == 1


def test_an_end_of_tls_or_fin_behind_a_whole_stream_is_no_failure(any_rig: Rig) -> None:
    """T13's other side: whole and then closed is whole."""
    client, up = ask_stream(any_rig, MESSAGES)
    say(up, client, stream_head(MESSAGES) + b"".join(map(chunk, MESSAGES.pieces)) + b"0\r\n\r\n")
    close_cleanly(up)
    assert read_all(client) == (b"", "fin")
    client.close()
    any_rig.no_pair_open()
    ended = attempt(any_rig)
    assert (ended.outcome, ended.first_failure) == ("ok", None)
