"""Folding: HTTP attempts become logical model calls.

In: `attempt.started` and `attempt.ended` values of one trial.  Out: `FoldedCall`s in order of their first attempt,
each with its attempts in order.  What this module does not do: say which calls are steps (`roles.py`, `opened.py`).

An attempt joins a call when the call's last attempt had ended without a whole reply before it began, and
- the client's own call key is the same, or
- the body is the same but for the fields that clients flip on a retry, or
- it asks for the same turn of the same conversation within the time in which clients retry (120 s, or twice the
  `retry-after` that was sent) with something else changed: the model, the tools, the limits.
The same body after a *whole* reply is a new call (resampling): it says of which it is a `duplicate_of`.  Attempts that
overlap in time are kept apart: the later one is the `concurrent_duplicate` of the earlier (hedging).
`x-stainless-retry-count` only lifts the time bound: Claude Code always sends 0, nested retry loops restart it.
How it can be wrong: a client that gives up and asks exactly the same again as a new decision is folded into one call;
the cost is one step too few, and every attempt is still listed.

**Source:** reference pages harnesses.md section 6, model-api.md section 3.3.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, ReplyFacts, RequestFacts
from fairtrial.middleware.core.records import Attempt, Call, CallOutcome, CallRole
from fairtrial.middleware.steps.identity import same_history, session_key

OBEYED_GRACE_S: Final = 0.1
"""Clocks, and a `retry-after` in whole seconds: a wait this much shorter still kept to it."""

MAX_RECENT: Final = 8
"""Calls kept for each thing that a retry may have in common with them."""

RETRY_WINDOW_S: Final = 120.0
"""How long after a failed attempt a *changed* request for the same turn still counts as its retry."""

_LIVE: Final = 1 << 63
"""End time (ns) of an attempt whose end was not seen: later than any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Which agent of the trial made a call; agents are called by their first call's id, the main agent is None."""

    agent: str | None = None
    parent: str | None = None
    spawned_by: str | None = None
    """The call whose reply set the tool to work that the agent runs in."""


MAIN_AGENT: Final = Lineage()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAttempt:
    """One attempt as far as it was seen; `outcome` is None while (or because) its end was not."""

    id: str
    observation: str
    started_wall_ns: int
    ended_wall_ns: int | None
    outcome: CallOutcome | None
    facts: AttemptEnded

    @property
    def request(self) -> RequestFacts:
        return self.facts.request

    @property
    def reply(self) -> ReplyFacts:
        return self.facts.reply


@dataclass(slots=True, kw_only=True)
class FoldedCall:
    """Attempts that were one logical call."""

    attempts: list[SeenAttempt]
    fell_back: list[str] = field(default_factory=list[str])
    duplicate_of: str | None = None
    """Id of the call that had the same body and a whole reply before this one began."""
    concurrent_duplicate: str | None = None
    """Id of the call that had the same body and was in flight when this one began."""

    @property
    def id(self) -> str:
        return self.attempts[0].id

    @property
    def request(self) -> RequestFacts:
        """Of the last attempt whose body came."""
        requests = (attempt.request for attempt in reversed(self.attempts))
        return next((each for each in requests if not _bodiless(each)), self.attempts[-1].request)

    @property
    def reply(self) -> ReplyFacts:
        return self.attempts[-1].reply

    @property
    def started_wall_ns(self) -> int:
        return self.attempts[0].started_wall_ns

    @property
    def ended_wall_ns(self) -> int | None:
        return self.attempts[-1].ended_wall_ns

    @property
    def outcome(self) -> CallOutcome | None:
        return self.attempts[-1].outcome

    @property
    def completed(self) -> bool:
        return self.outcome == "ok"

    def give_up(self, found: Iterable[str]) -> None:
        """Note what its client gave up, once each."""
        self.fell_back.extend(change for change in found if change not in self.fell_back)


def seen(value: AttemptStarted | AttemptEnded, *, observation: str, wall_ns: int) -> SeenAttempt:
    """An attempt from one of its two observations; `wall_ns` is the observation's own time."""
    if isinstance(value, AttemptEnded):
        started = value.started_wall_ns or wall_ns
        length_ns = max(0, value.ended_ns - value.started_ns) if value.ended_ns and value.started_ns else 0
        return SeenAttempt(
            id=value.attempt,
            observation=observation,
            started_wall_ns=started,
            ended_wall_ns=started + length_ns if length_ns else max(started, wall_ns),
            outcome=value.outcome,
            facts=value,
        )
    facts = AttemptEnded(
        attempt=value.attempt,
        conn=value.conn,
        msg=value.msg,
        door=value.door,
        provider=value.provider,
        dialect=value.dialect,
        upstream_host=value.upstream_host,
        method=value.method,
        path=value.path,
        request=value.request,
        container_id=value.container_id,
        parse="none",
        parse_why="the end of this attempt was not seen",
    )
    return SeenAttempt(
        id=value.attempt,
        observation=observation,
        started_wall_ns=wall_ns,
        ended_wall_ns=None,
        outcome=None,
        facts=facts,
    )


