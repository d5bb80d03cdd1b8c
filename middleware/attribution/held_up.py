"""Times in which a trial was held up outside its model calls: the engine, an image, a CPU limit.

In: a `Case`.  Out: `HeldUp` intervals for the ledger, each with the observation it rests on, and whether it is known
not to be the trial's own doing.
- Exec dispatch, as the Docker door saw it: what the engine's answers to the making and to the start of a command took
  above an ordinary second each.  Sure only where the readings around it show that the box was idle (less than half of
  that time at work, at its limit or under pressure, its memory limit not hit): a box that its own processes fill
  answers late as well.
- Creating and starting a container, and pulling an image, in the set-up phase: later the model may have asked for it.
  A pull that was refused counts when the registry's side failed; what the operator or the task has to mend does not.
- CPU throttling, from the cgroup's counter between two readings: no longer than what the counter, its pressure and the
  tool work between them say.  Never sure, since an endless loop is throttled as an honest build is.  While the model is
  being asked nobody waits for the box, so it is not counted then.  Where in the time between the readings it lay is not
  known; it is put at its end.
What has no source and is not here: the time in a scheduler's queue (no collector reads one), slow egress, what the
engine takes behind its answer until the process runs (it answers a start before it hands it on), and what its answers
to a client's questions around an exec take (the door reads what makes and starts, and no inspect or ping).
What this module does not do: join the intervals (`ledger.py`), judge (`rules/time_limit.py`, `rules/tool_limit.py`).

**Source:** design page VERDICTS.md section 4; kernel scheduler/sched-bwc.rst (throttled time is summed over cores).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase
from fairtrial.middleware.attribution.tool_steps import work_window
from fairtrial.middleware.core.observations import CgroupReading, DoorExec
from fairtrial.middleware.core.records import PhaseName
from fairtrial.middleware.steps.placed import Placed

DISPATCH: Final = "runtime.daemon_fault"
PULL: Final = "container.image_pull"
THROTTLED: Final = "container.cpu_throttled"

ORDINARY_S: Final = 1.0
"""An engine's answer within this time is ordinary, on a busy machine too."""
_IDLE: Final = 0.5
_REGISTRY: Final = frozenset({"rate_limited", "registry_error", "unreachable", "timeout", "dns", "runtime_gone"})
"""Kinds of refusal (`wire/docker_errors.py`) of a pull that no request by itself brings about."""
_OF_THE_TRIAL: Final = frozenset({PhaseName.SETUP, PhaseName.AGENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """One interval, wall ns."""

    cause: str
    since_ns: int
    until_ns: int
    placed: Placed
    sure: bool
    """False: it may be what the trial's own processes did."""
    claim: str


def held_up(case: Case) -> list[HeldUp]:
    """All of them, in no order; they may overlap."""
    return [*_dispatches(case), *_made(case), *_pulled(case), *_throttled(case)]


def _dispatches(case: Case) -> Iterator[HeldUp]:
    for placed in case.door_execs.values():
        value = placed.value
        if not isinstance(value, DoorExec) or placed.phase not in _OF_THE_TRIAL:
            continue
        asked = (
            ("start", value.started_wall_ns, value.dispatch_delay),
            ("making", value.created_wall_ns, value.create_delay),
        )
        for what, since, delay_s in asked:
            if since is None or delay_s is None or delay_s <= ORDINARY_S:
                continue
            until = since + round(delay_s * 1e9)
            yield HeldUp(
                cause=DISPATCH,
                since_ns=since + round(ORDINARY_S * 1e9),
                until_ns=until,
                placed=placed,
                sure=_idle(case, value.container_id, since, until),
                claim=f"the engine answered the {what} of a command after {delay_s:.1f} s",
            )


def _made(case: Case) -> Iterator[HeldUp]:
    for placed, value in case.asked_of_containers:
        if value.action not in {"create", "start"} or value.error is not None or placed.phase is not PhaseName.SETUP:
            continue
        if value.duration is None or value.duration <= ORDINARY_S or value.started_wall_ns is None:
            continue
        yield HeldUp(
            cause=DISPATCH,
            since_ns=value.started_wall_ns + round(ORDINARY_S * 1e9),
            until_ns=value.started_wall_ns + round(value.duration * 1e9),
            placed=placed,
            sure=True,
            claim=f"the engine took {value.duration:.1f} s to {value.action} a container",
        )


def _pulled(case: Case) -> Iterator[HeldUp]:
    for placed, value in case.pulls:
        if placed.phase is not PhaseName.SETUP or value.duration is None or value.started_wall_ns is None:
            continue
        if value.error is None or value.error in _REGISTRY:
            yield HeldUp(
                cause=PULL,
                since_ns=value.started_wall_ns,
                until_ns=value.started_wall_ns + round(value.duration * 1e9),
                placed=placed,
                sure=True,
                claim=f"pulling an image took {value.duration:.1f} s",
            )


# --- the CPU limit ----------------------------------------------------------------------------------------------------


def _throttled(case: Case) -> Iterator[HeldUp]:
    windows: list[tuple[int, int]] | None = None
    for container in case.containers.values():
        if container.role in {"own", "verifier"}:
            continue
        read = [(p, v) for p, v in container.readings if v.cpu_throttled is not None]
        for (before, old), (after, new) in pairwise(read):
            stood_s = (new.cpu_throttled or 0.0) - (old.cpu_throttled or 0.0)
            if stood_s <= 0 or after.phase is not PhaseName.AGENT:
                continue
            waited_s = _moved(old.psi_cpu, new.psi_cpu)
            if waited_s is not None:
                stood_s = min(stood_s, waited_s)
            if windows is None:
                windows = _work(case)
            left_ns = round(stood_s * 1e9)
            for begin, end in reversed(_within(windows, before.at_ns, after.at_ns)):
                if left_ns <= 0:
                    break
                since = max(begin, end - left_ns)
                left_ns -= end - since
                yield HeldUp(
                    cause=THROTTLED,
                    since_ns=since,
                    until_ns=end,
                    placed=after,
                    sure=False,
                    claim=f"it stood still at its CPU limit for up to {stood_s:.1f} s since the reading before",
                )


def _work(case: Case) -> list[tuple[int, int]]:
    """When tools were at work, in order; the windows of two steps do not overlap."""
    found = (work_window(case, step.index) for step in case.trial.steps if step.tools)
    return sorted(window for window in found if window is not None)


def _within(windows: Sequence[tuple[int, int]], since: int, until: int) -> list[tuple[int, int]]:
    """The parts of the windows inside a time."""
    first = max(0, bisect_right(windows, (since, since)) - 1)
    found: list[tuple[int, int]] = []
    for begin, end in windows[first:]:
        if begin >= until:
            break
        if min(end, until) > max(begin, since):
            found.append((max(begin, since), min(end, until)))
    return found


# --- whether the box itself was busy ----------------------------------------------------------------------------------


def _idle(case: Case, container_id: str | None, since: int, until: int) -> bool:
    """Whether what was read around a time shows the exec's box, and every other of the trial, idle in it."""
    box = case.containers.get(container_id or "")
    if box is None or _idle_box(box, since, until) is not True:
        return False
    return all(_idle_box(other, since, until) is not False for other in case.containers.values())


def _idle_box(container: ContainerCase, since: int, until: int) -> bool | None:
    """None where no readings lie around that time, or they do not tell."""
    read = container.readings
    last, first = bisect_right(read, since, key=_at_ns) - 1, bisect_left(read, until, key=_at_ns)
    if last < 0 or first >= len(read):
        return None
    before, after = read[last][1], read[first][1]
    worked_s = _moved(before.cpu_used, after.cpu_used)
    if worked_s is None:
        return None
    lost = [
        _moved(before.cpu_throttled, after.cpu_throttled),
        _moved(before.psi_cpu, after.psi_cpu),
        _moved(before.psi_memory, after.psi_memory),
        _moved(before.psi_io, after.psi_io),
    ]
    hits = (after.memory_max_hits or 0) - (before.memory_max_hits or 0)
    kills = (after.oom_kill or 0) - (before.oom_kill or 0)
    busy_s = max(worked_s, *(s for s in lost if s is not None), 0.0)
    return busy_s < _IDLE * (until - since) / 1e9 and hits <= 0 and kills <= 0


def _at_ns(read: tuple[Placed, CgroupReading]) -> int:
    return read[0].at_ns


def _moved(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)
