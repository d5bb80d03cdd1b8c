"""What a hostile reviewer found: each of these was once called infra, proved, or the store's fault.

The upstream is a bare socket that misbehaves as real servers do towards clients that misbehave; the agent is a few
lines that write HTTP by hand, because no library would send what is sent here.
"""

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, Under, run_under

REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "stand-in",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 7},
}

AGENT = """
import json, os, socket, struct, sys, threading, time
from urllib.parse import urlsplit

base = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
history = [{"role": "user", "content": "do it"}]

def body(messages=None, **more):
    asked = {"model": "stand-in", "max_tokens": 9, "messages": messages or history, **more}
    return json.dumps(asked).encode()

def head(size, how="whole", more=""):
    return (f"POST {base.path}/v1/messages?how={how} HTTP/1.1\\r\\nHost: {base.netloc}\\r\\nUser-Agent: me/1\\r\\n"
            f"{more}Content-Length: {size}\\r\\n\\r\\n").encode()

def connect():
    return socket.create_connection((base.hostname, base.port), 20)

def rest(sock):
    got = b""
    while data := sock.recv(65536):
        got += data
    return got

def ask(how="whole", messages=None):
    sock, sent = connect(), body(messages)
    sock.sendall(head(len(sent), how, "Connection: close\\r\\n") + sent)
    return rest(sock)

def step():
    assert b"msg_1" in ask()
    history.append({"role": "assistant", "content": "Done."})
    history.append({"role": "user", "content": "go on"})

"""


class BareUpstream:
    """Answers each request by the `how` in its query."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._serving: list[threading.Thread] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._serving:
            thread.join()
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed: the test is over
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._serving.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):
            while self._answer(sock, b""):
                pass
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    def _answer(self, sock: socket.socket, held: bytes) -> bool:
        while b"\r\n\r\n" not in held:
            data = sock.recv(65536)
            if not data:
                return False
            held += data
        head, _, held = held.partition(b"\r\n\r\n")
        how = head.partition(b"how=")[2].partition(b" ")[0].decode()
        size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        sock.settimeout(1.0 if how == "impatient" else None)
        while len(held) < size:
            data = sock.recv(65536)  # an impatient server's TimeoutError ends the connection
            if not data:
                return False
            held += data
        reply = json.dumps(REPLY).encode()
        lines = b"Content-Type: application/json\r\nrequest-id: req_1\r\n"
        if how == "moved":
            sock.sendall(b"HTTP/1.1 307 Moved\r\nLocation: %s/\r\nContent-Length: 0\r\n\r\n" % self.url.encode())
        elif how == "short":
            sock.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (lines, len(reply) + 50, reply))
            return False
        elif how == "500":
            sock.sendall(b"HTTP/1.1 500 Oops\r\n%sContent-Length: 2\r\n\r\n{}" % lines)
        elif how == "endless":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            sock.settimeout(2.0)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nrequest-id: req_1\r\n\r\n")
            try:
                while True:
                    sock.sendall(b": ping\n\n" * 8192)
            except TimeoutError:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
                return False
        else:
            sock.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (lines, len(reply), reply))
        return b"Connection: close" not in head


@contextmanager
def bare_upstream() -> Iterator[BareUpstream]:
    upstream = BareUpstream()
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()


@pytest.fixture
def agent(home: Path, project: Path, tmp_path: Path) -> Callable[..., Under]:
    def run(code: str, **more: str) -> Under:
        with bare_upstream() as upstream:
            environment = clients.clean_environment(home, ANTHROPIC_BASE_URL=upstream.url, **NO_DOCKER, **more)
            return run_under([sys.executable, "-c", AGENT + code], environment, project, kept=tmp_path / "kept")

    return run


OWN_DOING = {
    "a request that is never finished, until the server's patience ends": """
sock, sent = connect(), body()
sock.sendall(head(len(sent) + 100, "impatient") + sent)
assert rest(sock) == b""
sys.exit(1)""",
    "a stream that is not read, until the server gives up": """
sock, sent = connect(), body(stream=True)
sock.sendall(head(len(sent), "endless") + sent)
time.sleep(5)
try:
    rest(sock)
except OSError:
    pass
sys.exit(1)""",
    "a stream that is not read for longer than the client's own patience": """
sock, sent = connect(), body(stream=True)
sock.sendall(head(len(sent), "endless") + sent)
time.sleep(1.5)
sock.close()
sys.exit(1)""",
    "a request behind the client's own Connection: close": """
sock, sent = connect(), body()
sock.sendall(head(len(sent), "whole", "Connection: close\\r\\n") + sent + head(len(sent)) + sent)
rest(sock)
sys.exit(1)""",
    "a redirect that leads past the door": """
assert b"307" in ask("moved")
sys.exit(1)""",
    "a failed call of another conversation, as a tool that asks the model makes it": """
assert b"500" in ask("500", [{"role": "user", "content": "hello"}])
sys.exit(1)""",
}


@pytest.mark.parametrize("code", OWN_DOING.values(), ids=[name.replace(" ", "_") for name in OWN_DOING])
def test_what_the_agent_or_its_operator_did_alone_is_not_infra(code: str, agent: Callable[..., Under]) -> None:
    under = agent("step()\n" + code, FAIRTRIAL_VERDICT__WATCHDOG_UNKNOWN_S="1")
    assert under.outcome.returncode == 1, under.told()
    assert under.verdict.blame is not Blame.INFRA, under.told()
    ended = under.verdict.terminated_by
    assert ended is None or ended.cause.startswith("operator."), under.told()


def test_a_reply_that_ends_before_its_declared_length_is_not_the_models(agent: Callable[..., Under]) -> None:
    under = agent("step()\nask('short')\nsys.exit(1)")
    assert under.verdict.cause == "model_api.truncated", under.told()
    assert under.verdict.blame is Blame.INFRA


def test_many_calls_that_end_with_the_command_are_no_tampering(agent: Callable[..., Under]) -> None:
    under = agent("""
def one(number):
    ask(messages=[{"role": "user", "content": str(number) * 50_000}])
threads = [threading.Thread(target=one, args=(number,)) for number in range(64)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""")
    assert under.outcome.returncode == 0, under.told()
    assert under.trial.coverage.gaps == [], under.told()
    assert under.verdict.blame is Blame.NONE, under.told()


def test_one_request_without_a_token_is_no_tampering(agent: Callable[..., Under]) -> None:
    under = agent("""
mine = base
base = base._replace(path="")
ask()
base = mine
step()
sys.exit(1)""")
    assert under.trial.unassigned == {"attempts": 1}, under.told()
    assert under.trial.coverage.gaps == [], under.told()
