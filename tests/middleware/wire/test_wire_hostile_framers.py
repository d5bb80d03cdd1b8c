"""Every framer of the observer against bytes of strangers: no exception, no growth, and the cuts do not matter.

Samples are broken by edits (pieces of the format where they do not belong, bytes left out, bytes turned), fed whole and
in pieces, and must come out the same.  The bounds are made small, so that what lies around them is met.
"""

import gzip
import itertools
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from struct import pack

import brotli
import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.wire import eventstream, feed, jsonarray, lenient, ndjson, sse
from fairtrial.middleware.wire.decode import MAX_DECODED_BYTES, PIECE_BYTES, BodyDecoder
from fairtrial.middleware.wire.http1 import MAX_FIELDS, parse_request_head, parse_response_head
from fairtrial.middleware.wire.redact import safe_path, safe_value
from fairtrial.middleware.wire.session import identify, split_token
from fairtrial.middleware.wire.websocket import MessageReader
from tests.middleware.held import held_bytes
from tests.middleware.wire.awsmessages import event, exception, header, packed
from tests.middleware.wire.families import FAMILIES
from tests.middleware.wire.traffic import ANTHROPIC_STREAM

SMALL = 40
"""The bound of every framer in these tests, bytes."""
quietly = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)

Told = list[object]


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_FRAME_BYTES", SMALL)
        patch.setattr(ndjson, "MAX_LINE_BYTES", SMALL)
        patch.setattr(jsonarray, "MAX_ELEMENT_BYTES", SMALL)
        patch.setattr(eventstream, "MAX_MESSAGE_BYTES", 3 * SMALL)
        yield


@dataclass(frozen=True)
class Target:
    """How one framer is made, fed and asked; `tokens` are what its format is made of."""

    name: str
    make: Callable[[], object]
    take: Callable[[object, bytes], Told]
    close: Callable[[object], Told]
    samples: tuple[bytes, ...]
    tokens: tuple[bytes, ...]


def _sse(framer: object, data: bytes) -> Told:
    assert isinstance(framer, sse.SseFramer)
    return [*framer.feed(data)]


def _sse_end(framer: object) -> Told:
    assert isinstance(framer, sse.SseFramer)
    return [*framer.finish(), framer.skipped, framer.pending]


def _lines(framer: object, data: bytes) -> Told:
    assert isinstance(framer, ndjson.LineFramer)
    return [*framer.feed(data)]


def _lines_end(framer: object) -> Told:
    assert isinstance(framer, ndjson.LineFramer)
    return [*framer.finish(), framer.skipped, framer.pending]


def _array(framer: object, data: bytes) -> Told:
    assert isinstance(framer, jsonarray.JsonArrayFramer)
    return [*framer.feed(data)]


def _array_end(framer: object) -> Told:
    assert isinstance(framer, jsonarray.JsonArrayFramer)
    told: Told = [framer.skipped, framer.closed, framer.pending]
    return [*told, *framer.finish()]


def _aws(framer: object, data: bytes) -> Told:
    assert isinstance(framer, eventstream.EventStreamFramer)
    return [*framer.feed(data)]


def _aws_end(framer: object) -> Told:
    assert isinstance(framer, eventstream.EventStreamFramer)
    return [framer.failed, framer.skipped, framer.pending]


def _socket(framer: object, data: bytes) -> Told:
    assert isinstance(framer, MessageReader)
    return [*framer.feed(data)]


def _socket_end(framer: object) -> Told:
    assert isinstance(framer, MessageReader)
    # Of a piece that zlib refuses nothing comes out: whether it would have been too long cannot be told.
    return [framer.failed, framer.closed, framer.skipped if framer.failed is None else None]


def _ws(opcode: int, payload: bytes, *, fin: bool = True, rsv1: bool = False, mask: bytes = b"") -> bytes:
    """One frame; a mask makes it a client's."""
    first = bytes([(0x80 if fin else 0) | (0x40 if rsv1 else 0) | opcode])
    bit = 0x80 if mask else 0
    size = bytes([bit | len(payload)]) if len(payload) < 126 else bytes([bit | 126]) + pack(">H", len(payload))
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else payload
    return first + size + mask + body


