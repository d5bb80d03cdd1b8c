"""Agents in containers, seen from a whole run in front of an engine that only tells: what is rewritten, what is not,
who comes in.  The bridge of this engine is loopback, and a container's address is one of 127.0.0.0/8.

The same with a real engine and real containers: tests/e2e/test_bridge.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairtrial.middleware.relay.bridge import Bridge
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.relay import unix_listener
from fairtrial.middleware.relay.settings import Upstream
from tests.middleware.relay.rig import DEADLINE_S, TOKEN, running
from tests.middleware.relay.running import Bench
from tests.middleware.relay.serving import AnsweringUpstream

GATEWAY = "127.0.0.77"
BOX, OTHER = "a" * 64, "b" * 64
BRIDGE = {
    "Name": "bridge",
    "Id": "c" * 64,
    "Driver": "bridge",
    "IPAM": {"Config": [{"Subnet": "127.0.0.0/8", "Gateway": GATEWAY}]},
    "Options": {"com.docker.network.bridge.name": "lo"},
}

CREATE = """
import http.client, json, os, socket, sys

class Engine(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))

def ask(path, body):
    engine = Engine("d")
    engine.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = engine.getresponse()
    answer.read()
    engine.close()

def call(url, source, path="/v1/x"):
    host, _, rest = url.removeprefix("http://").partition("/")
    client = http.client.HTTPConnection(host, source_address=(source, 0), timeout=20)
    try:
        client.request("POST", "/" + rest + path, "{}")
        return client.getresponse().status
    except OSError as error:
        return type(error).__name__
    finally:
        client.close()

door = os.environ["ANTHROPIC_BASE_URL"]
env = ["ANTHROPIC_BASE_URL=" + door, "X=1"]
"""


class TellingEngine(threading.Thread):
    """Answers GETs from a table, POSTs with 201; keeps the bodies that were posted."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.url = f"unix://{path}"
        self.table: dict[str, Any] = {
            "/info": {"KernelVersion": os.uname().release, "SecurityOptions": []},
            "/networks/bridge": BRIDGE,
            "/containers/json": [],
        }
        self.posted: list[tuple[str, Any]] = []
        self.asked: list[str] = []
        self.silent = False
        """It answers no question any more; what is posted it takes."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.start()

    def box(self, container: str, address: str, *env: str, network: str = "bridge") -> None:
        """There is a container."""
        settings = {"Networks": {network: {"IPAddress": address, "GlobalIPv6Address": ""}}}
        self.table[f"/containers/{container}/json"] = {
            "Id": container,
            "HostConfig": {"NetworkMode": network},
            "Config": {"Env": list(env), "Tty": True},
            "NetworkSettings": settings,
        }
        self.table["/containers/json"].append({"Id": container, "NetworkSettings": settings})

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as reader, contextlib.suppress(OSError):
            while line := reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                path = path.removeprefix("/v1.41")
                length = 0
                while (header := reader.readline()).strip():
                    name, _, value = header.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                body = reader.read(length)
                if method == "POST" and path == "/silence":
                    self.silent = True
                if method == "POST":
                    self.posted.append((path, json.loads(body or b"null")))
                    if path.startswith("/containers/create") and isinstance(
                        self.posted[-1][1], dict
                    ):  # as an engine does: it is there with what it was given
                        self.box(OTHER if "other" in path else BOX, "127.0.0.9", *self.posted[-1][1]["Env"])
                    self._answer(sock, 201, {"Id": BOX})
                    continue
                if self.silent:
                    reader.read()  # until the other side gives up
                    return
                if path != "/_ping":
                    self.asked.append(path)
                known = self.table.get(path.partition("?")[0], {} if path == "/_ping" or method == "DELETE" else None)
                self._answer(
                    sock, 404 if known is None else 200, {"message": "no such thing"} if known is None else known
                )
                if b"HTTP/1.0" in line:
                    return

    def _answer(self, sock: socket.socket, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        sock.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)

    def envs(self) -> list[list[str]]:
        return [body["Env"] for _, body in self.posted]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join(10)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[TellingEngine]:
    with contextlib.closing(TellingEngine(tmp_path / "e.sock")) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path, engine: TellingEngine, upstream: AnsweringUpstream) -> Bench:
    made = Bench(tmp_path)
    made.environ.update(DOCKER_HOST=engine.url, ANTHROPIC_BASE_URL=upstream.url)
    return made


def run(bench: Bench, code: str) -> list[Any]:
    """What the command printed, each line as JSON."""
    done = bench.run("--", sys.executable, "-c", CREATE + code)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def gateway_door(bench: Bench) -> list[dict[str, object]]:
    return [note for note in bench.notes("door_bound") if note["host"] == GATEWAY]


def test_a_door_in_an_env_leads_to_the_bridge_and_a_call_from_there_is_the_trials(
    bench: Bench, engine: TellingEngine
) -> None:
    told = run(
        bench,
        """
