"""Storms of the harness: asking without end what cannot succeed, and summing up without end.

Recognises: many attempts for one step that no retry can mend (a refusal of the request, the key, the address, or
`x-should-retry: false`), also where summaries in between succeed and change nothing; many that came sooner than the
`retry-after` before them asked; whole replies that asked for tools, thrown away and asked for again with the same body;
compactions in a row with at most one step between them.
Deliberately does not: take a long row of 529 for a storm (patience is what a client is for), count calls that sample
the same question on purpose (their replies are used: the conversation goes on), or call a storm *outside*.
How it can be wrong: what failed first is somebody's fault as well, so a storm of refusals is only listed beside it; a
model whose tool results fill the window each time makes the harness sum up each time, so that is `suspected`.

**Source:** reference pages taxonomy.md sections 2 and 5, model-api.md section 2.1 (retries of known clients).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fairtrial.middleware.attribution.calls import IMPATIENT, Trouble, impatient
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.questions import evidence, no, unknown, yes
from fairtrial.middleware.attribution.seen import AttemptSeen, CallSeen
from fairtrial.middleware.attribution.sentences import count, fill, seconds
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade

RETRY: Final = CAUSES["harness.retry_storm"]
COMPACTION: Final = CAUSES["harness.compaction_storm"]
POINTLESS: Final = frozenset({400, 401, 402, 403, 404, 405, 413, 422})
COMPACTIONS: Final = 3
_END_NS: Final = 5_000_000_000
"""So long behind a storm's last refusal the last call of all may have begun."""
_FEWER: Final = "turns to the operator or the model if what the request was refused for was theirs"


def find(ctx: Context) -> list[Event]:
    """Storms of retries, of replies thrown away, and of compactions."""
    found = [event for trouble in ctx.troubles if (event := _retries(ctx, trouble)) is not None]
    thrown = _thrown_away(ctx)
    summed = _compactions(ctx)
    return [*found, *(e for e in (thrown, summed) if e is not None)]


def _retries(ctx: Context, trouble: Trouble) -> Event | None:
    attempts = [a for a in trouble.turn.attempts if not a.whole]
    refused = [a for a in attempts if a.value.reply.status in POINTLESS or a.value.reply.should_retry is False]
    early = impatient(trouble.turn.attempts)
    if len(refused) >= max(2.0, ctx.thresholds.storm_attempts):
        # Without the storm the call would have failed all the same: where somebody else has to mend that, it decides.
        own = trouble.fault.blame is Blame.HARNESS
        own = own and (trouble.standing is Standing.TERMINAL or _to_the_end(ctx, trouble, refused))
        standing = Standing.TERMINAL if own else Standing.RECOVERED
        return _event(
            trouble, refused, "though no retry could mend it", standing=standing, said="what it asked", own=own
        )
    if len(early) < IMPATIENT or len(early) * 2 < len(attempts):
        return None
    why = f"{count(len(early), 'time')} sooner than the reply before had asked to wait"
    return _event(trouble, attempts, why, standing=trouble.standing, said="a later attempt succeeded")


def _to_the_end(ctx: Context, trouble: Trouble, refused: Sequence[AttemptSeen]) -> bool:
    """The storm lasted until the last call, and nothing of that length was ever answered behind its begin: what came
    whole meanwhile are shorter side calls, such as the summaries of a client that sums up and asks the same again."""
    length = trouble.turn.calls[-1].request.history_len
    if length is None or not trouble.turn.main:
        return False
    later = [c for c in ctx.case.calls if c.started_ns > refused[0].started_ns]
    if max((c.started_ns for c in later), default=0) > refused[-1].ended_ns + _END_NS:
        return False
    answered = [c.request.history_len for c in later if c.completed]
    return all(n is not None and n < length for n in answered)


