"""An agent and a model API that hash every byte they see, and ways to break what stands between them.

In: nothing. Out: `hashing_upstream()`, `AGENT` (prints a hash of every byte that it got), and `site(folder, …)`: a
folder for PYTHONPATH whose `sitecustomize` makes named functions raise, or moves the wall clock, in the processes that
fairtrial starts. Nothing in the product knows of this: what raises is put in from outside, when its module is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.middleware.relay.serving import REPLY, ending, opening

CALLS = 12

AGENT = """
import hashlib, os, socket, sys, time
from urllib.parse import urlsplit
door = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
host = os.environ["CANON_HOST"]
seen = hashlib.sha256()
wire = socket.create_connection((door.hostname, door.port), timeout=60)
for number in range(12):
    if number == 6 and len(sys.argv) > 1:
        open(sys.argv[1], "x").close()
        while not os.path.exists(sys.argv[1] + ".go"):
            time.sleep(0.01)
    body = b'{"model": "claude-x", "max_tokens": 9, "stream": %s, "messages": [{"role": "user", "content": "%d"}]}' % (
        b"true" if number % 2 else b"false", number)
    head = f"POST {door.path}/v1/messages HTTP/1.1\\r\\nHost: {host}\\r\\nX-Odd:   a  b\\r\\n"
    head += f"content-TYPE: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    wire.sendall(head.encode() + body)
    got = b""
    while not got.endswith(b'<end>"}' if number % 2 == 0 else b"0\\r\\n\\r\\n"):
        piece = wire.recv(65536)
        assert piece, "the door broke off"
        got += piece
    seen.update(got)
    time.sleep(0.02)
wire.close()
print(seen.hexdigest())
sys.exit(5)
"""
"""Calls on one connection; with an argument it stops in the middle until `ARGUMENT.go` is there. Ends with 5."""


@dataclass
class Hashed:
    """What a model API saw."""

    port: int = 0
    seen: list[str] = field(default_factory=list[str])
    """A hash of all bytes of each connection that brought any."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


def _answer(number: int) -> bytes:
    if number % 2:
        return opening() + ending()
    body = json.dumps(REPLY | {"id": f"msg_{number}", "end": "<end>"}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Odd:  b \r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


@contextlib.contextmanager
def hashing_upstream() -> Iterator[Hashed]:
    """A model API that answers each request at once and hashes what came."""
    listener = socket.create_server(("127.0.0.1", 0))
    hashed = Hashed(port=int(listener.getsockname()[1]))

    def serve(connection: socket.socket) -> None:
        digest, number, carry = hashlib.sha256(), 0, b""
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                digest.update(piece)
                carry += piece
                while (end := carry.find(b"\r\n\r\n")) >= 0:
                    length = int(carry[:end].rpartition(b"Content-Length: ")[2])
                    if len(carry) < end + 4 + length:
                        break
                    carry = carry[end + 4 + length :]
                    connection.sendall(_answer(number))
                    number += 1
        if number:
            hashed.seen.append(digest.hexdigest())

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield hashed
    finally:
        listener.close()


@contextlib.contextmanager
def babbling() -> Iterator[int]:
    """A port that answers whatever comes with what is no protocol."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(b"\x00\xffHTTP/9 garbage \r\n\x1b[2J" * 20)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.close()


_SITE = '''
import importlib.abc, importlib.machinery, os, sys, time

JUMP, FAULTS = {jump!r}, {faults!r}

if JUMP:
    true_ns = time.time_ns

    def jumped_ns():
        try:
            with open(JUMP) as file:
                return true_ns() + int(file.read() or 0)
        except (OSError, ValueError):
            return true_ns()

    time.time_ns = jumped_ns
    time.time = lambda: jumped_ns() / 1e9


class Breaking(importlib.abc.MetaPathFinder):
    """Finds a module as Python does, and breaks it once it is loaded."""

    def find_spec(self, name, path, target=None):
        if name not in FAULTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            for where in FAULTS[name]:
                *owners, last = where.split(".")
                owner = module
                for each in owners:
                    owner = getattr(owner, each)
                setattr(owner, last, raiser(name + ":" + where))

        spec.loader.exec_module = exec_module
        return spec


def raiser(where):
    def broken(*arguments, **named):
        raise RuntimeError("a fault of ours in " + where)
    return broken


if FAULTS:
    sys.meta_path.insert(0, Breaking())
'''


def site(folder: Path, *, faults: Sequence[str] = (), jump: Path | None = None) -> str:
    """A value for PYTHONPATH. `faults`: `module:function` that raise; `jump`: a file, ns to add to the wall clock."""
    named: dict[str, list[str]] = {}
    for fault in faults:
        module, _, where = fault.partition(":")
        named.setdefault(module, []).append(where)
    place = folder / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_SITE.format(jump=str(jump or ""), faults=named))
    return f"{place}:{Path(__file__).resolve().parents[2]}"
