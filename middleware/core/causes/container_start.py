"""Causes: a container that never came up.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import SUSPECTED, I, O, T, cause

CONTAINER_START: Final = (
    cause(
        "container.start_failed",
        "node",
        (I, O, T),
        SUSPECTED,
        "{what} could not be started: {failure}.",
        "Read the runtime's error, then run the trial again.",
        note="never ran; suspected: calls past the model door would not be seen",
        sources=("door.docker",),
        built=True,
    ),
    cause(
        "container.image_pull",
        "node",
        (I, O, T),
        SUSPECTED,
        "{what} could not be pulled: {failure}.",
        "Check the image's name and the registry, then run the trial again.",
        note="never ran; suspected: calls past the model door would not be seen",
        sources=("door.docker",),
        built=True,
    ),
)
