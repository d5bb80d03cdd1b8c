"""Every dialect against requests and replies of strangers: no exception, no growth, no hang, and facts of bounded size.

Real bodies and events are taken apart and some value in them is replaced by another one (of any type and size), or the
bytes themselves are broken.  The tracker would survive an exception (it gives the dialect up for that call); a dialect
that raises is blind all the same, so none may.
"""

import json
from collections.abc import Iterator
from itertools import count, islice

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import choose
from fairtrial.middleware.wire.dialects.base import ReplyReader
from fairtrial.middleware.wire.eventstream import EventStreamFramer
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.outcome import reply_facts
from tests.middleware.held import held_bytes
from tests.middleware.wire.awsmessages import event, packed, strings
from tests.middleware.wire.families import (
    CHAT,
    CONVERSE,
    FAMILIES,
    GEMINI,
    GEMINI_ARRAY,
    INVOKE,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    VERTEX,
    Family,
    Json,
    dumped,
)

WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""To shrink a whole conversation takes minutes, and a failing one is read easily enough."""
quietly = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    max_examples=30,
    phases=WITHOUT_SHRINKING,
)
of_each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)

FACTS_BYTES = 64 * 1024
"""What the facts of one request or reply may take as JSON: they go into the store and into spans."""
HELD_BYTES = 8 << 20
"""What a reader may hold of a stream that never ends."""

values = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(
        [0, -1, 2**63, 2**64, 10**400, 1e300, "", "x", "\ud800", "\x00\u0085\u2028", "response.completed"]
    )
    | st.sampled_from(["9" * 5000, "tool_use", "function_call", "message_stop"])
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def places(value: object, at: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Every place in a JSON value."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*at, index))


def replaced(value: object, at: tuple[object, ...], new: object) -> object:
    """The value with another one at that place."""
    if not at:
        return new
    first, rest = at[0], at[1:]
    if isinstance(value, dict):
        return {key: replaced(inner, rest, new) if key == first else inner for key, inner in value.items()}
    assert isinstance(value, list)
    return [replaced(inner, rest, new) if index == first else inner for index, inner in enumerate(value)]


def written(value: object) -> bytes:
    """As JSON, lone surrogates included."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@st.composite
def altered(draw: st.DrawFn, body: bytes) -> bytes:
    """A JSON body with some of its values replaced, or its bytes broken."""
    value: object = json.loads(body)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.sampled_from(list(places(value))))
        value = replaced(value, at, draw(values))
        if not isinstance(value, dict | list):
            break
    out = bytearray(written(value))
    if draw(st.integers(0, 4)) == 0:
        at_byte = draw(st.integers(0, len(out)))
        out[at_byte : at_byte + draw(st.integers(0, 9))] = draw(st.binary(max_size=6))
    return bytes(out)


@st.composite
def altered_piece(draw: st.DrawFn, piece: bytes) -> bytes:
    """One event of a stream, altered inside its own framing."""
    if piece[:1] == b"\0":
        (message,) = EventStreamFramer().feed(piece)
        headers = dict(message.headers)
        if draw(st.integers(0, 5)) == 0:
            headers[draw(st.sampled_from([":event-type", ":message-type", ":exception-type"]))] = draw(
                st.sampled_from(["", "chunk", "error", "exception", "é"])
            )
        return packed(strings(headers), draw(altered(message.payload)))
    start = min((at for at in (piece.find(b"{"), piece.find(b"[DONE]")) if at != -1), default=-1)
    end = piece.rfind(b"}") + 1
    if start == -1 or end <= start:
        return draw(st.sampled_from([piece, b"data: null\n\n", b"data:\n\n", b"[", b"]", b"\n"]))
    return piece[:start] + draw(altered(piece[start:end])) + piece[end:]


HEADERS = Headers(
    (
        ("content-type", "application/json"),
        ("session-id", "\x00" * 5000),
        ("x-codex-turn-metadata", "[" * 300),
        ("x-stainless-retry-count", "9" * 400),
        ("user-agent", "\x1b]0;x\x07" * 900),
    )
)


def read_request(path: str, body: bytes, method: str = "POST") -> RequestFacts:
    bare = path.partition("?")[0]
    return choose(method, bare).read_request(RequestHead(method, path, HEADERS), bare, body)


def reader(family: Family, *, media: str | None = None, status: int = 200, stream: bool = True) -> ReplyReader:
    path, body = (family.path, family.body) if stream else (family.unary_path, family.unary_body)
    bare = path.partition("?")[0]
    dialect = choose("POST", bare)
    asked = dialect.read_request(RequestHead("POST", path, Headers()), bare, body)
    chosen = media or (family.media if stream else "application/json")
    junk = (("content-type", chosen), ("retry-after", "1e999"), ("x-amzn-errortype", "\x00" * 900), ("date", "\xff"))
    return dialect.read_reply(ResponseHead(status, Headers(junk)), asked)


