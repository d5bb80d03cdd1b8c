"""The model API and what stands between it and the agent: overloaded, rate limit, server error, cut, silence, no way
there.

Recognises: a model call whose attempts failed on the far side of our door (`faults.py` names the cause per attempt).  A
call with no later success is terminal, and its third answer is yes: nothing can be done without the model.  A broken
reply that the client kept is distorting; a failure that a retry mended is present.
Deliberately does not: read an error type from a reply that came whole, count a title's or a probe's failure, or charge
a call that was merely slow (no frozen reference yet); a poisoned request is not told from a plain server error yet. How
it can be wrong: a client that gives up after one passing 529 is infra all the same: its lack of patience is shown by
the number of attempts in the sentence.  A rate limit that this run's own trials caused is put on infra, because one
trial does not show the others.  The cost is a retry that a patient client would not have needed.
"""

from __future__ import annotations

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event

PREFIXES = ("model_api.", "gateway.", "network.")


def find(ctx: Context) -> list[Event]:
    """Events of the model API, its gateways and the network towards it."""
    return [
        call_event(ctx, trouble)
        for trouble in ctx.troubles
        if trouble.fault.cause.startswith(PREFIXES) and trouble.fault.cause != "model_api.client_error"
    ]
