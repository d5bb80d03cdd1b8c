"""Which trial a request belongs to, when many clients share a door.

In: `Claims` of requests in the order in which they came, and how their attempts ended.  Out: one `Assigned` each, and
the implicit trials that were opened and closed.  Pure: no clock, no I/O; time comes with the claims, ids from
`new_trial`.  What this module does not do: read headers or bodies (`wire/session.py`, `wire/dialects`), fold attempts,
or say which agent within a trial spoke (`kinship.py`).

The first hit decides:
1. a known token in the path; an unknown one is no token;
2. a name that the client gave, by header or baggage;
3. a key that was configured as an alias of a trial;
4. an id that was seen with a trial before (a session's, a parent's, a call's, an earlier response's);
5. the peer: a container or host that was given to a trial;
6. an id of a session that was not seen before: it opens an implicit trial;
7. the conversation: the longest known one that this request extends, else a new implicit trial.
A `traceparent` decides nothing: it changes on a reconnect and with each prompt.  An implicit trial closes after
`idle_s` without a request.

Names, ids and conversations are the client's own words, so they count within one *tenant* only: the same key and the
same peer.  Whoever has neither the token nor the key of an explicit trial cannot get into it by naming its session.
What could be one trial or another is given to none and counted.

How it can be wrong: a key that is renewed in the middle of an implicit trial (OAuth) parts it in two; two agents of one
key, host and static `prompt_cache_key` are one trial; a client without ids whose history is compacted begins anew.

**Source:** reference page model-api.md section 3.1.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.claims import Assigned, Claims, Opened
from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.core.observations import ReplyFacts
from fairtrial.middleware.steps.conversations import Conversations, Tenant, Thread

IDLE_S: Final = 1800.0
MAX_IMPLICIT: Final = 4096
MAX_IDS: Final = 1024
"""Ids of sessions kept of one trial; the oldest are forgotten."""
MAX_PASSING: Final = 65_536
"""Ids of calls, responses and traces kept of all trials."""
MAX_TENANTS: Final = 64
"""Tenants remembered of one explicit trial."""

_CODEX: Final = frozenset(
    {"session-id", "session_id", "thread-id", "conversation_id", "x-codex-turn-metadata", "prompt_cache_key", "agent"}
)
"""One id under several names: Codex calls its thread by each of them, and a subagent's parent by the same."""

_PASSING: Final = frozenset({"x-irid", "previous_response_id"})
"""Ids of one call or one response: they lead to a trial that is known, and open none."""

