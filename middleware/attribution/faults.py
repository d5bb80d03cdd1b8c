"""What went wrong with one HTTP attempt, and on whose side, as the door saw it.

In: one `attempt.ended` and what is known of its upstream in this run.  Out: a `Fault`, or None for a reply that came
whole.  What this module does not do: judge the call or the trial (`rules/model_api.py` and its neighbours).

It recognises: who failed first as the relay stated it, the status, the provider's own error type (read only from an
error reply or an error event, never from a reply that came whole), whether the provider's request id was there, the
stage at which a dial failed.  It deliberately does not read texts.
What the client may have brought about itself is never infra: a request that was never whole, one sent on a connection
that was already closing, a reply that the client did not read (`_clients_doing`), a redirect that it was sent to.
How it can be wrong: a gateway that copies the provider's request id into its own errors passes for the provider, and an
upstream that is down from a run's first to its last second passes for a wrong address; the first costs nothing (both
are outside), the second puts an outage on the operator, which the sentence says.  A dial that fails may be the doing of
a tool that changed this machine's network, so without a control vantage it is only suspected.

**Source:** reference pages model-api.md section 1, taxonomy.md section 5; RFC 9110 section 15 for status codes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.middleware.attribution.case import AttemptSeen, lost_only_its_end
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

READ_S: Final = 1.0
"""A client that did not read for this long, s, was not merely behind for a moment."""

_LOCAL_ERRORS: Final = frozenset(
    {"ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ENONET", "ETIMEDOUT", "ECONNABORTED"}
)
"""Socket errors that this machine's own network can cause; ECONNABORTED is what `ss -K` leaves of a connection."""
_CLIENTS_STATUSES: Final = frozenset({417, 431, 501, 505})
"""Statuses about the request's own form: a method, an expectation, a version that the server does not take."""