def fold(attempts: Iterable[SeenAttempt]) -> list[FoldedCall]:
    """Fold attempts into calls; the order of the input does not matter."""
    ordered = sorted(attempts, key=lambda a: (a.started_wall_ns, a.facts.conn, a.facts.msg, a.id))
    calls: list[FoldedCall] = []
    # The latest calls for each thing that a retry may have in common with them.
    recent: dict[tuple[Hashable, ...], list[FoldedCall]] = {}
    for attempt in ordered:
        keys = _keys(attempt)
        call = next((found for key in keys if (found := _retried(recent.get(key, []), attempt, key)) is not None), None)
        if call is not None:
            _note_change(call, attempt)
            call.attempts.append(attempt)
        else:
            call = FoldedCall(attempts=[attempt])
            calls.append(call)
            _note_twin(call, [c for key in keys if key[0] == "body" for c in recent.get(key, [])])
        for key in keys:
            if key[0] == "head" and not (_bodiless(attempt.request) or _unanswered(attempt)):
                continue  # what was read and answered is compared by what it says
            known = recent.setdefault(key, [])
            if not any(call is other for other in known):
                known.append(call)
                del known[:-MAX_RECENT]
    return calls


def _retried(known: list[FoldedCall], attempt: SeenAttempt, key: tuple[Hashable, ...]) -> FoldedCall | None:
    """The call of which this is the next attempt, the newest first; behind one that was answered there is none.

    A head alone (`key`) ties only where one of the two bodies never came: two that were read are of their sessions.
    """
    for call in reversed(known):
        bare = _bodiless(call.attempts[-1].request) or _bodiless(attempt.request)
        if (bare or key[0] != "head") and _continues(call, attempt):
            return call
        if call.completed and attempt.started_wall_ns >= (call.ended_wall_ns or _LIVE):
            return None
    return None


def _note_twin(call: FoldedCall, alike: list[FoldedCall]) -> None:
    """Whether the same was asked before, and answered, or is being asked."""
    if call.request.operation != "chat":
        return
    began = call.started_wall_ns
    for other in reversed(alike):
        ended = other.ended_wall_ns
        if ended is None:
            continue
        if ended > began:
            call.concurrent_duplicate = call.concurrent_duplicate or other.id
        elif other.completed:
            call.duplicate_of = call.duplicate_of or other.id


def _keys(attempt: SeenAttempt) -> list[tuple[Hashable, ...]]:
    request = attempt.request
    scope = (session_key(request), request.agent, request.operation)
    keys: list[tuple[Hashable, ...]] = []
    if request.call_key is not None:
        keys.append(("key", *scope, request.call_key))
    body = request.body_digest or request.raw_digest
    if body is not None:
        keys.append(("body", *scope, body))
    if request.message_digests:
        keys.append(("turn", *scope, request.history_len, request.message_digests[-1]))
    if _bodiless(request) or (request.retry_count or 0) > 0 or _unanswered(attempt):
        keys.append(("head", attempt.facts.method, attempt.facts.path))
    return keys


def _bodiless(request: RequestFacts) -> bool:
    """The connection was lost (an upstream that is not there) before the client had sent its body."""
    return not request.message_digests and (request.body_digest or request.raw_digest) is None


def _unanswered(attempt: SeenAttempt) -> bool:
    """It failed before any reply: the client's next one may fail before its body is there."""
    return attempt.outcome not in {"ok", None} and attempt.reply.status is None


def _continues(call: FoldedCall, attempt: SeenAttempt) -> bool:
    last = call.attempts[-1]
    if last.outcome in {"ok", None, "proxy_shutdown"}:
        return False
    if attempt.started_wall_ns < (last.ended_wall_ns or _LIVE):
        return False
    one, other = last.request, attempt.request
    if one.call_key is not None and one.call_key == other.call_key:
        return True
    body = one.body_digest or one.raw_digest
    if body is not None and body == (other.body_digest or other.raw_digest):
        return True
    if _bodiless(one) or _bodiless(other):
        if None not in {one.session, other.session} and one.session != other.session:
            return False
        # Nothing of one was read but its head: the client's own counter, one higher and at once, is what is left.
        if (other.retry_count or 0) != (one.retry_count or 0) + 1 or last.reply.status is not None:
            return False
    elif not same_history(one, other):
        return False
    elif (other.retry_count or 0) > 0:
        return True
    waited_s = (attempt.started_wall_ns - (last.ended_wall_ns or 0)) / 1e9
    return waited_s <= max(RETRY_WINDOW_S, 2 * (last.reply.retry_after or 0.0))


