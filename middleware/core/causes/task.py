"""Causes: the task and its verifier.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import SUSPECTED, T, cause

TASK: Final = (
    cause("task.broken", "task", (T,), SUSPECTED, "The task itself is broken.", "Run its oracle."),
    cause("task.verifier_fault", "verifier", (T,), SUSPECTED, "The verifier failed.", "Run the oracle."),
    cause("task.impossible_limits", "task", (T,), SUSPECTED, "The limits are too low.", "Run the oracle."),
)
