"""Causes: the task and its verifier.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import SUSPECTED, T, cause

_ORACLE: Final = "Run the task's own solution in the same way: if it fails too, mend the task; else it was the model's."

TASK: Final = (
    cause(
        "task.broken",
        "task",
        (T,),
        SUSPECTED,
        "The task itself is broken: its own solution failed it.",
        "Mend the task or its verifier before models are judged by it.",
        note="across trials only: a trial of the task's own solution has to fail",
        sources=("run",),
        built=True,
    ),
    cause(
        "task.verifier_fault",
        "verifier",
        (T,),
        SUSPECTED,
        "The verifier failed ({failure}, as {source} says) after the agent had finished, with nothing outside seen.",
        _ORACLE,
        note="from the harness's own record; the model's solution may have brought the verifier down",
        sources=("run",),
        built=True,
    ),
    cause("task.impossible_limits", "task", (T,), SUSPECTED, "The limits are too low.", _ORACLE),
)
