"""What went wrong with one HTTP attempt, and on whose side, as the door saw it.

In: one `attempt.ended` and what is known of its upstream in this run.  Out: a `Fault`, or None for a reply that came
whole.  What this module does not do: judge the call or the trial (`rules/model_api.py` and its neighbours).

It recognises: who failed first as the relay stated it, the status, the provider's own error type (read only from an
error reply or an error event, never from a reply that came whole), whether the provider's request id was there, the
stage at which a dial failed.  It deliberately does not read texts.
How it can be wrong: a gateway that copies the provider's request id into its own errors passes for the provider, and an
upstream that is down from a run's first to its last second passes for a wrong address; the first costs nothing (both
are outside), the second puts an outage on the operator, which the sentence says.

**Source:** reference pages model-api.md section 1, taxonomy.md section 5; RFC 9110 section 15 for status codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import AttemptSeen
from fairtrial.middleware.attribution.sentences import clean, seconds
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.core.observations import AttemptEnded
from fairtrial.middleware.core.records import Blame, Grade

WATCHDOGS_S: Final[tuple[tuple[str, float], ...]] = (
    ("claude-cli", 300.0),
    ("claude-code", 300.0),
    ("codex", 300.0),
    ("anthropic/", 600.0),
    ("asyncanthropic/", 600.0),
    ("openai/", 600.0),
    ("asyncopenai/", 600.0),
    ("litellm/", 600.0),
)
"""How long a known client waits for a silent reply before it gives up, s, by the beginning of its user agent.  Behind a
gateway Claude Code's watchdog is 300 s.  **Source:** reference page model-api.md sections 1 and 2."""

