"""Turns the trouble of a model call into an event with a sentence; shared by the rules whose causes the door sees.

In: a `Trouble` and the `Context`.  Out: an `Event`.  What this module does not do: choose the cause (`faults.py`) or
the standing (`calls.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fairtrial.middleware.attribution.calls import IMPATIENT, Trouble, impatient
from fairtrial.middleware.attribution.case import AttemptSeen, evidence, no, unknown, upstream, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.ended_as import KILLED_CODES
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.sentences import clean, count, fill, listed, often, seconds, size, statuses
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Evidence, Grade, Trust

BARE_TOOLS: Final = ("curl", "wget", "python-urllib", "python-requests", "httpie", "go-http-client")
"""User agents of programs that a tool of the agent is as likely to run as somebody's own agent is to be."""

POISON: Final = "model_api.poison_request"
POISON_TIMES: Final = 3
_MINUTE_NS: Final = 60_000_000_000

_SHOWN: Final = 4
"""Attempts cited one by one; the rest are counted."""


_STRANGER: Final = (
    "The process that asked is none of the run's, as the agent's is, so nobody can say if it was a part of the agent"
)


def call_event(ctx: Context, trouble: Trouble, *, told: Mapping[str, str | None] | None = None) -> Event:
    """The event that a call's failed attempts add up to; `told`: facts of the rule's own for the cause's template."""
    turn, standing = trouble.turn, trouble.standing
    if standing is Standing.RECOVERED:
        return _recovered(trouble)
    poison = trouble.fault.blame is Blame.INFRA and standing is Standing.TERMINAL and poisoned(ctx, trouble)
    if poison and trouble.fault.cause == "model_api.server_error":
        trouble = replace(trouble, fault=replace(trouble.fault, cause=POISON, best=Grade.SUSPECTED, said=None))
    fault = trouble.fault
    cause = CAUSES[fault.cause]
    last = trouble.failed[-1]
    failed = [a for a in turn.attempts if not a.whole]
    facts = {
        "attempts": count(len(failed), "attempt"),
        "seconds": seconds(max(0, failed[-1].ended_ns - failed[0].started_ns) / 1e9),
        "times": often(len(trouble.failed)),
        "watchdog": seconds(fault.watchdog_s),
        "length": seconds(last.length_s),
        "statuses": _statuses(trouble),
        "step": None if turn.step is None else str(turn.step),
        "upstream": clean(upstream(last.value)) or None,
        "failure": fault.failure,
        "silence": seconds(fault.silence_s),
        "lag": seconds(last.value.our_lag),
        "bytes_down": size(last.value.bytes_down),
        "error_type": clean(last.value.reply.error_type or "") or None,
        "quiet": seconds(last.value.quiet_at_end),
        **(told or {}),
    }
    sentence = fill(fault.said or cause.template, {k: v for k, v in facts.items() if v})
    if standing is Standing.TERMINAL:
        # A client that was stopped had not given up yet: the next attempt might have succeeded.
        open_end = fault.with_end or (fault.blame is Blame.INFRA and (bool(ctx.sent_signals) or _was_killed(ctx)))
        # Nor does anybody know what a client that keeps to `retry-after` would have got.
        open_end = open_end or (fault.cause == "model_api.rate_limited" and _hasty(trouble))
        open_end = open_end or (fault.blame is Blame.INFRA and ctx.limit is not None)
        differs = unknown(trouble.ids) if open_end else yes(trouble.ids)
        if ctx.case.past_door:
            sentence += " What the client then did past the door was not seen."
        elif ctx.never_ran:
            sentence += " No model call ever completed, so the trial never ran."
        else:
            sentence += " No later model call succeeded."
        if fault.blame is Blame.INFRA and not fault.with_end and _was_killed(ctx):
            sentence += " The command was killed before it had given up, and nothing says by whom."
        if poison and fault.cause != POISON:
            sentence += " Other requests passed there within a minute, so this one itself may be at fault."
    else:
        differs = unknown(trouble.ids)
        sentence += " " + _what_it_bent(trouble)
    fact = fault.fact
    if ctx.case.past_door or any(a.placed.observation.trust is not Trust.HOST for a in trouble.failed):
        fact = Grade.SUSPECTED
    if fault.blame is Blame.INFRA and not surely_the_agents(ctx, trouble):
        fact = Grade.SUSPECTED
    best = fault.best if standing is Standing.TERMINAL and fact is Grade.PROVED else Grade.SUSPECTED
    if poison or (fault.blame is Blame.INFRA and _own_part(ctx, trouble)):
        best = Grade.SUSPECTED
    return Event(
        cause=fault.cause,
        blame=fault.blame,
        best=best,
        standing=standing,
        ends_call=standing is Standing.TERMINAL,
        step=turn.step,
        phase=turn.phase,
        at_ns=trouble.failed[0].started_ns,
        happened=yes(trouble.ids),
        ended_or_distorted=trouble.ended,
        outcome_differs=differs,
        sentence=sentence,
        advice=fault.advice or cause.advice,
        why_present=trouble.why_present,
        flips_if=_flips_if(ctx, trouble, best),
        fact=fact,
        undecided=_STRANGER if all(a.placed.id in ctx.case.stranger_attempts for a in trouble.failed) else None,
        evidence=tuple(_evidence(trouble)),
    )


