"""Calls of every family of routes through a rig: both sides are played by the test, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import ssl

from tests.middleware.relay.rig import Rig, read_exactly, read_head, request
from tests.middleware.wire.families import Family


def ask(rig: Rig, path: str, body: bytes, *lines: str) -> tuple[socket.socket, socket.socket]:
    """A client posts a body; the upstream has taken it all.  Gives both sockets."""
    client = rig.client()
    client.sendall(request("POST", path, body, "Content-Type: application/json", *lines))
    up = rig.upstream.accept()
    head = read_head(up)
    assert head.startswith(f"POST {path} HTTP/1.1\r\n".encode())
    assert read_exactly(up, len(body)) == body
    return client, up


def ask_stream(rig: Rig, family: Family) -> tuple[socket.socket, socket.socket]:
    """A client asks for a stream of this family."""
    return ask(rig, family.path, family.body)


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked coding."""
    return b"%x\r\n" % len(data) + data + b"\r\n"


def stream_head(family: Family, *lines: str, chunked: bool = True) -> bytes:
    """The head of a streamed answer."""
    framing = ("Transfer-Encoding: chunked",) if chunked else ()
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Type: {family.media}", *framing, *lines, "", ""]).encode()


def json_answer(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    """A whole JSON answer."""
    length = f"Content-Length: {len(body)}"
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", length, *lines, "", ""]).encode() + body


def say(up: socket.socket, client: socket.socket, data: bytes) -> None:
    """The upstream sends, and the client gets exactly that before anything else happens."""
    up.sendall(data)
    assert read_exactly(client, len(data)) == data


def close_cleanly(sock: socket.socket) -> None:
    """FIN; behind a close_notify if it is TLS (Python's close sends none)."""
    if isinstance(sock, ssl.SSLSocket):
        sock.setblocking(False)
        with contextlib.suppress(ssl.SSLWantReadError):
            sock.unwrap()
    sock.close()
