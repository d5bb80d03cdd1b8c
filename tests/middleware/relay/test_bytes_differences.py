"""The list of differences from a direct connection: what DESIGN section 3 names, each shown, and nothing else.

1. head lines: the target (token cut, base path before it; behind a proxy for plain http the whole URL), the value of
   Host, our own X-Fairtrial lines (taken out), Proxy-Authorization (put in, for that proxy); responses: none;
2. a failed connect, name or certificate is a reset on the first request, and the upstream is dialled only then;
3. the client's connect timeout does not cover the upstream;
4. HTTP/1.1 where a client might have used h2;
5. refusals of a shared door (test_bytes_refusals.py); a half-close at a model door (test_bytes_ends.py).
"""

import contextlib
import re
import socket
import ssl
import threading

import pytest

from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.beside import Meeting, beside
from tests.middleware.relay.rig import AUTHORITY, TOKEN, Rig, read_all, read_exactly, read_head, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

# As real clients say them, but for their secrets; Host, Content-Length and the first line are added.
CLIENTS = {
    "Claude Code": (
        "Accept: application/json",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Authorization: Bearer x",
        "Content-Type: application/json",
        "User-Agent: claude-cli/2.1.0 (external, cli)",
        "X-Claude-Code-Session-Id: 0",
        "X-Stainless-Retry-Count: 0",
        "anthropic-beta: claude-code-20250219,interleaved-thinking-2025-05-14",
        "anthropic-version: 2023-06-01",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "Connection: keep-alive",
    ),
    "Codex": (
        "authorization: Bearer x",
        "openai-beta: responses=experimental",
        "originator: codex_cli_rs",
        "session_id: 0",
        "accept: text/event-stream",
        "x-codex-turn-metadata: {}",
        "content-encoding: zstd",
        "accept: */*",
    ),
    "an odd one": (
        "x-a:1",
        "X-A:  2  ",
        "X-Empty:",
        "Cookie: a=b; c=d",
        "cookie: e",
        "Via: 1.1 corp",
        "Forwarded: for=1.2.3.4",
        "X-Forwarded-Host: other",
        "Proxy-Connection: keep-alive",
        "Connection: close, X-Hop",
        "X-Hop: 1",
        "Keep-Alive: 5",
        "TE: trailers",
        "Accept-Encoding: br;q=1.0, identity;q=0, *;q=0",
        "Range: bytes=0-",
        "Origin: http://door",
        "Referer: http://door/t/x/",
        "X-Host: 127.0.0.1",
        "baggage: a=%3A",
    ),
    "one of ours": ("X-Fairtrial-Trial: t-1", "x-fairtrial-note: n", "X-Fair: stays"),
}
TARGETS = ("/v1/messages?beta=true", "/v1/models/a%3Ab?x=%2F&y=/t/z/", "/v1//..//x;p", "/", "/?q")

# Every way in which a line may differ; the tests below demand that each happens and that no other does.
NAMED = {"target", "Host value", "own line out", "Proxy-Authorization in"}


def lines_of(head: bytes) -> list[bytes]:
    assert head.endswith(b"\r\n\r\n")
    return head[:-4].split(b"\r\n")


def differences(sent: bytes, arrived: bytes) -> set[str]:
    """The kinds of difference between a head as sent to the door and as it arrived; fails at one that has no name."""
    before, after = lines_of(sent), lines_of(arrived)
    found: set[str] = set()
    method, target, version = before.pop(0).split(b" ")
    new_method, new_target, new_version = after.pop(0).split(b" ")
    assert (method, version) == (new_method, new_version)
    if target != new_target:
        found.add("target")
    if any(line.lower().startswith(b"x-fairtrial-") for line in before):
        before = [line for line in before if not line.lower().startswith(b"x-fairtrial-")]
        found.add("own line out")
    if after[0].startswith(b"Proxy-Authorization: ") and len(after) == len(before) + 1:
        after.pop(0)
        found.add("Proxy-Authorization in")
    assert len(before) == len(after)
    for line, new in zip(before, after, strict=True):
        if line != new:
            host = re.compile(rb"(host:[ \t]*)[^ \t]*([ \t]*)", re.IGNORECASE)
            old_host, new_host = host.fullmatch(line), host.fullmatch(new)
            assert old_host is not None, line
            assert new_host is not None, new
            assert (old_host[1], old_host[2]) == (new_host[1], new_host[2])
            found.add("Host value")
    return found


def through(rig: Rig, ask: bytes) -> bytes:
    """The head that arrives upstream."""
    client = rig.client()
    client.sendall(ask)
    up = rig.upstream.open[0] if rig.upstream.open else rig.upstream.accept()
    arrived = read_head(up)
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.upstream.open.remove(up)
    up.close()
    return arrived