def surely_the_agents(ctx: Context, trouble: Trouble) -> bool:
    """Whether the door saw enough to know that the agent itself was stopped by this call, and by nothing past the door.

    A redirect, or an answer that no dialect reads, may have carried the agent elsewhere; a bare tool's request, or one
    of a conversation that shares nothing with the agent's first, may be the agent's tool and not the agent.  Where this
    is open, nobody knows either that it *ended* the trial: `terminated_by` is then suspected as well.
    """
    case = ctx.case
    if case.past_door or any(call.id in case.alike for call in trouble.turn.calls):
        return False
    if all(a.placed.id in case.unplaced_attempts for a in trouble.failed):
        return False  # the agent's own attempts in this call ended in another way
    if any(turn.in_flight for turn in ctx.turns):
        return False  # of a call whose end nobody saw it is not known what it brought
    if _awaited_by_nobody(ctx, trouble) or _leaves_a_tool_unanswered(ctx, trouble):
        return False
    if ctx.ever_completed:
        return True
    if ctx.watch.door_gap(0) is not None:
        return False  # a call that was missed may have been the agent's, and this one a tool's
    agents = {(a.value.request.user_agent or "").lower() for a in trouble.failed}
    bare = any(not agent or agent.startswith(BARE_TOOLS) for agent in agents)
    readable = all(a.value.request.history_len is not None for a in trouble.failed)
    return readable and not bare and not case.unread_answered


def surely_the_far_sides(ctx: Context, trouble: Trouble) -> bool:
    """Whether it is known besides that the far side alone brought it about: not the request itself, not what the trial
    spent of a limit, not a client that asked before its time."""
    return surely_the_agents(ctx, trouble) and not _own_part(ctx, trouble) and not poisoned(ctx, trouble)


def _own_part(ctx: Context, trouble: Trouble) -> bool:
    """Whether the trial itself may have brought it about that the provider refused.

    That it was refused, and ended by it, stays a fact (`terminated_by`): only whose doing it was is open.
    """
    case = ctx.case
    if trouble.fault.cause != "model_api.rate_limited":
        return False
    # Others spent of the same limit, and a tool of the agent may be one of them.
    spent = bool(case.others or case.strangers or case.alike)
    return spent or _hasty(trouble) or _beside_itself(ctx, trouble)


def _hasty(trouble: Trouble) -> bool:
    """Whether the client asked again and again before the time that it was told to wait."""
    return len(impatient(trouble.turn.attempts)) >= IMPATIENT


def _was_killed(ctx: Context) -> bool:
    """The command was ended by a signal, whoever sent it: a tool that calls in the agent's name can kill it as well."""
    trial = ctx.case.trial
    return trial.signal is not None or trial.exit_code in KILLED_CODES