_OUR_LIMITS: Final = frozenset({"EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "24", "23", "12", "105"})
_PASSING: Final = ("AGAIN", "TEMPORARY", "NO ANSWER IN", "TIMED OUT", "TIMEOUT")
"""Words of resolver and socket errors that say nothing about the address itself."""
_NOT_KNOWN: Final = frozenset({"not_found_error", "model_not_found"})
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
    # OpenAI Responses
    "server_is_overloaded": 529,
    "slow_down": 429,
    "usage_limit_reached": 402,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    # Gemini (google.rpc.Code)
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
    "DEADLINE_EXCEEDED": 504,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    # Bedrock
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "modelTimeoutException": 408,
    "internalServerException": 500,
    "validationException": 400,
}
"""Providers' error types and the status that each stands for, for error events inside a 200.

A type that is not here is taken for a server's error, and never proves one: it may as well mean a bad request.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why an attempt did not bring a whole reply."""

    cause: str
    blame: Blame
    best: Grade = Grade.PROVED
    fact: Grade = Grade.PROVED
    """How surely it came from outside this machine, whoever's doing it was: a client's own slowness, a word that is no
    known error, or this machine's own network may look like it."""
    failure: str
    """A clause for the sentence: what was seen."""
    abort: bool = False
    """The client itself ended it."""
    with_end: bool = False
    """It ended together with the command or a killed process: a consequence, not a cause."""
    silence_s: float | None = None
    watchdog_s: float | None = None
    said: str | None = None
    """A sentence in place of the cause's own, with the same places."""
    advice: str | None = None
    """What to do, in place of the cause's own."""


def classify(
    attempt: AttemptSeen,
    *,
    answered_at_ns: int | None,
    ends_with: bool,
    thresholds: Thresholds,
    served: bool = True,
    suspended_s: float = 0.0,
) -> Fault | None:
    """The fault of one attempt.

    `answered_at_ns`: when this upstream's first response head of the run came, None for never.
    `ends_with`: the attempt ended together with the command, or with a process that was killed.
    `served`: this upstream gave at least one whole reply in this run.
    `suspended_s`: how long of the attempt the whole run was stopped (Ctrl-Z).
    """
    if attempt.whole:
        return None
    value = attempt.value
    at_our_end = value.outcome == "proxy_shutdown" and ends_with
    ours = None if at_our_end else _ours(value)
    if ours is not None:
        return ours
    if suspended_s >= READ_S and (value.reply.status or 0) < 300:
        return Fault(
            cause="operator.cancelled",
            blame=Blame.OPERATOR,
            best=Grade.SUSPECTED,
            failure=f"the run was suspended for {seconds(suspended_s)}",
            said=f"The whole run was suspended for {seconds(suspended_s)} (Ctrl-Z or a stop signal) while the call for "
            "step {step}'s reply was open, and the call did not outlive it.",
            with_end=ends_with,
        )
    if value.outcome in {"client_disconnect", "proxy_shutdown"} and (value.reply.status or 200) < 300:
        return _abort(attempt, ends_with=ends_with, thresholds=thresholds)
    if value.dial_stage is not None:
        return _dial(value, answered_before=_before(answered_at_ns, attempt))
    fault = _upstreams(attempt, answered_at_ns=answered_at_ns, served=served)
    if fault.cause == "operator.auth" and served:
        # Credentials had worked in this trial: a tool or the agent's own code may have used others.
        fault = replace(fault, best=Grade.SUSPECTED)
    if fault.blame is not Blame.INFRA and value.reply.status is not None:
        return fault
    return _clients_doing(attempt, fault) or fault


def _upstreams(attempt: AttemptSeen, *, answered_at_ns: int | None, served: bool) -> Fault:
    """The fault as the far side shows it."""
    value = attempt.value
    status = value.reply.status
    if status is None:
        return _no_head(value, answered_before=_before(answered_at_ns, attempt), ever=answered_at_ns is not None)
    if status >= 400:
        return _status(value, status)
    if 300 <= status < 400:
        return Fault(
            cause="operator.endpoint",
            blame=Blame.OPERATOR,
            best=Grade.SUSPECTED,
            failure=f"status {status}: a redirect, which leads past the door",
        )
    if value.reply.error_in_stream:
        stands_for = _ERROR_TYPES.get(value.reply.error_type or "")
        if stands_for is None:
            return replace(_status(value, 500, in_stream=True), best=Grade.SUSPECTED, fact=Grade.SUSPECTED)
        return _status(value, stands_for, in_stream=True)
    if value.reply.html or value.outcome == "error":
        what = "an HTML page" if value.reply.html else "a body that is no reply of this API"
        said = f"status {status} with {what}"
        if not served:
            return Fault(cause="operator.endpoint", blame=Blame.OPERATOR, best=Grade.SUSPECTED, failure=said)
        strange = value.reply.html or value.reply.provider_id is False
        return Fault(cause="gateway.error" if strange else "model_api.server_error", blame=Blame.INFRA, failure=said)
    best = Grade.SUSPECTED if lost_only_its_end(value) else _best_of_end(value)
    framed = value.close_kind in {"framed", "close_delimited"}
    said = "The provider ended step {step}'s reply without its end mark ({attempts} within {seconds}; {bytes_down})."
    return Fault(
        cause="model_api.truncated",
        blame=Blame.INFRA,
        best=best,
        fact=_best_of_end(value),
        failure=_cut(value),
        said=said if framed else None,
    )


def _clients_doing(attempt: AttemptSeen, fault: Fault) -> Fault | None:
    """What the client may have brought about itself, whatever the far side then did."""
    value = attempt.value
    if value.request_whole is False:
        return Fault(
            cause="model_api.client_error",
            blame=Blame.HARNESS,
            best=Grade.SUSPECTED,
            failure=f"the request was never sent whole ({fault.failure})",
            said=f"The client never sent step {{step}}'s request whole, so no reply was due ({fault.failure}).",
        )
    if value.after_close and value.reply.status is None:
        return Fault(
            cause="model_api.client_error",
            blame=Blame.HARNESS,
            best=Grade.SUSPECTED,
            failure=f"the request was sent on a closing connection ({fault.failure})",
            said="The client sent step {step}'s request on a connection that was already closing, where nobody owes it "
            "an answer.",
        )
    if value.reply.status is not None and value.reply.status >= 400:
        return None
    if (value.our_lag or 0.0) >= READ_S:
        return Fault(
            cause="observer.lag",
            blame=Blame.FAIRTRIAL,
            best=Grade.SUSPECTED,
            failure=f"our own lag {seconds(value.our_lag)}; {fault.failure}",
        )
    if value.reply.status is None:
        return None
    unread_s = value.downstream_blocked or 0.0
    before_s = value.blocked_before_end or 0.0
    if before_s >= READ_S or unread_s >= max(READ_S, attempt.length_s / 2):
        return Fault(
            cause="harness.client_timeout",
            blame=Blame.HARNESS,
            best=Grade.SUSPECTED,
            failure=f"the client did not read for {seconds(max(before_s, unread_s))}; {fault.failure}",
            said=f"The client did not read step {{step}}'s reply for {seconds(max(before_s, unread_s))}, and then it "
            f"was {fault.failure}.",
        )
    return replace(fault, best=Grade.SUSPECTED) if unread_s >= READ_S else None


def watchdog_s(user_agent: str | None, thresholds: Thresholds) -> float:
    """How long this client waits for a silent reply, s."""
    name = (user_agent or "").lower()
    for beginning, wait_s in WATCHDOGS_S:
        if name.startswith(beginning):
            return wait_s
    return thresholds.watchdog_unknown_s


def silence_s(attempt: AttemptSeen) -> float:
    """The longest silence of the upstream in an attempt, pings counted as bytes, s.

    At least: a time in which the client did not read, so that the upstream was not read either, is no silence of its
    own; and nobody answers a request that was never whole.
    """
    value = attempt.value
    if value.request_whole is False:
        return 0.0
    if value.upstream_gap_with_pings is not None:
        # The observer measured what is the upstream's alone.
        return value.upstream_gap_with_pings
    known = [s for s in (value.max_gap_with_pings, value.silence_at_end) if s is not None]
    if value.ttfb is not None:
        known.append(value.ttfb)
    elif value.reply.status is None:
        known.append(attempt.length_s - (value.request_sent or 0.0))
    return max(0.0, max(known, default=0.0) - (value.downstream_blocked or 0.0))


def silence_inside_s(attempt: AttemptSeen) -> float:
    """The longest silence of the upstream's own between the bytes of a reply, pings counted as bytes, s.

    The wait for the first byte is not in it: a reply that is not streamed is silent while the model writes.
    """
    value = attempt.value
    # What the client did not read was not read from the upstream either: that is no silence of its own.
    gap_s = (value.max_gap_with_pings or 0.0) - (value.downstream_blocked or 0.0)
    if value.upstream_gap_with_pings is not None:  # nor is what our own loop slept through
        gap_s = min(gap_s, value.upstream_gap_with_pings)
    return max(0.0, gap_s)


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
            best=Grade.SUSPECTED,  # a process of the same user can stop ours
            failure=f"our own lag {seconds(lag)}",
            abort=True,
            silence_s=silence,
        )
    if silence >= limit:
        # A connection that was made for this attempt, or brought bytes in it, shows that the way there was open.
        way_open = value.ttfb is not None or (value.reused is False and value.connect is not None)
        return Fault(
            cause="model_api.stalled",
            blame=Blame.INFRA,
            best=Grade.PROVED if way_open else Grade.SUSPECTED,
            failure=said,
            abort=True,
            silence_s=silence,
            watchdog_s=limit,
        )
    unread_s = value.downstream_blocked or 0.0
    sentence = None
    if value.request_whole is False:
        said = "its request was never sent whole"
        sentence = "The client itself closed the call of step {step} before it had sent its request whole."
    elif unread_s >= READ_S:
        said = f"the client did not read for {seconds(unread_s)}"
        sentence = f"The client did not read step {{step}}'s reply for {seconds(unread_s)}, and then closed the call."
    pinged = _pinged(value, thresholds)
    if pinged is not None and sentence is None:
        return Fault(
            cause="harness.watchdog",
            blame=Blame.HARNESS,
            best=Grade.SUSPECTED if ends_with else Grade.PROVED,
            failure=f"the client closed it while pings were coming, {seconds(pinged)} after the last words",
            abort=True,
            with_end=ends_with or value.outcome == "proxy_shutdown",
            silence_s=silence,
            watchdog_s=limit,
        )
    # Bytes were coming when it closed: then the API was not what it waited for.
    flowing = value.ttfb is not None and value.silence_at_end is not None and value.silence_at_end < READ_S
    if flowing and sentence is None:
        sentence = (
            "The client itself closed the call for step {step}'s reply after {length} while bytes were still coming "
            "(longest silence {silence})."
        )
        proved = not ends_with
    else:
        proved = False
    return Fault(
        cause="harness.client_timeout",
        blame=Blame.HARNESS,
        best=Grade.PROVED if proved else Grade.SUSPECTED,
        failure=said,
        said=sentence,
        abort=True,
        with_end=ends_with or value.outcome == "proxy_shutdown",
        silence_s=silence,
        watchdog_s=limit,
    )


