"""The near side of the door: a client that gave up too early, and a request that the provider refused as wrong.

Recognises: a client that closed a call while the upstream's longest silence (pings counted) was below that client's own
watchdog (`faults.WATCHDOGS_S`, 90 s for unknown ones); a call that was open when the command ended; 400, 413, 422 and
the like, which need another request and not another attempt. Deliberately does not: call these *outside*
(`terminated_by` stays empty), or say whether the model, the harness or the operator made a refused request: it says
harness, `suspected`. How it can be wrong: a client whose watchdog was set shorter than the table says is blamed
although it obeyed its settings; that is the harness's configuration all the same.  A call that was open at the end is a
consequence when a process was killed at that moment, and is then left to the rule for kills.
"""

from __future__ import annotations

from dataclasses import replace

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.calls import Trouble
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.ended_as import CRASH_SIGNALS
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules import harness_timers
from fairtrial.middleware.attribution.sentences import fill, signal_name
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Grade


def find(ctx: Context) -> list[Event]:
    """Events on the client's side of the door."""
    found: list[Event] = []
    timer = harness_timers.timer_of(ctx)
    for trouble in ctx.troubles:
        if harness_timers.owns(trouble, timer):
            continue
        if trouble.fault.cause == "model_api.client_error":
            found.append(call_event(ctx, trouble))
        elif trouble.fault.cause.startswith("harness."):
            event = _abort(ctx, trouble)
            if event is not None:
                found.append(event)
    return found


def _abort(ctx: Context, trouble: Trouble) -> Event | None:
    event = call_event(ctx, trouble)
    if not trouble.fault.with_end:
        return event
    if trouble.standing is not Standing.TERMINAL or _killed_then(ctx, trouble) or ctx.sent_signals:
        return None
    if ctx.limit is not None:
        return None  # the limit ended it: `time_limit.py` says whose time it was
    signal = ctx.case.trial.signal
    step = "unknown" if event.step is None else str(event.step)
    if signal in CRASH_SIGNALS:
        cause = CAUSES["harness.crashed"]
        said = fill(cause.template, {"signal": signal_name(signal) or "", "step": step})
        return replace(event, cause=cause.name, best=Grade.SUSPECTED, sentence=said, advice=cause.advice, flips_if=None)
    cause = CAUSES["harness.client_timeout" if signal is None else "harness.killed"]
    sentence = f"The command ended while the model call of step {step} was still open ({trouble.fault.failure})."
    return replace(event, cause=cause.name, best=Grade.SUSPECTED, sentence=sentence, advice=cause.advice)


def _killed_then(ctx: Context, trouble: Trouble) -> bool:
    grace_ns = round(ctx.thresholds.end_grace_s * 1e9)
    at = trouble.failed[-1].ended_ns
    return any(abs(at - death) <= grace_ns for death in ctx.case.deaths_ns)
