"""What the stand-in saw of one HTTP request, and how its answer ended.

In: nothing but the fields that `serving.py` and its neighbours fill in while the request runs. Out: `Call`, and its
JSON line for the log of a stand-in in another process. Secrets in headers are masked before they get here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from fairtrial.middleware.demo.asked import Route
from fairtrial.middleware.demo.faults import FaultKind
from fairtrial.middleware.demo.script import Usage

MASKED_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization", "api-key"})

Ended = Literal["open", "complete", "client_gone", "fin", "rst", "ragged", "short", "stopped"]


def masked(name: str, value: str) -> str:
    """The value of a header as it may be kept: keys are replaced by their scheme and length."""
    if name.lower() not in MASKED_HEADERS:
        return value
    scheme, _, rest = value.rpartition(" ")
    return f"{scheme} <{len(rest)} characters>".lstrip()


@dataclass(slots=True, kw_only=True)
class Call:
    """One request, filled in as it goes: read `ended` before trusting the fields below it.

    Times are CLOCK_MONOTONIC in ns, which all processes of a host share. `step`, `attempt`, `model` are None for what
    is not a model call. `attempt` counts calls of this prefix at this step from 1. `usage` is None unless a whole
    answer with usage was sent. `ended`: complete; client_gone (the client left first); fin, rst, ragged (we cut it);
    short (ended cleanly but too early, on purpose); stopped (the server was stopped); open (still running).
    """

    index: int
    connection: int
    peer_port: int | None
    method: str
    path: str
    """With its query."""
    prefix: str
    route: Route
    headers: tuple[tuple[str, str], ...]
    started_ns: int
    body: bytes = b""
    """Decoded, whole."""
    body_bytes: int = 0
    """As it came over the wire, without framing."""
    step: int | None = None
    attempt: int | None = None
    model: str | None = None
    stream: bool = False
    tools: tuple[str, ...] = ()
    side: bool = False
    """Answered with the fixed side text instead of the script."""
    asked_ns: int | None = None
    """The request had come in whole."""
    fault: FaultKind | None = None
    status: int | None = None
    """None: no head was sent."""
    request_id: str | None = None
    first_byte_ns: int | None = None
    events_sent: int = 0
    sent_bytes: int = 0
    """All that was written for this answer, head and framing included."""
    usage: Usage | None = None
    ended: Ended = "open"
    ended_ns: int | None = None

    def header(self, name: str) -> str | None:
        """The first header of that name, case ignored; None when absent."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Mapping[str, object]:
        """The request body as a JSON object. Raises msgspec.DecodeError or TypeError for anything else."""
        value: object = msgspec.json.decode(self.body)
        if not isinstance(value, dict):
            raise TypeError(f"the body of {self.method} {self.path} is no JSON object")
        return cast("Mapping[str, object]", value)

    @property
    def is_model_call(self) -> bool:
        """Whether this asked a model for an answer (token counting and the rest are not)."""
        return self.route in {"messages", "chat", "responses"}


def to_log_line(call: Call) -> bytes:
    """One line of JSON, newline included; the body in base64."""
    return msgspec.json.encode(call) + b"\n"


def from_log_line(line: bytes) -> Call:
    """Read a line of `to_log_line`. Raises msgspec.ValidationError."""
    return msgspec.json.decode(line, type=Call)
