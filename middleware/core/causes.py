"""The closed table of causes: what fairtrial may say ended or distorted a trial, and what follows from it.

In: nothing.  Out: `CAUSES`, one row per cause of this ruleset, and `answers`, what a harness may do next.
What this module does not do: decide whether a cause holds (`attribution/rules/`).

A prefix does not imply the blame: `may_blame` does.  `best` is the best grade that the cause's own evidence can reach
without a counterfactual.  A row with `built` False has no source in this version: no rule may report it and no
hand-written observation stands for it; the docs page marks it "no source yet".
A cause read from a newer store that is not in the table is shown as it is.
`docs/causes.md` is generated from this table (`python -m fairtrial.middleware.attribution.causes_page`).

Templates are sentences with named places; a value that was not observed is put in as "an unknown …" by
`attribution/sentences.py`, so a template names only nouns that read well after it.
**Source:** design page RECORDS.md, section Causes; facts per cause: reference page taxonomy.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fairtrial.middleware.core.records import Answer, Answers, Blame, Grade

_I, _M, _H, _O, _T, _F = (
    Blame.INFRA,
    Blame.MODEL,
    Blame.HARNESS,
    Blame.OPERATOR,
    Blame.TASK,
    Blame.FAIRTRIAL,
)
_PROVED, _SUSPECTED = Grade.PROVED, Grade.SUSPECTED

_DOOR: Final = ("door.model",)
_CGROUP: Final = ("collector.cgroup",)
_KILLS: Final = ("collector.cgroup", "collector.vmstat", "collector.kernel_log")
_EVENTS: Final = ("collector.docker_events",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One row: a name, who may be blamed for it, how well it can be known, and what to say and do."""

    name: str
    family: str
    """The family of coverage (`records.FAMILIES`) that sees it, or "harness", "operator", "task", "observer"."""
    may_blame: tuple[Blame, ...]
    best: Grade
    note: str
    """What raises or limits `best`, or what the cause includes; one clause."""
    sources: tuple[str, ...]
    """Sources without which it cannot be reported; a name stands for all that begin with it."""
    template: str
    advice: str
    """What to do next, one sentence."""
    built: bool = False


def _cause(
    name: str,
    family: str,
    may_blame: tuple[Blame, ...],
    best: Grade,
    template: str,
    advice: str,
    *,
    note: str = "",
    sources: tuple[str, ...] = (),
    built: bool = False,
) -> Cause:
    return Cause(
        name=name,
        family=family,
        may_blame=may_blame,
        best=best,
        note=note,
        sources=sources,
        template=template,
        advice=advice,
        built=built,
    )


_RETRY_LATER: Final = "Run the trial again when the provider answers; do not count this one against the model."
_ASK_NODE: Final = "Run the trial again on another node or with fewer trials at once."

