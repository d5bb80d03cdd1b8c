"""JSON that was cut off."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.harnesses.salvage import closed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(value=st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=4), share=st.floats(0, 1))
def test_what_is_left_of_any_beginning_is_a_part_of_the_whole(value: dict[str, object], share: float) -> None:
    content = json.dumps(value).encode()
    left = closed(content[: round(share * len(content))])
    if left is None:
        assert round(share * len(content)) == 0
        return
    assert _is_part(json.loads(left), value)


def _is_part(part: object, whole: object) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _is_part(each, whole[key]) for key, each in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(_is_part(a, b) for a, b in zip(part, whole, strict=False))
    return part == whole


def test_brackets_within_texts_are_no_brackets() -> None:
    assert closed(b'{"a": "]}\\"[{", "b": [1, "x') == b'{"a": "]}\\"[{", "b": [1]}'
    assert closed(b'{"a": 1}') == b'{"a": 1}'
    assert closed(b"]") is None
    assert closed(b"plain") is None
