"""Causes: a container that ended, or lost its state, under the trial.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import ASK_NODE, EVENTS, PROVED, H, I, O, cause

CONTAINER_LIFE: Final = (
    cause(
        "container.killed",
        "node",
        (I, H, O),
        PROVED,
        "Somebody outside stopped {container} through the container runtime in step {step} (signal {signal}) while "
        "the trial was still using it.",
        "Find out who stopped it (the runtime's events name the time: {at}), then run the trial again.",
        note="proved only when the killer is known",
        sources=EVENTS,
        built=True,
    ),
    cause(
        "container.restarted",
        "node",
        (I, H, O),
        PROVED,
        "The container was restarted in the middle of the trial.",
        ASK_NODE,
    ),
    cause(
        "container.state_lost",
        "node",
        (I, H, O),
        PROVED,
        "The container's files were lost in the middle of the trial.",
        ASK_NODE,
    ),
    cause(
        "container.evicted",
        "node",
        (I, H, O),
        PROVED,
        "The node evicted the trial's pod.",
        ASK_NODE,
    ),
    cause(
        "container.service_died",
        "node",
        (I, H, O),
        PROVED,
        "A service container of the task died.",
        "Run the trial again.",
    ),
)