_MODEL_API: Final = (
    _cause(
        "model_api.overloaded",
        "model_api",
        (_I,),
        _PROVED,
        "The model API was overloaded: {attempts} to get step {step}'s reply failed ({statuses}) within {seconds}.",
        _RETRY_LATER,
        note="when terminal",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.rate_limited",
        "model_api",
        (_I, _O),
        _PROVED,
        "The model API's rate limit was reached: {attempts} to get step {step}'s reply failed ({statuses}) within "
        "{seconds}.",
        "Run the trial again with fewer trials at once, or ask for a higher limit.",
        note="when terminal; the operator's for a per-key limit that this run's own trials share",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.server_error",
        "model_api",
        (_I,),
        _PROVED,
        "The model API had an error of its own: {attempts} to get step {step}'s reply failed ({statuses}) within "
        "{seconds}.",
        _RETRY_LATER,
        note="when terminal",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.truncated",
        "model_api",
        (_I,),
        _PROVED,
        "The provider cut the connection in the middle of step {step}'s reply ({attempts} within {seconds}; "
        "{bytes_down} received, no end mark).",
        _RETRY_LATER,
        note="when terminal; a cut reply that the client kept: proved only if a tool call or the stop reason was "
        "lost and the trial ended within that turn",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.unreachable",
        "model_api",
        (_I,),
        _PROVED,
        "The model API at {upstream} had answered before and then could not be reached ({failure}): {attempts} to get "
        "step {step}'s reply failed within {seconds}.",
        _RETRY_LATER,
        note="when terminal, and the upstream had answered earlier in this run",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.stalled",
        "model_api",
        (_I,),
        _PROVED,
        "The model API sent no byte of step {step}'s reply for {silence}, until the client gave up.",
        _RETRY_LATER,
        note="when the silence, pings counted, had reached the client's own watchdog",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.timeout",
        "model_api",
        (_I, _H),
        _SUSPECTED,
        "The model API timed out on its own side: {attempts} to get step {step}'s reply failed ({statuses}) within "
        "{seconds}.",
        "Run the trial again; if it happens again, make the request smaller or the time limit longer.",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.slow",
        "model_api",
        (_I, _H),
        _SUSPECTED,
        "Calls took longer than the frozen reference for this model expects.",
        "Run the trial again at another hour, or with a longer time limit.",
        note="needs a frozen reference of call durations",
        sources=_DOOR,
    ),
    _cause(
        "model_api.client_error",
        "model_api",
        (_H, _O, _M),
        _SUSPECTED,
        "The model API refused step {step}'s request as wrong ({statuses}, {error_type}).",
        "Read the error that the client printed: the request has to change, running it again will not help.",
        note="400, 404 for a model, 413, 422",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "model_api.poison_request",
        "model_api",
        (_I, _M),
        _SUSPECTED,
        "The model API failed on one request body while other bodies to the same model passed.",
        "Report the request to the provider.",
        note="5xx at least three times for one body while others pass within 60 s",
        sources=_DOOR,
    ),
    _cause(
        "model_api.degraded",
        "model_api",
        (_I, _M),
        _SUSPECTED,
        "The provider reported degraded quality while this trial ran.",
        "Repeat the trials of that hour.",
        note="needs the provider's incident window and repeated runs",
    ),
    _cause(
        "gateway.error",
        "model_api",
        (_I, _O),
        _PROVED,
        "A gateway answered in place of the provider ({failure}, no provider request id): {attempts} to get step "
        "{step}'s reply failed within {seconds}.",
        "Look at the gateway's log at that time, then run the trial again.",
        note="502, 503, 504 or HTML without the provider's request id",
        sources=_DOOR,
        built=True,
    ),
)

