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
        "Somebody outside {did} {container} through the container runtime in step {step} while the trial was still "
        "using it.",
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
        "{container} was restarted in step {step}: what ran in it was lost.",
        "Find out what restarted it, then run the trial again.",
        note="proved only when it is known by whom; asked for at the trial's own Docker door it is not infra",
        sources=EVENTS,
        built=True,
    ),
    cause(
        "container.state_lost",
        "node",
        (I, H, O),
        PROVED,
        "{container} lost {what} in step {step}, when it was started again or another took its place.",
        "Find out what restarted it, then run the trial again.",
        note="proved only when it is known by whom; a tmpfs ends with its container",
        sources=EVENTS,
        built=True,
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
        "The task's service {container} was ended in step {step} while the agent still worked.",
        "Find out what ended it, then run the trial again.",
        note="proved only when it is known by whom; one that exited by itself blames nobody",
        sources=EVENTS,
        built=True,
    ),
)