def test_only_the_named_lines_of_a_request_differ_and_each_of_them_does(loop_kind: str) -> None:
    found: set[str] = set()
    with running(loop_kind, base="/api") as rig:
        for lines in CLIENTS.values():
            for target in TARGETS:
                for host in ("Host: 127.0.0.1:1", "host:door", "HOST:\t door "):
                    # A name behind the token (one of several trials of a run) is cut off with it.
                    for token in (TOKEN, f"{TOKEN}.task-7") if host.startswith("HOST") else (TOKEN,):
                        first = f"GET /t/{token}{target} HTTP/1.1"
                        ask = "\r\n".join((first, *lines[:2], host, *lines[2:], "", "")).encode()
                        arrived = through(rig, ask)
                        assert arrived.startswith(f"GET /api{target} HTTP/1.1\r\n".encode())
                        found |= differences(ask, arrived)
        assert rig.relay.counters.blind == 0
    with running(loop_kind) as proxy:
        authority = f"127.0.0.1:{proxy.upstream.port}"
        limits = RelaySettings(proxy=ProxySettings(http_proxy=f"http://user:word@{authority}"))
        with running(loop_kind, settings=limits) as rig:
            door = rig.open_door(Upstream.parse("test", "http://models.example/api"))
            client = rig.client(door=door)
            ask = b"GET /t/%s/v1?x HTTP/1.1\r\nHost: door\r\nA: b\r\n\r\n" % TOKEN.encode()
            client.sendall(ask)
            arrived = read_head(proxy.upstream.accept())
            assert arrived.startswith(b"GET http://models.example/api/v1?x HTTP/1.1\r\n")
            found |= differences(ask, arrived)
            client.close()
            proxy.upstream.open.pop().close()
            rig.no_pair_open()
    assert found == NAMED


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_the_upstream_cannot_tell_the_relay_from_a_direct_client(any_rig: Rig, name: str) -> None:
    """But for our own lines, which only exist for the relay."""

    def story(meeting: Meeting) -> list[bytes]:
        lines = [
            line for line in CLIENTS[name] if meeting.direct is False or not line.lower().startswith("x-fairtrial-")
        ]
        meeting.client.sendall(meeting.ask("POST", "/v1/messages?beta=true", *lines, body=b"{}"))
        seen = [read_head(meeting.up), read_exactly(meeting.up, 2)]
        meeting.up.sendall(OK)
        return [*seen, read_exactly(meeting.client, len(OK))]

    beside(any_rig, story)


def test_a_refused_connect_is_a_reset_on_the_first_request(rig: Rig) -> None:
    rig.upstream.listener.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", rig.upstream.port), 5)
    client = rig.client()
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    assert rig.observer.of(Kind.DIAL)[0].json()["stage"] == "connect"


def test_a_name_that_does_not_resolve_is_a_reset_on_the_first_request(rig: Rig) -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("no-such-host.invalid", 80)
    door = rig.open_door(Upstream.parse("test", "http://no-such-host.invalid"))
    client = rig.client(door=door)
    client.settimeout(30)
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    assert rig.observer.of(Kind.DIAL)[0].json()["stage"] == "dns"


def test_a_certificate_that_is_not_trusted_is_a_reset_on_the_first_request(loop_kind: str) -> None:
    with running(loop_kind, tls=True) as rig:
        for direct in (True, False):
            if direct:
                with socket.create_connection(("127.0.0.1", rig.upstream.port), 5) as sock:
                    trusting = ssl.create_default_context()
                    wrapped = trusting.wrap_socket(sock, server_hostname="localhost", do_handshake_on_connect=False)
                    meeting_end = _accept_in_vain(rig)
                    with pytest.raises(ssl.SSLCertVerificationError):
                        wrapped.do_handshake()
                    wrapped.close()
            else:
                client = rig.client()
                meeting_end = _accept_in_vain(rig)
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert read_all(client) == (b"", "rst")
            meeting_end.join(10)
        rig.no_pair_open()
        dial = rig.observer.of(Kind.DIAL)[0].json()
        assert (dial["stage"], dial["ok"]) == ("tls", False)
        assert "CERTIFICATE_VERIFY_FAILED" in str(dial["error"])


def _accept_in_vain(rig: Rig) -> threading.Thread:
    def accept() -> None:
        with contextlib.suppress(OSError):
            rig.upstream.accept()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    return thread


def test_the_upstream_is_not_called_before_the_first_request(rig: Rig) -> None:
    """Directly a connection is there as soon as the client wants it; a client that only connects is not heard of."""
    client = rig.client()
    rig.observer.wait(Kind.OPEN)
    rig.upstream.listener.settimeout(0.1)
    with pytest.raises(TimeoutError):
        rig.upstream.listener.accept()
    client.close()
    rig.no_pair_open()


def test_a_clients_connect_timeout_ends_at_the_door(loop_kind: str) -> None:
    """An upstream whose queue is full answers no SYN: directly the client's own bound strikes, here the relay's."""
    with running(loop_kind, settings=RelaySettings(connect_timeout_s=0.5)) as rig:
        rig.upstream.listener.listen(0)
        crowd = [socket.socket() for _ in range(8)]
        for sock in crowd:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", rig.upstream.port))
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", rig.upstream.port), 0.3)
        client = rig.client()  # connects at once
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(client) == (b"", "rst")
        rig.no_pair_open()
        dial = rig.observer.of(Kind.DIAL)[0].json()
        assert (dial["stage"], dial["errno"]) == ("connect", 110)
        for sock in crowd:
            sock.close()


def test_http_1_1_is_spoken_where_a_client_might_have_used_h2(tls_rig: Rig) -> None:
    context = tls_rig.upstream._context
    assert context is not None
    context.set_alpn_protocols(["h2", "http/1.1"])
    offering = ssl.create_default_context()
    AUTHORITY.configure_trust(offering)
    offering.set_alpn_protocols(["h2", "http/1.1"])
    chosen = {}
    for direct in (True, False):
        accepting = _accept_in_vain(tls_rig)
        client = tls_rig.client()
        if direct:
            client.close()
            client = socket.create_connection(("127.0.0.1", tls_rig.upstream.port), 5)
            client = offering.wrap_socket(client, server_hostname="localhost")
        else:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        accepting.join(10)
        up = tls_rig.upstream.open.pop()
        assert isinstance(up, ssl.SSLSocket)
        chosen[direct] = up.selected_alpn_protocol()
        client.close()
        up.close()
    tls_rig.no_pair_open()
    assert chosen == {True: "h2", False: "http/1.1"}
