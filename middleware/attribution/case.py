"""The case: one trial's observations, sorted once into what the rules ask for.

In: an `Assembly`.  Out: a `Case` with the model calls and their attempts, the container kills by step, the execs, the
readings and the ends, each with the ids of its observations.  What this module does not do: judge.

Observations of trust `inside` (anything that the agent can write) are not in it: they can suggest, never decide.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate
from typing import Final

from fairtrial.middleware.attribution.calls_seen import (
    asked_of,
    attempt_seen,
    calls_seen,
    first_heads,
    lost_only_its_end,
    take_back,
    upstream,
    without_strangers,
)
from fairtrial.middleware.attribution.phases import by_phases
from fairtrial.middleware.attribution.questions import evidence, no, unknown, yes
from fairtrial.middleware.attribution.seen import AttemptSeen, CallSeen, ContainerCase, ExecSeen, KillGroup
from fairtrial.middleware.attribution.witness import witnessed
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    DiskFull,
    DoorContainer,
    DoorExec,
    DoorImage,
    DoorState,
    ExecEnded,
    ExecStarted,
    FdLimit,
    GapSeen,
    HarnessOutcome,
    HostCounters,
    KernelOomKill,
    Note,
    OomKill,
    PidsHit,
    RuntimeState,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import (
    EndedAs,
    Outcome,
    PhaseName,
    Tool,
    Trial,
    Trust,
)
from fairtrial.middleware.steps.kinship import Kin, kinship
from fairtrial.middleware.steps.placed import Assembly, Placed

__all__ = [
    "NATURAL_STOPS",
    "AttemptSeen",
    "CallSeen",
    "Case",
    "ContainerCase",
    "ExecSeen",
    "KillGroup",
    "evidence",
    "lost_only_its_end",
    "no",
    "unknown",
    "upstream",
    "yes",
]

NATURAL_STOPS: Final = frozenset({"end_turn", "stop", "stop_sequence", "STOP", "completed"})

_ONLY_SCORES: Final = frozenset({"exit-code", "swe-bench"})
"""Harnesses that ran no agent: a report or a code of 0 does not say that one finished."""
_WHOLE_ID: Final = 64
_HEX: Final = frozenset("0123456789abcdef")


class Case:
    """Everything that the rules may ask about one trial.  Built once, in time linear in the observations."""

    def __init__(self, assembly: Assembly) -> None:
        self.trial: Trial = assembly.trial
        self.options: dict[str, object] = {}
        self._begun = False
        self.said_ended_as: EndedAs | None = None
        """How the harness says that the trial ended."""
        self.oracle = False
        """By a harness's record the task's own solution ran in the agent's place."""
        self._told: dict[str, list[HarnessOutcome]] = {}
        """Harness → what it booked of how its agent ended."""
        self.imported: list[Placed] = []
        """What harnesses booked."""
        self.ended: tuple[Placed, TrialEnded] | None = None
        self.containers: dict[str, ContainerCase] = {}
        self.kills: list[KillGroup] = []
        self.coverage_changes: list[tuple[Placed, CoverageChanged]] = []
        self.gaps: list[tuple[Placed, GapSeen]] = []
        self.doors: list[tuple[Placed, DoorState]] = []
        self.asked_of_containers: list[tuple[Placed, DoorContainer]] = []
        """What the trial's own clients asked of the runtime through its Docker door."""
        self.asked_by_ref: dict[str, list[DoorContainer]] = {}
        """The same by what they called the container: a whole id, the beginning of one, or a name."""
        self.short_refs: set[str] = set()
        """Those of them that may be the beginning of an id; few clients write ids so."""
        self.pulls: list[tuple[Placed, DoorImage]] = []
        self.runtime: list[tuple[Placed, RuntimeState]] = []
        """The engine's event stream: open, lost, back."""
        self.door_execs: dict[str, Placed] = {}
        """The end of each exec's stream, as the Docker door saw it."""
        self.notes: list[tuple[Placed, Note]] = []
        """What the relay and the observer said of themselves, in order."""
        self.host: list[tuple[Placed, HostCounters]] = []
        self.unplaced_records: list[tuple[Placed, KernelOomKill]] = []
        self._attempts: dict[str, AttemptSeen] = {}
        self._open: dict[str, Placed] = {}
        self._execs: dict[tuple[str, str], ExecSeen] = {}
        self._groups: dict[tuple[str, int | None, PhaseName], KillGroup] = {}
        place = by_phases(assembly.trial.phases)
        for placed in assembly.placed:
            if placed.observation.trust is not Trust.INSIDE:
                self._take(place(placed), placed.value)
        for one in self._execs.values():
            if not one.plumbing:
                self.containers[one.container].execs.setdefault(one.step, []).append(one)
        real = (g for g in self._groups.values() if not self._only_rung(g))
        self.kills = sorted(real, key=lambda g: (g.at_ns, g.container))
        self._kill_keys = {(g.container, g.step) for g in self.kills}
        self.started_ns = wall_ns_of(self.trial.started)
        self.ended_ns: int | None = _at(self.ended)
        self.suspended = _suspensions(assembly)
        """Times in which the whole run was stopped (Ctrl-Z), wall ns."""
        take_back(self._attempts)
        self.calls: list[CallSeen] = calls_seen(assembly, self._attempts, self._open)
        self.main_calls, self.strangers = without_strangers(self.calls)
        seen = witnessed(self.main_calls)
        self.main_calls, self.by_tools = seen.calls, seen.tools
        """`by_tools`: calls that processes made which the agent's own had started, as the kernel told."""
        kin = kinship([asked_of(c) for c in self.main_calls])
        self.others = [c for c, k in zip(self.main_calls, kin, strict=True) if k is Kin.STRANGER]
        """Calls that a tool of the agent may have made: they decide nothing."""
        alike = frozenset(c.id for c, k in zip(self.main_calls, kin, strict=True) if k is Kin.ALIKE)
        self.alike = alike | seen.unplaced
        """Ids of calls that are like the agent's own and share nothing with them: they prove nothing."""
        self.unplaced_attempts, self.stranger_attempts = seen.unplaced_attempts, seen.strangers
        """Ids of attempts that are not known to be the agent's, where its processes are known: nor do they."""
        self.main_calls = [c for c, k in zip(self.main_calls, kin, strict=True) if k is not Kin.STRANGER]
        self._by_step: dict[int, list[CallSeen]] = {}
        for call in self.main_calls:
            if call.step is not None:
                self._by_step.setdefault(call.step, []).append(call)
        self._steps = sorted(self._by_step)
        self.heads: dict[str, int] = first_heads(self._attempts.values())

    # --- sorting -----------------------------------------------------------------------------------------------

    def _take(self, placed: Placed, value: Value) -> None:
        match value:
            case AttemptEnded():
                self._attempts.setdefault(value.attempt, attempt_seen(placed, value))
            case AttemptStarted():
                self._open.setdefault(value.attempt, placed)
            case CgroupReading():
                self._container(value.container_id).readings.append((placed, value))
            case HostCounters():
                self.host.append((placed, value))
            case ExecStarted() | ExecEnded():
                self._exec(placed, value)
            case PidsHit():
                self._container(value.container_id).pids_hits.append((placed, value))
            case FdLimit():
                self._container(value.container_id).fd_limits.append((placed, value))
            case DiskFull():
                self._container(value.container_id).full_disks.append((placed, value))
            case OomKill():
                self._container(value.container_id)
                self._group(value.container_id, placed).counted.append((placed, value))
            case KernelOomKill():
                if value.container_id is None:
                    self.unplaced_records.append((placed, value))
                else:
                    self._container(value.container_id)
                    self._group(value.container_id, placed).records.append((placed, value))
            case ContainerSeen():
                self._container(value.container_id).begins(placed, value)
            case ContainerEvent():
                self._container(value.container_id).events.append((placed, value))
                if value.action == "oom":
                    self._group(value.container_id, placed).told.append(placed)
            case DoorExec():
                self.door_execs[value.exec_id] = placed
            case DoorContainer():
                self.asked_of_containers.append((placed, value))
                called = value.container_id or value.container_named
                if called is not None:
                    self.asked_by_ref.setdefault(called, []).append(value)
                    if len(called) < _WHOLE_ID and _HEX.issuperset(called):
                        self.short_refs.add(called)
            case DoorImage():
                self.pulls.append((placed, value))
            case RuntimeState():
                self.runtime.append((placed, value))
            case ContainerGone():
                self._container(value.container_id).ended(placed, value)
                if value.ended_by == "oom":
                    self._group(value.container_id, placed).told.append(placed)
            case CoverageChanged():
                self.coverage_changes.append((placed, value))
            case GapSeen():
                self.gaps.append((placed, value))
            case DoorState():
                self.doors.append((placed, value))
            case Note():
                self.notes.append((placed, value))
            case TrialStarted():
                self.options = value.options
                self._begun = True
            case HarnessOutcome():
                self.imported.append(placed)
                self.said_ended_as = self.said_ended_as or value.ended_as
                self.oracle = self.oracle or value.agent == "oracle"
                if value.harness not in _ONLY_SCORES:
                    self._told.setdefault(value.harness, []).append(value)
            case TrialEnded():
                self.ended = (placed, value)
            case _:
                pass

    def _container(self, container_id: str) -> ContainerCase:
        found = self.containers.get(container_id)
        if found is None:
            found = self.containers[container_id] = ContainerCase(container_id)
        return found

    def _exec(self, placed: Placed, value: ExecStarted | ExecEnded) -> None:
        key = (value.container_id, value.exec_id)
        seen = self._execs.get(key)
        if seen is None:
            self._container(value.container_id)
            seen = self._execs[key] = ExecSeen(container=value.container_id, exec_id=value.exec_id, step=placed.step)
        if isinstance(value, ExecStarted):
            seen.started, seen.step, seen.plumbing = placed, placed.step, value.plumbing is True
        else:
            seen.ended, seen.exit_code = placed, value.exit_code

    def _group(self, container_id: str, placed: Placed) -> KillGroup:
        key = (container_id, placed.step, placed.phase)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = KillGroup(
                container=container_id, step=placed.step, phase=placed.phase, at_ns=placed.at_ns
            )
        group.at_ns = min(group.at_ns, placed.at_ns)
        return group

    def _only_rung(self, group: KillGroup) -> bool:
        """The runtime told of an OOM, and the container's own counter stood still over it: somebody else's kill.

        Under a limit of a parent, cgroup v1 wakes every cgroup below it, and the runtime takes that for an event of
        each of its containers.  (kernel doc cgroup-v1/memory, section 10; container.md section 0, 9.)
        """
        container = self.containers[group.container]
        if group.counted or group.records or (container.gone is not None and container.gone[1].ended_by == "oom"):
            return False
        counted = [(p.at_ns, v.oom_kill) for p, v in container.readings if v.oom_kill is not None]
        last_ns = max(p.at_ns for p in group.told)
        before = max((n for at_ns, n in counted if at_ns < group.at_ns), default=0)
        after = [n for at_ns, n in counted if at_ns > last_ns]
        return bool(after) and max(after) <= before

    @property
    def told_ended_as(self) -> EndedAs | None:
        """How the harness that ran the agent says that this ended: its last reading of the try that counts.  None where
        it booked several that ended otherwise, so that one's end may be another's."""
        for told in self._told.values():
            newest: dict[str, HarnessOutcome] = {}
            for value in sorted(told, key=lambda each: (each.complete, each.imported_ns or 0)):
                newest[value.identity] = value
            counted = [value for value in newest.values() if not value.retried] or list(newest.values())
            ends = {value.ended_as for value in counted}
            if ends != {None}:
                return ends.pop() if len(ends) == 1 else None
        return None

    @property
    def deaths_ns(self) -> list[int]:
        """When processes or containers of the trial were killed or went, in order."""
        gone = [c.gone[0].at_ns for c in self.containers.values() if c.gone is not None]
        return sorted([*(g.at_ns for g in self.kills), *gone])

    @cached_property
    def past_door(self) -> bool:
        """A redirect was passed on: what the client did next may have gone past the door."""
        return any(300 <= (a.value.reply.status or 0) < 400 for a in self._attempts.values())

    @property
    def unread_answered(self) -> bool:
        """Something that no dialect reads was answered: it may have been the agent's model call."""
        return any(
            a.value.request.operation == "other"
            and a.value.method != "GET"
            and 200 <= (a.value.reply.status or 0) < 300
            for a in self._attempts.values()
        )

    @cached_property
    def first_answered_ns(self) -> int | None:
        """When the first attempt of any role or dialect that was not refused brought its first bytes, wall ns."""
        return min(
            (
                a.started_ns + round((a.value.ttfb or 0.0) * 1e9)
                for a in self._attempts.values()
                if a.value.request.operation != "hello"
                and a.value.reply.status is not None
                and a.value.reply.status < 400
            ),
            default=None,
        )

    def first_act_ns(self, since_ns: int = 0) -> int | None:
        """When the first reply came that may have set a tool to work, **monotonic** ns; None when none did.

        `since_ns`: wall ns; replies before it, such as before a container's start, are left out.
        """
        at = bisect_left(self._acts, (since_ns, 0))
        return self._acts[at][1] if at < len(self._acts) else None

    @cached_property
    def _acts(self) -> list[tuple[int, int]]:
        """Wall ns of each reply that may have set a tool to work, ascending, with the least monotonic ns from it on."""
        acts = sorted(
            (a.started_ns + waited, a.value.started_ns + waited)
            for call in self.main_calls
            if asked_of(call).acts
            for a in call.attempts
            if a.value.started_ns and a.value.reply.status is not None and a.value.reply.status < 400
            for waited in (round((a.value.ttfb or 0.0) * 1e9),)
        )
        least = [*accumulate((mono_ns for _, mono_ns in reversed(acts)), min)]
        return [(wall_ns, mono_ns) for (wall_ns, _), mono_ns in zip(acts, reversed(least), strict=True)]

    def may_be_answered(self, at_ns: int) -> bool:
        """Whether something that a model said may have been there at that moment: first bytes of a reply, an attempt
        whose end nobody saw, a redirect past the door."""
        told = (self._first_open_ns, self.first_answered_ns)
        return self.past_door or any(one is not None and one <= at_ns for one in told)

    @cached_property
    def _first_open_ns(self) -> int | None:
        """When the first attempt began whose end nobody saw."""
        return min((p.at_ns for c in self.calls for p in c.open_attempts), default=None)

    @cached_property
    def _asked_texts(self) -> frozenset[str | None]:
        """Digests of the texts of all tool calls that any reply asked for."""
        return frozenset(use.text_digest for a in self._attempts.values() for use in a.value.reply.tool_calls)

    def is_upkeep(self, container: str, exec_id: str | None) -> bool:
        """Whether an exec was the harness's own (tmux traffic, set-up), and no tool call of a reply has its text."""
        one = None if exec_id is None else self._execs.get((container, exec_id))
        if one is None or not one.plumbing or one.started is None:
            return False
        value = one.started.value
        return (
            not isinstance(value, ExecStarted)
            or value.text_digest is None
            or value.text_digest not in self._asked_texts
        )

    @property
    def failed_beside(self) -> list[CallSeen]:
        """Failed calls that may have been a tool's, of conversations that did not get through later."""
        beside = [*self.others, *self.by_tools]
        last_good: dict[str | None, int] = {}
        for call in beside:
            if call.completed:
                last_good[call.request.first_user_digest] = call.started_ns
        return [
            c
            for c in beside
            if not c.completed and last_good.get(c.request.first_user_digest, c.started_ns) <= c.started_ns
        ]

    @property
    def only_imported(self) -> bool:
        """Known from a harness's files alone: nothing of it was observed."""
        return not self._begun and bool(self.trial.booked)

    # --- questions ---------------------------------------------------------------------------------------------

    @property
    def completed_main(self) -> list[CallSeen]:
        return [c for c in self.main_calls if c.completed]

    @property
    def last_main(self) -> CallSeen | None:
        return self.main_calls[-1] if self.main_calls else None

    @property
    def booked(self) -> Outcome:
        return self.trial.outcome

    @property
    def by_exit_code_only(self) -> bool:
        """Nobody but the command's exit status says how it ended; 0 then means that it ended, not that it passed."""
        return self.trial.outcome_source in {None, "exit_code"}

    @property
    def finished_in_words(self) -> bool:
        """The last main reply came whole and asked for nothing more."""
        last = self.last_main
        if last is None or not last.completed or last.last is None:
            return False
        reply = last.last.value.reply
        return not reply.tool_calls and (reply.stop_reason is None or reply.stop_reason in NATURAL_STOPS)

    def suspended_s(self, since_ns: int, until_ns: int) -> float:
        """How much of a time the whole run was stopped, s."""
        return sum(max(0, min(until_ns, b) - max(since_ns, a)) for a, b in self.suspended) / 1e9

    def begun_by_a_tool(self, container: ContainerCase) -> bool:
        """Started while a tool was at work, beside a container that was there before: the agent's own doing."""
        if container.seen is None or container.role != "main" or container.id == "own":
            return False
        begun = _begun(container)
        earlier = any(
            other.role == "main" and other.seen is not None and _begun(other) < begun
            for other in self.containers.values()
            if other is not container and other.id != "own"
        )
        if not earlier:
            return False
        asked = [c for c in self.main_calls if c.ended_ns is not None and c.ended_ns <= begun]
        return bool(asked) and any(a.value.reply.tool_calls for a in asked[-1].attempts)

    def killed_in(self, container: str, step: int | None) -> bool:
        return (container, step) in self._kill_keys

    def tools_of(self, step: int) -> list[Tool]:
        return self.trial.steps[step - 1].tools if 0 < step <= len(self.trial.steps) else []

    @property
    def never_started(self) -> str | None:
        """Why the command could not be started, as the run process said it; None when it was."""
        if self.ended is None or self.calls or self.ended[1].closed != "normal":
            return None
        value = self.ended[1]
        return value.why if value.exit_code in {126, 127} else None

    @property
    def waiting_for(self) -> list[str] | None:
        """Names of the tools whose results the model waited for at the command's end; None when it waited for none."""
        last = self.last_main
        if last is None or not last.completed or last.last is None:
            return None
        asked = last.last.value.reply.tool_calls
        return [use.name or "a tool" for use in asked] or None

    def calls_of(self, step: int) -> list[CallSeen]:
        """The main calls of a step, in order of start."""
        return self._by_step.get(step, [])

    def call_after(self, step: int) -> CallSeen | None:
        """The first main call of a later step."""
        position = bisect_right(self._steps, step)
        return self._by_step[self._steps[position]][0] if position < len(self._steps) else None

    def may_run_tools(self, step: int) -> bool:
        """False when the step's reply was read whole, tools were on offer, and it asked for none: what ran then in a
        container was the harness's own (a check, a clean-up), not the agent's."""
        calls = self._by_step.get(step)
        return not calls or not all(
            c.read_whole
            and any(a.whole and a.value.request.has_tools and not a.value.reply.tool_calls for a in c.attempts)
            for c in calls
        )

    @property
    def behind_serve(self) -> bool:
        """Whether it came through `fairtrial serve`: no command was wrapped, so there is none that could have ended."""
        return not self.trial.command

    def near_end(self, at_ns: int, grace_s: float) -> bool:
        """Whether something happened together with the command's end, or after it."""
        return self.ended_ns is not None and at_ns >= self.ended_ns - grace_s * 1e9


def _begun(container: ContainerCase) -> int:
    """When a container that was seen was started, wall ns."""
    assert container.seen is not None
    assert container.seen_at is not None
    return container.seen.started_wall_ns or container.seen_at.at_ns


def _at(ended: tuple[Placed, TrialEnded] | None) -> int | None:
    return None if ended is None else ended[0].at_ns


def _suspensions(assembly: Assembly) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for placed in assembly.placed:
        value = placed.value
        if not isinstance(value, Note) or value.event != "suspended" or placed.observation.trust is Trust.INSIDE:
            continue
        since, until = value.fields.get("since_ns"), value.fields.get("until_ns")
        if isinstance(since, int) and isinstance(until, int):
            to_wall = placed.observation.wall_ns - placed.observation.mono_ns
            found.append((since + to_wall, until + to_wall))
    return found
