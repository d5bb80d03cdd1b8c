"""What a collector's answer means for the batch that it answers.

In: status, headers and body of an HTTP answer, or code, message and details of a gRPC one.  Out: one `Answer`.  Pure.

==============  ===========================================================  ==============================
`Accepted`      taken, but for `rejected` spans (partial success)            exported; rejected ones dropped
`Later`         surely not taken: 429, 502, 503, 504, or nothing was sent    pending, after `after_s`
`TooLarge`      413, or gRPC's message limit                                 sent again in two halves
`Misdirected`   401, 403, 404 …: the endpoint or the keys are wrong          pending, until they are mended
`Refused`       400 and all others: this batch will never be taken           dropped
`Unknown`       the request went out and no answer came                      dropped: it may have been taken
==============  ===========================================================  ==============================

**Source:** OTLP specification 1.10, "Failures", "Retryable Response Codes", "OTLP/gRPC Throttling".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]  # same
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # same
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

TEXT_CHARS: Final = 200
"""Of a collector's message, in our log."""
MAX_WAIT_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """`rejected`: spans that the collector says it left out; `message` is its reason, or a warning."""

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """`after_s`: what the collector asked for, None when it named no time."""

    why: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The request, not its spans, is the matter."""

    why: str


@dataclass(frozen=True, slots=True)
class Misdirected:
    """Nothing can be delivered there as things are."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """`label` is a bounded word for the counter."""

    why: str
    label: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Whether the collector has the spans cannot be known."""

    why: str


Answer = Accepted | Later | TooLarge | Misdirected | Refused | Unknown

_RETRYABLE_HTTP: Final = frozenset({408, 429, 502, 503, 504})
_MISDIRECTED_HTTP: Final = frozenset({401, 402, 403, 404, 405, 406, 407, 421})
OK_GRPC: Final = 0
_RETRYABLE_GRPC: Final = frozenset({10, 11, 15})
"""ABORTED, OUT_OF_RANGE, DATA_LOSS: only a server says these, so the answer is one."""
_MISDIRECTED_GRPC: Final = frozenset({7, 12, 16})
"""PERMISSION_DENIED, UNIMPLEMENTED, UNAUTHENTICATED."""
_UNAVAILABLE: Final = 14
_EXHAUSTED: Final = 8
_LOST: Final = frozenset({1, 4})
"""CANCELLED, DEADLINE_EXCEEDED: our own side gave up as often as theirs."""


def of_http(status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> Answer:
    """`headers` with lower-case names; `now_s`: wall clock, for a Retry-After that is a date."""
    if 200 <= status < 300:
        return _accepted(body, headers.get("content-type", ""))
    why = f"HTTP {status} {_message(body)}".strip()
    if status in _RETRYABLE_HTTP:
        return Later(why, retry_after_s(headers.get("retry-after"), now_s))
    if status == 413 or (status == 400 and b"too large" in body):  # the Collector says it with a 400
        return TooLarge(why)
    if status in _MISDIRECTED_HTTP or 300 <= status < 400:
        return Misdirected(why)
    return Refused(why, f"http_{status // 100}xx")


def of_grpc(code: int, message: str, details: bytes | None, body: bytes = b"", *, from_server: bool = True) -> Answer:
    """`details`: the trailer `grpc-status-details-bin`; `from_server`: that a peer, not the transport, said it."""
    if code == OK_GRPC:
        return _accepted(body, "")
    why = f"gRPC status {code} {_clean(message)}".strip()
    wait_s = _retry_info_s(details)
    if code in _RETRYABLE_GRPC or (code in (_UNAVAILABLE, _EXHAUSTED) and wait_s is not None):
        return Later(why, wait_s)
    if code == _EXHAUSTED:
        return TooLarge(why)
    if code == _UNAVAILABLE:
        return Later(why) if from_server else Unknown(why)
    if code in _LOST:
        return Unknown(why)
    return Misdirected(why) if code in _MISDIRECTED_GRPC else Refused(why, f"grpc_{code}")


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Seconds from now, at most an hour; None for a value that is neither a number nor a date."""
    if value is None:
        return None
    try:
        seconds = float(value.strip())
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value.strip()).timestamp() - now_s
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_WAIT_S) if math.isfinite(seconds) else None


def _retry_info_s(details: bytes | None) -> float | None:
    if not details:
        return None
    try:
        status = Status.FromString(details)
        for detail in status.details:
            info = RetryInfo()
            if detail.Unpack(info):
                seconds = float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
                return min(max(seconds, 0.0), MAX_WAIT_S)
    except DecodeError:
        return None
    return None


def _accepted(body: bytes, content_type: str) -> Accepted:
    try:
        if content_type.startswith("application/json"):
            return _accepted_json(body)
        partial = ExportTraceServiceResponse.FromString(body).partial_success
        return Accepted(max(0, partial.rejected_spans), _clean(partial.error_message))
    except (DecodeError, ValueError):
        # It said 2xx: the spans are there, whatever else it wanted to say.
        return Accepted(0, "the answer could not be read")


def _accepted_json(body: bytes) -> Accepted:
    import json  # an answer in JSON is rare

    tree = json.loads(body or b"{}")
    partial = tree.get("partialSuccess") if isinstance(tree, dict) else None
    if not isinstance(partial, dict):
        return Accepted()
    return Accepted(max(0, int(partial.get("rejectedSpans") or 0)), _clean(str(partial.get("errorMessage") or "")))


def _message(body: bytes) -> str:
    """An error's body is a google.rpc.Status, or whatever a gateway wrote."""
    try:
        status = Status.FromString(body)
    except DecodeError:
        return _clean(body[:TEXT_CHARS].decode(errors="replace"))
    return _clean(status.message)


def _clean(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:TEXT_CHARS]
