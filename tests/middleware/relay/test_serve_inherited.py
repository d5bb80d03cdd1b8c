"""`fairtrial serve` on sockets that somebody else holds: restarts that no client notices, and systemd's words."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.middleware.relay.serving import ASK, AnsweringUpstream, Serve, free_port, until

pytestmark = pytest.mark.slow


@pytest.fixture
def held() -> Iterator[socket.socket]:
    """A listening socket that outlives every serve."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as sock:
        yield sock


class Clients:
    """Some loops that make one call per connection; `failures` is what any of them met."""

    def __init__(self, port: int, count: int) -> None:
        self.failures: list[str] = []
        self.calls = 0
        self._port = port
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go_on) for _ in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _go_on(self) -> None:
        body = str(ASK).replace("'", '"').encode()
        head = b"POST /t/load/v1/messages HTTP/1.1\r\nHost: d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        while not self._stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=60) as sock:
                    sock.sendall(head + body)
                    said = b""
                    while piece := sock.recv(65536):
                        said += piece
                if not said.startswith(b"HTTP/1.1 200 ") or b"end_turn" not in said:
                    self.failures.append(f"a cut answer: {said!r}")
            except OSError as error:
                self.failures.append(repr(error))
            self.calls += 1
            self._stop.wait(0.005)


def test_three_restarts_under_load_refuse_and_reset_nobody(
    serve: Serve, upstream: AnsweringUpstream, held: socket.socket
) -> None:
    sockets = [("anthropic", held)]
    running = serve.start({"anthropic": upstream.url}, sockets=sockets)
    with Clients(held.getsockname()[1], count=4) as clients:
        for _ in range(3):
            before = clients.calls
            until(lambda: clients.calls > before + 20, "calls go through")  # noqa: B023
            assert running.end() == 0
            running = serve.start({"anthropic": upstream.url}, sockets=sockets)
        before = clients.calls
        until(lambda: clients.calls > before + 20, "calls go through")
    assert clients.failures == []
    assert running.end() == 0
    assert serve.calls("load") == clients.calls, "each call is in the record of one trial or another"


def test_sockets_find_their_upstream_by_name_or_by_address(
    serve: Serve, upstream: AnsweringUpstream, held: socket.socket
) -> None:
    other = AnsweringUpstream()
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as second:
        running = serve.start(
            {"anthropic": upstream.url, "openai": other.url},
            "--listen",
            f"anthropic=127.0.0.1:{port}",
            sockets=[("openai", held), ("fairtrial.socket", second)],
        )
        assert running.doors == {"anthropic": port, "openai": held.getsockname()[1]}
        assert running.call("openai", "/t/a/v1/chat/completions")[0] == 200
        assert len(other.heads) == 1
        assert running.end() == 0
    other.close()


def test_the_only_upstream_takes_a_socket_whatever_its_name(
    serve: Serve, upstream: AnsweringUpstream, held: socket.socket
) -> None:
    running = serve.start({"anthropic": upstream.url}, sockets=[("fairtrial.socket", held)])
    assert running.doors == {"anthropic": held.getsockname()[1]}
    assert running.call("anthropic", "/t/a/v1/messages")[0] == 200
    assert running.end() == 0


def test_the_observer_inherits_neither_socket_nor_words(
    serve: Serve, upstream: AnsweringUpstream, held: socket.socket
) -> None:
    running = serve.start({"anthropic": upstream.url}, sockets=[("anthropic", held)])
    running.wait_for_observer()
    pid = running.observer_pid()
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"LISTEN_" not in environ and b"NOTIFY_SOCKET" not in environ
    inode = os.fstat(held.fileno()).st_ino
    links = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert f"socket:[{inode}]" not in links
    assert running.end() == 0


def test_systemd_hears_ready_stopping_and_the_watchdog(
    serve: Serve, upstream: AnsweringUpstream, tmp_path: Path
) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(30)
        running = serve.start({"anthropic": upstream.url}, environ={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"})
        first = notify.recv(4096).decode().splitlines()
        assert first[0] == "READY=1" and first[1].startswith("STATUS=serving anthropic")
        assert [notify.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3, "again and again"
        running.tell()
        words: list[str] = []
        while "STOPPING=1" not in words:
            words = notify.recv(4096).decode().splitlines()
        assert any(word.startswith("EXTEND_TIMEOUT_USEC=") for word in words)
        assert running.process.wait(30) == 0