_OUR_LIMITS: Final = frozenset({"EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "24", "23", "12", "105"})
_PASSING: Final = ("AGAIN", "TEMPORARY", "NO ANSWER IN", "TIMED OUT", "TIMEOUT")
"""Words of resolver and socket errors that say nothing about the address itself."""
_QUOTA_NAMES: Final = frozenset({"quota", "credit", "billing"})
_ERROR_TYPES: Final[dict[str, int]] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "billing_error": 402,
    "authentication_error": 401,
    "permission_error": 403,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "request_too_large": 413,
    "timeout_error": 504,
    "api_error": 500,
    "server_error": 500,
}
"""Providers' error types and the status that each stands for, for error events inside a 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why an attempt did not bring a whole reply."""

    cause: str
    blame: Blame
    best: Grade = Grade.PROVED
    failure: str
    """A clause for the sentence: what was seen."""
    abort: bool = False
    """The client itself ended it."""
    with_end: bool = False
    """It ended together with the command or a killed process: a consequence, not a cause."""
    silence_s: float | None = None
    watchdog_s: float | None = None


def classify(
    attempt: AttemptSeen, *, answered_at_ns: int | None, ends_with: bool, thresholds: Thresholds
) -> Fault | None:
    """The fault of one attempt.

    `answered_at_ns`: when this upstream's first response head of the run came, None for never.
    `ends_with`: the attempt ended together with the command, or with a process that was killed.
    """
    if attempt.whole:
        return None
    value = attempt.value
    at_our_end = value.outcome == "proxy_shutdown" and ends_with
    ours = None if at_our_end else _ours(value)
    if ours is not None:
        return ours
    if value.outcome in {"client_disconnect", "proxy_shutdown"} and (value.reply.status or 200) < 400:
        return _abort(attempt, ends_with=ends_with, thresholds=thresholds)
    if value.dial_stage is not None:
        return _dial(value, answered_before=_before(answered_at_ns, attempt))
    status = value.reply.status
    if status is None:
        return _no_head(value, answered_before=_before(answered_at_ns, attempt), ever=answered_at_ns is not None)
    if status >= 400:
        return _status(value, status)
    if value.reply.error_in_stream:
        return _status(value, _ERROR_TYPES.get(value.reply.error_type or "", 500), in_stream=True)
    if value.reply.html:
        return Fault(
            cause="gateway.error", blame=Blame.INFRA, failure=f"an HTML page with status {status} instead of a reply"
        )
    if value.outcome == "error":
        said = f"status {status} with a body that is no reply of this API"
        strange = value.reply.provider_id is False
        return Fault(cause="gateway.error" if strange else "model_api.server_error", blame=Blame.INFRA, failure=said)
    return Fault(cause="model_api.truncated", blame=Blame.INFRA, failure=_cut(value))


def watchdog_s(user_agent: str | None, thresholds: Thresholds) -> float:
    """How long this client waits for a silent reply, s."""
    name = (user_agent or "").lower()
    for beginning, wait_s in WATCHDOGS_S:
        if name.startswith(beginning):
            return wait_s
    return thresholds.watchdog_unknown_s


def silence_s(attempt: AttemptSeen) -> float:
    """The longest silence of the upstream in an attempt, pings counted as bytes, s."""
    value = attempt.value
    known = [s for s in (value.max_gap_with_pings, value.silence_at_end) if s is not None]
    if value.ttfb is not None:
        known.append(value.ttfb)
    elif value.reply.status is None:
        known.append(attempt.length_s - (value.request_sent or 0.0))
    return max(known, default=0.0)


def _before(answered_at_ns: int | None, attempt: AttemptSeen) -> bool:
    return answered_at_ns is not None and answered_at_ns <= attempt.started_ns


def _ours(value: AttemptEnded) -> Fault | None:
    if value.errno in _OUR_LIMITS and value.dial_stage is not None:
        return Fault(cause="observer.limit", blame=Blame.FAIRTRIAL, failure=clean(value.errno or ""))
    if value.first_failure == "fairtrial":
        said = clean(value.errno or value.close_kind or "no reason given")
        return Fault(cause="observer.relay_fault", blame=Blame.FAIRTRIAL, failure=said)
    return None


def _abort(attempt: AttemptSeen, *, ends_with: bool, thresholds: Thresholds) -> Fault:
    value = attempt.value
    silence = silence_s(attempt)
    limit = watchdog_s(value.request.user_agent, thresholds)
    lag = value.our_lag or 0.0
    said = f"longest silence {seconds(silence)}"
    if lag >= thresholds.lag_s and lag >= thresholds.lag_share * max(silence, 1e-9):
        return Fault(
            cause="observer.lag",
            blame=Blame.FAIRTRIAL,
            failure=f"our own lag {seconds(lag)}",
            abort=True,
            silence_s=silence,
        )
    if silence >= limit:
        return Fault(
            cause="model_api.stalled",
            blame=Blame.INFRA,
            failure=said,
            abort=True,
            silence_s=silence,
            watchdog_s=limit,
        )
    return Fault(
        cause="harness.client_timeout",
        blame=Blame.HARNESS,
        best=Grade.SUSPECTED if ends_with else Grade.PROVED,
        failure=said,
        abort=True,
        with_end=ends_with or value.outcome == "proxy_shutdown",
        silence_s=silence,
        watchdog_s=limit,
    )


def _dial(value: AttemptEnded, *, answered_before: bool) -> Fault:
    error = clean(value.dial_error or value.errno or "no reason given")
    if value.dial_stage == "proxy":
        if value.proxy_status == 407:
            return Fault(cause="operator.auth", blame=Blame.OPERATOR, failure="the proxy asked for credentials (407)")
        said = f"proxy status {value.proxy_status}" if value.proxy_status is not None else error
        return Fault(cause="network.proxy", blame=Blame.INFRA, best=Grade.SUSPECTED, failure=said)
    if value.dial_stage == "tls":
        trust = any(word in error.upper() for word in ("CERTIFICATE", "VERIFY", "SELF-SIGNED", "SELF SIGNED"))
        if trust and not answered_before:
            return Fault(cause="network.tls", blame=Blame.OPERATOR, best=Grade.SUSPECTED, failure=error)
        return Fault(cause="network.tls", blame=Blame.INFRA, best=Grade.SUSPECTED, failure=error)
    stage = "its name did not resolve" if value.dial_stage == "dns" else "no connection"
    if answered_before:
        return Fault(cause="model_api.unreachable", blame=Blame.INFRA, failure=f"{stage}: {error}")
    return Fault(
        cause="operator.endpoint",
        blame=Blame.OPERATOR,
        best=Grade.PROVED if _tells(value, error) else Grade.SUSPECTED,
        failure=f"{stage}: {error}",
    )


def _tells(value: AttemptEnded, error: str) -> bool:
    """Whether a failed dial speaks of the address itself: the name does not exist, or nothing listens there."""
    if value.dial_stage == "dns":
        return not any(word in error.upper() for word in _PASSING)
    return "REFUSED" in error.upper() or value.errno in {"ECONNREFUSED", "111"}


def _no_head(value: AttemptEnded, *, answered_before: bool, ever: bool) -> Fault:
    how = clean(value.errno or value.close_kind or "closed")
    said = f"the connection ended before a response head ({how})"
    if answered_before or ever:
        return Fault(cause="model_api.unreachable", blame=Blame.INFRA, failure=said)
    return Fault(cause="operator.endpoint", blame=Blame.OPERATOR, best=Grade.SUSPECTED, failure=said)


def _status(value: AttemptEnded, status: int, *, in_stream: bool = False) -> Fault:
    reply = value.reply
    names = set(reply.error_names)
    said = f"error event in the stream: {clean(reply.error_type or 'no type')}" if in_stream else f"status {status}"
    from_provider = reply.provider_id is not False
    if status == 529 or reply.error_type == "overloaded_error":
        return Fault(cause="model_api.overloaded", blame=Blame.INFRA, failure=said)
    if (reply.html and status >= 500) or (not from_provider and status in {502, 503, 504}):
        return Fault(cause="gateway.error", blame=Blame.INFRA, failure=said)
    if reply.html and status == 403:
        return Fault(cause="gateway.error", blame=Blame.OPERATOR, best=Grade.SUSPECTED, failure="an HTML page with 403")
    if "spend" in names:
        return Fault(cause="operator.budget", blame=Blame.OPERATOR, failure=said)
    if status == 402 or (status == 429 and names & _QUOTA_NAMES) or (status == 400 and names & {"credit", "billing"}):
        return Fault(cause="operator.quota", blame=Blame.OPERATOR, failure=said)
    if status in {401, 403, 407}:
        return Fault(cause="operator.auth", blame=Blame.OPERATOR, failure=said)
    if status == 429:
        return Fault(cause="model_api.rate_limited", blame=Blame.INFRA, failure=said)
    if status == 404:
        return Fault(cause="operator.endpoint", blame=Blame.OPERATOR, failure="404: no such path or model")
    if status in {408, 504}:
        return Fault(cause="model_api.timeout", blame=Blame.INFRA, best=Grade.SUSPECTED, failure=said)
    if status >= 500:
        return Fault(cause="model_api.server_error", blame=Blame.INFRA, failure=said)
    return Fault(cause="model_api.client_error", blame=Blame.HARNESS, best=Grade.SUSPECTED, failure=said)


def _cut(value: AttemptEnded) -> str:
    how = clean(value.close_kind or value.errno or "closed by the upstream")
    return f"cut by the upstream ({how})"