_CONTAINER: Final = (
    _cause(
        "container.oom_kill",
        "memory",
        (_I, _M, _H, _T),
        _SUSPECTED,
        "The kernel killed {victim} in {container} in step {step} because its memory limit of {limit} was reached "
        "({kills}; peak {peak}).",
        "To decide whose demand it was, run {what} again in a container with up to {ceiling} "
        "({k} x {limit}): if it passes there, the limit was at fault; if it is killed again, the model was.",
        note="proved only by more than the kill: the command run again, other trials' peaks, a host-side kill within "
        "the floor, harness support alone over the ceiling",
        sources=_KILLS,
        built=True,
    ),
    _cause(
        "container.oom_residual",
        "memory",
        (_I, _M, _H, _T),
        _SUSPECTED,
        "Step {step} ran in {container} without memory: {residue} that step {writer} had written stayed charged to "
        "its limit of {limit}, and the kernel killed {victim}.",
        "To decide whose demand it was, run {what} again in a container with up to {ceiling} "
        "({k} x {limit}): if the later steps pass there, the limit was at fault; if not, the model was.",
        note="inherits the answer of the step that wrote it",
        sources=_KILLS,
        built=True,
    ),
    _cause(
        "container.memory_denied",
        "memory",
        (_I, _M),
        _SUSPECTED,
        "The memory limit of {limit} of {container} was reached in step {step}, and a process was refused memory or "
        "kept waiting for it without a kill.",
        "Run the command again with a higher ceiling.",
        note="by the cgroup's own count; ENOMEM under `ulimit`, a heap sized from it and exit 134 move no counter",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.memory_stall",
        "memory",
        (_I, _M),
        _SUSPECTED,
        "In step {step} the processes of {container} stood still for memory at its limit for {lost} of {length}, and a "
        "limit of time ended the command.",
        "Run the command again with a higher ceiling.",
        note="thrash, memory.high; decided only by a rerun",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.killed",
        "node",
        (_I, _H, _O),
        _PROVED,
        "Somebody outside stopped {container} through the container runtime in step {step} (signal {signal}) while "
        "the trial was still using it.",
        "Find out who stopped it (the runtime's events name the time: {at}), then run the trial again.",
        note="proved only when the killer is known",
        sources=_EVENTS,
        built=True,
    ),
    _cause(
        "container.restarted",
        "node",
        (_I, _H, _O),
        _PROVED,
        "The container was restarted in the middle of the trial.",
        _ASK_NODE,
    ),
    _cause(
        "container.state_lost",
        "node",
        (_I, _H, _O),
        _PROVED,
        "The container's files were lost in the middle of the trial.",
        _ASK_NODE,
    ),
    _cause(
        "container.evicted",
        "node",
        (_I, _H, _O),
        _PROVED,
        "The node evicted the trial's pod.",
        _ASK_NODE,
    ),
    _cause(
        "container.service_died",
        "node",
        (_I, _H, _O),
        _PROVED,
        "A service container of the task died.",
        "Run the trial again.",
    ),
    _cause(
        "container.cpu_throttled",
        "cpu",
        (_I, _M),
        _SUSPECTED,
        "In step {step} {container} stood still at its CPU limit for {lost} of the {length} that its command had.",
        "Run the trial again with a higher CPU ceiling.",
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.disk_slow",
        "disk",
        (_I, _M),
        _SUSPECTED,
        "In step {step} the processes of {container} waited for the disk for {lost} of the {length} that the command "
        "had.",
        _ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.disk_full",
        "disk",
        (_I, _M),
        _SUSPECTED,
        "{mount} of {container} ({size}) was full in step {step}: {room}.",
        "Free the disk, then run the trial again.",
        note="the model's over 80 % of the growth; proved only by a rerun, since no counter tells who was refused",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.pids_limit",
        "cpu",
        (_I, _M),
        _SUSPECTED,
        "{container} reached its limit of {tasks} in step {step}, and {hits} failed.",
        "Run the trial again with a higher limit of processes.",
        note="the model's over 80 % of the tasks, or when they grew within one step; proved only by a rerun",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.fd_limit",
        "cpu",
        (_I, _M),
        _SUSPECTED,
        "{victim} in {container} had as many open files as its limit of {limit} allows in step {step}.",
        "Run the trial again with a higher limit of open files.",
        note="sampled: a process that was at its limit for less than 0.1 s is missed; proved only by a rerun",
        sources=_CGROUP,
        built=True,
    ),
    _cause(
        "container.start_failed",
        "node",
        (_I, _O, _T),
        _PROVED,
        "The container could not be started.",
        "Read the runtime's error, then run the trial again.",
        note="never ran",
    ),
    _cause(
        "container.image_pull",
        "node",
        (_I, _O, _T),
        _PROVED,
        "The image could not be pulled.",
        "Check the image's name and the registry, then run the trial again.",
        note="never ran",
    ),
)

