"""Causes: a container's memory: kills, what stays charged, what is denied, thrash.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import CGROUP, KILLS, SUSPECTED, H, I, M, T, cause

CONTAINER_MEMORY: Final = (
    cause(
        "container.oom_kill",
        "memory",
        (I, M, H, T),
        SUSPECTED,
        "The kernel killed {victim} in {container} in step {step} because its memory limit of {limit} was reached "
        "({kills}; peak {peak}).",
        "To decide whose demand it was, run {what} again in a container with up to {ceiling} "
        "({k} x {limit}): if it passes there, the limit was at fault; if it is killed again, the model was.",
        note="proved only by more than the kill: the command run again, other trials' peaks, a host-side kill within "
        "the floor, harness support alone over the ceiling",
        sources=KILLS,
        built=True,
    ),
    cause(
        "container.oom_residual",
        "memory",
        (I, M, H, T),
        SUSPECTED,
        "Step {step} ran in {container} without memory: {residue} that step {writer} had written stayed charged to "
        "its limit of {limit}, and the kernel killed {victim}.",
        "To decide whose demand it was, run {what} again in a container with up to {ceiling} "
        "({k} x {limit}): if the later steps pass there, the limit was at fault; if not, the model was.",
        note="inherits the answer of the step that wrote it",
        sources=KILLS,
        built=True,
    ),
    cause(
        "container.memory_denied",
        "memory",
        (I, M),
        SUSPECTED,
        "The memory limit of {limit} of {container} was reached in step {step}, and a process was refused memory or "
        "kept waiting for it without a kill.",
        "Run the command again with a higher ceiling.",
        note="by the cgroup's own count; ENOMEM under `ulimit`, a heap sized from it and exit 134 move no counter",
        sources=CGROUP,
        built=True,
    ),
    cause(
        "container.memory_stall",
        "memory",
        (I, M),
        SUSPECTED,
        "In step {step} the processes of {container} stood still for memory at its limit for {lost} of {length}, and a "
        "limit of time ended the command.",
        "Run the command again with a higher ceiling.",
        note="thrash, memory.high; decided only by a rerun",
        sources=CGROUP,
        built=True,
    ),
)
