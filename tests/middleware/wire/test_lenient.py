"""What every client's reader takes is no fault of the sender, and costs at most the field that was amiss."""

import json

import msgspec
import pytest

from fairtrial.middleware.wire import lenient


@pytest.mark.parametrize(
    "body, value",
    [
        (b'{"a":"\\ud83d"}', {"a": "?"}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'{"a":NaN}', {"a": None}),
        (b'{"a":"\xe9"}', {"a": "\ufffd"}),
    ],
)
def test_what_lenient_readers_take_is_written_anew(body: bytes, value: object) -> None:
    tidy = lenient.tidied(body)
    assert tidy is not None
    assert msgspec.json.decode(tidy) == value


@pytest.mark.parametrize("body", [b"", b"{", b"<html>", b"[" * 100_000])
def test_what_nobody_takes_is_no_json(body: bytes) -> None:
    assert lenient.tidied(body) is None


def test_one_field_is_dropped_from_every_item() -> None:
    body = json.dumps({"usage": {"n": 1.5, "m": 2}, "list": [{"x": 1, "y": 2}, {"y": 3}]}).encode()
    assert msgspec.json.decode(lenient.without(body, "$.usage.n") or b"") == {
        "usage": {"m": 2},
        "list": [{"x": 1, "y": 2}, {"y": 3}],
    }
    left = msgspec.json.decode(lenient.without(body, "$.list[...].y") or b"")
    assert left["list"] == [{"x": 1}, {}]
    assert lenient.without(body, "$.nothing") is None


def test_an_error_in_an_object_is_no_answer() -> None:
    assert lenient.is_answer(b'{"a":1}')
    assert lenient.is_answer(b'{"error":null}')
    assert not lenient.is_answer(b'{"error":{"type":"x"}}')
    assert not lenient.is_answer(b"[]")
