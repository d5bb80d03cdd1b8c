"""Turns: what became of each model call of the trial, and what its failed attempts amount to.

In: a `Case`, its `Watch`, thresholds.  Out: one `Trouble` per turn and cause of failure, with its standing.
A *turn* is all calls that asked for the same step (a client may ask again with something changed), or one call of a
subagent or compaction.  What this module does not do: write sentences (`rules/`).

A turn that never completed is *terminal* if no later main call completed; it is *distorting* if the next request's
history had grown all the same: then the client took the broken reply, or its own error text, for an answer.  So is the
failed call of a subagent that never came back, also while the main agent spoke its last word beside it.  All else is
*recovered*.  Concurrent calls: a success counts as later only if it was begun after the failure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fairtrial.middleware.attribution.case import AttemptSeen, CallSeen, Case, unknown, upstream, yes
from fairtrial.middleware.attribution.coverage import Watch
from fairtrial.middleware.attribution.events import Standing
from fairtrial.middleware.attribution.faults import Fault, classify
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.core.records import Blame, PhaseName, Question
from fairtrial.middleware.steps.identity import NO_SESSION, session_key

_CITED: Final = 12

IMPATIENT: Final = 5
"""So many retries before their time make a client that does not keep to `retry-after`."""

OUTSIDE_CAUSES: Final[tuple[str, ...]] = ("model_api.", "gateway.", "network.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """All that was asked for one step, or one side call."""

    step: int | None
    phase: PhaseName
    calls: tuple[CallSeen, ...]
    attempts: tuple[AttemptSeen, ...]
    completed: bool
    started_ns: int
    ended_ns: int | None
    main: bool

    @property
    def in_flight(self) -> bool:
        """Began, and nobody saw an end."""
        return not self.completed and any(call.open_attempts for call in self.calls)

    @property
    def assistant_turns(self) -> int | None:
        return self.calls[-1].request.assistant_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The failed attempts of one turn that share a cause."""

    turn: Turn
    fault: Fault
    failed: tuple[AttemptSeen, ...]
    standing: Standing
    ended: Question
    why_present: str
    fell_back: tuple[str, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The attempts that are cited: all, or the first ones and the last of a long row."""
        cited = self.failed if len(self.failed) <= _CITED else (*self.failed[: _CITED - 1], self.failed[-1])
        return [a.placed.id for a in cited]

    @property
    def length_s(self) -> float:
        return max(0, self.failed[-1].ended_ns - self.failed[0].started_ns) / 1e9


def turns_of(case: Case) -> list[Turn]:
    """The main turns in order of start; probes and titles are in none."""
    groups: dict[object, list[CallSeen]] = {}
    for call in case.main_calls:
        key: object = ("step", call.step) if call.role == "step" and call.step is not None else call.id
        groups.setdefault(key, []).append(call)
    turns = [_turn(calls, main=calls[0].role == "step") for calls in groups.values()]
    return sorted(turns, key=lambda t: (t.started_ns, t.step or 0))


def _turn(calls: list[CallSeen], *, main: bool) -> Turn:
    attempts = tuple(sorted((a for c in calls for a in c.attempts), key=lambda a: (a.started_ns, a.placed.id)))
    ends = [c.ended_ns for c in calls]
    return Turn(
        step=calls[0].step,
        phase=calls[0].phase,
        calls=tuple(calls),
        attempts=attempts,
        completed=any(c.completed for c in calls),
        started_ns=calls[0].started_ns,
        ended_ns=None if any(e is None for e in ends) else max(e for e in ends if e is not None),
        main=main,
    )


def troubles_of(case: Case, turns: list[Turn], watch: Watch, thresholds: Thresholds) -> list[Trouble]:
    """Every failure of every turn, in order."""
    grace_ns = round(thresholds.end_grace_s * 1e9)
    deaths = case.deaths_ns
    last_success = max((a.started_ns for t in turns for a in t.attempts if a.whole), default=None)
    served = {upstream(a.value) for turn in turns for a in turn.attempts if a.whole}
    found: list[Trouble] = []
    for position, turn in enumerate(turns):
        faults: list[tuple[AttemptSeen, Fault]] = []
        for attempt in turn.attempts:
            if attempt.whole:
                continue
            near = bisect_left(deaths, attempt.ended_ns - grace_ns)
            died = near < len(deaths) and deaths[near] <= attempt.ended_ns + grace_ns
            # Behind `serve` there is no command whose end could explain it: what fairtrial cut there, it cut.
            ends_with = died or (not case.behind_serve and case.near_end(attempt.ended_ns, thresholds.end_grace_s))
            fault = classify(
                attempt,
                answered_at_ns=case.heads.get(upstream(attempt.value)),
                ends_with=ends_with,
                thresholds=thresholds,
                served=upstream(attempt.value) in served,
                suspended_s=case.suspended_s(attempt.started_ns, attempt.ended_ns),
            )
            if fault is not None:
                faults.append((attempt, fault))
        if not faults:
            continue
        if turn.completed:
            found.extend(_recovered(turn, faults))
        else:
            found.append(_failed(turn, faults, turns[position + 1 :], last_success, watch))
    return found


def _recovered(turn: Turn, faults: list[tuple[AttemptSeen, Fault]]) -> list[Trouble]:
    """Failures before the turn's whole reply, one per cause; a client that gave something up for it is still bent."""
    gave_up = tuple(sorted({change for call in turn.calls for change in call.fell_back} - {"non_streaming"}))
    found: list[Trouble] = []
    for cause in dict.fromkeys(fault.cause for _, fault in faults):
        mine = [(a, f) for a, f in faults if f.cause == cause]
        bent = gave_up if cause.startswith(OUTSIDE_CAUSES) and mine[0][1].cause != "model_api.client_error" else ()
        ids = [a.placed.id for a, _ in mine]
        found.append(
            Trouble(
                turn=turn,
                fault=mine[-1][1],
                failed=tuple(a for a, _ in mine),
                standing=Standing.DISTORTING if bent else Standing.RECOVERED,
                ended=yes(ids) if bent else unknown(ids),
                why_present="a later attempt of the same call succeeded",
                fell_back=bent,
            )
        )
    return found


def _failed(
    turn: Turn,
    faults: list[tuple[AttemptSeen, Fault]],
    later: list[Turn],
    last_success: int | None,
    watch: Watch,
) -> Trouble:
    own = [fault for _, fault in faults if not fault.with_end] or [fault for _, fault in faults]
    fault = own[-1]
    failed = tuple(a for a, f in faults if f.cause == fault.cause)
    ids = [a.placed.id for a in failed]
    ended_ns = turn.ended_ns if turn.ended_ns is not None else failed[-1].ended_ns
    succeeded_later = last_success is not None and last_success >= ended_ns
    beside = _went_on_beside(turn, later)
    if not succeeded_later and not beside:
        gap = watch.door_gap(turn.started_ns)
        return Trouble(
            turn=turn,
            fault=fault,
            failed=failed,
            standing=Standing.TERMINAL,
            ended=yes(ids) if gap is None else unknown([*ids, gap.id]),
            why_present="no later model call succeeded",
        )
    following = next((t for t in later if t.main), None)
    asked, asks = turn.assistant_turns, following.assistant_turns if following is not None else None
    if turn.main and following is not None and asked is not None and asks is not None and asks > asked:
        taken = [*ids, *following.calls[0].ids[:1]]
        return Trouble(
            turn=turn,
            fault=fault,
            failed=failed,
            standing=Standing.DISTORTING,
            ended=yes(taken),
            why_present="the client took the broken reply for an answer and went on",
        )
    if (
        turn.main
        and following is not None
        and _another_prompt(turn, following)
        and fault.cause.startswith(OUTSIDE_CAUSES)
    ):
        return Trouble(
            turn=turn,
            fault=fault,
            failed=failed,
            standing=Standing.DISTORTING,
            ended=unknown(ids),
            why_present="the client went on with another prompt and without this reply",
        )
    gave_up = () if following is None else tuple(sorted(following.calls[0].fell_back - {"non_streaming"}))
    if turn.main and gave_up and fault.cause.startswith(OUTSIDE_CAUSES) and fault.cause != "model_api.client_error":
        return Trouble(
            turn=turn,
            fault=fault,
            failed=failed,
            standing=Standing.DISTORTING,
            ended=yes([*ids, *(following.calls[0].ids[:1] if following is not None else ())]),
            why_present="the client gave the turn up and went on with something given up",
            fell_back=gave_up,
        )
    lost = turn.calls[0].role == "subagent" and not any(_same_agent(turn, t) and t.completed for t in later)
    # What fairtrial broke itself is never without weight: a direct connection would not have had it.
    lost = lost or fault.blame is Blame.FAIRTRIAL
    return Trouble(
        turn=turn,
        fault=fault,
        failed=failed,
        standing=Standing.DISTORTING if lost else Standing.RECOVERED,
        ended=unknown(ids),
        why_present="the main agent went on without its subagent" if lost else "a later call succeeded",
    )


def _went_on_beside(turn: Turn, later: Sequence[Turn]) -> bool:
    """A subagent's turn that failed while the main agent asked on, and said its last word without waiting for it."""
    if turn.main or turn.calls[0].role != "subagent":
        return False
    mains = [t for t in later if t.main]
    if not mains or not mains[-1].completed or mains[-1].started_ns <= turn.attempts[0].started_ns:
        return False
    return not any(a.value.reply.tool_calls for a in mains[-1].attempts if a.whole)


def _another_prompt(turn: Turn, following: Turn) -> bool:
    """The next main call is of another conversation: nobody asked for this reply again."""
    one, other = turn.calls[-1].request, following.calls[0].request
    firsts = (one.first_user_digest, other.first_user_digest)
    return None not in firsts and firsts[0] != firsts[1] and session_key(one) == session_key(other) == NO_SESSION


def _same_agent(one: Turn, other: Turn) -> bool:
    """Whether two turns are of the same subagent: by the client's own id, else by the conversation's first message."""
    a, b = one.calls[0].request, other.calls[0].request
    if a.agent is not None or b.agent is not None:
        return a.agent == b.agent
    return a.first_user_digest is not None and a.first_user_digest == b.first_user_digest


def impatient(attempts: Sequence[AttemptSeen]) -> list[AttemptSeen]:
    """Attempts that came before the time that the reply before them had asked to wait."""
    early: list[AttemptSeen] = []
    for before, after in pairwise(attempts):
        asked = before.value.reply.retry_after
        if asked is not None and (after.started_ns - before.ended_ns) / 1e9 < asked - max(0.1, 0.1 * asked):
            early.append(after)
    return early
