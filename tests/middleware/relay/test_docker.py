"""The Docker door of a run: the command is sent to it only where an engine answers, and everything is told."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.docker import child_changes, upstream_of
from fairtrial.middleware.relay.docker_upstream import DockerUpstream
from tests.middleware.relay.running import Bench, python

_SHOW = "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if 'DOCKER' in k}))"
_PING = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
sock.sendall(b"GET /v1.41/containers/json HTTP/1.1\\r\\nHost: d\\r\\nConnection: close\\r\\n\\r\\n")
while data := sock.recv(4096):
    sys.stdout.write(data.decode())
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class Engine(threading.Thread):
    """Answers every request on a unix socket with one line that says what was asked."""

    def __init__(self, path: Path, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK") -> None:
        super().__init__(daemon=True)
        self.url = f"unix://{path}"
        self.heads: list[bytes] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                with sock:
                    self.heads.append(sock.recv(65536))
                    sock.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join(10)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path / "e.sock")
    yield made
    made.close()


def test_the_command_reaches_the_engine_through_the_door_and_is_seen(bench: Bench, engine: Engine) -> None:
    bench.environ["DOCKER_HOST"] = engine.url
    done = bench.run(*python(_PING))
    assert done.stdout.endswith("OK"), done.stderr
    assert engine.heads[-1].startswith(b"GET /v1.41/containers/json HTTP/1.1\r\nHost: d\r\n")
    opened = [record for record in bench.of_kind("OPEN") if record["door"] == "docker:engine"]
    assert [record["upstream"] for record in opened] == [engine.url]


def test_the_change_is_told_and_the_socket_goes_away(bench: Bench, engine: Engine) -> None:
    bench.environ["DOCKER_HOST"] = engine.url
    shown = json.loads(bench.run("--verbose", *python(_SHOW)).stdout)
    assert shown["DOCKER_HOST"].endswith("/docker.sock")
    assert shown["TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE"] == engine.url.removeprefix("unix://")
    told = {str(mutation["what"]): mutation for mutation in bench.of_kind("MUTATION")}
    assert told["environment DOCKER_HOST"]["old"] == engine.url
    assert told["environment DOCKER_HOST"]["new"] == shown["DOCKER_HOST"]
    assert not Path(shown["DOCKER_HOST"].removeprefix("unix://")).exists()


def shown_by(bench: Bench) -> dict[str, str]:
    """The command's variables that name an engine."""
    found: dict[str, str] = json.loads(bench.run(*python(_SHOW)).stdout)
    return {name: value for name, value in found.items() if not name.startswith("FAIRTRIAL")}


def test_an_engine_that_is_not_there_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.environ["DOCKER_HOST"] = f"unix://{tmp_path}/none.sock"
    assert shown_by(bench) == {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    assert [note["text"] for note in bench.notes("docker.no_door")] == [
        "No Docker door: the engine does not answer (No such file or directory)."
    ]


def test_something_that_is_no_engine_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    with contextlib.closing(Engine(tmp_path / "x.sock", b"SSH-2.0-x\r\n")) as other:
        bench.environ["DOCKER_HOST"] = other.url
        assert shown_by(bench) == {"DOCKER_HOST": other.url}
        assert len(bench.notes("docker.no_door")) == 1


def test_an_engine_that_is_there_and_slow_keeps_its_door_and_nobody_waits_for_it(bench: Bench, tmp_path: Path) -> None:
    """The command waits at the door as it would at the engine, if it asks at all."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(tmp_path / "s.sock"))
        silent.listen()
        bench.environ["DOCKER_HOST"] = f"unix://{tmp_path}/s.sock"
        assert shown_by(bench)["DOCKER_HOST"].endswith("/docker.sock")
        assert bench.notes("docker.no_door") == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("tls", [False, True])
def test_an_engine_behind_a_port_has_a_door_where_somebody_listens(bench: Bench, host: str, tls: bool) -> None:
    """Names and certificates are for threads that wait for the command: those engines are only knocked at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bench.environ["DOCKER_HOST"] = f"tcp://{host}:{listener.getsockname()[1]}"
        if tls:
            bench.environ["DOCKER_TLS"] = "1"
        assert shown_by(bench)["DOCKER_HOST"].endswith("/docker.sock")
    assert shown_by(bench)["DOCKER_HOST"] == bench.environ["DOCKER_HOST"], "nobody listens there any more"
    assert [note["text"] for note in bench.notes("docker.no_door", 2)] == [
        "No Docker door: the engine does not answer (Connection refused)."
    ]


def test_it_can_be_switched_off(bench: Bench, engine: Engine) -> None:
    bench.environ.update(DOCKER_HOST=engine.url, FAIRTRIAL_RUN__DOCKER_DOOR="0")
    assert shown_by(bench) == {"DOCKER_HOST": engine.url}
    assert engine.heads == []


def test_a_nested_run_joins_the_outer_door(bench: Bench, engine: Engine) -> None:
    bench.environ["DOCKER_HOST"] = engine.url
    bench.run("--", *bench.argv(*python(_PING)))
    engines = [str(bench.hello(number)["docker"]) for number in (1, 2)]
    assert engines[0] == engines[1]
    opened = [sum(r["door"] == "docker:engine" for r in bench.of_kind("OPEN", number)) for number in (1, 2)]
    assert sorted(opened) == [0, 1]


def test_addresses_of_engines() -> None:
    assert upstream_of(DockerUpstream(url="unix:///run/docker.sock")).url == "unix:///run/docker.sock"
    assert upstream_of(DockerUpstream(url="tcp://h:2375")).url == "http://h:2375"
    assert upstream_of(DockerUpstream(url="tcp://h")).url == "http://h:2375"
    assert upstream_of(DockerUpstream(url="tcp://[::1]:99/")).port == 99
    with pytest.raises(ValueError, match="with a host"):
        upstream_of(DockerUpstream(url="tcp://"))


def test_tls_is_as_the_docker_command_has_it(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("x")
    verified = upstream_of(DockerUpstream(url="tcp://h:2376", tls_dir=str(tmp_path), tls_verify=True))
    assert verified.scheme == "https"
    assert verified.tls is not None
    assert verified.tls.ca_file == str(tmp_path / "ca.pem")
    assert (verified.tls.cert_file, verified.tls.key_file) == (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    assert verified.tls.verify
    unchecked = upstream_of(DockerUpstream(url="tcp://h", tls_dir=str(tmp_path)))
    assert unchecked.port == 2376
    assert unchecked.tls is not None
    assert (unchecked.tls.ca_file, unchecked.tls.verify) == (None, False)
    (tmp_path / "key.pem").unlink()
    half = upstream_of(DockerUpstream(url="tcp://h:1", tls_dir=str(tmp_path), tls_verify=True))
    assert half.tls is not None
    assert half.tls.cert_file is None


def test_an_override_of_the_users_stays() -> None:
    engine = DockerUpstream(url="unix:///run/docker.sock")
    kept = child_changes({"TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE": "/mine"}, "unix:///door", engine)
    assert [change.what for change in kept] == ["environment DOCKER_HOST"]
    remote = child_changes({}, "unix:///door", DockerUpstream(url="tcp://h:2375"))
    assert [change.what for change in remote] == ["environment DOCKER_HOST"]
