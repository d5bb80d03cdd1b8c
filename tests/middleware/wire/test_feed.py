"""The feed's records: any cut of the bytes gives the same records, and nonsense ends the reading, not the reader."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire.feed import HEAD, MAX_PAYLOAD, Decoder, FeedCorrupt, Flag, Kind, encode, encode_json


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.binary(max_size=300), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
        max_size=20,
    ),
    st.lists(st.integers(0, 4000), max_size=20),
)
def test_any_cut_gives_the_same_records(records: list[tuple[int, bytes, int, int]], cuts: list[int]) -> None:
    stream = b"".join(encode(kind, body, conn=conn, msg=1, t_ns=t) for kind, body, conn, t in records)
    decoder = Decoder()
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    seen = [r for a, b in itertools.pairwise(edges) for r in decoder.feed(stream[a:b])]
    assert [(r.kind, r.payload, r.conn, r.t_ns) for r in seen] == records


def test_json_reads_back_and_other_bytes_are_an_empty_object() -> None:
    decoder = Decoder()
    stream = encode_json(Kind.NOTE, {"a": 1}) + encode(Kind.NOTE, b"{") + encode(Kind.NOTE, b"[1]")
    assert [r.json() for r in decoder.feed(stream)] == [{"a": 1}, {}, {}]


def test_text_that_is_no_utf_8_is_json_all_the_same() -> None:
    """An argument of a command may be any bytes; readers in other languages refuse a lone surrogate, escaped or not."""
    (record,) = Decoder().feed(encode_json(Kind.NOTE, {"a": ["x\udcffy", "é"]}))
    assert record.payload == '{"a":["x?y","é"]}'.encode()


def test_an_impossible_length_is_corrupt_and_bounds_the_carry() -> None:
    with pytest.raises(FeedCorrupt):
        Decoder().feed(HEAD.pack(1, 0, 0, 0, 0, 0, MAX_PAYLOAD + 1))


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=40), st.integers(0, 200))
def test_a_message_that_came_whole_is_told_as_its_parts(head: bytes, body: bytes, cut: int) -> None:
    for kind, end in (
        (Kind.REQUEST_HEAD, {"wire_bytes": len(head + body), "complete": True}),
        (Kind.RESPONSE_HEAD, {"wire_bytes": len(head + body), "complete": True, "how": "framed"}),
    ):
        stream = HEAD.pack(kind, Flag.WHOLE, len(head), 3, 2, 9, len(head + body)) + head + body
        decoder = Decoder()
        records = decoder.feed(stream[:cut]) + decoder.feed(stream[cut:])
        wanted = [(kind, head)] + ([(kind + 1, body)] if body else [])
        assert [(r.kind, r.payload) for r in records[:-1]] == wanted
        assert (records[-1].kind, records[-1].json()) == (kind + 2, end)
        assert {(r.flags, r.conn, r.msg, r.t_ns) for r in records} == {(0, 3, 2, 9)}
