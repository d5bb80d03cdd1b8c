"""Who did something to a container, as far as it can be told: the trial's own side, or nobody known.

In: a case, a container, a moment.  Out: whether the trial's own client asked the engine for it at the Docker door,
whether the trial still used the container, whether the agent's tools run inside it.  What this module does not do:
judge; what went to the engine past the door is not seen by it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase, ExecSeen
from fairtrial.middleware.attribution.tool_steps import NOT_NORMAL
from fairtrial.middleware.core.records import PhaseName
from fairtrial.middleware.steps.placed import Placed
from fairtrial.middleware.steps.placing import STRUCK_NS

LATE_DIE_NS: Final = 500_000_000
"""An engine with other work to do tells of a death this late (67 ms seen on a machine of two cores, load 5).  It counts
where the first process was killed from outside: no command of the model's can do that, so one that died by SIGKILL just
before died of it."""

ENDING: Final = frozenset({"kill", "stop", "restart", "remove"})
"""Requests that end a container's life."""
_BEFORE_NS: Final = 5_000_000
"""Beside twice what the runtime's events say of their times.  No more: a harness that clears up at once after an end
from outside (50 ms on a quiet machine) did not ask for it."""
_UNTOLD_S: Final = 0.05
_COMPOSE: Final = ("com.docker.compose.project", "com.docker.compose.service")
_ENGINE_NS: Final = 10_000_000_000
"""An engine that goes or comes back deals with its containers within this."""
_AFTER_NS: Final = 11_000_000_000
"""A stop whose client has left is still carried out: 10 s of patience are the runtime's default."""
_EVENTS: Final = "collector.docker_events"
_SAME_NS: Final = 1_000_000_000


def in_time(case: Case, placed: Placed) -> bool:
    """In the time of set-up or agent, before the command's end."""
    before_end = case.ended_ns is None or placed.at_ns < case.ended_ns
    return placed.phase in {PhaseName.AGENT, PhaseName.SETUP} and before_end


def asked_for(case: Case, container: ContainerCase, at_ns: int, actions: Collection[str] = ENDING) -> bool:
    """Whether the trial's own client asked for it at the Docker door, by id, the beginning of it, or name."""
    name = (container.seen.name or "").lstrip("/") if container.seen is not None else ""
    called = [container.id, *({name} - {""}), *(ref for ref in case.short_refs if container.id.startswith(ref))]
    return any(
        one.action in actions
        and (one.status is None or one.status < 400)  # a client may leave before the answer: the stop is carried out
        and one.started_wall_ns is not None
        and -_before_ns(container) <= at_ns - one.started_wall_ns <= round((one.duration or 0.0) * 1e9) + _AFTER_NS
        for ref in called
        for one in case.asked_by_ref.get(ref, ())
    )


def _before_ns(container: ContainerCase) -> int:
    """How far the runtime's clock may be off ours: 2 ms where it is the same machine's."""
    told = [p.observation.uncertainty_s for p, _ in container.events]
    told += [p.observation.uncertainty_s for p, _ in container.ends]
    return round(2e9 * max(told, default=_UNTOLD_S)) + _BEFORE_NS


def after_last_word(case: Case, at_ns: int) -> bool:
    """Whether the agent had said its last word by then: what the harness does after it, a check or its clean-up, is no
    work of the agent's."""
    last = case.last_main
    if last is None or last.step is None or last.ended_ns is None or at_ns < last.ended_ns:
        return False
    return case.finished_in_words and not case.may_run_tools(last.step)


def running_at(container: ContainerCase, at_ns: int, struck_ns: int = STRUCK_NS) -> list[ExecSeen]:
    """Commands of the trial that ran in it then, or that were struck by it: the runtime may tell of a death a moment
    before the kill itself.  Behind one that ended by itself the container still lived, and had struck none."""
    ends = [(e.ended.at_ns, e.exit_code) for execs in container.execs.values() for e in execs if e.ended is not None]
    alive_ns = max((ns for ns, code in ends if ns < at_ns and code not in {None, *NOT_NORMAL}), default=0)
    return [
        one
        for execs in container.execs.values()
        for one in execs
        if one.started is not None and one.started.at_ns <= at_ns and _runs_until(one, at_ns, struck_ns, alive_ns)
    ]