def _event(
    trouble: Trouble, attempts: Sequence[AttemptSeen], why: str, *, standing: Standing, said: str, own: bool = False
) -> Event:
    ids = [a.placed.id for a in (*attempts[:3], attempts[-1])]
    struck = standing is Standing.TERMINAL
    length = seconds(max(0, attempts[-1].ended_ns - attempts[0].started_ns) / 1e9) or ""
    facts = {"attempts": count(len(attempts), "time"), "seconds": length, "why": why}
    if trouble.turn.step is not None:
        facts["step"] = str(trouble.turn.step)
    differs = no(ids) if standing is Standing.RECOVERED else unknown(ids)
    present = f"{count(len(attempts), 'attempt')} {why}"
    if standing is Standing.RECOVERED and said != "what it asked":
        present += f"; {said}"
    return Event(
        cause=RETRY.name,
        blame=Blame.HARNESS,
        best=Grade.SUSPECTED,
        standing=standing,
        ends_call=struck,
        step=trouble.turn.step,
        phase=trouble.turn.phase,
        at_ns=attempts[0].started_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids) if struck else unknown(ids),
        outcome_differs=yes(ids) if own else differs,
        sentence=fill(RETRY.template, facts),
        advice=RETRY.advice,
        why_present=present,
        flips_if=f"turns to infra if the client, keeping to `retry-after`, is refused as well (fewer than {IMPATIENT} "
        "such retries count as patience)"
        if struck and not own
        else _FEWER,
        evidence=tuple(evidence(a.placed, f"asked again, {why}") for a in attempts[-1:]),
    )


def _thrown_away(ctx: Context) -> Event | None:
    """Whole replies that asked for tools, and the same body again, until the end."""
    last = ctx.case.last_main
    if last is None or last.request.body_digest is None:
        return None
    row: list[CallSeen] = []
    for call in reversed(ctx.case.main_calls):
        if call.request.body_digest != last.request.body_digest or not call.completed or not _asks_for_tools(call):
            break
        row.append(call)
    row.reverse()
    one_by_one = all(b.ended_ns is not None and b.ended_ns <= a.started_ns for b, a in pairwise(row))
    if len(row) < max(2.0, ctx.thresholds.storm_attempts) or not one_by_one:
        return None
    attempts = [a for call in row for a in call.attempts if a.whole]
    ids = [a.placed.id for a in (*attempts[:3], attempts[-1])]
    why = "and threw each whole reply away"
    facts = {
        "attempts": count(len(row), "time"),
        "seconds": seconds((attempts[-1].ended_ns - attempts[0].started_ns) / 1e9) or "",
        "why": why,
        "step": str(row[0].step) if row[0].step is not None else "",
    }
    return Event(
        cause=RETRY.name,
        blame=Blame.HARNESS,
        best=Grade.PROVED,
        standing=Standing.TERMINAL,
        ends_call=True,
        step=row[0].step,
        phase=row[0].phase,
        at_ns=row[0].started_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids),
        outcome_differs=yes(ids),
        sentence=fill(RETRY.template, facts) + " No tool of theirs was ever run.",
        advice=RETRY.advice,
        flips_if=f"turns if fewer than {ctx.thresholds.storm_attempts:g} whole replies had been thrown away (threshold "
        f"storm_attempts; here {len(row)})",
        evidence=tuple(evidence(a.placed, "a whole reply, asked for again") for a in (attempts[0], attempts[-1])),
    )


def _asks_for_tools(call: CallSeen) -> bool:
    return any(a.whole and a.value.reply.tool_calls for a in call.attempts)


def _compactions(ctx: Context) -> Event | None:
    """The longest row of compactions with at most one step between them, if nothing but such a step came after it."""
    calls = [c for c in ctx.case.main_calls if c.role in {"step", "compaction"} and c.completed]
    row: list[CallSeen] = []
    steps_since = 0
    for call in calls:
        if call.role == "step":
            steps_since += 1
            continue
        row = [*row, call] if row and steps_since <= 1 else [call]
        steps_since = 0
    if len(row) < COMPACTIONS or steps_since > 1:
        return None
    ids = [c.ids[-1] for c in (*row[:3], row[-1])]
    shown = [a for c in (row[0], row[-1]) for a in c.attempts[-1:]]
    facts = {"times": count(len(row), "time")}
    if row[0].step is not None:
        facts["step"] = str(row[0].step)
    return Event(
        cause=COMPACTION.name,
        blame=Blame.HARNESS,
        best=Grade.SUSPECTED,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=row[0].step,
        phase=row[0].phase,
        at_ns=row[0].started_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids),
        outcome_differs=unknown(ids),
        sentence=fill(COMPACTION.template, facts),
        advice=COMPACTION.advice,
        flips_if="turns to the model if the tool results that it asked for are larger than its window",
        needs_door=True,
        evidence=tuple(evidence(a.placed, "the history was summed up") for a in shown),
    )
