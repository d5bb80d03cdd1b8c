"""The model API and what stands between it and the agent: overloaded, rate limit, server error, cut, silence, no way
there.

Recognises: a model call whose attempts failed on the far side of our door (`faults.py` names the cause per attempt).  A
call with no later success is terminal, and its third answer is yes: nothing can be done without the model.  A broken
reply that the client kept, or a model or capability that it gave up for good after such errors, is distorting; a
failure that a retry mended is present.  A request that was refused while others to the same model passed may be at
fault itself (`model_api.poison_request`).  A reply that was whole by its end mark and whose framing the upstream cut
behind it, as the last thing before the agent stopped: clients that read to the end of the framing have an error then.
A silence of a stall's length inside a reply that came whole is present.
Deliberately does not: read an error type from a reply that came whole, count a title's or a probe's failure, or weigh
calls that were merely slow (`time_limit.py`).
How it can be wrong: a client that gives up after one passing 529 is infra all the same: its lack of patience is shown
by the number of attempts in the sentence.  A rate limit that this run's own trials caused is put on infra as long as
only one trial is looked at; `across.py` sees the others.  The cost is a retry that a patient client would not have
needed.
"""

from __future__ import annotations

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.faults import silence_inside_s
from fairtrial.middleware.attribution.questions import evidence, no, unknown, yes
from fairtrial.middleware.attribution.seen import AttemptSeen
from fairtrial.middleware.attribution.sentences import seconds
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, PhaseName

PREFIXES = ("model_api.", "gateway.", "network.")


def find(ctx: Context) -> list[Event]:
    """Events of the model API, its gateways and the network towards it."""
    found = [
        call_event(ctx, trouble)
        for trouble in ctx.troubles
        if trouble.fault.cause.startswith(PREFIXES) and trouble.fault.cause != "model_api.client_error"
    ]
    return [*found, *_framing(ctx), *_stalls(ctx)]


def _framing(ctx: Context) -> list[Event]:
    """The last main reply, whole by its end mark, cut behind it, and the agent stopped with an error."""
    last = ctx.case.last_main
    if last is None or not last.completed or last.last is None or ctx.case.ended is None:
        return []
    attempt = last.last
    cut_by = attempt.value.framing_cut
    trial = ctx.case.trial
    if any(a.value.framing_cut is not None for call in ctx.case.completed_main[:-1] for a in call.attempts if a.whole):
        return []  # its client goes on from such replies
    stopped = trial.signal is not None or trial.exit_code not in {0, None}
    if cut_by not in {"upstream", "fairtrial"} or not stopped or attempt.value.request_whole is False:
        return []
    ids = [attempt.placed.id]
    ours = cut_by == "fairtrial"
    cause = CAUSES["observer.relay_fault" if ours else "model_api.truncated"]
    who = "fairtrial's relay" if ours else "the provider"
    return [
        Event(
            cause=cause.name,
            blame=Blame.FAIRTRIAL if ours else Blame.INFRA,
            best=Grade.SUSPECTED,
            standing=Standing.TERMINAL,
            ends_call=False,
            step=last.step,
            phase=last.phase,
            at_ns=attempt.ended_ns,
            happened=yes(ids),
            ended_or_distorted=unknown(ids),
            outcome_differs=unknown(ids),
            sentence=f"Step {last.step}'s reply was whole by its end mark, and {who} cut the framing behind it: a "
            "client that reads to the end of the framing has an error then, and the command stopped after it.",
            advice="Read the command's last lines: if they name a connection or a read error, run the trial again.",
            flips_if="turns to the model if the client did not read to the end of the framing",
            evidence=(evidence(attempt.placed, f"whole by its end mark; framing cut by {cut_by}"),),
        )
    ]


def _stalls(ctx: Context) -> list[Event]:
    """Silences of the upstream's own inside replies that came whole: they cost time and nothing else."""
    return [
        _silent(attempt, length_s, turn.step, turn.phase)
        for turn in ctx.turns
        for attempt in turn.attempts
        if attempt.whole and (length_s := silence_inside_s(attempt)) >= ctx.thresholds.stall_s
    ]


def _silent(attempt: AttemptSeen, length_s: float, step: int | None, phase: PhaseName) -> Event:
    ids = [attempt.placed.id]
    return Event(
        cause="model_api.stalled",
        blame=Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.RECOVERED,
        ends_call=False,
        step=step,
        phase=phase,
        at_ns=attempt.started_ns,
        happened=yes(ids),
        ended_or_distorted=no(ids),
        outcome_differs=no(ids),
        sentence="",
        advice="",
        why_present=f"the reply came whole after {seconds(length_s)} of silence",
        evidence=(evidence(attempt.placed, f"silent for {seconds(length_s)}, then whole"),),
    )
