"""Asks a SOCKS5 proxy for a way to an upstream (`ALL_PROXY=socks5://…`, what `ssh -D` offers).

In: a socket connected to the proxy.  Out: the same socket, now a tunnel.  The name goes to the proxy as it is (as
socks5h does): a proxy that leads out of a closed network often is the only one that can resolve it.

**Source:** RFC 1928 (sections 3, 4, 6), RFC 1929.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import Final

_VERSION: Final = 5
_NO_LOGIN: Final = 0
_LOGIN: Final = 2
_REPLIES: Final = {
    1: "general failure",
    2: "not allowed",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "expired",
    7: "command not supported",
    8: "address not supported",
}


async def ask(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, host: str, port: int, login: tuple[str, str] | None
) -> None:
    """Raises `OSError` with what the proxy said: `EACCES` when it wants another login than it was given."""
    methods = bytes([_NO_LOGIN] if login is None else [_NO_LOGIN, _LOGIN])
    await loop.sock_sendall(sock, bytes([_VERSION, len(methods)]) + methods)
    version, method = await _read(loop, sock, 2)
    if version != _VERSION:
        raise OSError(errno.EPROTO, "the proxy does not speak SOCKS5")
    if method == _LOGIN and login is not None:
        user, password = (part.encode()[:255] for part in login)
        await loop.sock_sendall(sock, bytes([1, len(user)]) + user + bytes([len(password)]) + password)
        if (await _read(loop, sock, 2))[1] != 0:
            raise OSError(errno.EACCES, "the SOCKS5 proxy refused the login")
    elif method != _NO_LOGIN:
        raise OSError(errno.EACCES, "the SOCKS5 proxy wants a login")
    await loop.sock_sendall(sock, bytes([_VERSION, 1, 0]) + _address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _read(loop, sock, 4)
    if version != _VERSION or reply != 0:
        raise OSError(errno.ECONNREFUSED, f"the SOCKS5 proxy answered: {_REPLIES.get(reply, reply)}")
    length = {1: 4, 4: 16}.get(kind) or (await _read(loop, sock, 1))[0]
    await _read(loop, sock, length + 2)


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna") if not host.isascii() else host.encode()
        if len(name) > 255:
            raise OSError(errno.EINVAL, "the name is too long for SOCKS5") from None
        return bytes([3, len(name)]) + name
    return bytes([1 if address.version == 4 else 4]) + address.packed


async def _read(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> bytes:
    """Exactly so many: what follows belongs to the tunnel."""
    parts = b""
    while len(parts) < count:
        piece = await loop.sock_recv(sock, count - len(parts))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "the proxy closed without an answer")
        parts += piece
    return parts