def changes(before: RequestFacts, after: RequestFacts) -> list[str]:
    """What a client gave up when it asked again, in the order in which clients do."""
    found: list[str] = []
    if before.stream and after.stream is False:
        found.append("non_streaming")
    if before.model != after.model and after.model is not None:
        found.append("model")
    if before.max_tokens is not None and after.max_tokens is not None and after.max_tokens < before.max_tokens:
        found.append("max_tokens")
    if before.tools_digest != after.tools_digest:
        found.append("capability")
    return found


def _note_change(call: FoldedCall, attempt: SeenAttempt) -> None:
    """What the client gave up on this retry, in the order in which it was given up."""
    before, after = call.attempts[-1].request, attempt.request
    if _bodiless(before) or _bodiless(after):
        return
    found = changes(before, after)
    digests = (before.body_digest, after.body_digest)
    if not found and None not in digests and digests[0] != digests[1]:
        found.append("capability")
    call.give_up(found)


def call_record(call: FoldedCall, role: CallRole, kin: Lineage = MAIN_AGENT) -> Call:
    """The call as `fairtrial.trial/1` holds it; its id is its first attempt's."""
    last = call.attempts[-1]
    facts, reply = last.facts, last.reply
    ended = last.ended_wall_ns
    return Call(
        id=call.id,
        role=role,
        dialect=facts.dialect,
        provider=facts.provider,
        upstream_host=facts.upstream_host,
        model=reply.model or call.request.model,
        stream=call.request.stream,
        outcome=last.outcome,
        ttft=facts.first_token,
        duration=None if ended is None else round((ended - call.started_wall_ns) / 1e9, 6),
        max_gap=_max(a.facts.max_gap for a in call.attempts),
        max_gap_with_pings=_max(a.facts.max_gap_with_pings for a in call.attempts),
        downstream_blocked=_sum(a.facts.downstream_blocked for a in call.attempts),
        our_lag=_max(a.facts.our_lag for a in call.attempts),
        upstream_gap=_max(a.facts.upstream_gap for a in call.attempts),
        upstream_gap_with_pings=_max(a.facts.upstream_gap_with_pings for a in call.attempts),
        backoff=_sum(_wait_s(one, other) for one, other in pairwise(call.attempts)),
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cache_read_tokens=reply.cache_read_tokens,
        cache_write_tokens=reply.cache_write_tokens,
        stop_reason=reply.stop_reason,
        fell_back=",".join(call.fell_back) or None,
        duplicate_of=call.duplicate_of,
        concurrent_duplicate=call.concurrent_duplicate,
        agent=kin.agent,
        parent_agent=kin.parent,
        body_digest=call.request.body_digest,
        spawned_by=kin.spawned_by,
        container_id=facts.container_id,
        attempts=[
            _attempt_record(attempt, call.attempts[i - 1] if i else None) for i, attempt in enumerate(call.attempts)
        ],
    )


def _attempt_record(attempt: SeenAttempt, previous: SeenAttempt | None) -> Attempt:
    facts = attempt.facts
    waited = None if previous is None else _wait_s(previous, attempt)
    asked = None if previous is None else previous.reply.retry_after
    return Attempt(
        status=facts.reply.status,
        error_type=facts.reply.error_type,
        outcome=attempt.outcome,
        started=rfc3339(attempt.started_wall_ns),
        wait_before=waited,
        retry_after_obeyed=None if waited is None or asked is None else waited >= asked - OBEYED_GRACE_S,
        dns=facts.dns,
        connect=facts.connect,
        tls=facts.tls,
        ttfb=facts.ttfb,
        first_token=facts.first_token,
        duration=facts.duration,
        retry_after=facts.reply.retry_after,
        request_id=facts.reply.request_id,
        framing_cut=facts.framing_cut,
        first_failure=facts.first_failure,
        errno=facts.errno,
        closed_by=facts.closed_by,
        close_kind=facts.close_kind,
        via_proxy=facts.via_proxy,
        remote=facts.remote,
        bytes_up=facts.bytes_up,
        bytes_down=facts.bytes_down,
        observation=attempt.observation,
        key=facts.request.key,
        per_key=True if "per_key" in facts.reply.error_names else None,
    )


def _wait_s(before: SeenAttempt, after: SeenAttempt) -> float | None:
    """From the end of one attempt to the begin of the next."""
    if before.ended_wall_ns is None:
        return None
    return round(max(0, after.started_wall_ns - before.ended_wall_ns) / 1e9, 6)


def _max(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(sum(known), 6) if known else None
