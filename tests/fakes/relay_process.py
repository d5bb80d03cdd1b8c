"""A relay in a process of its own, so that its memory can be read from outside: one model door, one upstream.

Run as `relay_process.py LOOP URL FEED_FD [CA_FILE]` with LOOP `uvloop` or `asyncio`; prints the door's port, ends with
its stdin.  Token and trial are those of tests/middleware/relay/rig.py.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import uvloop

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.relay import Relay
from fairtrial.middleware.relay.settings import RelaySettings, Upstream


async def serve(url: str, feed_fd: int, ca_files: tuple[str, ...]) -> None:
    """Until stdin ends."""
    feed = FeedSender(socket.socket(fileno=feed_fd))
    relay = Relay(RelaySettings(ca_files=ca_files), feed)
    relay.add_token("0123456789abcdef0123456789abcdef", "trial-1")
    door = await relay.open_model_door(Upstream.parse("test", url))
    print(door.port, flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    await relay.close(0.0)
    feed.close()


if __name__ == "__main__":
    kind, upstream_url, fd, *more = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if kind == "uvloop" else asyncio.new_event_loop) as runner:
        runner.run(serve(upstream_url, int(fd), tuple(more)))
