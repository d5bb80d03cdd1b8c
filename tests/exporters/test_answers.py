"""What each answer of a collector means for the batch."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from google.protobuf.any_pb2 import Any  # type: ignore[import-untyped]  # ships no types
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]  # same
from google.protobuf.message import Message  # type: ignore[import-untyped]  # same
from google.rpc.error_details_pb2 import DebugInfo, RetryInfo  # type: ignore[import-untyped]  # same
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # same
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.exporters.answers import (
    MAX_WAIT_S,
    TEXT_CHARS,
    Accepted,
    Answer,
    Later,
    Misdirected,
    Refused,
    TooLarge,
    Unknown,
    of_grpc,
    of_http,
    retry_after_s,
)
from tests.fakes.collector import response

NOW = 1_796_000_000.0


def details(*messages: Message) -> bytes:
    status = Status(code=14, message="m")
    for message in messages:
        packed = Any()
        packed.Pack(message)
        status.details.append(packed)
    return bytes(status.SerializeToString())


@pytest.mark.parametrize(
    "status, kind",
    [
        (200, Accepted),
        (202, Accepted),
        (301, Misdirected),
        (400, Refused),
        (401, Misdirected),
        (403, Misdirected),
        (404, Misdirected),
        (408, Later),
        (413, TooLarge),
        (415, Refused),
        (422, Refused),
        (429, Later),
        (500, Refused),
        (501, Refused),
        (502, Later),
        (503, Later),
        (504, Later),
    ],
)
def test_an_http_status(status: int, kind: type[Answer]) -> None:
    assert isinstance(of_http(status, {}, b"", NOW), kind)


@pytest.mark.parametrize(
    "code, kind",
    [
        (0, Accepted),
        (1, Unknown),
        (2, Refused),
        (3, Refused),
        (4, Unknown),
        (7, Misdirected),
        (8, TooLarge),
        (10, Later),
        (11, Later),
        (12, Misdirected),
        (13, Refused),
        (14, Later),
        (15, Later),
        (16, Misdirected),
    ],
)
def test_a_grpc_status(code: int, kind: type[Answer]) -> None:
    assert isinstance(of_grpc(code, "m", None), kind)


def test_unavailable_of_the_transport_proves_nothing_but_retry_info_does() -> None:
    assert isinstance(of_grpc(14, "Socket closed", None, from_server=False), Unknown)
    info = details(RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000)))
    assert of_grpc(14, "busy", info, from_server=False) == Later("gRPC status 14 busy", 2.5)


def test_exhausted_is_a_time_to_wait_with_retry_info_and_a_size_without() -> None:
    info = details(DebugInfo(detail="x"), RetryInfo(retry_delay=Duration(seconds=1)))
    assert of_grpc(8, "slow down", info) == Later("gRPC status 8 slow down", 1.0)
    assert isinstance(of_grpc(8, "larger than max", details(DebugInfo())), TooLarge)
    assert isinstance(of_grpc(8, "larger than max", b"\xff"), TooLarge)


@pytest.mark.parametrize(
    "value, seconds",
    [
        (None, None),
        ("3", 3.0),
        (" 1.5 ", 1.5),
        ("-4", 0.0),
        ("99999999", MAX_WAIT_S),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        (format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(NOW - 30, UTC), usegmt=True), 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_more_than_an_hour(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds


def test_partial_success_counts_what_was_rejected() -> None:
    assert of_http(200, {}, response("partial:3"), NOW) == Accepted(3, "too old")
    assert of_grpc(0, "", None, response("partial:3")) == Accepted(3, "too old")
    json = b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}'
    assert of_http(200, {"content-type": "application/json"}, json, NOW) == Accepted(3, "too old")
    assert of_http(200, {"content-type": "application/json"}, b"{}", NOW) == Accepted()
    assert of_http(200, {"content-type": "application/json"}, b"", NOW) == Accepted()


@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/x-protobuf", ""]))
def test_a_yes_is_a_yes_whatever_else_it_says(body: bytes, content_type: str) -> None:
    answer = of_http(200, {"content-type": content_type}, body, NOW)
    assert isinstance(answer, Accepted)
    assert answer.rejected >= 0


@given(st.integers(300, 599), st.binary(max_size=500))
def test_what_a_collector_writes_is_shown_short_and_printable(status: int, body: bytes) -> None:
    answer = of_http(status, {}, body, NOW)
    assert not isinstance(answer, Accepted | Unknown)
    assert answer.why.isprintable()
    assert len(answer.why) <= TEXT_CHARS + 9


def test_the_collectors_own_word_for_too_large_is_understood() -> None:
    """Jaeger 1.76, and every OpenTelemetry Collector, answers so to a body over 20 MiB."""
    body = Status(code=3, message="http: request body too large").SerializeToString()
    assert of_http(400, {}, body, NOW) == TooLarge("HTTP 400 http: request body too large")


def test_the_message_of_a_status_is_read() -> None:
    body = Status(code=3, message="span 3 has\nno name").SerializeToString()
    assert of_http(400, {}, body, NOW) == Refused("HTTP 400 span 3 has no name", "http_4xx")
