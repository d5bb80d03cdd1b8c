"""A member is put into a JSON text, and nothing else of the text changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.harnesses.splice import NotSpliced, put

OURS: dict[str, object] = {"schema": "s/1", "blame": "infra"}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(
    document=st.dictionaries(st.text().filter(lambda key: key != "extra"), VALUES, max_size=4),
    extra=st.none() | st.dictionaries(st.text().filter(lambda key: key != "fairtrial"), VALUES, max_size=3),
    there=st.booleans(),
    indent=st.none() | st.integers(0, 4),
)
def test_any_document_keeps_all_that_it_had(
    document: dict[str, object], extra: dict[str, object] | None, *, there: bool, indent: int | None
) -> None:
    whole = {**document, "extra": extra} if there else document
    after, news = put(json.dumps(whole, indent=indent), "fairtrial", [(("extra",), OURS)])
    assert json.loads(after) == {**document, "extra": {**((extra or {}) if there else {}), "fairtrial": OURS}}
    assert news == [True]
    assert put(after, "fairtrial", [(("extra",), OURS)]) == (after, [False])


def test_digits_escapes_order_and_white_space_stay_as_they_were() -> None:
    text = '\n{ "b" :1.0e+2,\t"a": "\\u00e9é\\/\\ud800", "extra" : { "x":0.10000000000000000555 } ,"n": 1E400}\n'
    after, _ = put(text, "fairtrial", [(("extra",), OURS)])
    assert after == text.replace("555 }", '555, "fairtrial": {"schema": "s/1", "blame": "infra"} }')


def test_an_indented_document_stays_indented() -> None:
    after, _ = put('{\n  "a": 1\n}\n', "fairtrial", [((), OURS)])
    assert after.startswith('{\n  "a": 1,\n  "fairtrial": {') and after.endswith("}\n}\n")


def test_an_older_word_of_ours_is_replaced_where_it_stands() -> None:
    before = json.dumps({"extra": {"fairtrial": {"schema": "s/1", "blame": "model"}, "z": 1}, "q": [2]})
    after, _ = put(before, "fairtrial", [(("extra",), OURS)])
    assert after == before.replace('"model"', '"infra"')


def test_elements_of_a_list_are_met_by_their_numbers() -> None:
    text = '{"samples": [ {"metadata":{}}, {"id": 2}, {"metadata": {"m": 1}} ]}'
    ways: list[tuple[tuple[str | int, ...], dict[str, object]]] = [(("samples", n, "metadata"), OURS) for n in (2, 0)]
    after, news = put(text, "fairtrial", ways)
    samples = json.loads(after)["samples"]
    assert samples == [
        {"metadata": {"fairtrial": OURS}},
        {"id": 2},
        {"metadata": {"m": 1, "fairtrial": OURS}},
    ] and news == [True, True]


@pytest.mark.parametrize(
    "text, said",
    [
        ('{"extra": {"fairtrial": {"note": "mine"}}}', "fairtrial did not write"),
        ('{"extra": {"fairtrial": "mine"}}', "fairtrial did not write"),
        ('{"extra": [1]}', "is no object"),
        ('{"extra": {}, "extra": {}}', "twice"),
        ('{"extra": {}', "damaged"),
        ('{"extra": {}} {}', "damaged"),
        ("[]", "no object"),
        ("", "damaged"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_what_is_somebody_elses_or_damaged_is_refused(text: str, said: str) -> None:
    with pytest.raises(NotSpliced, match=said):
        put(text, "fairtrial", [(("extra",), OURS)])
