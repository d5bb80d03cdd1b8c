"""Pulls as they pass the door: one fact each, from the query and the answer's last line."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import DoorImage, decode
from fairtrial.middleware.wire.docker_pulls import TAIL_BYTES, pull
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.wire.test_docker import Door


def answered(*lines: dict[str, object], query: str = "fromImage=busybox&tag=1", status: int = 200) -> DoorImage:
    body = b"".join(json.dumps(line).encode() + b"\r\n" for line in lines)
    told = pull(query, body[-TAIL_BYTES:], status=status, duration=1.0, started_wall_ns=5)
    assert told is not None
    return told


def test_a_pull_that_went_well_has_no_error_and_its_name() -> None:
    told = answered({"status": "Pulling from library/busybox"}, {"status": "Status: Downloaded newer image"})
    assert (told.image, told.error, told.status) == ("busybox:1", None, 200)


def test_an_error_in_the_last_line_counts_although_the_status_is_200() -> None:
    told = answered(
        {"status": "Pulling"}, {"errorDetail": {"message": "x"}, "error": "received unexpected HTTP status: 502"}
    )
    assert (told.error, told.status) == ("registry_error", 200)


def test_a_refusal_before_the_first_line_is_read_from_its_message() -> None:
    assert answered({"message": "pull access denied for a"}, status=404).error == "denied"
    assert answered({"message": "hm"}, status=500).error == "other"
    assert answered(status=500).error == "other"


def test_a_digest_is_part_of_the_name_and_an_import_is_no_pull() -> None:
    assert answered(query="fromImage=a%2Fb&tag=sha256%3Aab").image == "a/b@sha256:ab"
    assert answered(query="fromImage=..%2F..%2Fetc%00&tag=x").image is None
    assert pull("fromSrc=-&repo=x", b"", status=200, duration=None, started_wall_ns=0) is None


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_no_error(body: bytes) -> None:
    told = pull("fromImage=a", body, status=200, duration=None, started_wall_ns=0)
    assert told is not None


def test_through_the_door_only_the_end_of_a_long_answer_is_kept() -> None:
    door = Door()
    conn = 1
    door.put(Kind.REQUEST_HEAD, b"POST /v1.41/images/create?fromImage=big&tag=1 HTTP/1.1\r\n\r\n", conn)
    door.put(Kind.RESPONSE_HEAD, b"HTTP/1.1 200 OK\r\n\r\n", conn)
    for _ in range(200):
        door.put(Kind.RESPONSE_DATA, b'{"status":"Downloading","id":"' + b"a" * 100 + b'"}\r\n', conn)
    door.put(Kind.RESPONSE_DATA, b'{"error":"toomanyrequests: ', conn)
    door.put(Kind.RESPONSE_DATA, b'slow down"}\r\n', conn)
    door.put(Kind.RESPONSE_END, {"complete": True, "how": "framed"}, conn)
    (told,) = [v for v in map(decode, door.kept) if isinstance(v, DoorImage)]
    assert (told.image, told.error) == ("big:1", "rate_limited")
    assert door.tracker.faults == 0