def _beside_itself(ctx: Context, trouble: Trouble) -> bool:
    """Whether the trial had other calls of the agent's under way meanwhile: then its own width spent of the limit."""
    mine = {call.id for call in trouble.turn.calls}
    since, until = trouble.failed[0].started_ns, trouble.failed[-1].ended_ns
    others = (a for call in ctx.case.main_calls if call.id not in mine for a in call.attempts)
    return any(a.started_ns < until and a.ended_ns > since for a in others)


def _awaited_by_nobody(ctx: Context, trouble: Trouble) -> bool:
    """A subagent's call, where the main agent's last word asked for no tool: whoever made it, no step hung on it."""
    if trouble.turn.main or trouble.turn.calls[0].role != "subagent":
        return False
    before = [t for t in ctx.turns if t.main and t.completed and t.started_ns < trouble.failed[0].started_ns]
    return bool(before) and not any(a.value.reply.tool_calls for a in before[-1].attempts if a.whole)


def _leaves_a_tool_unanswered(ctx: Context, trouble: Trouble) -> bool:
    """Whether the agent still waited for a tool that it had asked for: then this request, which brings no result of it,
    may be that tool's own, made to look like the agent's (its session id is no secret of the agent's)."""
    if not trouble.turn.main:
        return False
    began_ns = trouble.failed[0].started_ns
    before = [t for t in ctx.turns if t.main and t.completed and t.started_ns < began_ns]
    asked = {u.id for a in (before[-1].attempts if before else ()) if a.whole for u in a.value.reply.tool_calls if u.id}
    if not asked:
        return False
    # One that could not be read brings no result that anybody saw: it proves nothing either.
    return all(asked.isdisjoint(a.value.request.tool_result_ids) for a in trouble.failed)


def poisoned(ctx: Context, trouble: Trouble) -> bool:
    """Whether the request itself may be at fault: it was refused with 5xx again and again, while others passed.

    At least three times in one turn, whether with one body or with one that has something new each time (a time, a
    nonce), and a request of another turn passed at the same upstream, to the same model where both are known, within a
    minute before, between or after.  529 is never that.
    """
    refused: dict[str, list[AttemptSeen]] = {}
    for attempt in trouble.turn.attempts:
        reply = attempt.value.reply
        if reply.status is None or reply.status < 500 or reply.status == 529:
            continue
        if reply.error_type != "overloaded_error":
            refused.setdefault(upstream(attempt.value), []).append(attempt)
    own = {attempt.value.request.body_digest for attempt in trouble.turn.attempts}
    models = {attempt.value.request.model for attempt in trouble.turn.attempts}
    for there, failed in refused.items():
        if len(failed) < POISON_TIMES:
            continue
        since, until = failed[0].started_ns - _MINUTE_NS, failed[-1].ended_ns + _MINUTE_NS
        for call in ctx.case.calls:
            for other in call.attempts:
                another = upstream(other.value) == there and other.value.request.body_digest not in own
                another = another and other.value.request.model in {*models, None}
                if other.whole and another and since <= other.ended_ns <= until:
                    return True
    return False


def _recovered(trouble: Trouble) -> Event:
    """What a retry mended: counted and listed, not told."""
    first = trouble.failed[0]
    ids = [first.placed.id]
    return Event(
        cause=trouble.fault.cause,
        blame=trouble.fault.blame,
        best=Grade.SUSPECTED,
        standing=Standing.RECOVERED,
        ends_call=False,
        step=trouble.turn.step,
        phase=trouble.turn.phase,
        at_ns=first.started_ns,
        happened=yes(ids),
        ended_or_distorted=trouble.ended,
        outcome_differs=no(ids),
        sentence="",
        advice="",
        why_present=trouble.why_present,
        evidence=(evidence(first.placed, f"{trouble.fault.failure}; {trouble.why_present}"),),
    )


def _statuses(trouble: Trouble) -> str | None:
    if trouble.fault.failure.startswith("error event"):
        return trouble.fault.failure
    return statuses(a.value.reply.status for a in trouble.turn.attempts if not a.whole)


