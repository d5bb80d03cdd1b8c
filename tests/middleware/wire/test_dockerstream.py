"""The engine's frames are counted whatever the cuts, and what is no frame is counted as raw."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire.dockerstream import FrameCounter


def frame(stream: int, payload: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4, "big") + payload


FRAMES = st.lists(st.tuples(st.sampled_from((1, 2)), st.binary(max_size=300)), max_size=12)
CUTS = st.lists(st.integers(1, 40), min_size=1, max_size=20)


def fed(counter: FrameCounter, data: bytes, cuts: list[int]) -> FrameCounter:
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        counter.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    return counter


@given(FRAMES, CUTS)
def test_any_cut_gives_the_same_sums(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    counter = fed(FrameCounter(), b"".join(frame(stream, payload) for stream, payload in frames), cuts)
    assert counter.stdout == sum(len(payload) for stream, payload in frames if stream == 1)
    assert counter.stderr == sum(len(payload) for stream, payload in frames if stream == 2)
    assert counter.framed
    assert counter.whole
    assert counter.raw == 0


@given(FRAMES, st.binary(min_size=1, max_size=60), CUTS)
def test_text_where_frames_were_promised_is_raw_from_there(
    frames: list[tuple[int, bytes]], rest: bytes, cuts: list[int]
) -> None:
    """An OCI error after good frames: its first byte is printable, so it is no stream number."""
    text = b"OCI runtime exec failed: " + rest
    counter = fed(FrameCounter(), b"".join(frame(stream, payload) for stream, payload in frames) + text, cuts)
    assert not counter.framed
    assert counter.raw == len(text)
    assert counter.out == sum(len(payload) for _, payload in frames) + len(text)


@given(st.binary(max_size=200), CUTS)
def test_a_terminal_has_no_frames(data: bytes, cuts: list[int]) -> None:
    counter = fed(FrameCounter(tty=True), data, cuts)
    assert counter.raw == counter.out == len(data)


@given(st.binary(max_size=400), CUTS)
def test_junk_neither_raises_nor_grows(data: bytes, cuts: list[int]) -> None:
    counter = fed(FrameCounter(), data, cuts)
    assert counter.out <= len(data)


def test_a_frame_that_was_cut_is_not_whole() -> None:
    counter = FrameCounter()
    counter.feed(frame(1, b"hello")[:-2])
    assert not counter.whole
    assert counter.stdout == 3
