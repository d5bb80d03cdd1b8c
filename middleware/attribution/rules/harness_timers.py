"""Timers of the harness that end a call while the model API is at work.

Recognises: a client that closes a reply while pings come and no words (`harness.watchdog`: long reasoning looks like
that), and one that closes three calls or more at the same length from their start while bytes come
(`harness.inner_timeout`: 180 s, 330 s, whatever the task's own limit says).
Deliberately does not: take a client that closed a *silent* reply for a watchdog of ours to judge (`model_api.stalled`
or `harness.client_timeout`, by how long that client is known to wait), call either *outside*, or count what ended
together with the command.
How it can be wrong: a client that closes a reply because it has enough (a stop word in the text) at the same length
three times by chance; the lengths must agree to half a second or 2 %, which a chance does not give.  The cost is a
trial that is put on its harness.

**Source:** reference page taxonomy.md section 5 (stream stall, inner limit).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.calls import Trouble
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event
from fairtrial.middleware.attribution.seen import AttemptSeen
from fairtrial.middleware.attribution.sentences import count, seconds
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Grade

WATCHDOG: Final = "harness.watchdog"
_TIMER: Final = CAUSES["harness.inner_timeout"]
LEAST: Final = 3
"""Ends of one length that make a timer."""
_SHORTEST_S: Final = 2.0
_SPREAD_S: Final = 0.5
_SPREAD: Final = 0.02
_MEANT: Final = frozenset({"harness.client_timeout", WATCHDOG})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Calls that were ended at one length."""

    length_s: float
    attempts: tuple[AttemptSeen, ...]


def find(ctx: Context) -> list[Event]:
    """Events of the harness's own timers."""
    timer = timer_of(ctx)
    found: list[Event] = []
    for trouble in ctx.troubles:
        if not owns(trouble, timer):
            continue
        if timer is None or not _struck(trouble, timer):
            found.append(call_event(ctx, trouble))
            continue
        told = {"attempts": count(len(timer.attempts), "call"), "length": seconds(timer.length_s)}
        fault = replace(trouble.fault, cause=_TIMER.name, best=Grade.PROVED, said=None)
        event = call_event(ctx, replace(trouble, fault=fault), told=told)
        flips = f"turns if fewer than {LEAST} calls had ended at {told['length']}"
        found.append(replace(event, flips_if=flips if event.flips_if is not None else None))
    return found


def owns(trouble: Trouble, timer: Timer | None) -> bool:
    """Whether this rule tells of a trouble; all else of the client's side is `harness_side.py`'s."""
    if trouble.fault.with_end:
        return False
    return trouble.fault.cause == WATCHDOG or (timer is not None and _struck(trouble, timer))


def timer_of(ctx: Context) -> Timer | None:
    """The one length at which the client ended calls though bytes came; the commonest, then the shortest."""
    ended = [
        a
        for t in ctx.troubles
        if t.fault.abort and t.fault.cause in _MEANT and not t.fault.with_end
        for a in t.failed
        if _flowing(a) and a.length_s >= _SHORTEST_S
    ]
    ended.sort(key=lambda a: a.length_s)
    best: list[AttemptSeen] = []
    begin = 0
    for end, attempt in enumerate(ended):
        while attempt.length_s - ended[begin].length_s > max(_SPREAD_S, _SPREAD * attempt.length_s):
            begin += 1
        if end - begin + 1 > len(best):
            best = ended[begin : end + 1]
    if len(best) < LEAST:
        return None
    by_start = tuple(sorted(best, key=lambda a: a.started_ns))
    return Timer(length_s=best[len(best) // 2].length_s, attempts=by_start)


def _flowing(attempt: AttemptSeen) -> bool:
    """Bytes had come shortly before the client closed: less than a quarter of its time was silent at the end."""
    value = attempt.value
    return value.ttfb is not None and value.silence_at_end is not None and value.silence_at_end < attempt.length_s / 4


def _struck(trouble: Trouble, timer: Timer) -> bool:
    return trouble.failed[-1] in timer.attempts
