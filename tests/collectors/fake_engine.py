"""An engine on a unix socket that speaks as much of the Docker API as the collectors ask for.

In: containers and execs as inspect JSON, events as they happen.  Out: HTTP/1.1 as the real one frames it, an event
stream that honours `since`, and faults: `cut` ends the streams, `forget` is a restart of the daemon.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fairtrial.collectors.parse.docker import parse_stamp


class FakeEngine:
    """Start it, put things in, speak events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.containers: dict[str, dict[str, object]] = {}
        self.execs: dict[str, dict[str, object]] = {}
        self.buffer: list[dict[str, object]] = []
        self.since: list[float] = []
        self.asked: list[str] = []
        self.version: dict[str, str] = {"ApiVersion": "1.41", "Version": "fake"}
        self._streams: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """As in DOCKER_HOST."""
        return f"unix://{self.path}"

    @property
    def listening(self) -> bool:
        """Whether somebody follows the events."""
        return bool(self._streams)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """No more engine."""
        if self._server is not None:
            self._server.close()
        self.cut()
        if self._server is not None:
            await self._server.wait_closed()
        self.path.unlink(missing_ok=True)

    def cut(self) -> None:
        """End every event stream in the middle of its body."""
        for writer in list(self._streams):
            writer.transport.abort()
        self._streams.clear()

    def add(self, container_id: str, *, pid: int = 0, env: tuple[str, ...] = (), running: bool = True) -> None:
        """A container that was created now."""
        stamp = rfc3339_ns(time.time_ns())
        self.containers[container_id] = {
            "Id": container_id,
            "Name": "/x",
            "Created": stamp,
            "RestartCount": 0,
            "State": {"Running": running, "Pid": pid, "StartedAt": stamp, "ExitCode": 0, "OOMKilled": False},
            "Config": {"Env": list(env), "Labels": {}},
            "HostConfig": {"Memory": 1 << 26},
        }

    def say(self, container_id: str, action: str, **attributes: str) -> dict[str, object]:
        """One event, now, to all who follow; kept for later ones."""
        event: dict[str, object] = {
            "Type": "container",
            "Action": action,
            "Actor": {"ID": container_id, "Attributes": attributes},
            "time": time.time_ns() // 10**9,
            "timeNano": time.time_ns(),
        }
        self.buffer.append(event)
        for writer in self._streams:
            writer.write(_chunk(event))
        return event

    def repeat(self, event: dict[str, object]) -> None:
        """The same event once more."""
        for writer in self._streams:
            writer.write(_chunk(event))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = urlsplit(head.split(b" ", 2)[1].decode())
                self.asked.append(target.path)
                parts = [part for part in target.path.split("/") if part and not part.startswith("v1.")]
                if parts == ["events"]:
                    self._follow(writer, float(parse_qs(target.query)["since"][0]))
                else:
                    _reply(writer, self._answer(parts, everything="all=1" in target.query))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._streams.discard(writer)
            writer.close()

    def _follow(self, writer: asyncio.StreamWriter, since_s: float) -> None:
        self.since.append(since_s)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in self.buffer:
            at_ns = event["timeNano"]
            assert isinstance(at_ns, int)
            if at_ns / 1e9 >= since_s:
                writer.write(_chunk(event))
        self._streams.add(writer)

    def _answer(self, parts: list[str], *, everything: bool) -> object:
        if parts == ["version"]:
            return self.version
        if parts == ["info"]:
            return {"ID": f"fake:{self.path}", "ServerVersion": "fake"}
        if parts == ["containers", "json"]:
            return [row for row in map(_listed, self.containers.values()) if everything or row["State"] == "running"]
        if len(parts) == 3 and parts[0] == "containers":
            return self.containers.get(parts[1])
        if len(parts) == 3 and parts[0] == "exec":
            return self.execs.get(parts[1])
        return None


def rfc3339_ns(at_ns: int) -> str:
    """A time as the engine writes it."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_ns // 10**9))}.{at_ns % 10**9:09d}Z"


def _listed(container: dict[str, object]) -> dict[str, object]:
    """A row of the list, from the container's inspect."""
    state, created = container["State"], container["Created"]
    assert isinstance(state, dict)
    assert isinstance(created, str)
    return {
        "Id": container["Id"],
        "State": "running" if state["Running"] else "exited",
        "Created": (parse_stamp(created) or 0) // 10**9,
    }


def _chunk(event: dict[str, object]) -> bytes:
    body = json.dumps(event).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


def _reply(writer: asyncio.StreamWriter, answer: object) -> None:
    status = b"200 OK" if answer is not None else b"404 Not Found"
    body = json.dumps(answer if answer is not None else {"message": "no such thing"}).encode()
    writer.write(
        b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
    )
