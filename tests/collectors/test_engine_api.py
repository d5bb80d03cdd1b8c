"""Which version of the API is spoken, and the sentence where none can be."""

from __future__ import annotations

import pytest

from fairtrial.collectors.engine_api import ApiRange, NotSpoken, choose


@pytest.mark.parametrize(
    "reply, version",
    [
        ({"ApiVersion": "1.40", "MinAPIVersion": "1.12"}, "1.40"),
        ({"ApiVersion": "1.41"}, "1.41"),
        ({"ApiVersion": "1.52", "MinAPIVersion": "1.44"}, "1.52"),
        ({"ApiVersion": "1.99", "MinAPIVersion": "1.44"}, "1.52"),
        ({"ApiVersion": "2.3", "MinAPIVersion": "1.52"}, "1.52"),
    ],
)
def test_the_newest_that_both_know_is_spoken(reply: object, version: str) -> None:
    assert choose(ApiRange.of(reply)) == version


@pytest.mark.parametrize(
    "reply, said",
    [
        ({"ApiVersion": "1.39", "Version": "18.09.1"}, "the engine 18.09.1 speaks API 1.39, and fairtrial needs 1.40"),
        ({"ApiVersion": "1.99", "MinAPIVersion": "1.60"}, "no API older than 1.60, and fairtrial knows none newer"),
        ({"Version": "x"}, "does not say which version of the API"),
        ({"ApiVersion": "1.41; rm"}, "does not say which version"),
        ({"ApiVersion": 1.41}, "does not say which version"),
        (["1.41"], "does not say which version"),
        (None, "does not say which version"),
    ],
)
def test_where_there_is_none_one_sentence_says_why(reply: object, said: str) -> None:
    with pytest.raises(NotSpoken) as raised:
        choose(ApiRange.of(reply))
    assert said in str(raised.value)


def test_a_release_that_is_no_plain_text_is_left_out() -> None:
    assert ApiRange.of({"Version": "20\x1b[2J"}).release is None
