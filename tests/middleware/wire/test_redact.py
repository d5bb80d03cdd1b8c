"""Nothing secret is left in a path or a header value that is shown."""

import pytest

from fairtrial.middleware.wire.redact import digest, safe_path, safe_value


@pytest.mark.parametrize(
    "target, shown",
    [
        ("/v1/messages?beta=true", "/v1/messages?beta=true"),
        (
            "/v1beta/models/m:streamGenerateContent?alt=sse&key=AIza123",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        ("/v1/files?api_key=x", "/v1/files"),
        ("/t/unknown-token/v1/messages", "/t/…/v1/messages"),
        ("http://user:pw@host/v1/messages", "/v1/messages"),
        ("/a/" + "k" * 64, "/a/…"),
        ("/a\x1b[31m", "/a[31m"),
    ],
)
def test_paths_are_shown_without_tokens_keys_and_control_characters(target: str, shown: str) -> None:
    assert safe_path(target) == shown


def test_values_are_bounded_and_have_no_control_characters() -> None:
    assert safe_value("a\x1bb\x7f") == "ab"
    assert safe_value(None) is None
    assert safe_value("") is None
    assert len(safe_value("x" * 1000) or "") == 200


def test_digests_are_128_bits_of_blake2b_and_take_lone_surrogates() -> None:
    assert digest("ls") == digest(b"ls")
    assert len(digest("\ud800")) == 32