_NODE: Final = (
    _cause(
        "node.oom",
        "node",
        (_I,),
        _PROVED,
        "The whole node ran out of memory and the kernel killed {victim} in {container} in step {step}.",
        "Run the trial again on a node with fewer neighbours.",
        note="proved while the trial was within its guaranteed floor",
        sources=("collector.kernel_log",),
        built=True,
    ),
    _cause(
        "node.pressure",
        "node",
        (_I,),
        _PROVED,
        "In step {step} the processes of {container} stood still for memory below their own limit, as the node did, "
        "for {lost} of the {length} that the command had.",
        _ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=("collector.vmstat", "collector.cgroup"),
        built=True,
    ),
    _cause(
        "node.contention",
        "node",
        (_I,),
        _PROVED,
        "In step {step} others had the cores of the node for {lost} of the {length} that the command of {container} "
        "had.",
        _ASK_NODE,
        note="proved when the time it took is what the limit that fired lacked; without that measure nobody is blamed",
        sources=("collector.vmstat", "collector.cgroup"),
        built=True,
    ),
    _cause("node.lost", "node", (_I,), _PROVED, "The node was lost.", _ASK_NODE),
    _cause(
        "runtime.daemon_fault",
        "node",
        (_I,),
        _PROVED,
        "The container runtime failed.",
        "Restart the runtime, then run the trial again.",
    ),
    _cause(
        "runtime.exec_lost",
        "node",
        (_I,),
        _SUSPECTED,
        "The container engine broke off while a command of step {step} was running in it.",
        "Look why the engine stopped (journalctl -u docker), then run the trial again.",
        note="suspected at best, since an agent with access to the engine can end it",
        sources=("door.docker",),
        built=True,
    ),
)

_NETWORK_NOTE: Final = "proved only with a control vantage"
_NETWORK: Final = (
    _cause(
        "network.dns",
        "network",
        (_I, _M, _O),
        _PROVED,
        "A name could not be resolved.",
        "Check the resolver, then run the trial again.",
        note=_NETWORK_NOTE,
    ),
    _cause(
        "network.tls",
        "network",
        (_I, _M, _O),
        _PROVED,
        "The TLS handshake with {upstream} failed ({failure}): {attempts} to get step {step}'s reply within {seconds}.",
        "Check the proxy and the CA certificates that the client is given (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS).",
        note=_NETWORK_NOTE + "; the operator's when the trust store is at fault",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "network.unreachable",
        "network",
        (_I, _M, _O),
        _PROVED,
        "A host could not be reached.",
        "Run the trial again.",
        note=_NETWORK_NOTE,
    ),
    _cause(
        "network.reset",
        "network",
        (_I, _M, _O),
        _PROVED,
        "A connection was reset.",
        "Run the trial again.",
        note=_NETWORK_NOTE,
    ),
    _cause(
        "network.slow",
        "network",
        (_I, _M, _O),
        _PROVED,
        "The network was slow.",
        "Run the trial again.",
        note=_NETWORK_NOTE,
    ),
    _cause(
        "network.mirror",
        "network",
        (_I, _M, _O),
        _PROVED,
        "A package mirror failed.",
        "Run the trial again.",
        note=_NETWORK_NOTE,
    ),
    _cause(
        "network.proxy",
        "network",
        (_I, _M, _O),
        _PROVED,
        "The proxy towards {upstream} refused or failed ({failure}): {attempts} to get step {step}'s reply "
        "over {seconds}.",
        "Check the proxy that HTTPS_PROXY or HTTP_PROXY names, then run the trial again.",
        note=_NETWORK_NOTE,
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "network.blocked",
        "network",
        (_O, _M),
        _PROVED,
        "A rule blocked the connection.",
        "Allow the host, or tell the model that it is not allowed.",
        note="proved when the rule is ours",
    ),
    _cause("clock.skew", "node", (_I,), _PROVED, "The clock was wrong.", "Set the clock, then run the trial again."),
)

