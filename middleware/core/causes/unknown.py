"""Causes: an outside event that nobody is known to have done.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import EVENTS, SUSPECTED, I, cause

UNKNOWN: Final = (
    cause(
        "unknown.outside",
        "node",
        (I,),
        SUSPECTED,
        "{container} was killed from outside in step {step}, and nothing says by whom.",
        "Look at the machine's log at {at}, then run the trial again.",
        note="needs the wait status of its first process (kernel 6.15); only where the model's commands run inside",
        sources=EVENTS,
        built=True,
    ),
)