ask("/v1.41/containers/create?name=x", {"Env": env, "Cmd": [env[0]]})
at = door.replace("127.0.0.1", "127.0.0.77")
print(json.dumps([door, call(at, "127.0.0.9")]))
""",
    )
    door, status = told[0]
    moved = door.replace("127.0.0.1", GATEWAY)
    ((path, body),) = engine.posted
    assert path == "/containers/create?name=x"
    assert body == {"Env": [f"ANTHROPIC_BASE_URL={moved}", "X=1"], "Cmd": [f"ANTHROPIC_BASE_URL={door}"]}
    assert status == 200
    (bound,) = gateway_door(bench)
    assert bound["door"] == "model:anthropic"
    (opened,) = [o for o in bench.of_kind("OPEN") if o["door"] == "model:anthropic"]
    assert opened["container"] == BOX
    (mutation,) = [m for m in bench.of_kind("MUTATION") if str(m["what"]).startswith("container ")]
    assert mutation["what"] == "container environment ANTHROPIC_BASE_URL"
    assert mutation["new"] == f"http://{moved.split('/')[2]}/t/***"
    assert {note["trial"] for note in bench.notes("trial")} == {bench.hello()["trial"]}


def test_an_exec_is_given_the_door_of_its_containers_network(bench: Bench, engine: TellingEngine) -> None:
    engine.box(BOX, "127.0.0.8", network="mine")
    engine.table["/networks/mine"] = {**BRIDGE, "Name": "mine"}
    told = run(
        bench,
        f"""
ask("/containers/{BOX}/exec", {{"Env": env, "Cmd": ["x"]}})
print(json.dumps(call(door.replace("127.0.0.1", "127.0.0.77"), "127.0.0.8")))
""",
    )
    assert engine.envs()[0][0].startswith(f"ANTHROPIC_BASE_URL=http://{GATEWAY}:")
    assert told == [200]
    (mutation,) = [m for m in bench.of_kind("MUTATION") if str(m["what"]).startswith("exec ")]
    assert "network mine" in str(mutation["why"])


def test_who_comes_in_at_the_bridge(bench: Bench, engine: TellingEngine) -> None:
    """Containers that were given a door; no other container, no address of nobody, and nobody without a token."""
    engine.box(OTHER, "127.0.0.10", "A=1")
    told = run(
        bench,
        """
ask("/containers/create", {"Env": env})
at = door.replace("127.0.0.1", "127.0.0.77")
for source in ("127.0.0.9", "127.0.0.10", "127.0.0.11"):
    print(json.dumps(call(at, source)))
print(json.dumps(call(at.partition("/t/")[0], "127.0.0.9")))
print(json.dumps(call(at[:-1] + "/", "127.0.0.9")))
""",
    )
    assert told[0] == 200
    assert {told[1], told[2]} <= {"ConnectionResetError", "RemoteDisconnected"}
    assert told[3:] == [403, 403]
    assert len(bench.notes("bridge.turned_away")) == 2


def test_without_a_door_in_an_env_nothing_is_asked_and_nothing_listens(bench: Bench, engine: TellingEngine) -> None:
    body = {"Env": ["ANTHROPIC_BASE_URL=http://127.0.0.1:1/t/" + "0" * 32, "Y=" + "http://127.0.0.1:8000"]}
    run(bench, f"ask('/containers/create', {body!r}); ask('/containers/{BOX}/exec', {{'Env': None, 'Cmd': [door]}})")
    assert engine.posted[0][1] == body
    assert engine.asked == []
    assert gateway_door(bench) == []


@pytest.mark.parametrize(
    "table, network, why",
    [
        ({"/info": {"KernelVersion": "5.0-far"}}, "", "the engine runs on another machine (kernel 5.0-far)"),
        (
            {"/info": {"KernelVersion": os.uname().release, "SecurityOptions": ["name=seccomp", "name=rootless"]}},
            "",
            "the engine is rootless, its networks are in a namespace of its own",
        ),
        ({}, "none", "it has no network (none)"),
        ({}, "gone", "the engine knows no network gone"),
        (
            {"/networks/swarm": {"Name": "swarm", "Driver": "overlay"}},
            "swarm",
            "the network swarm is no bridge (overlay)",
        ),
        (
            {"/networks/far": {**BRIDGE, "Name": "far", "Options": {}}},
            "far",
            f"br-{'c' * 12}, the bridge of the network far, is no interface of this machine",
        ),
        (
            {
                "/networks/bare": {
                    **BRIDGE,
                    "Name": "bare",
                    "IPAM": {"Config": [{"Gateway": "192.0.2.1"}]},
                    "Options": {"com.docker.network.bridge.name": "lo"},
                }
            },
            "bare",
            None,
        ),
    ],
)
def test_where_the_bridge_is_not_ours_nothing_is_rewritten_and_it_is_said_once(
    bench: Bench, engine: TellingEngine, table: dict[str, object], network: str, why: str | None
) -> None:
    engine.table |= table
    told = run(
        bench,
        f"""