_HARNESS: Final = (
    _cause(
        "harness.timeout",
        "harness",
        (_H,),
        _PROVED,
        "The harness's time limit fired.",
        "Compare the limit with what the task needs.",
    ),
    _cause(
        "harness.inner_timeout",
        "harness",
        (_H,),
        _PROVED,
        "A limit inside the harness fired.",
        "Raise the inner limit.",
    ),
    _cause(
        "harness.client_timeout",
        "harness",
        (_H,),
        _PROVED,
        "The client gave up {times} after {silence} without a byte (step {step}'s reply). That is shorter than the "
        "{watchdog} for which this client is known to wait.",
        "Raise the client's own timeout; if the call still fails, the model API is stalled.",
        note="proved only when bytes were coming as the client closed; suspected when it had not read or not sent",
        sources=_DOOR,
        built=True,
    ),
    _cause("harness.watchdog", "harness", (_H,), _PROVED, "The harness's watchdog fired.", "Raise the watchdog."),
    _cause(
        "harness.killed",
        "harness",
        (_H, _I),
        _PROVED,
        "The command was ended by a signal while the call of step {step} was open.",
        "Find out who sent it, then run the trial again.",
        note="suspected while the sender is unknown",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "harness.tool_host_dead",
        "harness",
        (_H,),
        _PROVED,
        "The process that runs the harness's tools died.",
        "Run the trial again.",
    ),
    _cause("harness.retry_storm", "harness", (_H,), _PROVED, "The harness retried without end.", "Lower its retries."),
    _cause(
        "harness.compaction_storm",
        "harness",
        (_H,),
        _PROVED,
        "The harness compacted without end.",
        "Report it to the harness's authors.",
    ),
    _cause(
        "harness.swallowed",
        "harness",
        (_H,),
        _PROVED,
        "The harness took an error for an answer.",
        "Report it to the harness's authors.",
    ),
    _cause(
        "harness.crashed",
        "harness",
        (_H,),
        _PROVED,
        "The command itself crashed ({signal}) while the call for step {step}'s reply was open.",
        "Read the command's last lines and its core file, or report it to its authors.",
        note="suspected: a process of the trial could have sent the signal",
        sources=_DOOR,
        built=True,
    ),
)

_OPERATOR: Final = (
    _cause(
        "operator.auth",
        "operator",
        (_O,),
        _PROVED,
        "The credentials were not accepted ({failure}): {attempts} to get step {step}'s reply failed ({statuses}).",
        "Put a valid key into the environment of the command, then run the trial again.",
        note="401, 403, 407",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "operator.budget",
        "operator",
        (_O,),
        _PROVED,
        "A spending limit stopped the call for step {step}'s reply ({statuses}).",
        "Raise the spending limit, then run the trial again.",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "operator.quota",
        "operator",
        (_O,),
        _PROVED,
        "The account's quota or credit was used up ({statuses}) at the call for step {step}'s reply.",
        "Add credit or wait for the quota, then run the trial again.",
        note="402, or 429 that names a quota or credit",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "operator.policy",
        "operator",
        (_O,),
        _PROVED,
        "A policy of the operator stopped the trial.",
        "Change the policy, or leave the task out.",
    ),
    _cause(
        "operator.endpoint",
        "operator",
        (_O,),
        _PROVED,
        "No model API answered at {upstream} in this trial ({failure}): {attempts} to get step {step}'s reply failed "
        "within {seconds}.",
        "Check the address in the base URL (host, port, path) and that this machine can reach it.",
        note="an upstream that never sent a response head in this run, or 404 for the path",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "operator.cancelled",
        "operator",
        (_O,),
        _PROVED,
        "Somebody sent {signal} to fairtrial, which passed it on to the command.",
        "Run the trial again if that was not meant to judge it.",
        note="suspected: a process of the same user could have sent it",
        sources=("run",),
        built=True,
    ),
)

_TASK: Final = (
    _cause("task.broken", "task", (_T,), _SUSPECTED, "The task itself is broken.", "Run its oracle."),
    _cause("task.verifier_fault", "verifier", (_T,), _SUSPECTED, "The verifier failed.", "Run the oracle."),
    _cause("task.impossible_limits", "task", (_T,), _SUSPECTED, "The limits are too low.", "Run the oracle."),
)

