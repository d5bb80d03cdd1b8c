"""What can go wrong with one answer of the stand-in, as records: which kind, at which step, how often.

In: nothing; these are plain values that a test or a demo writes down. Out: `Fault` (and `Scenario` in `script.py` holds
them). Carrying them out is the business of `sending.py`; nothing here does any I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FaultKind = Literal[
    "http",  # an error status with the API's own error body
    "json_error",  # the API's error body under status 200, as JSON (also to a client that asked for a stream)
    "garbage",  # an HTML page; status 200 unless told otherwise
    "stall_headers",  # silence for `duration_s` before the response head, then the right answer
    "stall",  # silence for `duration_s` after `after_events` events (JSON: after the head and half of the body)
    "pings",  # pings every `interval_s` for `duration_s` after `after_events` events, then the rest (streams only)
    "slow",  # `interval_s` between events (JSON: between 16 pieces of the body)
    "cut",  # the connection ends after `after_events` events plus half of the next (JSON: half of the declared length)
    "short",  # the stream ends cleanly after `after_events` events: well framed, but without its last events
    "error_event",  # the API's error event after `after_events` events of a 200 stream (JSON: as json_error)
    "failed",  # Responses' own terminal event of failure after `after_events` events; elsewhere as error_event
    "close",  # the connection ends with FIN before any byte of the answer
    "rst",  # the connection is reset before any byte of the answer
]

FOREVER = None

ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}

ERROR_MESSAGES: Mapping[int, str] = {
    401: "invalid x-api-key",
    429: "This request would exceed your organization's rate limit. Please try again later.",
    500: "Internal server error",
    529: "Overloaded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of failure, bound to a step of the script and to a number of attempts.

    `step` counts assistant turns in the request's history: 0 is the first call, 1 the call after the first tool result;
    None means any step. `attempts` is how many calls it hits (per path prefix) before it is spent; None is for ever.
    Where several faults fit, the first one in the list that is not spent is taken, so a sequence of failures is a
    sequence of faults. Calls that the script does not answer (titles and the like) are spared unless `side_calls`.
    """

    kind: FaultKind
    step: int | None = None
    attempts: int | None = 1
    side_calls: bool = False
    task: str | None = None
    """Spare calls that do not hold this text: the fault of one trial among many."""
    stream_only: bool = False
    """Spare calls that did not ask for a stream (a client that falls back to JSON gets through)."""

    status: int | None = None
    """http: default 500; garbage: default 200."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the head of the failing answer, such as retry-after."""
    message: str | None = None
    """Error text; default by status."""
    error_type: str | None = None
    """Error type; default by status (error_event and json_error: overloaded_error; failed: server_error)."""
    body: str | None = None
    """garbage: the page to send instead of the default one."""

    after_events: int = 0
    duration_s: float | None = None
    """stall, stall_headers, pings: how long; None is until the client leaves."""
    interval_s: float = 0.05
    ending: Literal["fin", "rst", "ragged"] = "fin"
    """cut: how the connection ends. ragged: FIN without TLS close_notify (the same as fin without TLS)."""

    @property
    def shown_status(self) -> int:
        """The status code that the answer carries."""
        return self.status if self.status is not None else {"http": 500}.get(self.kind, 200)

    @property
    def shown_type(self) -> str:
        """The error type in the body or event, by the Messages API's names."""
        if self.error_type is not None:
            return self.error_type
        if self.kind in ("error_event", "json_error"):
            return "overloaded_error"
        if self.kind == "failed":
            return "server_error"
        return ERROR_TYPES.get(self.shown_status, "invalid_request_error" if self.shown_status < 500 else "api_error")

    @property
    def shown_message(self) -> str:
        """The error text in the body or event."""
        if self.message is not None:
            return self.message
        if self.kind in ("error_event", "json_error"):
            return "Overloaded"
        return ERROR_MESSAGES.get(self.shown_status, f"Error {self.shown_status}")


PROMPT_TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"


def catalogue(step: int = 1, *, stall_s: float = 8.0) -> dict[str, tuple[Fault, ...]]:
    """The named faults that every client is tried against, all on one step.

    Keys are stable names for tests; `_for_ever` ones never let the call through. `stall_s` is how long the two stalls
    last.
    """
    once, ever = 1, FOREVER

    def http(status: int, attempts: int | None, **more: str) -> tuple[Fault, ...]:
        headers = {"retry-after": more["retry_after"]} if "retry_after" in more else {}
        return (
            Fault(
                kind="http", step=step, attempts=attempts, status=status, headers=headers, message=more.get("message")
            ),
        )

    return {
        "rate_limited_once": http(429, once, retry_after="2"),
        "rate_limited_for_ever": http(429, ever, retry_after="1"),
        "overloaded_twice": http(529, 2),
        "overloaded_for_ever": http(529, ever),
        "server_error_once": http(500, once),
        "server_error_for_ever": http(500, ever),
        "unauthorised_for_ever": http(401, ever),
        "prompt_too_long": http(400, ever, message=PROMPT_TOO_LONG),
        "stall_mid_stream": (Fault(kind="stall", step=step, after_events=3, duration_s=stall_s),),
        "stall_headers": (Fault(kind="stall_headers", step=step, duration_s=stall_s),),
        "cut_once": (Fault(kind="cut", step=step, after_events=3),),
        "cut_for_ever": (Fault(kind="cut", step=step, attempts=ever, after_events=3),),
        "close_once": (Fault(kind="close", step=step),),
        "close_for_ever": (Fault(kind="close", step=step, attempts=ever),),
        "reset_once": (Fault(kind="rst", step=step),),
        "error_event_once": (Fault(kind="error_event", step=step, after_events=3),),
        "error_event_for_ever": (Fault(kind="error_event", step=step, attempts=ever, after_events=3),),
        "garbage_once": (Fault(kind="garbage", step=step),),
    }
