"""Dials: stages timed apart, failures told as they are, and corporate proxies."""

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import pytest
import uvloop

from fairtrial.middleware.relay.dial import DialFailed, Dialler, DialReport
from fairtrial.middleware.relay.ends import HangupWatch
from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import Rig, UpstreamSide, read_all, read_exactly, read_head, request, running

_P = ParamSpec("_P")
_T = TypeVar("_T")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def one_call(rig: Rig, client: socket.socket) -> bytes:
    client.sendall(request("GET", "/v1"))
    up = rig.upstream.accept()
    head = read_head(up)
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    return head


def proxy_side(answer: Callable[[bytes], bytes]) -> tuple[socket.socket, list[bytes]]:
    """A CONNECT proxy for one connection: shows what it was asked, splices after a 200."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    asked: list[bytes] = []

    def serve() -> None:
        with listener:
            near, _ = listener.accept()
        with near:
            head = read_head(near)
            asked.append(head)
            reply = answer(head)
            near.sendall(reply)
            if b" 200 " not in reply:
                return
            port = int(head.split(b" ")[1].rsplit(b":", 1)[1])
            with socket.create_connection(("127.0.0.1", port)) as far:
                back = threading.Thread(target=splice, args=(far, near))
                back.start()
                splice(near, far)
                back.join()

    threading.Thread(target=serve, daemon=True).start()
    return listener, asked


def splice(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_tls_dial_times_its_stages_apart(tls_rig: Rig) -> None:
    one_call(tls_rig, tls_rig.client())
    dial = tls_rig.observer.wait(Kind.DIAL)[0].json()
    assert dial["ok"] is True
    for stage in ("dns_s", "connect_s", "tls_s"):
        value = dial[stage]
        assert isinstance(value, float)
        assert 0 < value < 5
    assert str(dial["remote"]).endswith(f":{tls_rig.upstream.port}")


def test_an_untrusted_certificate_is_a_tls_failure_with_its_reason(loop_kind: str) -> None:
    with running(loop_kind, tls=True) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        sock, _ = rig.upstream.listener.accept()
        serving = threading.Thread(target=_try_tls, args=(rig.upstream, sock))
        serving.start()
        assert read_all(client) == (b"", "rst")
        serving.join(10)
        rig.no_pair_open()
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        assert (dial["ok"], dial["stage"]) == (False, "tls")
        assert "CERTIFICATE_VERIFY_FAILED" in str(dial["error"]) or "certificate verify failed" in str(dial["error"])


def _try_tls(side: UpstreamSide, sock: socket.socket) -> None:
    assert side._context is not None
    try:
        side._context.wrap_socket(sock, server_side=True).close()
    except OSError:
        sock.close()


def test_an_upstream_that_hangs_up_in_the_handshake_is_a_tls_failure(tls_rig: Rig) -> None:
    client = tls_rig.client()
    client.sendall(request("GET"))
    sock, _ = tls_rig.upstream.listener.accept()
    sock.close()
    assert read_all(client) == (b"", "rst")
    tls_rig.no_pair_open()
    assert tls_rig.observer.wait(Kind.DIAL)[0].json()["stage"] == "tls"


def test_an_upstream_that_never_answers_the_handshake_times_out(loop_kind: str) -> None:
    with running(loop_kind, tls=True, settings=RelaySettings(connect_timeout_s=0.2)) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        sock, _ = rig.upstream.listener.accept()
        assert read_all(client) == (b"", "rst")
        sock.close()
        rig.no_pair_open()
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        assert (dial["stage"], dial["errno"]) == ("tls", 110)


def test_a_name_that_does_not_resolve_is_a_dns_failure(rig: Rig) -> None:
    door = rig.open_door(Upstream.parse("nowhere", "https://no-such-host.invalid"))
    client = rig.client(door=door)
    client.sendall(request("GET"))
    assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    dial = rig.observer.wait(Kind.DIAL)[0].json()
    assert (dial["ok"], dial["stage"], dial["errno"]) == (False, "dns", None)
    assert "gaierror" in str(dial["error"])


def test_a_client_that_leaves_during_the_dial_cancels_it(loop_kind: str) -> None:
    with running(loop_kind, tls=True) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        sock, _ = rig.upstream.listener.accept()
        client.close()
        sock.settimeout(10)
        read_all(sock)
        sock.close()
        rig.no_pair_open()
        assert rig.observer.wait(Kind.DIAL)[0].json()["stage"] == "cancelled"


def test_each_address_of_a_name_is_tried_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(_self: Dialler, _host: str, port: int, _report: DialReport) -> list[object]:
        return [(socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.1", port))]

    monkeypatch.setattr(Dialler, "_resolve", two)
    one_call(rig, rig.client())
    assert rig.observer.wait(Kind.DIAL)[0].json()["tried"] == 2


def test_a_tls_upstream_is_reached_through_connect_with_the_credentials(loop_kind: str, ca_file: str) -> None:
    listener, asked = proxy_side(lambda _head: b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
    port = listener.getsockname()[1]
    settings = RelaySettings(ca_files=(ca_file,), proxy=ProxySettings(https_proxy=f"http://user:word@127.0.0.1:{port}"))
    with running(loop_kind, tls=True, settings=settings) as rig:
        head = one_call(rig, rig.client())
        assert head.startswith(b"GET /v1 HTTP/1.1\r\n")
        assert b"Proxy-Authorization" not in head
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        assert (dial["via_proxy"], dial["proxy_mode"]) == (f"127.0.0.1:{port}", "connect")
    assert asked[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\nHost: localhost:" % rig.upstream.port)
    assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n" in asked[0]


def test_a_proxy_that_says_407_is_told_as_the_proxys_answer(loop_kind: str) -> None:
    listener, _ = proxy_side(lambda _head: b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    settings = RelaySettings(proxy=ProxySettings(https_proxy=f"http://127.0.0.1:{listener.getsockname()[1]}"))
    with running(loop_kind, tls=True, settings=settings) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        assert read_all(client) == (b"", "rst")
        rig.no_pair_open()
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        assert (dial["ok"], dial["stage"], dial["status"]) == (False, "proxy", 407)


def test_a_plain_upstream_is_reached_through_its_proxy_with_absolute_targets(loop_kind: str) -> None:
    with contextlib.closing(UpstreamSide()) as proxy:
        settings = RelaySettings(proxy=ProxySettings(http_proxy=proxy.url))
        with running(loop_kind, base="/base", settings=settings) as rig:
            client = rig.client()
            client.sendall(request("GET", "/v1"))
            sock = proxy.accept()
            port = rig.upstream.port
            assert read_head(sock).startswith(
                b"GET http://127.0.0.1:%d/base/v1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % (port, port)
            )
            sock.sendall(OK)
            assert read_exactly(client, len(OK)) == OK
            client.close()
            rig.no_pair_open()
            assert rig.observer.wait(Kind.DIAL)[0].json()["proxy_mode"] == "absolute"


def test_no_proxy_is_respected(loop_kind: str) -> None:
    settings = RelaySettings(proxy=ProxySettings(http_proxy="http://127.0.0.1:1", no_proxy="127.0.0.1"))
    with running(loop_kind, settings=settings) as rig:
        assert one_call(rig, rig.client()).startswith(b"GET /v1 ")


class Refusing(ThreadPoolExecutor):
    """What a limit of processes makes of a thread pool."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        raise RuntimeError("can't start new thread")


