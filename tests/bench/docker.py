"""What the Docker door costs: execs through it and without it, 20 MB both ways, and short containers in a row.

`python -m tests.bench docker`.  On the engine that FAIRTRIAL_TEST_DOCKER or DOCKER_HOST names; without one there are no
figures.  The client is a bare socket that says what the docker CLI says, since starting the CLI would hide the door.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import uvloop

from tests.bench.observed import Run, Upstreams
from tests.bench.processes import OTHER_CORES, raise_file_limit
from tests.bench.rows import Row, spread
from tests.e2e.clients import e2e_folder
from tests.e2e.image import ImageUnavailable, ensure_image

ROUNDS: Final = 5
EXECS: Final = 8
STDIN_BYTES: Final = 20 << 20
CONTAINERS: Final = 20
AT_ONCE: Final = 4
_EXEC_P50: Final = "docker exec through the door, added p50"
_DOOR_IN_ENV: Final = "docker exec whose Env names a model door, added p50"
_INTACT: Final = "20 MB through stdin and stdout of an exec, bytes that came back intact"
_SEEN: Final = "containers created and removed through the door, of which the record knows"


class Engine:
    """An engine behind a unix socket, one connection per request."""

    def __init__(self, host: str) -> None:
        self._path = host.removeprefix("unix://")

    def _asked(self, method: str, path: str, body: object = None, *lines: str) -> tuple[socket.socket, int, bytes]:
        """The connection, the status, and what was read behind the head."""
        content = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} /v1.41{path} HTTP/1.1", "Host: docker", "Content-Type: application/json", *lines]
        head.append(f"Content-Length: {len(content)}")
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(self._path)
        sock.sendall(("\r\n".join(head) + "\r\n\r\n").encode() + content)
        said = b""
        while b"\r\n\r\n" not in said:
            piece = sock.recv(65536)
            if not piece:
                raise RuntimeError(f"{method} {path}: no answer")
            said += piece
        answer, _, rest = said.partition(b"\r\n\r\n")
        return sock, int(answer.split()[1]), rest

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        """A request that is answered by a body; `RuntimeError` where the engine refuses."""
        sock, status, said = self._asked(method, path, body, "Connection: close")
        with sock:
            while piece := sock.recv(65536):
                said += piece
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {said[:200]!r}")
        return said

    def made(self, path: str, body: object) -> str:
        """The id of what was made; the body may be chunked."""
        said = self.ask("POST", path, body)
        found: str = json.loads(said[said.index(b"{") : said.rindex(b"}") + 1])["Id"]
        return found

    def run(self, image: str, network: str = "none") -> str:
        """A container that sleeps."""
        config = {"NetworkMode": network}
        container = self.made("/containers/create", {"Image": image, "Cmd": ["sleep", "300"], "HostConfig": config})
        self.ask("POST", f"/containers/{container}/start")
        return container

    def remove(self, container: str) -> None:
        self.ask("DELETE", f"/containers/{container}?force=true")

    def exec(self, container: str, command: list[str], stdin: bytes | None = None, env: str | None = None) -> bytes:
        """What the command wrote, frames of the multiplexed stream taken off."""
        wanted = {"Cmd": command, "AttachStdout": True, "AttachStderr": True, "AttachStdin": stdin is not None}
        if env is not None:
            wanted["Env"] = [env]
        made = self.made(f"/containers/{container}/exec", wanted)
        sock, status, said = self._asked(
            "POST", f"/exec/{made}/start", {"Detach": False, "Tty": False}, "Connection: Upgrade", "Upgrade: tcp"
        )
        if status not in (101, 200):
            raise RuntimeError(f"exec: {status}")
        taken = bytearray(said)
        with sock:
            if stdin is not None:

                def send(content: bytes = stdin) -> None:
                    sock.sendall(content)
                    sock.shutdown(socket.SHUT_WR)

                threading.Thread(target=send, daemon=True).start()
            while piece := sock.recv(1 << 18):
                taken += piece
        return _unframed(taken)


def _unframed(said: bytearray) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at + 8 <= len(said):
        size = int.from_bytes(said[at + 4 : at + 8], "big")
        parts.append(bytes(said[at + 8 : at + 8 + size]))
        at += 8 + size
    return b"".join(parts)


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 7 on the Docker door."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    engine = os.environ.get("FAIRTRIAL_TEST_DOCKER") or os.environ.get("DOCKER_HOST")
    why, image = "no engine is named (FAIRTRIAL_TEST_DOCKER)", ""
    if engine is not None and not engine.startswith("unix://"):
        why, engine = "the engine is not behind a unix socket", None
    if engine is not None:
        try:
            image = ensure_image("ft-busybox", engine, e2e_folder() / "images")
        except ImageUnavailable as error:
            why, engine = str(error), None
    if engine is None:
        yield Row(what=_EXEC_P50, value=None, unit="ms", budget=5, how=why)
        yield Row(what=_DOOR_IN_ENV, value=None, unit="ms", budget=5, how=why)
        yield Row(what=_INTACT, value=None, unit="", budget=STDIN_BYTES, sense="at least", how=why)
        yield Row(what=_SEEN, value=None, unit="", budget=CONTAINERS, sense="at least", how=why)
        return
    yield from uvloop.run(_measured(engine, image, quick=quick))


async def _measured(engine: str, image: str, *, quick: bool) -> list[Row]:
    async with Upstreams() as ups:
        with ups.run(environ={"DOCKER_HOST": engine}) as run:
            run.ready()
            if run.docker_host == engine:
                return [Row(what=_EXEC_P50, value=None, unit="ms", budget=5, how="`run` opened no Docker door")]
            return await asyncio.to_thread(_through, run, Engine(engine), image, quick=quick)


def _through(run: Run, direct: Engine, image: str, *, quick: bool) -> list[Row]:
    door = Engine(run.docker_host)
    container = door.run(image, "bridge")
    told = f"ANTHROPIC_BASE_URL={run.model_url}"
    ways = ((direct, None), (door, None), (door, told))
    added_ms: list[float] = []
    added_edited_ms: list[float] = []
    try:
        for _ in range(1 if quick else ROUNDS):
            took: dict[tuple[Engine, str | None], list[float]] = {way: [] for way in ways}
            for _ in range(2 if quick else EXECS):
                for way, env in ways:
                    began_s = time.perf_counter()
                    way.exec(container, ["true"], env=env)
                    took[way, env].append(time.perf_counter() - began_s)
            straight_s, passed_s, edited_s = (statistics.median(took[way]) for way in ways)
            added_ms.append((passed_s - straight_s) * 1e3)
            added_edited_ms.append((edited_s - straight_s) * 1e3)
        if (moved := door.exec(container, ["sh", "-c", "echo $ANTHROPIC_BASE_URL"], env=told)).find(b"127.0.0.1") != -1:
            raise RuntimeError(f"the door in the Env was not moved: {moved!r}")
        content = os.urandom(STDIN_BYTES)
        began_s = time.perf_counter()
        back = door.exec(container, ["cat"], content)
        through_s = time.perf_counter() - began_s
    finally:
        door.remove(container)
    same = hashlib.sha256(back).digest() == hashlib.sha256(content).digest()
    count = AT_ONCE if quick else CONTAINERS

    def one(_: int) -> str:
        made = door.run(image)
        door.remove(made)
        return made

    began_s = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = set(pool.map(one, range(count)))
    per_s = count / (time.perf_counter() - began_s)
    environment = run.finish(60.0).get("environment")
    known = set(environment["container_ids"] or ()) if isinstance(environment, dict) else set[str]()
    value, noise = spread(added_ms)
    edited, edited_noise = spread(added_edited_ms)
    return [
        Row(what=_EXEC_P50, value=value, noise=noise, unit="ms", budget=5, how=f"over direct, {len(added_ms)} rounds"),
        Row(
            what=_DOOR_IN_ENV, value=edited, noise=edited_noise, unit="ms", budget=5,
            how=f"over direct, {len(added_edited_ms)} rounds",
        ),
        Row(
            what=_INTACT, value=len(back) if same else 0, unit="", budget=STDIN_BYTES, sense="at least",
            how=f"{through_s:.2f} s",
        ),
        Row(what=_SEEN, value=len(made & known), unit="", budget=count, sense="at least", how=f"{per_s:.1f}/s"),
    ]  # fmt: skip
