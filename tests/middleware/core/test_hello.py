"""The first word of the feed: read leniently, refused only when it is no hello at all."""

from __future__ import annotations

import msgspec
import pytest

from fairtrial.middleware.core.hello import parse_hello


def test_missing_fields_have_defaults_and_unknown_ones_are_skipped() -> None:
    hello = parse_hello(b'{"trial": "t", "try": 2, "doors": [{"name": "anthropic", "door_port": 1}], "later": {}}')
    assert (hello.trial, hello.try_, hello.doors[0].door_port, hello.docker.url) == ("t", 2, 1, None)


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"trial": 5}', b"\xff"])
def test_what_is_no_hello_is_refused(payload: bytes) -> None:
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        parse_hello(payload)
