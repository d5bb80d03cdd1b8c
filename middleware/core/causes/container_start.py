"""Causes: a container that never came up.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import PROVED, I, O, T, cause

CONTAINER_START: Final = (
    cause(
        "container.start_failed",
        "node",
        (I, O, T),
        PROVED,
        "The container could not be started.",
        "Read the runtime's error, then run the trial again.",
        note="never ran",
    ),
    cause(
        "container.image_pull",
        "node",
        (I, O, T),
        PROVED,
        "The image could not be pulled.",
        "Check the image's name and the registry, then run the trial again.",
        note="never ran",
    ),
)
