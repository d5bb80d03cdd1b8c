"""Upstream URLs and proxy choice, as other clients read them."""

import pytest

from fairtrial.middleware.relay.settings import Counters, ProxySettings, RelaySettings, Upstream


@pytest.mark.parametrize(
    "url, authority, base, port",
    [
        ("https://api.anthropic.com", "api.anthropic.com", "", 443),
        ("https://host/api/anthropic/", "host", "/api/anthropic", 443),
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", "/v1", 8000),
        ("http://h:80", "h", "", 80),
        ("https://h:80", "h:80", "", 80),
        ("http://[::1]:9/x", "[::1]:9", "/x", 9),
        ("HTTPS://Host.Example/a%3Ab", "host.example", "/a%3Ab", 443),
    ],
)
def test_an_upstream_is_read_from_its_base_url(url: str, authority: str, base: str, port: int) -> None:
    upstream = Upstream.parse("x", url)
    assert (upstream.authority, upstream.base_path, upstream.port) == (authority, base, port)


@pytest.mark.parametrize(
    "url", ["", "host", "ftp://host", "http://", "https://u:p@host", "https://h/?q=1", "http://h:99999"]
)
def test_what_is_no_base_url_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Upstream.parse("x", url)


@pytest.mark.parametrize(
    "no_proxy, host, port, bypassed",
    [
        ("", "h", 443, False),
        ("*", "h", 443, True),
        ("example.com", "example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "notexample.com", 443, False),
        (".example.com", "api.example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("a, EXAMPLE.com ,b", "example.com", 443, True),
        ("example.com:8080", "example.com", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("127.0.0.1", "127.0.0.1", 443, True),
        ("::1", "::1", 443, True),
        ("[::1]:443", "::1", 443, True),
        ("localhost", "127.0.0.1", 443, False),
    ],
)
def test_no_proxy_names_hosts_suffixes_addresses_and_ranges(
    no_proxy: str, host: str, port: int, bypassed: bool
) -> None:
    assert ProxySettings(no_proxy=no_proxy).bypasses(host, port) is bypassed


def test_the_scheme_of_the_upstream_chooses_the_proxy_and_the_url_its_credentials() -> None:
    settings = ProxySettings(https_proxy="http://us%40er:p%3Aw@proxy:3128/", http_proxy="other:81")
    secure = settings.choose(Upstream.parse("x", "https://h"))
    plain = settings.choose(Upstream.parse("x", "http://h"))
    assert secure is not None
    assert plain is not None
    assert (secure.label, secure.authorization) == ("proxy:3128", "Basic dXNAZXI6cDp3")
    assert (plain.label, plain.authorization) == ("other:81", None)
    assert "dXNAZXI6cDp3" not in repr(secure)


def test_a_proxy_that_we_cannot_speak_to_is_said() -> None:
    with pytest.raises(ValueError, match="socks4"):
        ProxySettings(https_proxy="socks4://h:1080").choose(Upstream.parse("x", "https://h"))


def test_the_defaults_are_those_of_run() -> None:
    assert RelaySettings().refuse_bad_heads is False
    assert Counters().open_pairs == 0


@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_a_proxy_whose_password_breaks_its_address_is_said_without_a_piece_of_it(scheme: str) -> None:
    url = f"{scheme}://user:hun/ter2@proxy:3128"
    settings = ProxySettings(https_proxy=url)
    with pytest.raises(ValueError, match="cannot be read") as told:
        settings.choose(Upstream.parse("a", "https://api.test"))
    assert "hun" not in str(told.value)
    assert told.value.__cause__ is None
