"""Ends of records are found whatever the cuts; what is no TLS is never called cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire.tlsrecords import RecordEnds


def stream(sizes: list[int]) -> bytes:
    return b"".join(b"\x17\x03\x03" + size.to_bytes(2) + b"x" * size for size in sizes)


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_any_cut_of_the_same_bytes_says_the_same(sizes: list[int], cuts: list[int]) -> None:
    wire = stream(sizes)
    ends = RecordEnds()
    at = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(wire)), len(wire)]:
        ends.feed(wire[at:cut])
        at = cut
    assert ends.whole is True
    assert ends.closed is (sizes[-1] == 19)


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), left=st.integers(1, 40))
def test_a_stream_that_ends_within_a_record_is_not_whole(sizes: list[int], left: int) -> None:
    wire = stream(sizes)
    cut = wire[: len(wire) - min(left, sizes[-1])]
    ends = RecordEnds()
    ends.feed(cut)
    assert (ends.whole, ends.closed) == (False, False)


@given(data=st.binary(min_size=5, max_size=200).filter(lambda data: data[0] not in range(20, 25)))
def test_what_is_no_tls_is_not_known(data: bytes) -> None:
    ends = RecordEnds()
    ends.feed(data)
    assert (ends.whole, ends.closed) == (None, None)


def test_an_alert_of_tls_1_2_is_told_by_its_type() -> None:
    ends = RecordEnds()
    ends.feed(b"\x15\x03\x03\x00\x1a" + b"x" * 26)
    assert ends.closed is True
