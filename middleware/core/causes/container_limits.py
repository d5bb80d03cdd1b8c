"""Causes: a container's other limits: CPU, disk, processes, open files.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import ASK_NODE, CGROUP, SUSPECTED, I, M, cause

CONTAINER_LIMITS: Final = (
    cause(
        "container.cpu_throttled",
        "cpu",
        (I, M),
        SUSPECTED,
        "In step {step} {container} stood still at its CPU limit for {lost} of the {length} that its command had.",
        "Run the trial again with a higher CPU ceiling.",
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=CGROUP,
        built=True,
    ),
    cause(
        "container.disk_slow",
        "disk",
        (I, M),
        SUSPECTED,
        "In step {step} the processes of {container} waited for the disk for {lost} of the {length} that its "
        "command had.",
        ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=CGROUP,
        built=True,
    ),
    cause(
        "container.disk_full",
        "disk",
        (I, M),
        SUSPECTED,
        "{mount} of {container} ({size}) was full in step {step}: {room}.",
        "Free the disk, then run the trial again.",
        note="the model's over 80 % of the growth; proved only by a rerun, since no counter tells who was refused",
        sources=CGROUP,
        built=True,
    ),
    cause(
        "container.pids_limit",
        "cpu",
        (I, M),
        SUSPECTED,
        "{container} reached its limit of {tasks} in step {step}, and {hits} failed.",
        "Run the trial again with a higher limit of processes.",
        note="the model's over 80 % of the tasks, or when they grew within one step; proved only by a rerun",
        sources=CGROUP,
        built=True,
    ),
    cause(
        "container.fd_limit",
        "cpu",
        (I, M),
        SUSPECTED,
        "{victim} in {container} had as many open files as its limit of {limit} allows in step {step}.",
        "Run the trial again with a higher limit of open files.",
        note="sampled: a process that was at its limit for less than 0.1 s is missed; proved only by a rerun",
        sources=CGROUP,
        built=True,
    ),
)