PING_SHARE: Final = 1 / 3
"""A silence of any bytes that is this part of the silence of words, or less, shows that pings still came."""


def _pinged(value: AttemptEnded, thresholds: Thresholds) -> float | None:
    """How long a reply had brought pings and no words when its client closed it, s; None when it was not so."""
    quiet, silence = value.quiet_at_end, value.silence_at_end
    if quiet is None or silence is None or not value.reply.pings or quiet < thresholds.quiet_s:
        return None
    return quiet if silence <= quiet * PING_SHARE else None


def _proxy_login(failure: str) -> Fault:
    """A key for the model API would not help: the login is the proxy's."""
    return Fault(
        cause="operator.auth",
        blame=Blame.OPERATOR,
        failure=failure,
        said="The proxy towards {upstream} wants a valid login ({failure}): {attempts} to get step {step}'s reply.",
        advice="Put user and password into the address that HTTPS_PROXY or HTTP_PROXY names, then run the trial again.",
    )


_REFUSED_LOGIN: Final = frozenset({"EACCES", "13"})


def _dial(value: AttemptEnded, *, answered_before: bool) -> Fault:
    error = _plain(value)
    if value.dial_stage == "proxy" or (value.via_proxy is not None and value.dial_stage in {"dns", "connect"}):
        if value.proxy_status == 407:
            return _proxy_login("it asked for credentials (407)")
        if value.errno in _REFUSED_LOGIN and value.dial_stage == "proxy":  # what a SOCKS proxy's refusal is told as
            return _proxy_login("it refused the login")
        said = f"proxy status {value.proxy_status}" if value.proxy_status is not None else f"no connection: {error}"
        return Fault(cause="network.proxy", blame=Blame.INFRA, best=Grade.SUSPECTED, fact=Grade.SUSPECTED, failure=said)
    if value.dial_stage == "tls":
        raw = (value.dial_error or "").upper()
        trust = any(word in raw for word in ("CERTIFICATE", "VERIFY", "SELF-SIGNED", "SELF SIGNED"))
        if trust and not answered_before:
            return Fault(cause="network.tls", blame=Blame.OPERATOR, best=Grade.SUSPECTED, failure=error)
        return Fault(cause="network.tls", blame=Blame.INFRA, best=Grade.SUSPECTED, fact=Grade.SUSPECTED, failure=error)
    stage = "its name did not resolve" if value.dial_stage == "dns" else "no connection"
    if answered_before:
        return Fault(
            cause="model_api.unreachable",
            blame=Blame.INFRA,
            best=Grade.SUSPECTED,
            fact=Grade.SUSPECTED,
            failure=f"{stage}: {error}",
        )
    return Fault(
        cause="operator.endpoint",
        blame=Blame.OPERATOR,
        best=Grade.PROVED if _tells(value, value.dial_error or error) else Grade.SUSPECTED,
        failure=f"{stage}: {error}",
    )


