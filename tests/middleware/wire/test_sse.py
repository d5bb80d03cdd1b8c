"""Any cut of the bytes gives the same frames, and no stream grows the carry."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire.sse import MAX_FRAME_BYTES, Frame, SseFramer
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, OPENAI_STREAM

STREAMS = (
    ANTHROPIC_STREAM,
    OPENAI_STREAM,
    b"\xef\xbb\xbfdata: bom\n\n",
    b": comment\n\ndata: a\r\n\r\ndata: b\rdata: c\r\r\n\n\nevent: x\n\nid: 3\n\ndata\n\ndata: last",
    "data: Grüße\u0085 \u2028\n\ndata:  two spaces\n\n".encode(),
)


def frames_of(pieces: list[bytes]) -> list[Frame]:
    framer = SseFramer()
    found = [frame for piece in pieces for frame in framer.feed(piece)]
    return found + framer.finish()


@given(stream=st.sampled_from(STREAMS), cuts=st.lists(st.integers(0, 3000), max_size=12))
def test_any_cut_gives_the_same_frames(stream: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert frames_of(pieces) == frames_of([stream])


@pytest.mark.parametrize("stream", STREAMS)
def test_single_bytes_give_the_same_frames(stream: bytes) -> None:
    assert frames_of([stream[i : i + 1] for i in range(len(stream))]) == frames_of([stream])


def test_all_line_ends_comments_and_the_last_frame_are_read() -> None:
    assert frames_of([STREAMS[3]]) == [
        Frame(None, None),
        Frame(None, b"a"),
        Frame(None, b"b\nc"),
        Frame(b"x", None),
        Frame(None, None),
        Frame(None, b""),
        Frame(None, b"last"),
    ]


def test_only_line_feeds_end_a_line() -> None:
    """T62: bytes are split, never characters."""
    assert frames_of([STREAMS[4]]) == [
        Frame(None, "Grüße\u0085 \u2028".encode()),
        Frame(None, b" two spaces"),
    ]


@pytest.mark.parametrize("size", [7, 4096, 3 << 20])
def test_a_frame_beyond_the_bound_is_skipped_and_counted_and_the_next_is_read(size: int) -> None:
    stream = b"data: 1\n\ndata: " + b"x" * (2 * MAX_FRAME_BYTES if size > 7 else 100) + b"\n\ndata: 2\n\n"
    framer = SseFramer()
    found: list[Frame] = []
    for i in range(0, len(stream), size):
        found += framer.feed(stream[i : i + size])
        assert len(framer._carry) <= MAX_FRAME_BYTES + size + 2
    assert [f.data for f in found if f.data and len(f.data) == 1] == [b"1", b"2"]
    assert framer.skipped == (1 if size > 7 else 0)


def test_an_endless_line_does_not_grow_the_carry() -> None:
    framer = SseFramer()
    for _ in range(64):
        assert framer.feed(b"data: " + b"x" * (1 << 18)) == []
        assert len(framer._carry) <= MAX_FRAME_BYTES + (1 << 18)
    assert framer.finish() == []
    assert framer.skipped == 1