def _deflated(payload: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return (squeeze.compress(payload) + squeeze.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


def _reader(*, from_client: bool, extensions: str | None) -> Callable[[], object]:
    return lambda: MessageReader(from_client=from_client, extensions=extensions, max_bytes=SMALL)


MASK = b"\x01\x02\x03\x04"
SERVER_FRAMES = (
    _ws(1, b'{"a":1}'),
    _ws(1, b"par", fin=False) + _ws(9, b"ping") + _ws(0, b"tial"),
    _ws(2, b"x" * 200),
    _ws(8, b"\x03\xe8"),
)
TARGETS = (
    Target(
        "sse",
        sse.SseFramer,
        _sse,
        _sse_end,
        (ANTHROPIC_STREAM[:400], b"data: a\r\n\r\n: c\r\rdata\ndata:b\n\n\xef\xbb\xbf", b"\xef\xbb\xbfevent: x\n\n"),
        (b"\n", b"\r", b"\r\n", b"\n\n", b"data:", b"data: ", b"event:", b":", b"\xef\xbb\xbf", b"x" * (SMALL - 6)),
    ),
    Target(
        "lines",
        ndjson.LineFramer,
        _lines,
        _lines_end,
        (b'{"a":1}\n{"b":2}\r\n\n  \n{"c":3}',),
        (b"\n", b"\r\n", b" ", b"\xc2\x85", b"x" * SMALL),
    ),
    Target(
        "array",
        jsonarray.JsonArrayFramer,
        _array,
        _array_end,
        (b'[{"a":"\\"]}"},\n{"b":[{}]}, 3, "s"]', b'{"one":{}}', b"[]"),
        (b"\\", b'"', b"{", b"}", b"[", b"]", b'\\"', b"\\\\", b",", b"x" * SMALL),
    ),
    Target(
        "eventstream",
        eventstream.EventStreamFramer,
        _aws,
        _aws_end,
        (event("chunk", b"{}") + exception("x", b"{}"), packed(header("n", 4, b"abcd"), b""), packed(b"", b"y" * 300)),
        (b"\0", b"\0\0\0\x10\0\0\0\0", packed(b"", b""), packed(b"\x01a\x07\0\xff", b""), b"\xff" * 12),
    ),
    Target(
        "websocket of a server",
        _reader(from_client=False, extensions=None),
        _socket,
        _socket_end,
        (b"".join(SERVER_FRAMES[:3]), *SERVER_FRAMES),
        (*SERVER_FRAMES, b"\x81", b"\x81\x7f" + b"\x7f" + b"\xff" * 7, b"\x89\x7e\x01\x00", b"\x01\x00", b"\x80\x00"),
    ),
    Target(
        "websocket of a client",
        _reader(from_client=True, extensions=None),
        _socket,
        _socket_end,
        (_ws(1, b"hello", mask=MASK), _ws(1, b"a", fin=False, mask=MASK) + _ws(0, b"b", mask=MASK)),
        (_ws(1, b"z", mask=MASK), _ws(8, b"", mask=MASK), b"\x81\xfe\xff\xff", b"\xf1"),
    ),
    Target(
        "websocket, deflated",
        _reader(from_client=False, extensions="permessage-deflate; server_no_context_takeover"),
        _socket,
        _socket_end,
        (_ws(1, _deflated(b"hello"), rsv1=True) + _ws(1, b"plain"), _ws(1, _deflated(b"x" * 900), rsv1=True)),
        (_ws(1, _deflated(b"z"), rsv1=True), _ws(1, b"\xff\xff", rsv1=True), _ws(9, b"p"), b"\xc1\x00", b"\x80\x00"),
    ),
)


@st.composite
def broken(draw: st.DrawFn, target: Target) -> bytes:
    """Samples behind each other, edited."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(target.samples), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0 | 1:
                data[at:at] = draw(st.sampled_from(target.tokens))
            case 2:
                del data[at : at + draw(st.integers(1, 20))]
            case _:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data)


def pieces(data: bytes, points: list[int]) -> list[bytes]:
    """`data` in pieces; empty pieces are kept, because a read may be empty to a framer behind a decoder."""
    edges = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def tell(target: Target, cuts: list[bytes]) -> Told:
    framer = target.make()
    told = [each for piece in cuts for each in target.take(framer, piece)]
    return [*told, *target.close(framer)]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@given(data=st.data())
@quietly
def test_the_cuts_do_not_matter_however_broken_the_bytes(target: Target, data: st.DataObject) -> None:
    whole = data.draw(broken(target))
    points = data.draw(st.lists(st.integers(0, 2000), max_size=30))
    want = tell(target, [whole])
    assert tell(target, pieces(whole, points)) == want
    assert tell(target, [whole[at : at + 1] for at in range(len(whole))]) == want


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@given(data=st.data())
@quietly
def test_nothing_grows_beyond_the_bound(target: Target, data: st.DataObject) -> None:
    """The bound, and a read that was given up within; what was handed out is not held."""
    framer = target.make()
    empty = held_bytes(framer)
    longest = 0
    for _ in range(data.draw(st.integers(1, 12))):
        piece = data.draw(broken(target))
        longest = max(longest, len(piece))
        target.take(framer, piece)
        assert held_bytes(framer) - empty <= 4 * SMALL + 256 + longest


@pytest.mark.parametrize("size", [1, 7, 65536])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_an_endless_unit_is_not_kept(target: Target, size: int) -> None:
    """Each format's way to promise more and more: a line, a string, a length, a fragment."""
    openers = {
        "sse": b"data: ",
        "lines": b'{"a":"',
        "array": b'[{"a":"',
        "eventstream": b"",
        "websocket of a server": b"\x81\x7f\x7f" + b"\xff" * 7,
        "websocket of a client": b"\x81\xff\x7f" + b"\xff" * 7 + MASK,
        "websocket, deflated": b"\x81\x7f\x7f" + b"\xff" * 7,
    }
    if target.name == "eventstream":
        prelude = pack(">II", 0x7FFFFFFF, 0)
        openers["eventstream"] = prelude + pack(">I", zlib.crc32(prelude))
    framer = target.make()
    target.take(framer, openers[target.name])
    empty = held_bytes(framer)
    count = 3000 if size < 100 else 40
    for _ in range(count):
        assert target.take(framer, b"x" * size) == []
        assert held_bytes(framer) - empty <= 4 * SMALL + 64 + 2 * size


def test_fragments_of_one_byte_cost_no_more_than_their_bytes() -> None:
    """A message may come as millions of frames: what is kept is bounded in bytes, not in pieces."""
    reader = MessageReader(from_client=False, extensions=None, max_bytes=1 << 16)
    assert reader.feed(_ws(1, b"ab", fin=False)) == []
    for _ in range(30_000):
        assert reader.feed(_ws(0, b"ab", fin=False)) == []
    assert held_bytes(reader) < 80_000


# --- encodings ------------------------------------------------------------------------------------------------------

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "gzip, br": lambda data: brotli.compress(gzip.compress(data)),
}


def decoded(encoding: str, cuts: list[bytes]) -> tuple[bytes, bool]:
    decoder = BodyDecoder(encoding)
    out = bytearray()
    for piece in cuts:
        for part in decoder.feed(piece):
            assert len(part) <= PIECE_BYTES
            out += part
    assert len(out) <= MAX_DECODED_BYTES
    return bytes(out), decoder.failed is not None


@pytest.mark.parametrize("encoding", ENCODERS)
@given(data=st.data())
@quietly
def test_a_broken_encoding_gives_a_beginning_of_the_same_bytes_whatever_the_cuts(
    encoding: str, data: st.DataObject
) -> None:
    encode = ENCODERS[encoding]
    body = encode(data.draw(st.sampled_from([b"", b"hello " * 30, bytes(range(256)) * 8])))
    target = Target("", object, lambda *_: [], lambda _: [], (body,), (b"\0", b"\xff" * 4, body[:10], encode(b"")))
    wire = data.draw(broken(target))
    points = data.draw(st.lists(st.integers(0, 4000), max_size=20))
    whole, failed = decoded(encoding, [wire])
    cut, cut_failed = decoded(encoding, pieces(wire, points))
    assert whole.startswith(cut) or cut.startswith(whole)
    if not (failed or cut_failed):  # how much of a broken tail is needed to know it as broken is the library's affair
        assert whole == cut


# --- heads, targets, feed, leniency ---------------------------------------------------------------------------------


@given(st.binary(max_size=400), st.sampled_from([b"", b"GET /t/x HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"]))
def test_no_head_of_a_stranger_raises(junk: bytes, start: bytes) -> None:
    asked, answered = parse_request_head(start + junk), parse_response_head(start + junk)
    for head in (asked, answered):
        if head is not None:
            assert len(head.headers.fields) <= MAX_FIELDS
            identity = identify(head.headers)
            for value in (identity.user_agent, identity.traceparent, safe_value(head.headers.get("x"))):
                assert value is None or (len(value) <= 4096 and value.isprintable())
    if asked is not None:
        token, rest = split_token(asked.target)
        assert token is None or rest.startswith("/")
        assert safe_path(rest).isprintable()


@given(
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6),
    st.binary(max_size=40),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_a_feed_that_breaks_off_in_junk_gives_the_same_records_whatever_the_cuts(
    records: list[tuple[int, bytes]], junk: bytes, points: list[int]
) -> None:
    wire = b"".join(feed.encode(kind, payload, conn=1) for kind, payload in records) + junk

    def told(cuts: list[bytes]) -> tuple[list[feed.Record], bool]:
        decoder, seen = feed.Decoder(), list[feed.Record]()
        for piece in cuts:
            try:
                seen += decoder.feed(piece)
            except feed.FeedCorrupt:
                return seen, True
            assert held_bytes(decoder) <= feed.MAX_PAYLOAD + len(wire)
        return seen, False

    whole, corrupt = told([wire])
    cut, cut_corrupt = told(pieces(wire, points))
    assert corrupt == cut_corrupt
    assert cut[: len(whole)] == whole
    for record in cut:
        assert isinstance(record.json(), dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(json_values, st.sampled_from(["", "﻿"]), st.sampled_from(["utf-8", "utf-16"]))
def test_what_was_tidied_is_strict_json(value: object, mark: str, encoding: str) -> None:
    body = (mark + json.dumps(value, ensure_ascii=False)).encode(encoding, "surrogatepass")
    tidy = lenient.tidied(body)
    if tidy is not None:
        msgspec.json.decode(tidy)
        lenient.is_answer(tidy)


@given(st.binary(max_size=60))
def test_tidying_junk_never_raises(junk: bytes) -> None:
    tidy = lenient.tidied(junk)
    if tidy is not None:
        msgspec.json.decode(tidy)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"[1e999]", b'"\\ud800"'])
def test_what_no_reader_should_follow_is_left(body: bytes) -> None:
    tidy = lenient.tidied(body)
    if tidy is not None:
        msgspec.json.decode(tidy)


@given(json_values, st.from_regex(r"\$(\.[a-z]{1,3}|\[\.\.\.\]){0,5}", fullmatch=True))
def test_a_field_that_is_not_there_is_not_dropped(value: object, field: str) -> None:
    try:
        body = msgspec.json.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError):
        return
    left = lenient.without(body, field)
    assert left is None or msgspec.json.decode(left) != msgspec.json.decode(body)


def test_every_family_has_a_sample_above() -> None:
    assert {family.media.partition(";")[0] for family in FAMILIES} == {
        "text/event-stream",
        "application/json",
        "application/x-ndjson",
        "application/vnd.amazon.eventstream",
    }