def _what_it_bent(trouble: Trouble) -> str:
    if trouble.fell_back:
        given_up = listed(trouble.fell_back)
        return f"The client then went on with something given up ({given_up}), which bends every later step."
    if trouble.fault.blame is Blame.FAIRTRIAL:
        return "A later call succeeded, but a direct connection would not have had this."
    if trouble.turn.calls[0].role == "subagent":
        return "It was a subagent's call; the main agent went on without its work."
    if trouble.why_present.startswith("the client went on with another prompt"):
        return "The client went on with another prompt and without this reply."
    return "The client took the broken reply for an answer and went on with it."


def _flips_if(ctx: Context, trouble: Trouble, best: Grade) -> str | None:
    """What would turn it; None for a terminal failure that is proved: only a later whole reply would."""
    fault = trouble.fault
    if fault.watchdog_s is not None and fault.silence_s is not None:
        limit, silence = seconds(fault.watchdog_s), seconds(fault.silence_s)
        if fault.cause == "model_api.stalled":
            return (
                f"turns to the harness if its client would have waited longer than {silence} "
                f"(fairtrial takes {limit} for this client)"
            )
        return (
            f"turns to infra if the client had waited for all of its time: {limit} are taken for this client, and the "
            f"longest silence was {silence}"
        )
    if trouble.standing is Standing.TERMINAL and (best is Grade.SUSPECTED or ctx.sent_signals or fault.with_end):
        return _open_question(ctx, trouble)
    if trouble.standing is Standing.TERMINAL:
        return None
    if trouble.standing is Standing.DISTORTING:
        return "turns to the model if the trial, run again without this fault, fails in the same way"
    return None


def _open_question(ctx: Context, trouble: Trouble) -> str:
    """Why a failure that nothing followed is only suspected, as what would decide it."""
    fault, case = trouble.fault, ctx.case
    if fault.cause == POISON:
        return (
            f"turns to infra, proved, if fewer than {POISON_TIMES} attempts had failed or no other request had passed "
            "within a minute; to the model if this request fails whenever it is sent"
        )
    if ctx.sent_signals or fault.with_end:
        return "turns to whoever ended the command, if the next attempt would have succeeded"
    if case.past_door:
        return "turns to nobody if the client got its reply past the door"
    if fault.blame is Blame.INFRA and not surely_the_agents(ctx, trouble):
        return "turns to the model if a command that the agent ran made this call, and not the agent itself"
    if fault.cause == "model_api.rate_limited":
        return "turns to the harness if this trial's own other calls, or calls before their time, spent the limit"
    if fault.fact is Grade.SUSPECTED or fault.cause.startswith("network."):
        return "turns to the model or the operator if this machine's own network had failed: no other vantage looked"
    if fault.blame is Blame.OPERATOR:
        return "turns to infra if the address, the key and the path were right at that time"
    if fault.cause == "model_api.client_error":
        return "turns to the operator or the model if the part of the request that was refused was theirs"
    return "turns if the same call, made again, fails in the same way without the far side's doing"


def _evidence(trouble: Trouble) -> list[Evidence]:
    attempts = trouble.turn.attempts
    total = len(attempts)
    shown = [(n, a) for n, a in enumerate(attempts, 1) if a in trouble.failed]
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN - 1], shown[-1]]
    return [evidence(attempt.placed, f"attempt {n} of {total}: {_attempt(attempt, trouble)}") for n, attempt in shown]


def _attempt(attempt: AttemptSeen, trouble: Trouble) -> str:
    value = attempt.value
    parts = [f"HTTP {value.reply.status}" if value.reply.status is not None else "no response head"]
    if attempt is trouble.failed[-1] and trouble.fault.failure not in {f"status {value.reply.status}", ""}:
        parts.append(trouble.fault.failure)
    elif value.dial_stage is not None:
        parts.append(f"failed at {clean(value.dial_stage)}")
    if value.outcome == "truncated" and value.bytes_down is not None:
        parts.append(f"{size(value.bytes_down)} received")
    if value.closed_by is not None:
        parts.append(f"closed by {value.closed_by}")
    parts.append(f"after {seconds(attempt.length_s)}")
    return ", ".join(parts)