def _runs_until(one: ExecSeen, at_ns: int, struck_ns: int, alive_ns: int) -> bool:
    if one.ended is None or one.ended.at_ns >= at_ns:
        return True
    return one.exit_code == 137 and at_ns - one.ended.at_ns <= struck_ns and one.ended.at_ns > alive_ns


def struck_step(container: ContainerCase, placed: Placed, struck_ns: int = STRUCK_NS) -> int | None:
    """The step of a command that died with its container: the engine tells of the container's end some 30 ms after the
    processes died, and a quick agent has asked its model again by then."""
    struck = [one.step for one in running_at(container, placed.at_ns, struck_ns) if one.step is not None]
    return min(struck, default=placed.step)


def went_on(case: Case, at_ns: int) -> bool:
    """Whether the agent asked its model again after that."""
    return any(call.started_ns > at_ns for call in case.main_calls)


def heir_of(case: Case, container: ContainerCase, at_ns: int) -> tuple[Placed, ContainerCase] | None:
    """The container of the same compose service that took the place of a removed one after that, and its first sight.

    Told by labels: nothing joins by name.
    """
    mine = _place_of(container)
    if mine is None or not any(v.action == "destroy" for _, v in container.events):
        return None
    for other in case.containers.values():
        begun = other.seen_at
        if other is not container and begun is not None and begun.at_ns > at_ns and _place_of(other) == mine:
            return begun, other
    return None


def _place_of(container: ContainerCase) -> tuple[str, ...] | None:
    labels = {} if container.seen is None else container.seen.labels
    place = tuple(labels.get(name, "") for name in _COMPOSE)
    return place if all(place) else None


def with_step(template: str, step: int | None) -> str:
    """The template for an event before the first step: it names none."""
    return template if step is not None else template.replace(" in step {step}", "")


def used_after(case: Case, at_ns: int) -> bool:
    """Whether the agent went on: it asked its model again, or a reply that was on its way then asked for a tool that
    never brought a result."""
    last = case.last_main
    waits = case.waiting_for is not None and last is not None and last.ended_ns is not None and last.ended_ns > at_ns
    return waits or went_on(case, at_ns)


def engine_losses(case: Case) -> list[tuple[Placed, Placed | None]]:
    """When the engine went, and when it came back as another process, if it did; a stream that only broke is none.

    Where it cannot be told if it is the same process, a hole in its events that begins with the loss says that it went.
    """
    found: list[tuple[Placed, Placed | None]] = []
    lost: Placed | None = None
    for placed, value in case.runtime:
        if value.state == "lost":
            lost = lost or placed
        elif lost is not None:
            holes = [gap.since_ns for _, gap in case.gaps if gap.source == _EVENTS and gap.since_ns is not None]
            holed = any(abs(since_ns - lost.at_ns) <= _SAME_NS for since_ns in holes)
            if value.restarted or (value.restarted is None and holed):
                found.append((lost, placed))
            lost = None
    return [*found, (lost, None)] if lost is not None else found


def with_engine(case: Case, at_ns: int) -> bool:
    """Whether the engine went or came back at that time: then it ended its containers, or lost sight of them."""
    return any(
        lost.at_ns - _ENGINE_NS <= at_ns and (back is None or at_ns <= back.at_ns + _ENGINE_NS)
        for lost, back in engine_losses(case)
    )


def there_before(case: Case, container: ContainerCase) -> bool:
    """Whether it was started before the model had said anything: no command of the model's can have made it."""
    if container.seen is None or container.seen_at is None:
        return False
    begun = container.seen.started_wall_ns or container.seen_at.at_ns
    first = next((call.ended_ns for call in case.main_calls if call.ended_ns is not None), None)
    return first is None or begun <= first


def works_inside(case: Case, step: int | None) -> bool:
    """Whether the model's own commands, up to this step and in it, were run by the harness inside containers.

    They were where the text that the model wrote is the text that the engine ran.  Then the model reaches the host, its
    processes and its engine only through what such a container was given; else its commands may have run beside them.
    """
    tools = [tool for one in case.trial.steps[: step or 0] for tool in one.tools if tool.call_id is not None]
    return bool(tools) and all(tool.join == "text" for tool in tools)
