"""AWS messages come out whole and checked, or not at all."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire import eventstream
from fairtrial.middleware.wire.eventstream import EventStreamFramer, Message
from tests.middleware.wire.awsmessages import event, header, packed, strings

TEXTS = st.text(max_size=12)


def framed(body: bytes, size: int) -> tuple[list[Message], EventStreamFramer]:
    framer = EventStreamFramer()
    return [m for i in range(0, len(body), size) for m in framer.feed(body[i : i + size])], framer


@given(
    messages=st.lists(
        st.tuples(st.dictionaries(TEXTS.filter(lambda t: len(t.encode()) < 255), TEXTS, max_size=3), st.binary()),
        max_size=4,
    ),
    size=st.integers(1, 60),
)
def test_any_cut_gives_the_messages(messages: list[tuple[dict[str, str], bytes]], size: int) -> None:
    body = b"".join(packed(strings(headers), payload) for headers, payload in messages)
    found, framer = framed(body, size)
    assert found == [Message(headers, payload) for headers, payload in messages]
    assert (framer.failed, framer.pending, framer.skipped) == (None, False, 0)


def test_headers_of_all_types_are_passed_over_and_strings_are_kept() -> None:
    sizes = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: 3, 8: 8, 9: 16}
    block = b"".join(header(f"h{kind}", kind, bytes(size)) for kind, size in sizes.items()) + strings({":a": "b"})
    assert framed(packed(block, b"x"), 7)[0] == [Message({":a": "b"}, b"x")]


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_stops_the_reading(place: int, bit: int) -> None:
    one = event("chunk", b'{"bytes": "e30="}')
    broken = bytearray(one)
    broken[place % len(one)] ^= 1 << bit
    found, framer = framed(bytes(broken) + one, 50)
    assert found == []
    assert framer.failed is not None
    assert framer.feed(one) == []
    assert not framer.pending


@pytest.mark.parametrize(
    "block", [b"\x05ab", b"\x01a", b"\x01a\x63", b"\x01a\x07\x00\x09b", b"\x01a\x07\x00", b"\x01a\x05ab"]
)
def test_headers_that_do_not_fit_their_block_stop_the_reading(block: bytes) -> None:
    found, framer = framed(packed(block, b""), 100)
    assert (found, framer.failed) == ([], "the headers of a message cannot be read")


def test_lengths_that_do_not_fit_stop_the_reading() -> None:
    prelude = struct.pack(">II", 20, 100)
    framer = EventStreamFramer()
    assert framer.feed(prelude + struct.pack(">I", crc32(prelude))) == []
    assert framer.failed == "the lengths of a message do not fit"


def test_a_message_beyond_the_bound_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventstream, "MAX_MESSAGE_BYTES", 200)
    body = packed(b"", b"x" * 1000) + event("chunk", b"{}")
    for size in (1, 64, 5000):
        framer = EventStreamFramer()
        found: list[Message] = []
        for i in range(0, len(body), size):
            found += framer.feed(body[i : i + size])
            assert len(framer._carry) <= 200
        assert ([m.payload for m in found], framer.skipped, framer.failed) == ([b"{}"], 1, None)


@given(junk=st.lists(st.binary(max_size=40), max_size=6))
def test_junk_never_raises(junk: list[bytes]) -> None:
    framer = EventStreamFramer()
    for piece in junk:
        framer.feed(piece)