def facts_size(read: ReplyReader, status: int = 200) -> int:
    return len(msgspec.json.encode(reply_facts(status, read.tally)))


PATHS = [
    *dict.fromkeys(family.path for family in FAMILIES),
    *dict.fromkeys(family.unary_path for family in FAMILIES),
    "/v1/messages/count_tokens",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/api/generate",
    "/v1beta/models/g:countTokens",
    "/model/amazon.nova/invoke",
    "/v1/unheard/of",
]
BODIES = [*dict.fromkeys(family.body for family in FAMILIES)]


@pytest.mark.parametrize("path", PATHS)
@given(data=st.data())
@quietly
def test_no_request_of_a_stranger_raises(path: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(BODIES).flatmap(altered) | st.binary(max_size=40))
    facts = read_request(path, body)
    assert len(msgspec.json.encode(facts)) <= FACTS_BYTES


@of_each_family
@given(data=st.data())
@quietly
def test_no_stream_of_a_stranger_raises(family: Family, data: st.DataObject) -> None:
    read = reader(family)
    for piece in family.pieces:
        for changed in data.draw(st.lists(altered_piece(piece), min_size=0, max_size=2)):
            read.feed(changed, 1)
    read.finish(whole=data.draw(st.booleans()))
    assert facts_size(read) <= FACTS_BYTES


@of_each_family
@pytest.mark.parametrize("status", [200, 429])
@given(data=st.data())
@quietly
def test_no_answer_of_a_stranger_raises(family: Family, status: int, data: st.DataObject) -> None:
    read = reader(family, status=status, stream=False)
    other = data.draw(st.sampled_from(FAMILIES))
    error = dumped(
        {"error": {"type": "x", "message": "y", "code": 3, "status": "z", "details": [{"retryDelay": "1s"}]}}
    )
    read.feed(data.draw(altered(data.draw(st.sampled_from([family.unary, other.unary, error])))), 1)
    read.finish(whole=True)
    assert facts_size(read, status) <= FACTS_BYTES


@of_each_family
@given(data=st.data())
@quietly
def test_a_stream_of_another_framing_raises_nothing(family: Family, data: st.DataObject) -> None:
    """A gateway may answer in whatever form, under whatever name."""
    other = data.draw(st.sampled_from(FAMILIES))
    read = reader(family, media=data.draw(st.sampled_from([None, other.media, "text/html", "nonsense"])))
    for piece in other.pieces:
        read.feed(piece, 1)
    read.feed(data.draw(st.binary(max_size=50)), 2)
    read.finish(whole=True)
    assert facts_size(read) <= FACTS_BYTES


# --- streams that never end -----------------------------------------------------------------------------------------

LONG = "n" * 4000


def _sse(value: Json) -> bytes:
    return b"data: " + dumped(value) + b"\n\n"


