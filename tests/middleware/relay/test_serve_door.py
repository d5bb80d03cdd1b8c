"""A shared door: which tokens it takes, and what it passes on of them."""

from __future__ import annotations

import pytest

from fairtrial.middleware.relay.coupled import HeadRefused
from fairtrial.middleware.relay.serve_door import _ACCESS, PathTokens

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("token", ["django-123", "a", "A.b_c~d", "0" * 128])
def test_an_open_door_takes_any_name(token: str) -> None:
    assert PathTokens(None).get(token) == token


@pytest.mark.parametrize("token", ["", ".hidden", "a b", "a%2Fb", "ü", "0" * 129, "a;b"])
def test_what_is_no_name_is_no_token(token: str) -> None:
    assert PathTokens(None).get(token) is None


def test_a_guarded_door_takes_its_secret_with_or_without_a_name() -> None:
    tokens = PathTokens(SECRET)
    assert tokens.get(SECRET) == ""
    assert tokens.get(f"{SECRET}.django-1") == "django-1"
    assert tokens.get(f"{SECRET}.with.dots") == "with.dots"


@pytest.mark.parametrize("token", ["", "django-1", SECRET[:-1], SECRET + "0", f"x{SECRET}.a", "\xff" * 32])
def test_and_nothing_else(token: str) -> None:
    assert PathTokens(SECRET).get(token) is None


@pytest.mark.parametrize("token", [f"{SECRET}.", f"{SECRET}.a b", f"{SECRET}.bad%20name"])
def test_a_secret_with_a_bad_name_is_refused_and_never_passed_on_as_a_path(token: str) -> None:
    with pytest.raises(HeadRefused, match="name"):
        PathTokens(SECRET).get(token)


def test_the_header_is_taken_whole_and_trimmed() -> None:
    said = _ACCESS.search(b"GET / HTTP/1.1\r\nX-Fairtrial-Access:  a b \t\r\n\r\n")
    assert said is not None
    assert said[1].strip(b" \t") == b"a b"


def test_the_secret_in_a_header_is_compared_whole() -> None:
    assert PathTokens(SECRET).admits(SECRET.encode())
    assert not PathTokens(SECRET).admits(SECRET[:-1].encode())
    assert not PathTokens(SECRET).admits(b"")
    assert PathTokens(None).admits(b"")