for _ in range(2):
    ask("/containers/create", {{"Env": env, "HostConfig": {{"NetworkMode": {network!r}}}}})
print(json.dumps(env))
""",
    )
    notes = bench.notes("bridge.no_network" if network == "none" else "bridge.out_of_reach")
    if why is None:  # a gateway that is not ours, on an interface that is: its own address
        assert engine.envs()[0][0].startswith("ANTHROPIC_BASE_URL=http://127.0.0.1:")
        assert notes == []
    else:
        assert engine.envs() == told * 2
        assert [note["text"] for note in notes] == [
            f"ANTHROPIC_BASE_URL leads nowhere in a container of this run: {why}."
        ]


def test_on_the_hosts_network_the_door_is_the_hosts(bench: Bench, engine: TellingEngine) -> None:
    told = run(
        bench, 'ask("/containers/create", {"Env": env, "HostConfig": {"NetworkMode": "host"}}); print(json.dumps(env))'
    )
    assert engine.envs() == told
    assert bench.notes("bridge.out_of_reach") == []


def test_in_anothers_network_the_trial_is_known_and_the_container_is_not(bench: Bench, engine: TellingEngine) -> None:
    engine.box(OTHER, "127.0.0.12")
    told = run(
        bench,
        f"""
ask("/containers/create", {{"Env": env, "HostConfig": {{"NetworkMode": "container:{OTHER}"}}}})
print(json.dumps(call(door.replace("127.0.0.1", "127.0.0.77"), "127.0.0.12")))
""",
    )
    assert told == [200]
    (opened,) = [o for o in bench.of_kind("OPEN") if o["door"] == "model:anthropic"]
    assert "container" not in opened


@pytest.mark.parametrize("excepted, said", [("localhost", 1), (f"localhost,{GATEWAY}", 0), ("127.0.0.0/8", 0)])
def test_a_proxy_that_would_take_the_calls_is_said(
    bench: Bench, engine: TellingEngine, excepted: str, said: int
) -> None:
    run(bench, f'ask("/containers/create", {{"Env": [*env, "HTTP_PROXY=http://p:3128", "NO_PROXY={excepted}"]}})')
    assert engine.envs()[0][0].startswith(f"ANTHROPIC_BASE_URL=http://{GATEWAY}:")
    assert len(bench.notes("bridge.proxy")) == said


def test_it_can_be_switched_off(bench: Bench, engine: TellingEngine) -> None:
    bench.environ["FAIRTRIAL_RUN__BRIDGE_DOOR"] = "0"
    told = run(bench, 'ask("/containers/create", {"Env": env}); print(json.dumps(env))')
    assert engine.envs() == told
    assert engine.asked == []


def test_a_body_that_cannot_be_read_passes_and_is_said(bench: Bench, engine: TellingEngine) -> None:
    run(bench, 'ask("/containers/create", [env])')
    assert len(engine.posted) == 1
    (note,) = bench.notes("bridge.not_looked_at")
    assert "no JSON object" in str(note["text"])


def test_while_the_engine_is_silent_a_client_is_let_in_by_its_token(bench: Bench, engine: TellingEngine) -> None:
    """In which container it is, nobody says."""
    told = run(
        bench,
        """
ask("/containers/create", {"Env": env})
ask("/silence", None)
print(json.dumps(call(door.replace("127.0.0.1", "127.0.0.77"), "127.0.0.9")))
""",
    )
    assert told == [200]
    (opened,) = [o for o in bench.of_kind("OPEN") if o["door"] == "model:anthropic"]
    assert "container" not in opened
    (note,) = bench.notes("bridge.engine_silent")
    assert note["text"] == "The engine was asked whose a client is: it did not answer in 2 s."


def test_what_waits_for_a_silent_engine_passes_as_it_was_after_its_time(
    loop_kind: str, engine: TellingEngine, tmp_path: Path
) -> None:
    engine.silent = True
    notes: list[tuple[str, str]] = []
    with running(loop_kind) as rig:

        def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> DockerDoor:
            door = DockerDoor(upstream, dialler, listener, "trial-1")
            door.editor = Bridge(
                rig.relay,
                door,
                [rig.door],
                lambda _: TOKEN,
                tell_mutation=lambda _: None,
                tell_note=lambda event, text: notes.append((event, text)),
                think_s=0.3,
            )
            return door

        path = str(tmp_path / "d.sock")
        rig.in_loop(lambda: rig.relay.open_door(Upstream.parse("engine", engine.url), unix_listener(path), make))
        body = json.dumps({"Env": [f"A={rig.door.url(TOKEN)}"]}).encode()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(DEADLINE_S)
            client.connect(path)
            client.sendall(
                b"POST /containers/create HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            assert client.recv(12) == b"HTTP/1.1 201"
        rig.no_pair_open()
    assert engine.envs() == [[f"A={rig.door.url(TOKEN)}"]]
    ((event, text),) = notes
    assert event == "bridge.out_of_reach"
    assert text.startswith("A leads nowhere in a container of this run: the engine was asked about its network, and ")
