"""Lines come out whole, however they were cut, and never longer than the bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire import ndjson
from fairtrial.middleware.wire.ndjson import LineFramer


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=6),
    size=st.integers(1, 30),
    end=st.sampled_from([b"\n", b"\r\n"]),
    closed=st.booleans(),
)
def test_any_cut_gives_the_lines_that_are_not_blank(lines: list[bytes], size: int, end: bytes, closed: bool) -> None:
    body = end.join(lines) + (end if closed else b"")
    framer = LineFramer()
    found = [line for i in range(0, len(body), size) for line in framer.feed(body[i : i + size])]
    found += framer.finish()
    assert found == [each for line in lines if (each := line.strip(b"\r\t "))]
    assert not framer.pending


def test_only_lf_ends_a_line() -> None:
    framer = LineFramer()
    assert framer.feed('{"a": "\u0085\u2028"}\n'.encode()) == ['{"a": "\u0085\u2028"}'.encode()]


def test_a_line_beyond_the_bound_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "MAX_LINE_BYTES", 10)
    framer = LineFramer()
    found: list[bytes] = []
    for piece in (b"x" * 9, b"x" * 9, b"x" * 9, b"\n{}\n"):
        found += framer.feed(piece)
        assert len(framer._carry) <= 10
    assert (found, framer.skipped) == ([b"{}"], 1)
