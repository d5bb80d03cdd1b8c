"""Causes: the harness around the model: its limits, its client, its tools.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import DOOR, PROVED, H, I, cause

HARNESS: Final = (
    cause(
        "harness.timeout",
        "harness",
        (H,),
        PROVED,
        "The harness's time limit fired.",
        "Compare the limit with what the task needs.",
    ),
    cause(
        "harness.inner_timeout",
        "harness",
        (H,),
        PROVED,
        "A limit inside the harness fired.",
        "Raise the inner limit.",
    ),
    cause(
        "harness.client_timeout",
        "harness",
        (H,),
        PROVED,
        "The client gave up {times} after {silence} without a byte (step {step}'s reply). That is shorter than the "
        "{watchdog} for which this client is known to wait.",
        "Raise the client's own timeout; if the call still fails, the model API is stalled.",
        note="proved only when bytes were coming as the client closed; suspected when it had not read or not sent",
        sources=DOOR,
        built=True,
    ),
    cause("harness.watchdog", "harness", (H,), PROVED, "The harness's watchdog fired.", "Raise the watchdog."),
    cause(
        "harness.killed",
        "harness",
        (H, I),
        PROVED,
        "The command was ended by a signal while the call of step {step} was open.",
        "Find out who sent it, then run the trial again.",
        note="suspected while the sender is unknown",
        sources=DOOR,
        built=True,
    ),
    cause(
        "harness.tool_host_dead",
        "harness",
        (H,),
        PROVED,
        "The process that runs the harness's tools died.",
        "Run the trial again.",
    ),
    cause("harness.retry_storm", "harness", (H,), PROVED, "The harness retried without end.", "Lower its retries."),
    cause(
        "harness.compaction_storm",
        "harness",
        (H,),
        PROVED,
        "The harness compacted without end.",
        "Report it to the harness's authors.",
    ),
    cause(
        "harness.swallowed",
        "harness",
        (H,),
        PROVED,
        "The harness took an error for an answer.",
        "Report it to the harness's authors.",
    ),
    cause(
        "harness.crashed",
        "harness",
        (H,),
        PROVED,
        "The command itself crashed ({signal}) while the call for step {step}'s reply was open.",
        "Read the command's last lines and its core file, or report it to its authors.",
        note="suspected: a process of the trial could have sent the signal",
        sources=DOOR,
        built=True,
    ),
)