def _messages(index: int) -> bytes:
    block: Json = {"type": "tool_use", "id": f"{index}{LONG}", "name": f"{index}{LONG}"}
    return _sse({"type": "content_block_start", "index": index, "content_block": block}) + _sse(
        {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": LONG}}
    )


def _messages_closed(index: int) -> bytes:
    return _messages(index) + _sse({"type": "content_block_stop", "index": index})


def _chat(index: int) -> bytes:
    call: Json = {"index": index, "id": f"{index}{LONG}", "function": {"name": f"{index}{LONG}", "arguments": LONG}}
    return _sse({"choices": [{"delta": {"content": "x", "tool_calls": [call]}}]})


def _responses(index: int) -> bytes:
    item: Json = {"type": "function_call", "id": f"{index}{LONG}", "call_id": f"{index}{LONG}", "name": LONG}
    added: Json = {"type": "response.output_item.added", "output_index": index, "item": item}
    delta: Json = {"type": "response.function_call_arguments.delta", "output_index": index, "delta": LONG}
    return _sse(added) + _sse(delta) + (_sse(added | {"type": "response.output_item.done"}) if index % 2 else b"")


def _gemini(index: int) -> Json:
    call: Json = {"functionCall": {"id": f"{index}{LONG}", "name": f"{index}{LONG}", "args": {"command": LONG}}}
    return {"candidates": [{"content": {"parts": [call, {"functionCall": {"name": f"{index}{LONG}"}}]}}]}


def _ollama(index: int) -> bytes:
    calls = [{"function": {"name": f"{index}{LONG}"}}, {"id": f"{index}{LONG}", "function": {"name": LONG}}]
    return dumped({"message": {"content": "x", "tool_calls": calls}, "done": False}) + b"\n"


def _converse(index: int) -> bytes:
    use: Json = {"toolUse": {"toolUseId": f"{index}{LONG}", "name": f"{index}{LONG}"}}
    piece: Json = {"contentBlockIndex": index, "delta": {"toolUse": {"input": LONG}}}
    return event("contentBlockStart", dumped({"contentBlockIndex": index, "start": use})) + event(
        "contentBlockDelta", dumped(piece)
    )


ENDLESS = {
    "open tool calls of Messages": (MESSAGES, _messages),
    "closed tool calls of Messages": (MESSAGES, _messages_closed),
    "tool calls of Chat": (CHAT, _chat),
    "tool calls of Responses": (RESPONSES, _responses),
    "tool calls of Gemini": (GEMINI, lambda index: _sse(_gemini(index))),
    "tool calls of a Gemini array": (GEMINI_ARRAY, lambda index: (b"," if index else b"[") + dumped(_gemini(index))),
    "tool calls of Ollama": (OLLAMA, _ollama),
    "tool calls of Converse": (CONVERSE, _converse),
    "tool calls of Vertex": (VERTEX, _messages),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_stream_that_never_ends_is_not_kept(name: str) -> None:
    family, make = ENDLESS[name]
    read = reader(family)
    for index in islice(count(), 3000):
        read.feed(make(index), 1)
    assert held_bytes(read) <= HELD_BYTES
    read.finish(whole=False)
    assert len(read.tally.tool_calls) <= 512  # what is compared with all before it must be few
    assert facts_size(read) <= FACTS_BYTES * 4


def test_arguments_of_many_open_calls_are_bounded_together() -> None:
    """Each may be a megabyte, not all of them."""
    read = reader(CONVERSE)
    for index in range(30):
        use: Json = {"toolUse": {"toolUseId": f"{index}", "name": "sh"}}
        read.feed(event("contentBlockStart", dumped({"contentBlockIndex": index, "start": use})), 1)
        piece: Json = {"contentBlockIndex": index, "delta": {"toolUse": {"input": "x" * 900_000}}}
        read.feed(event("contentBlockDelta", dumped(piece)), 1)
    assert held_bytes(read) <= HELD_BYTES


@pytest.mark.parametrize("size", [1, 2])
def test_a_body_in_tiny_pieces_costs_no_more_than_its_bytes(size: int) -> None:
    read = reader(MESSAGES, stream=False)
    for _ in range(50_000):
        read.feed(b"xy"[:size], 1)
    assert held_bytes(read) <= 50_000 * size + 100_000


@pytest.mark.parametrize("path", [family.path for family in FAMILIES])
def test_facts_of_a_giant_history_are_small(path: str) -> None:
    """Tens of thousands of tool results with ids as long as letters."""
    rows = range(5000)
    body: Json = {
        "messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"{i}{LONG[:200]}"} for i in rows]},
            *({"role": "tool", "tool_call_id": f"{i}{LONG[:200]}", "tool_name": LONG[:200]} for i in rows),
        ],
        "input": [{"type": "function_call_output", "call_id": f"{i}{LONG[:200]}"} for i in rows],
        "contents": [{"role": "user", "parts": [{"functionResponse": {"name": f"{i}{LONG[:200]}"}} for i in rows]}],
    }
    if "converse" in path:
        results = [{"toolResult": {"toolUseId": f"{i}{LONG[:200]}"}} for i in rows]
        body = {"messages": [{"role": "user", "content": results}]}
    assert len(msgspec.json.encode(read_request(path, dumped(body)))) <= FACTS_BYTES * 4


def test_every_family_is_asked() -> None:
    assert {family.name for family, _ in ENDLESS.values()} >= {
        family.name for family in FAMILIES if family is not INVOKE
    }


NEST = b"[" * 3000 + b"]" * 3000


@of_each_family
def test_a_value_nested_beyond_measure_costs_itself_only(family: Family) -> None:
    """In a request, in an event before the end mark, and in an answer."""
    facts = read_request(family.path, b'{"x":' + NEST + b"," + family.body[1:])
    assert facts.unreadable is not None
    read = reader(family)
    for piece in family.pieces:
        if b"{" in piece and piece[:1] != b"\0":
            read.feed(piece.replace(b"{", b'{"x":' + NEST + b",", 1) if piece is family.pieces[0] else piece, 1)
        elif piece[:1] == b"\0":
            read.feed(event("messageStart", b'{"x":' + NEST + b"}"), 1)
            read.feed(piece, 1)
        else:
            read.feed(piece, 1)
    read.finish(whole=True)
    assert read.tally.terminator is True
    whole = reader(family, stream=False)
    whole.feed(b'{"x":' + NEST + b"," + family.unary[1:], 1)
    whole.finish(whole=True)
    assert whole.tally.terminator is not True
