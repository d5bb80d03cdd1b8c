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
        "The time limit of {limit} fired after {elapsed} ({source}), and trials of this task that passed needed "
        "{need}.",
        "Give the task the time that it needs, or say that the limit is a part of it.",
        note="suspected, and only where passed trials of the task needed longer; a limit that fired is `ended_as`, not "
        "a cause",
        sources=("run",),
        built=True,
    ),
    cause(
        "harness.inner_timeout",
        "harness",
        (H,),
        PROVED,
        "A timer inside the harness ended {attempts} at the same length ({length}) while bytes were still coming, the "
        "last one in step {step}.",
        "Raise that timer in the harness's settings; the limit that the task names is another one.",
        note="three ends of one length at least; suspected when only the harness's own words name a longer limit",
        sources=DOOR,
        built=True,
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
    cause(
        "harness.watchdog",
        "harness",
        (H,),
        PROVED,
        "The harness's watchdog ended step {step}'s reply {times} while the model API was still sending pings: the "
        "model was at work and had sent no words for {quiet}.",
        "Raise the watchdog, or let it count pings as signs of life.",
        note="proved when pings were coming as the client closed",
        sources=DOOR,
        built=True,
    ),
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
        "{container}, in which the tools ran, ended by itself in step {step} (exit code {code}) while the agent went "
        "on: {later} asked for tools that had no place to run.",
        "Let the container live as long as the trial (look for a `sleep` or a time limit as its main process).",
        note="proved when its main process ended with 0 and no command was running in it",
        sources=("collector.docker_events",),
        built=True,
    ),
    cause(
        "harness.retry_storm",
        "harness",
        (H,),
        PROVED,
        "The harness asked {attempts} for step {step}'s reply within {seconds}, {why}.",
        "Lower its retries and let it keep to `retry-after`.",
        note="suspected: what the first failure was counts as well",
        sources=DOOR,
        built=True,
    ),
    cause(
        "harness.compaction_storm",
        "harness",
        (H,),
        PROVED,
        "The harness summed its history up {times} in a row with at most one step between, from step {step} on, and "
        "came to no more work.",
        "Give it a larger context window or smaller tool results; report it to the harness's authors.",
        note="suspected: tool results that are too large for the window may be the model's doing",
        sources=DOOR,
        built=True,
    ),
    cause(
        "harness.swallowed",
        "harness",
        (H,),
        PROVED,
        "The harness took an error for an answer: step {step}'s call failed ({statuses}) and brought no content, and "
        "the next request's history holds a reply all the same.",
        "Report it to the harness's authors: an error must end the step or be asked again.",
        note="suspected: what the trial would have done with an answer is open",
        sources=DOOR,
        built=True,
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
