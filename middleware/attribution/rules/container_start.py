"""The trial's container could not be made or started, or its image not be pulled, before the agent's first question.

Recognises: an answer of the engine at the Docker door that refuses a create, a start (`container.start_failed`) or a
pull (`container.image_pull`), in the set-up phase, when no later request of the same kind went well.  Whose doing by
the kind of the refusal (`wire/docker_errors.py`): a registry that limits, fails, is silent or out of reach, a full
disk, a broken runtime or network: infra; a port, a name, a device, a mount, a credential, a certificate: the
operator's; a command or an image that does not exist: the task's.  A pull that failed tells why its container was not
made, so the create behind it is not told as well.
Deliberately does not: look at what was refused after the agent's first question, since the model may have asked for it;
believe the words of a refusal further than its kind.
How it can be wrong: an agent whose calls go past the model door is taken for one that has not begun, and a `docker run`
of its own for the harness's.  That no call was seen proves nothing about it, so this is `suspected`; it costs one rerun
of a trial whose calls could not be seen.  A trial without a step ended as *never ran* all the same: it is not graded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import evidence, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.sentences import clean, fill
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, PhaseName
from fairtrial.middleware.steps.placed import Placed

_OPERATOR: Final = frozenset(
    {"port_taken", "name_taken", "no_device", "bad_mount", "denied", "tls", "not_running", "no_container"}
)
_TASK: Final = frozenset({"no_command", "no_image", "bad_name"})

WORDS: Final[dict[str, str]] = {
    "rate_limited": "the registry limits how many pulls it serves",
    "no_space": "the disk was full",
    "denied": "access was denied",
    "no_image": "there is no such image",
    "bad_name": "its name is not valid",
    "dns": "a name could not be resolved",
    "tls": "a certificate was not accepted",
    "registry_error": "the registry failed",
    "unreachable": "a host could not be reached",
    "timeout": "it took too long",
    "port_taken": "a port was taken",
    "name_taken": "a container of that name was there",
    "no_command": "its command does not exist in it",
    "no_device": "a device was not there",
    "bad_mount": "a mount was not valid",
    "not_running": "a container that it needs did not run",
    "no_container": "there was no such container",
    "no_network": "the engine's network was broken",
    "runtime_gone": "the engine's runtime was broken",
}
"""What each kind of refusal is to a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    cause: str
    placed: Placed
    what: str
    error: str
    status: int | None


def find(ctx: Context) -> list[Event]:
    """At most one event: the last pull that failed, else the last container that could not be started."""
    last = _last(_pulls(ctx)) or _last(_containers(ctx))
    return [] if last is None else [_event(ctx, last)]


def _pulls(ctx: Context) -> list[tuple[Placed, _Refusal | None]]:
    return [
        (
            placed,
            None
            if one.error is None
            else _Refusal(
                cause="container.image_pull",
                placed=placed,
                what=f"image {clean(one.image, 80)}" if one.image else "an image",
                error=one.error,
                status=one.status,
            ),
        )
        for placed, one in ctx.case.pulls
    ]


def _containers(ctx: Context) -> list[tuple[Placed, _Refusal | None]]:
    found: list[tuple[Placed, _Refusal | None]] = []
    for placed, one in ctx.case.asked_of_containers:
        if one.action == "start" and one.status in (204, 304):
            found.append((placed, None))
        elif one.action in {"create", "start"} and one.error is not None:
            refusal = _Refusal(
                cause="container.start_failed",
                placed=placed,
                what="a container of the trial",
                error=one.error,
                status=one.status,
            )
            found.append((placed, refusal))
    return found


def _last(told: list[tuple[Placed, _Refusal | None]]) -> _Refusal | None:
    """The last request of its kind, if it was refused in the set-up phase: what went well later mends it."""
    if not told:
        return None
    refusal = max(told, key=lambda one: one[0].at_ns)[1]
    return refusal if refusal is not None and refusal.placed.phase is PhaseName.SETUP else None


def _event(ctx: Context, refusal: _Refusal) -> Event:
    cause = CAUSES[refusal.cause]
    blame = Blame.OPERATOR if refusal.error in _OPERATOR else Blame.TASK if refusal.error in _TASK else Blame.INFRA
    ids = [refusal.placed.id]
    why = WORDS.get(refusal.error, f"the engine answered HTTP {refusal.status}")
    ran = ctx.ever_completed
    return Event(
        cause=cause.name,
        blame=blame,
        best=Grade.SUSPECTED,
        standing=Standing.DISTORTING if ran else Standing.TERMINAL,
        ends_call=False,
        step=None,
        phase=refusal.placed.phase,
        at_ns=refusal.placed.at_ns,
        happened=yes(ids),
        ended_or_distorted=unknown(ids) if ran else yes(ids),
        outcome_differs=unknown(ids),
        sentence=fill(cause.template, {"what": refusal.what, "failure": why}),
        advice=cause.advice,
        flips_if="turns to the model if the agent, its calls unseen, asked for it itself",
        fact=Grade.SUSPECTED,
        needs_door=bool(ctx.case.trial.steps),
        evidence=(evidence(refusal.placed, f"the engine refused: {why}"),),
    )
