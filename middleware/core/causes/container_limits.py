"""Causes: a container's other limits: CPU, disk, processes, open files.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import ASK_NODE, SUSPECTED, I, M, cause

CONTAINER_LIMITS: Final = (
    cause(
        "container.cpu_throttled",
        "cpu",
        (I, M),
        SUSPECTED,
        "The container was throttled by its CPU limit.",
        "Run the trial again with a higher CPU ceiling.",
        note="proved when the time it took is what the limit that fired lacked",
    ),
    cause(
        "container.disk_slow",
        "disk",
        (I, M),
        SUSPECTED,
        "The container waited for the disk.",
        ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked",
    ),
    cause(
        "container.disk_full",
        "disk",
        (I, M),
        SUSPECTED,
        "The disk was full.",
        "Free the disk, then run the trial again.",
        note="proved when the fill is not the trial's",
    ),
    cause(
        "container.pids_limit",
        "cpu",
        (I, M),
        SUSPECTED,
        "The container reached its limit of processes.",
        "Run the trial again with a higher limit of processes.",
        note="proved when the limit is below what harness and services need at idle",
    ),
    cause(
        "container.fd_limit",
        "cpu",
        (I, M),
        SUSPECTED,
        "A process reached its limit of open files.",
        "Run the trial again with a higher limit of open files.",
        note="proved when the limit is below what harness and services need at idle",
    ),
)
