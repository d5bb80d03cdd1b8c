"""An array that comes in pieces gives its elements, whatever stands in their strings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire import jsonarray
from fairtrial.middleware.wire.jsonarray import JsonArrayFramer

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\{}[],ü\u0085', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='"\\}', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def framed(body: bytes, size: int) -> tuple[list[bytes], JsonArrayFramer]:
    framer = JsonArrayFramer()
    elements = [e for i in range(0, len(body), size) for e in framer.feed(body[i : i + size])]
    return elements + framer.finish(), framer


@given(elements=st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), max_size=4), size=st.integers(1, 40))
def test_any_cut_gives_the_elements_of_the_array(elements: list[dict[str, object]], size: int) -> None:
    for indent in (None, 2):
        body = b" \n" + json.dumps(elements, ensure_ascii=False, indent=indent).encode() + b"\n"
        found, framer = framed(body, size)
        assert [json.loads(each) for each in found] == elements
        assert (framer.closed, framer.pending, framer.skipped) == (True, False, 0)


def test_a_lone_object_is_its_only_element() -> None:
    found, framer = framed(b'{"error": {"code": 1}} trailing {', 3)
    assert found == [b'{"error": {"code": 1}}']
    assert framer.closed


def test_half_an_element_is_none() -> None:
    found, framer = framed(b'[{"a": 1},\n{"b": ', 4)
    assert found == [b'{"a": 1}']
    assert not framer.closed


def test_an_element_beyond_the_bound_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonarray, "MAX_ELEMENT_BYTES", 20)
    for size in (1, 7, 100):
        framer = JsonArrayFramer()
        found: list[bytes] = []
        body = b'[{"a": "' + b"x" * 50 + b'"}, {"b": 2}]'
        for i in range(0, len(body), size):
            found += framer.feed(body[i : i + size])
            assert len(framer._carry) <= 20
        assert (found, framer.skipped) == ([b'{"b": 2}'], 1)


@given(junk=st.lists(st.binary(max_size=30), max_size=8))
def test_junk_never_raises(junk: list[bytes]) -> None:
    framer = JsonArrayFramer()
    for piece in junk:
        framer.feed(piece)
    framer.finish()