_WORDS: Final = (
    (r"certificate verify failed:? *([^(]*)", "certificate not accepted"),
    (r"refused", "connection refused"),
    (r"reset", "connection reset"),
    (r"timed? ?out", "timed out"),
    (r"name or service not known|nodename nor servname|no address associated", "name not known"),
)


def _plain(value: AttemptEnded) -> str:
    """Why a dial failed, in words; what has no words of ours stays as the system said it."""
    raw = value.dial_error or value.errno or "no reason given"
    for pattern, words in _WORDS:
        found = re.search(pattern, raw, re.IGNORECASE)
        if found is not None:
            more = clean(found.group(1)) if found.groups() else ""
            return f"{words}: {more}" if more else words
    return clean(raw)


def _tells(value: AttemptEnded, error: str) -> bool:
    """Whether a failed dial speaks of the address itself: the name does not exist, or nothing listens there."""
    if value.dial_stage == "dns":
        return not any(word in error.upper() for word in _PASSING)
    return "REFUSED" in error.upper() or value.errno in {"ECONNREFUSED", "111"}


def _no_head(value: AttemptEnded, *, answered_before: bool, ever: bool) -> Fault:
    how = clean(value.errno or value.close_kind or "closed")
    said = f"the connection ended before a response head ({how})"
    if answered_before or ever:
        best = _best_of_end(value)
        return Fault(cause="model_api.unreachable", blame=Blame.INFRA, best=best, fact=best, failure=said)
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
    if status == 404 and reply.error_type in _NOT_KNOWN and not reply.html:
        said = "The model API knows no such model or path ({statuses}): {attempts} to get step {step}'s reply failed."
        return Fault(
            cause="model_api.client_error", blame=Blame.OPERATOR, best=Grade.SUSPECTED, failure="status 404", said=said
        )
    if status == 404:
        return Fault(cause="operator.endpoint", blame=Blame.OPERATOR, failure="404: no such path or model")
    if status in {408, 504}:
        fact = Grade.SUSPECTED if status == 408 else Grade.PROVED
        return Fault(cause="model_api.timeout", blame=Blame.INFRA, best=Grade.SUSPECTED, fact=fact, failure=said)
    if status >= 500 and status not in _CLIENTS_STATUSES:
        return Fault(cause="model_api.server_error", blame=Blame.INFRA, failure=said)
    return Fault(cause="model_api.client_error", blame=Blame.HARNESS, best=Grade.SUSPECTED, failure=said)


def _best_of_end(value: AttemptEnded) -> Grade:
    """How well the far side is known to have ended a connection: not where this machine's own network could have, nor
    where its server is one of this machine's that is gone: any command can end that."""
    return Grade.SUSPECTED if value.errno in _LOCAL_ERRORS or value.far_listens is False else Grade.PROVED


def _cut(value: AttemptEnded) -> str:
    how = clean(value.close_kind or value.errno or "closed by the upstream")
    return f"cut by the upstream ({how})"