_Key = tuple[Tenant, str, str]
"""(tenant, kind, digest)."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Trial:
    id: str
    explicit: bool
    last_ns: int
    live: int = 0
    """Attempts that have not ended."""
    over: bool = False
    tenants: set[Tenant] = field(default_factory=set[Tenant])
    keys: OrderedDict[_Key, None] = field(default_factory=OrderedDict["_Key", None])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedTrial:
    """An implicit trial that is over; `last_ns`: its last request, CLOCK_MONOTONIC."""

    trial: str
    why: str
    """idle | evicted | told | end."""
    last_ns: int


@dataclass(frozen=True, slots=True)
class _Found:
    """A decision: the trial and how, or why it must be none; all None: nothing decides so far."""

    trial: _Trial | None = None
    how: str | None = None
    why: str | None = None
    thread: Thread[_Trial] | None = None


_NOTHING: Final = _Found()


class TrialResolver:
    """See the module.  Satisfies `core.claims.Assigns`.

    `tokens`, `aliases` (keyed digest of a key → trial) and `peers` (address → trial) are looked up at each request, so
    their owner may change them.  `implicit`: whether clients' own words count at all; without it only these three
    decide, which is what one trial under `run` needs.  `on_opened` is told of each implicit trial before its first
    request is assigned.
    """

    def __init__(
        self,
        *,
        tokens: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        peers: Mapping[str, str] | None = None,
        implicit: bool = False,
        idle_s: float = IDLE_S,
        max_implicit: int = MAX_IMPLICIT,
        new_trial: Callable[[], str] = new_id,
        on_opened: Opened | None = None,
    ) -> None:
        self._tokens = tokens
        self._aliases: Mapping[str, str] = {} if aliases is None else aliases
        self._peers: Mapping[str, str] = {} if peers is None else peers
        self._implicit = implicit
        self._idle_ns = round(idle_s * 1e9)
        self._max_implicit = max_implicit
        self._new_trial = new_trial
        self._on_opened = on_opened
        self._explicit: dict[str, _Trial] = {}
        self._open: OrderedDict[str, _Trial] = OrderedDict()
        """Implicit trials, the one that was silent longest first."""
        self._by_key: dict[_Key, _Trial | None] = {}
        """None: two live trials claimed it, so it leads to neither."""
        self._passing: OrderedDict[_Key, _Trial] = OrderedDict()
        self._conversations: Conversations[_Trial] = Conversations()
        self._live: dict[str, tuple[_Trial | None, Thread[_Trial] | None, Tenant]] = {}
        self._closed: list[ClosedTrial] = []
        self._now_ns = 0
        self.unassigned: Counter[str] = Counter()
        """Requests given to no trial, by why."""

    @property
    def open_trials(self) -> tuple[str, ...]:
        """Implicit trials that are not over."""
        return tuple(self._open)

    # --- requests -----------------------------------------------------------------------------------------------------

    def resolve(self, claims: Claims) -> Assigned:
        """Decide about one request; never raises for what a client sent."""
        self._now_ns = max(self._now_ns, claims.at_ns)
        self._expire()
        tenant = (claims.key, claims.peer)
        found = self._decide(claims, tenant)
        if found.trial is None:
            why = found.why or "no_identity"
            self.unassigned[why] += 1
            self._live[claims.attempt] = (None, None, tenant)
            return Assigned(why=why, hint=self._hint(claims, tenant))
        trial, thread = found.trial, found.thread
        if self._implicit:
            self._remember(trial, claims, tenant)
            if thread is None:
                thread = self._conversations.follow(claims.request, tenant, trial, self._now_ns)
        trial.last_ns = self._now_ns
        trial.live += 1
        if not trial.explicit:
            self._open.move_to_end(trial.id)
        self._live[claims.attempt] = (trial, thread, tenant)
        return Assigned(trial=trial.id, how=found.how)

    def ended(self, attempt: str, reply: ReplyFacts, *, whole: bool) -> None:
        """The attempt is over: its response's id leads to its trial from now on."""
        trial, thread, tenant = self._live.pop(attempt, (None, None, (None, None)))
        if thread is not None:
            thread.ended(whole=whole)
        if trial is None:
            return
        trial.live -= 1
        if self._implicit and reply.response_id is not None:
            self._pass((tenant, "previous_response_id", reply.response_id), trial)

    def _decide(self, claims: Claims, tenant: Tenant) -> _Found:
        if claims.token is not None and (known := self._tokens.get(claims.token)) is not None:
            return _Found(self._given(known), "token")
        if self._implicit:
            for how, name in (("header", claims.named), ("baggage", claims.baggage)):
                if name:
                    return _of(self._by_name(name, tenant), how)
        if claims.key is not None and (known := self._aliases.get(claims.key)) is not None:
            return _Found(self._given(known), "key_alias")
        met = self._by_id(claims, tenant) if self._implicit else _NOTHING
        if met.trial is not None:
            return met
        if claims.peer is not None and (known := self._peers.get(claims.peer)) is not None:
            return _Found(self._given(known), "peer")
        if met.why is not None or not self._implicit:
            return met
        for kind, _ in claims.ids:
            if kind not in _PASSING:
                return _of(self._begin(None), f"id:{kind}")
        return self._by_history(claims, tenant)

    def _by_name(self, name: str, tenant: Tenant) -> _Trial | None:
        explicit = self._explicit.get(name)
        if explicit is not None and tenant[0] is not None and tenant in explicit.tenants:
            # The id of an explicit trial, said by a tenant that has shown its token or key: no new claim.
            return explicit
        known = self._by_key.get((tenant, "name", name)) or self._begin(name)
        if known is not None:
            self._bind((tenant, "name", name), known)
        return known

    def _by_id(self, claims: Claims, tenant: Tenant) -> _Found:
        contested = False
        for kind, value in (*claims.ids, *claims.parents):
            if kind in _PASSING:
                known = self._passing.get((tenant, kind, value))
            else:
                key = (tenant, _space(kind), value)
                known = self._by_key.get(key)
                contested = contested or (known is None and key in self._by_key)
            if known is not None and not known.over and _may_join(known, claims):
                return _Found(known, f"id:{kind}")
        return _Found(why="contested") if contested else _NOTHING

    def _by_history(self, claims: Claims, tenant: Tenant) -> _Found:
        request = claims.request
        place = self._conversations.find(request, tenant, self._now_ns)
        if place.why is not None:
            return _Found(why=place.why)
        thread = place.thread
        if thread is None:
            trial = self._begin(None)
            if trial is None:
                return _Found(why="full")
            return _Found(trial, "history", None, self._conversations.begin(request, tenant, trial, self._now_ns))
        if thread.owner is None or not _may_join(thread.owner, claims):
            return _Found(why="contested")
        thread.advance(request)
        return _Found(thread.owner, "history", None, thread)

    def _given(self, trial_id: str) -> _Trial:
        trial = self._explicit.get(trial_id)
        if trial is None:
            trial = self._explicit[trial_id] = _Trial(id=trial_id, explicit=True, last_ns=self._now_ns)
        return trial

    def _begin(self, name: str | None) -> _Trial | None:
        """Open an implicit trial; None when there are too many that are alive."""
        if len(self._open) >= self._max_implicit:
            silent = next((trial for trial in self._open.values() if not trial.live), None)
            if silent is None:
                return None
            self._close(silent, "evicted")
        trial = _Trial(id=self._new_trial(), explicit=False, last_ns=self._now_ns)
        self._open[trial.id] = trial
        if self._on_opened is not None:
            self._on_opened(trial.id, name)
        return trial

    # --- what is remembered -------------------------------------------------------------------------------------------

    def _remember(self, trial: _Trial, claims: Claims, tenant: Tenant) -> None:
        if len(trial.tenants) < MAX_TENANTS:
            trial.tenants.add(tenant)
        for kind, value in claims.ids:
            if kind not in _PASSING:
                self._bind((tenant, _space(kind), value), trial)
            elif kind != "previous_response_id":
                self._pass((tenant, kind, value), trial)
        if claims.trace is not None:
            self._pass((tenant, "trace", claims.trace), trial)

    def _bind(self, key: _Key, trial: _Trial) -> None:
        """A session that goes on in another trial leads there; while both are live it leads to neither."""
        if key in self._by_key and (known := self._by_key[key]) is not trial:
            if known is None:
                return
            known.keys.pop(key, None)
            if known.live:
                self._by_key[key] = None
                trial.keys[key] = None
                return
        self._by_key[key] = trial
        trial.keys[key] = None
        trial.keys.move_to_end(key)
        while len(trial.keys) > MAX_IDS:
            oldest, _ = trial.keys.popitem(last=False)
            self._by_key.pop(oldest, None)

    def _pass(self, key: _Key, trial: _Trial) -> None:
        self._passing[key] = trial
        self._passing.move_to_end(key)
        if len(self._passing) > MAX_PASSING:
            self._passing.popitem(last=False)

    def _hint(self, claims: Claims, tenant: Tenant) -> str | None:
        trial = self._passing.get((tenant, "trace", claims.trace)) if claims.trace is not None else None
        return None if trial is None or trial.over else trial.id

    # --- ends ---------------------------------------------------------------------------------------------------------

    def sweep(self, now_ns: int) -> list[ClosedTrial]:
        """Close what has been idle too long at `now_ns` (CLOCK_MONOTONIC); returns all closed since the last call."""
        self._now_ns = max(self._now_ns, now_ns)
        self._expire()
        closed, self._closed = self._closed, []
        return closed

    def close(self) -> list[ClosedTrial]:
        """The observing ends: every implicit trial is over."""
        for trial in tuple(self._open.values()):
            self._close(trial, "end")
        closed, self._closed = self._closed, []
        return closed

    def forget(self, trial_id: str) -> None:
        """Somebody says that a trial is over: an explicit one, whose token, alias and peer its owner has taken away, or
        an implicit one, which the next `sweep` then tells."""
        trial = self._explicit.pop(trial_id, None)
        if trial is not None:
            self._unbind(trial)
        elif trial_id in self._open:
            self._close(self._open[trial_id], "told")

    def _expire(self) -> None:
        oldest_ns = self._now_ns - self._idle_ns
        for trial in self._silent_since(oldest_ns):
            self._close(trial, "idle")
        self._conversations.expire(oldest_ns)

    def _silent_since(self, oldest_ns: int) -> list[_Trial]:
        silent: list[_Trial] = []
        for trial in self._open.values():
            if trial.last_ns >= oldest_ns:
                break
            if not trial.live:
                silent.append(trial)
        return silent

    def _close(self, trial: _Trial, why: str) -> None:
        del self._open[trial.id]
        self._unbind(trial)
        self._closed.append(ClosedTrial(trial=trial.id, why=why, last_ns=trial.last_ns))

    def _unbind(self, trial: _Trial) -> None:
        trial.over = True
        for key in trial.keys:
            self._by_key.pop(key, None)
        self._conversations.drop(trial)


def _of(trial: _Trial | None, how: str) -> _Found:
    return _Found(trial, how) if trial is not None else _Found(why="full")


def _may_join(trial: _Trial, claims: Claims) -> bool:
    """An id is the client's word: without a key, whoever sits at the same address could say it."""
    return not trial.explicit or claims.key is not None


def _space(kind: str) -> str:
    return "codex" if kind in _CODEX else kind