def dial_without_threads(url: str) -> tuple[DialReport, int]:
    """One dial on uvloop where no thread can be made; also how many threads it made all the same."""
    made: list[int] = []

    async def dial() -> DialReport:
        before = len(os.listdir("/proc/self/task"))
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Refusing())
        watch = HangupWatch(loop)
        try:
            link, report = await Dialler(loop, watch, Upstream.parse("x", url), RelaySettings()).dial()
        except DialFailed as failed:
            return failed.report
        finally:
            made.append(len(os.listdir("/proc/self/task")) - before)
            watch.close()
        link.reset()
        return report

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(dial()), made[0]


def test_a_lack_of_threads_is_a_failed_dial_and_never_the_end_of_the_process() -> None:
    report, _ = dial_without_threads("http://some.name.invalid:1")
    assert (report.ok, report.stage, report.errno) == (False, "dns", errno.EAGAIN)
    assert "no thread" in str(report.error)


def test_a_numeric_address_needs_no_thread_at_all() -> None:
    """uvloop's own connect goes through its resolver's threads, and aborts the process where none can be made."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        report, threads = dial_without_threads(f"http://127.0.0.1:{server.getsockname()[1]}")
    assert report.ok
    assert threads == 0


def test_a_refused_port_has_the_kernels_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    report, _ = dial_without_threads(f"http://127.0.0.1:{port}")
    assert (report.ok, report.stage, report.errno) == (False, "connect", errno.ECONNREFUSED)
