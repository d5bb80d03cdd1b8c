"""Where a step begins: which main calls open one, and which ask again for the turn of the open one.

In: folded calls with their roles.  Out: steps with their calls.  A call that never completed opens the step that it
would have become, and a further call for the same turn stays in it.
What this module does not do: fold attempts (`attempts.py`) or assign roles (`roles.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairtrial.middleware.core.records import (
    CallRole,
)
from fairtrial.middleware.steps.attempts import FoldedCall, changes
from fairtrial.middleware.steps.identity import extends, session_key


@dataclass(slots=True)
class Open:
    """A step while it is being put together."""

    index: int
    started_ns: int
    calls: list[FoldedCall] = field(default_factory=list[FoldedCall])


def open_steps(calls: Sequence[FoldedCall], roles: Sequence[CallRole]) -> list[Open]:
    """`calls` and their `roles` in order of start; hedges and repeats stay in the step that they ask for."""
    steps: list[Open] = []
    for call, role in zip(calls, roles, strict=True):
        if role != "step":
            continue
        if steps and _is_hedge(steps[-1], call):
            steps[-1].calls.append(call)
        elif steps and _asks_again(steps[-1], call):
            call.give_up(changes(steps[-1].calls[-1].request, call.request))
            steps[-1].calls.append(call)
        else:
            if steps and _after_failure(steps[-1], call):
                # The turn was given up, but not the trial: the client goes on with something else.
                call.give_up(
                    change for change in changes(steps[-1].calls[-1].request, call.request) if change == "model"
                )
            steps.append(Open(index=len(steps) + 1, started_ns=call.started_wall_ns, calls=[call]))
    return steps


def _is_hedge(step: Open, call: FoldedCall) -> bool:
    """Whether the call asks for the open step's turn while another call for it is in flight."""
    return call.concurrent_duplicate is not None and any(c.id == call.concurrent_duplicate for c in step.calls)


def _after_failure(step: Open, call: FoldedCall) -> bool:
    last = step.calls[-1]
    failed = last.outcome in {"error", "truncated", "client_disconnect"}
    return failed and session_key(last.request) == session_key(call.request)


def _asks_again(step: Open, call: FoldedCall) -> bool:
    """Whether the call is for the turn that the open step's last call did not bring to its end."""
    last = step.calls[-1]
    if last.completed or last.ended_wall_ns is None or call.started_wall_ns < last.ended_wall_ns:
        return False
    if session_key(last.request) != session_key(call.request):
        return False
    first, begins = last.request.first_user_digest, call.request.first_user_digest
    if first is not None and begins is not None and first != begins and not extends(call.request, last.request):
        return False
    asked, asks = last.request.assistant_turns, call.request.assistant_turns
    return asked is not None and asks is not None and asks <= asked
