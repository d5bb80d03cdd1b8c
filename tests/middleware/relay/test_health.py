"""The health pages: who may ask, what is answered, and that a strange client costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from fairtrial.middleware.relay.health import MAX_HEAD_BYTES, HealthConnection, HealthPages

SECRET = "0123456789abcdef"


class Asked:
    """Pages of a service that is well but for its start."""

    def __init__(self, *, secret: str | None = None) -> None:
        self.over: list[str] = []
        self.pages = HealthPages(self.report, over=self.over.append, hosts={"sidecar.internal"}, secret=secret)

    def report(self, page: str) -> tuple[bool, dict[str, object]]:
        return page != "startupz", {"page": page}

    def ask(self, line: str, *lines: str) -> tuple[int, dict[str, object] | None]:
        said = self.pages.answer("\r\n".join((line, *lines)).encode("latin-1"))
        head, _, body = said.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body else None


def test_each_page_answers_with_its_report() -> None:
    asked = Asked()
    assert asked.ask("GET /healthz HTTP/1.1", "Host: 127.0.0.1:8789") == (200, {"page": "healthz"})
    assert asked.ask("GET /readyz?verbose HTTP/1.0", "host: [::1]:8789") == (200, {"page": "readyz"})
    assert asked.ask("GET /startupz HTTP/1.1", "Host: localhost") == (503, {"page": "startupz"})
    assert asked.ask("HEAD /startupz HTTP/1.1", "Host: localhost") == (503, None)


@pytest.mark.parametrize(
    "host", ["10.1.2.3:8789", "[fe80::1]", "LOCALHOST:1", "sidecar.internal", "Sidecar.Internal:80"]
)
def test_addresses_and_known_names_are_hosts(host: str) -> None:
    assert Asked().ask("GET /healthz HTTP/1.1", f"Host: {host}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "[evil]"])
def test_a_name_that_somebody_else_may_resolve_is_refused(host: str) -> None:
    assert Asked().ask("GET /healthz HTTP/1.1", f"Host: {host}")[0] == 403


def test_another_sites_page_is_refused_and_our_own_is_not() -> None:
    host = "Host: localhost:8789"
    assert Asked().ask("GET /healthz HTTP/1.1", host, "Origin: http://evil.example")[0] == 403
    assert Asked().ask("GET /healthz HTTP/1.1", host, "Origin: null")[0] == 403
    assert Asked().ask("GET /healthz HTTP/1.1", host, "Origin: http://localhost:8789")[0] == 200


@pytest.mark.parametrize(
    "lines",
    [
        ("GET /healthz HTTP/1.1",),
        ("GET /healthz", "Host: a"),
        ("\x00\xff",),
        ("GET /healthz HTTP/1.1", "Host: a", "Host: a"),
    ],
)
def test_what_is_no_request_is_answered_400(lines: tuple[str, ...]) -> None:
    assert Asked().ask(*lines)[0] == 400


def test_only_what_there_is_and_only_as_it_is() -> None:
    host = "Host: localhost"
    assert Asked().ask("GET / HTTP/1.1", host)[0] == 404
    assert Asked().ask("GET /healthz/ HTTP/1.1", host)[0] == 404
    assert Asked().ask("POST /healthz HTTP/1.1", host)[0] == 405
    assert Asked().ask("GET /trials/a/over HTTP/1.1", host)[0] == 405


def test_a_trial_is_over_by_an_operators_word() -> None:
    asked = Asked()
    assert asked.ask("POST /trials/a%20b/over HTTP/1.1", "Host: localhost")[0] == 202
    assert asked.over == ["a b"]


@pytest.mark.parametrize("said", [(), ("Authorization: Bearer wrong",), (f"Authorization: {SECRET}",)])
def test_where_there_is_a_secret_it_is_wanted(said: tuple[str, ...]) -> None:
    asked = Asked(secret=SECRET)
    assert asked.ask("POST /trials/a/over HTTP/1.1", "Host: localhost", *said)[0] == 401
    assert asked.over == []
    assert asked.ask("POST /trials/a/over HTTP/1.1", "Host: localhost", f"Authorization: Bearer {SECRET}")[0] == 202
    assert asked.ask("GET /healthz HTTP/1.1", "Host: localhost")[0] == 200, "the pages need none"


async def test_a_client_that_never_ends_its_head_is_ended() -> None:
    pages = Asked().pages
    server = await asyncio.get_running_loop().create_server(lambda: HealthConnection(pages), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES)
    said = b""
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(20):
            said = await reader.read()
    assert said == b"", "closed without a word"
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for byte in b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":
        writer.write(bytes((byte,)))
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()
    server.close()
    await server.wait_closed()
    assert pages.connections == 0
