"""What the Docker door's traffic says: execs, who ended them, and containers that the trial's own client touched."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.commands import text_digest
from fairtrial.middleware.core.observations import DoorContainer, DoorExec, Host, Observation, decode
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire.docker import DockerTracker
from fairtrial.middleware.wire.feed import Flag, Kind, Record

EXEC = "e" * 64
CONTAINER = "c" * 64


class Door:
    """A tracker, and records as a relay would write them."""

    def __init__(self, *, keep_text: bool = False) -> None:
        self.kept: list[Observation] = []
        self.tracker = DockerTracker(
            Source("door.docker", self.kept.append, host=Host()),
            trial="t-1",
            at=clock.Instant(10**18, 0),
            keep_text=keep_text,
        )
        self._conns = itertools.count(1)
        self._now = 0

    def put(self, kind: int, payload: bytes | dict[str, object], conn: int, msg: int = 1, flags: int = 0) -> None:
        self._now += 10**9
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.tracker.take(Record(kind, flags, conn, msg, self._now, raw))

    def call(self, line: str, sent: object = None, status: int = 200, got: object = None) -> None:
        """A whole request and its answer on a connection of its own."""
        conn = next(self._conns)
        self.put(Kind.OPEN, {"door": "docker:engine"}, conn)
        self.put(Kind.REQUEST_HEAD, f"{line} HTTP/1.1\r\nHost: docker\r\n\r\n".encode(), conn)
        if sent is not None:
            self.put(Kind.REQUEST_DATA, json.dumps(sent).encode(), conn)
        self.put(Kind.REQUEST_END, {"complete": True}, conn)
        self.put(Kind.RESPONSE_HEAD, f"HTTP/1.1 {status} X\r\n\r\n".encode(), conn)
        if got is not None:
            body = json.dumps(got).encode()
            self.put(Kind.RESPONSE_DATA, body[:5], conn)
            self.put(Kind.RESPONSE_DATA, body[5:], conn)
        self.put(Kind.RESPONSE_END, {"complete": True, "how": "framed"}, conn)
        self.put(Kind.CLOSE, {"first": "client", "how": "fin"}, conn)

    def create_exec(self, command: list[str], *, container: str = CONTAINER, tty: bool = False) -> None:
        self.call(f"POST /v1.41/containers/{container}/exec", {"Cmd": command, "Tty": tty}, 201, {"Id": EXEC})

    def stream(self, *, counted: dict[str, object] | None, closed: dict[str, object]) -> None:
        conn = next(self._conns)
        self.put(Kind.REQUEST_HEAD, f"POST /exec/{EXEC}/start HTTP/1.1\r\n\r\n".encode(), conn)
        self.put(Kind.REQUEST_DATA, b'{"Detach":false,"Tty":false}', conn)
        self.put(Kind.RESPONSE_HEAD, b"HTTP/1.1 101 UPGRADED\r\n\r\n", conn)
        self.put(Kind.RESPONSE_END, {"complete": True, "how": "tunnel"}, conn)
        if counted is not None:
            self.put(Kind.TUNNEL_END, counted, conn)
        self.put(Kind.CLOSE, closed, conn)

    def execs(self) -> list[DoorExec]:
        return [value for value in map(decode, self.kept) if isinstance(value, DoorExec)]

    def containers(self) -> list[DoorContainer]:
        return [value for value in map(decode, self.kept) if isinstance(value, DoorContainer)]


HALF_CLOSED: dict[str, object] = {"first": "client", "how": "fin", "text": "half-close"}


def test_an_exec_has_its_command_its_times_its_bytes_and_its_end() -> None:
    door = Door()
    door.create_exec(["bash", "-lc", "make test"])
    door.stream(
        counted={"stdin": 0, "stdout": 7, "stderr": 2, "raw": 0, "upstream_ended": True},
        closed=HALF_CLOSED,
    )
    (one,) = door.execs()
    assert one.exec_id == EXEC
    assert one.container_id == CONTAINER
    assert one.text_digest == text_digest("make test")
    assert (one.stdin, one.stdout, one.stderr) == (0, 7, 2)
    assert (one.tty, one.detached, one.status, one.plumbing) == (False, False, 101, False)
    assert (one.dispatch_delay, one.create_delay) == (2.0, 3.0)
    assert one.created_wall_ns is not None
    assert one.started_wall_ns is not None
    assert one.created_wall_ns < one.started_wall_ns
    assert one.duration == 5.0
    assert one.ended_by == "process"
    assert door.kept[0].subject.exec == EXEC
    assert door.kept[0].subject.trial == "t-1"


def test_the_keys_that_an_exec_types_are_told_as_their_digest() -> None:
    door = Door()
    door.create_exec(["bash", "-c", "tmux send-keys -t terminus-2 -- 'make test\n'"])
    door.stream(counted=None, closed=HALF_CLOSED)
    (one,) = door.execs()
    assert (one.typed_digest, one.plumbing) == (text_digest("make test\n"), True)


def test_who_ended_the_stream() -> None:
    def ended(counted: dict[str, object] | None, closed: dict[str, object]) -> str | None:
        door = Door()
        door.stream(counted=counted, closed=closed)
        return door.execs()[0].ended_by

    assert ended({"upstream_ended": False}, HALF_CLOSED) == "client"
    assert ended({"upstream_ended": False}, {"first": "client", "how": "rst"}) == "client"
    assert ended({"upstream_ended": True}, {"first": "upstream", "how": "fin"}) == "process"
    assert ended({"upstream_ended": True}, {"first": "upstream", "how": "rst"}) == "engine"
    assert ended({"upstream_ended": False}, {"first": "fairtrial", "how": "abort"}) == "fairtrial"
    # The sums were lost: a client that only half-closed cannot be told from one that left.
    assert ended(None, HALF_CLOSED) is None
    assert ended(None, {"first": "client", "how": "rst"}) == "client"
    assert ended(None, {"first": "upstream", "how": "fin"}) == "process"


def test_a_detached_exec_has_no_duration() -> None:
    door = Door()
    door.create_exec(["sleep", "9"])
    door.call(f"POST /v1.41/exec/{EXEC}/start", {"Detach": True}, 200)
    (one,) = door.execs()
    assert one.detached is True
    assert one.duration is None
    assert one.ended_by is None


def test_a_stream_that_is_open_at_the_end_is_written_without_an_end() -> None:
    door = Door()
    door.put(Kind.REQUEST_HEAD, f"POST /exec/{EXEC}/start HTTP/1.1\r\n\r\n".encode(), 9)
    door.put(Kind.RESPONSE_END, {"how": "tunnel"}, 9)
    door.tracker.close()
    assert [one.ended_by for one in door.execs()] == [None]


def test_a_container_named_by_name_is_not_joined_by_it() -> None:
    door = Door()
    door.create_exec(["ls"], container="web-1")
    door.stream(counted=None, closed=HALF_CLOSED)
    assert door.execs()[0].container_id is None


def test_what_the_client_did_to_containers() -> None:
    door = Door()
    door.call("POST /v1.41/containers/create?name=web", {"Image": "x"}, 201, {"Id": CONTAINER, "Warnings": []})
    door.call(f"POST /v1.41/containers/{CONTAINER}/start", None, 204)
    door.call("POST /containers/web/kill?signal=SIGKILL", None, 204)
    door.call(f"POST /v1.41/containers/{CONTAINER}/wait?condition=removed", None, 200, {"StatusCode": 137})
    door.call("DELETE /v1.41/containers/web?force=1", None, 204)
    door.call("GET /v1.41/containers/web/json", None, 200, {"Id": CONTAINER})
    seen = [(one.action, one.container_id, one.container_named, one.status) for one in door.containers()]
    assert seen == [
        ("create", CONTAINER, None, 201),
        ("start", CONTAINER, None, 204),
        ("kill", None, "web", 204),
        ("wait", CONTAINER, None, 200),
        ("remove", None, "web", 204),
    ]
    assert door.containers()[2].signal == "SIGKILL"
    assert door.containers()[3].exit_code == 137


def test_no_command_and_no_secret_is_written() -> None:
    door = Door()
    door.create_exec(["sh", "-c", "curl -H 'x-api-key: sk-secret'"])
    door.stream(counted=None, closed=HALF_CLOSED)
    door.call("POST /containers/a%2e%2e%2fb;sk-secret/kill?signal=sk-secret", None, 404)
    assert "sk-secret" not in repr(door.kept)


def test_a_body_that_was_cut_costs_facts_only() -> None:
    door = Door()
    door.put(Kind.REQUEST_HEAD, b"POST /containers/create HTTP/1.1\r\n\r\n", 5)
    door.put(Kind.RESPONSE_HEAD, b"HTTP/1.1 201 X\r\n\r\n", 5)
    door.put(Kind.RESPONSE_DATA, b"\x00" * 8, 5, flags=Flag.DROPPED)
    door.put(Kind.RESPONSE_END, {"how": "framed"}, 5)
    assert [(one.action, one.container_id) for one in door.containers()] == [("create", None)]
    assert door.tracker.faults == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 3), st.binary(max_size=60)), max_size=30)
)
def test_junk_neither_raises_nor_stays(records: list[tuple[int, int, int, bytes]]) -> None:
    door = Door()
    for kind, conn, msg, payload in records:
        door.put(kind, payload, conn, msg)
    door.tracker.close()


def test_a_run_is_made_attached_and_waited_for() -> None:
    door = Door()
    made = {"Entrypoint": ["sh", "-c"], "Cmd": ["make test"], "Image": "i", "HostConfig": {"Memory": 1}}
    door.call("POST /v1.41/containers/create?name=x", made, 201, {"Id": CONTAINER})
    door.put(Kind.REQUEST_HEAD, f"POST /v1.41/containers/{CONTAINER}/attach?stdout=1 HTTP/1.1\r\n\r\n".encode(), 77)
    door.put(Kind.RESPONSE_HEAD, b"HTTP/1.1 101 UPGRADED\r\n\r\n", 77)
    door.put(Kind.RESPONSE_END, {"complete": True, "how": "tunnel"}, 77)
    door.call(f"POST /containers/{CONTAINER}/start", None, 204)
    door.put(Kind.TUNNEL_END, {"stdin": 1, "stdout": 2, "stderr": 3, "raw": 0, "upstream_ended": True}, 77)
    door.put(Kind.CLOSE, HALF_CLOSED, 77)
    door.call(f"POST /containers/{CONTAINER}/wait", None, 200, {"StatusCode": 4})
    create, start, attach, wait = door.containers()
    assert [one.action for one in (create, start, attach, wait)] == ["create", "start", "attach", "wait"]
    assert create.text_digest == text_digest("make test")
    assert (attach.stdin, attach.stdout, attach.stderr, attach.ended_by) == (1, 2, 3, "process")
    assert wait.exit_code == 4
    assert start.started_wall_ns is not None
    assert {one.container_id for one in (create, start, attach, wait)} == {CONTAINER}


def test_of_a_command_its_words_are_kept_without_secrets_and_free_text() -> None:
    command = ["env", "API_KEY=hunter2hunter2", "bash", "-c", "echo the task's text"]
    door = Door()
    door.create_exec(command)
    door.stream(counted=None, closed=HALF_CLOSED)
    assert door.execs()[0].command == ["env", "API_KEY=***", "bash", "-c", "<20 characters>"]
    kept = Door(keep_text=True)
    kept.create_exec(command)
    kept.stream(counted=None, closed=HALF_CLOSED)
    assert kept.execs()[0].command == ["env", "API_KEY=***", "bash", "-c", "echo the task's text"]
    kept.call("POST /containers/create", {"Cmd": ["ls", "-l"]}, 201, {"Id": CONTAINER})
    assert kept.containers()[0].command == ["ls", "-l"]


def test_a_refusal_is_kept_as_its_kind_and_none_of_its_words() -> None:
    door = Door()
    secret = "driver failed: Bind for 0.0.0.0:8080 failed: port is already allocated"
    door.call(f"POST /v1.41/containers/{CONTAINER}/start", None, 500, {"message": secret})
    door.call("POST /v1.41/containers/create", {"Cmd": "x"}, 404, {"message": "No such image: s3cret:latest"})
    door.call(f"POST /v1.41/exec/{EXEC}/start", {}, 409, {"message": f"Container {CONTAINER} is not running"})
    door.call(f"POST /v1.41/containers/{CONTAINER}/kill", None, 500, {"message": "what is this"})
    assert [one.error for one in door.containers()] == ["port_taken", "no_image", "other"]
    assert [one.error for one in door.execs()] == ["not_running"]
    assert not any("8080" in str(o.value) or "s3cret" in str(o.value) for o in door.kept)


def test_what_went_well_has_no_error_whatever_its_words() -> None:
    door = Door()
    door.call("POST /v1.41/containers/create", {}, 201, {"Id": CONTAINER, "Warnings": ["no space left on device"]})
    assert [one.error for one in door.containers()] == [None]
