"""Questions of ours to the engine, each on a connection of its own: never on one of the client's.

In: the Docker door's dialler and a path.  Out: the JSON answer, or `EngineSilent` with the reason.  Asked as HTTP/1.0,
so that the answer is whatever comes before the engine closes: no framing to undo.

**Source:** Docker Engine API v1.41.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final

from fairtrial.middleware.relay.dial import Dialler

ANSWER_S: Final = 2.0
_MAX_ANSWER_BYTES: Final = 16 << 20


class EngineSilent(Exception):
    """The engine gave no answer that can be used."""


class NotThere(EngineSilent):
    """It answered that there is no such thing (404)."""


async def ask(dialler: Dialler, path: str, *, limit_s: float = ANSWER_S) -> Any:
    """GET `path` and decode what comes.  Raises `EngineSilent`."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    parts: list[bytes] = []
    size = 0

    def on_end(*_why: object) -> None:
        if not over.done():
            over.set_result(None)

    def on_data(data: bytes, _t_ns: int) -> None:
        nonlocal size
        size += len(data)
        if size > _MAX_ANSWER_BYTES:
            on_end()
        else:
            parts.append(data)

    try:
        async with asyncio.timeout(limit_s):
            link, _report = await dialler.dial()
            try:
                link.on_data, link.on_eof, link.on_error = on_data, on_end, on_end
                link.resume()
                link.start()
                link.write(f"GET {path} HTTP/1.0\r\nHost: docker\r\nUser-Agent: fairtrial\r\n\r\n".encode())
                await over
            finally:
                link.reset()
    except TimeoutError:
        raise EngineSilent(f"it did not answer in {limit_s:g} s") from None
    except OSError as error:
        raise EngineSilent(os.strerror(error.errno) if error.errno else str(error)) from error
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status == [b"404"]:
        raise NotThere(path)
    if status != [b"200"] or size > _MAX_ANSWER_BYTES:
        raise EngineSilent(f"it answered {b''.join(status).decode('latin-1') or 'nothing'}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EngineSilent("its answer is no JSON") from error