_OBSERVER: Final = (
    _cause(
        "observer.relay_fault",
        "observer",
        (_F,),
        _PROVED,
        "fairtrial's own relay broke {attempts} to get step {step}'s reply ({failure}).",
        "Leave this trial out of every score, and report it to fairtrial's authors.",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "observer.lag",
        "observer",
        (_F,),
        _PROVED,
        "fairtrial's own relay held step {step}'s reply back for {lag}, and the client gave up.",
        "Leave this trial out of every score, and run it again on a less loaded machine.",
        note="suspected: a process of the same user can stop fairtrial",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "observer.door_unreachable",
        "observer",
        (_F,),
        _PROVED,
        "fairtrial's model door was not open ({failure}), and no model call came through it.",
        "Leave this trial out of every score; free the port or the socket, and run it again.",
        note="suspected: the command may not have tried",
        sources=_DOOR,
        built=True,
    ),
    _cause(
        "observer.limit",
        "observer",
        (_F,),
        _PROVED,
        "fairtrial ran into a limit of its own process ({failure}) at the call for step {step}'s reply.",
        "Leave this trial out of every score, raise the limit of open files, and run it again.",
        sources=_DOOR,
        built=True,
    ),
)

_UNKNOWN: Final = (
    _cause(
        "unknown.outside",
        "node",
        (_I,),
        _SUSPECTED,
        "{container} was killed from outside in step {step}, and nothing says by whom.",
        "Look at the machine's log at {at}, then run the trial again.",
        note="needs a trace of signals: without one, exit 137 may be the trial's own doing",
    ),
)

CAUSES: Final[MappingProxyType[str, Cause]] = MappingProxyType(
    {
        cause.name: cause
        for group in (_MODEL_API, _CONTAINER, _NODE, _NETWORK, _HARNESS, _OPERATOR, _TASK, _OBSERVER, _UNKNOWN)
        for cause in group
    }
)
"""Every cause of this ruleset by name, in the order of RECORDS.md."""

_YES, _NO, _OPEN = Answer.YES, Answer.NO, Answer.UNKNOWN

_ANSWERS: Final[dict[tuple[Blame, Grade | None], Answers]] = {
    (Blame.INFRA, _PROVED): Answers(retry=_YES, grade=_NO, reward_valid=_NO),
    (Blame.INFRA, _SUSPECTED): Answers(retry=_YES, grade=_OPEN, reward_valid=_OPEN),
    (Blame.MODEL, _PROVED): Answers(retry=_NO, grade=_YES, reward_valid=_YES),
    (Blame.MODEL, _SUSPECTED): Answers(retry=_NO, grade=_YES, reward_valid=_YES),
    (Blame.HARNESS, _PROVED): Answers(retry=_OPEN, grade=_NO, reward_valid=_NO),
    (Blame.HARNESS, _SUSPECTED): Answers(retry=_OPEN, grade=_OPEN, reward_valid=_OPEN),
    (Blame.OPERATOR, _PROVED): Answers(retry=_NO, grade=_NO, reward_valid=_NO),
    (Blame.OPERATOR, _SUSPECTED): Answers(retry=_OPEN, grade=_NO, reward_valid=_NO),
    (Blame.TASK, _PROVED): Answers(retry=_NO, grade=_NO, reward_valid=_NO),
    (Blame.TASK, _SUSPECTED): Answers(retry=_OPEN, grade=_OPEN, reward_valid=_OPEN),
    (Blame.FAIRTRIAL, _PROVED): Answers(retry=_YES, grade=_NO, reward_valid=_NO),
    (Blame.FAIRTRIAL, _SUSPECTED): Answers(retry=_YES, grade=_NO, reward_valid=_NO),
    (Blame.NONE, None): Answers(retry=_NO, grade=_YES, reward_valid=_YES),
}


def answers(blame: Blame, grade: Grade | None) -> Answers:
    """What a harness may do with the trial: run it again, count it, believe its reward.

    An operator's fault is not worth a retry before somebody mends it; what is `indeterminate` leaves all three open.
    """
    return _ANSWERS.get((blame, grade), Answers())
