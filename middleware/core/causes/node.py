"""Causes: the machine under the container, and its container runtime.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import ASK_NODE, EVENTS, PROVED, SUSPECTED, I, cause

NODE: Final = (
    cause(
        "node.oom",
        "node",
        (I,),
        PROVED,
        "The whole node ran out of memory and the kernel killed {victim} in {container} in step {step}.",
        "Run the trial again on a node with fewer neighbours.",
        note="proved while the trial was within its guaranteed floor",
        sources=("collector.kernel_log",),
        built=True,
    ),
    cause(
        "node.pressure",
        "node",
        (I,),
        PROVED,
        "In step {step} the processes of {container} stood still for memory below their own limit, as the node did, "
        "for {lost} of the {length} that the command had.",
        ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=("collector.vmstat", "collector.cgroup"),
        built=True,
    ),
    cause(
        "node.contention",
        "node",
        (I,),
        PROVED,
        "In step {step} others had the cores of the node for {lost} of the {length} that the command of {container} "
        "had.",
        ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=("collector.vmstat", "collector.cgroup"),
        built=True,
    ),
    cause("node.lost", "node", (I,), PROVED, "The node was lost.", ASK_NODE),
    cause(
        "runtime.daemon_fault",
        "node",
        (I,),
        SUSPECTED,
        "The container engine {what} in step {step}, and no command of the trial worked in a container afterwards.",
        "Look why (journalctl -u docker, at {at}), then run the trial again.",
        note="suspected at best, since an agent with access to the engine can end it; also, when a limit "
        "fired, the time that it took to start commands",
        sources=EVENTS,
        built=True,
    ),
    cause(
        "runtime.exec_lost",
        "node",
        (I,),
        SUSPECTED,
        "The container engine broke off while a command of step {step} was running in it.",
        "Look why the engine stopped (journalctl -u docker), then run the trial again.",
        note="suspected at best, since an agent with access to the engine can end it",
        sources=("door.docker",),
        built=True,
    ),
)
