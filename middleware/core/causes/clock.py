"""Causes: the clock.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import PROVED, I, cause

CLOCK: Final = (
    cause("clock.skew", "node", (I,), PROVED, "The clock was wrong.", "Set the clock, then run the trial again."),
)
