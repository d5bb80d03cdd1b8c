"""The case: one trial's observations, sorted once into what the rules ask for.

In: an `Assembly`.  Out: a `Case` with the model calls and their attempts, the container kills by step, the execs, the
readings and the ends, each with the ids of its observations.  What this module does not do: judge.

Observations of trust `inside` (anything that the agent can write) are not in it: they can suggest, never decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from fairtrial.middleware.core.clock import rfc3339, wall_ns_of
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    DoorContainer,
    DoorExec,
    DoorImage,
    DoorState,
    ExecEnded,
    ExecStarted,
    GapSeen,
    HostCounters,
    KernelOomKill,
    Note,
    OomKill,
    RequestFacts,
    RuntimeState,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import (
    Answer,
    Call,
    CallRole,
    Evidence,
    Outcome,
    PhaseName,
    Question,
    Tool,
    Trial,
    Trust,
)
from fairtrial.middleware.steps.kinship import Asked, Kin, kinship
from fairtrial.middleware.steps.placed import Assembly, Placed

MAIN_ROLES: Final = frozenset({"step", "subagent", "compaction"})
"""Calls that the trial cannot do without; titles and probes can fail without a word."""

NATURAL_STOPS: Final = frozenset({"end_turn", "stop", "stop_sequence", "STOP", "completed"})

_WHOLE_ID: Final = 64
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSeen:
    """One attempt whose end was seen; times are wall ns of the relay's host."""

    placed: Placed
    value: AttemptEnded
    started_ns: int
    ended_ns: int
    whole: bool
    """A reply that is not an error and came whole, as the door read it; or one cut behind its stop reason that the
    client took all the same, as a later request of the conversation shows."""

    @property
    def length_s(self) -> float:
        return max(0, self.ended_ns - self.started_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSeen:
    """One logical model call: its attempts whose ends were seen, in order of start."""

    id: str
    role: CallRole
    step: int | None
    phase: PhaseName
    attempts: tuple[AttemptSeen, ...]
    open_attempts: tuple[Placed, ...]
    """Attempts that began and whose end nobody saw."""
    fell_back: frozenset[str]
    started_ns: int
    ended_ns: int | None
    completed: bool
    read_whole: bool
    """Completed, and nothing of the reply was hidden from the door."""

    @property
    def main(self) -> bool:
        return self.role in MAIN_ROLES

    @property
    def last(self) -> AttemptSeen | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def request(self) -> RequestFacts:
        if self.attempts:
            return self.attempts[-1].value.request
        first = self.open_attempts[0].value
        return first.request if isinstance(first, AttemptStarted) else RequestFacts()

    @property
    def ids(self) -> list[str]:
        return [a.placed.id for a in self.attempts] + [p.id for p in self.open_attempts]


@dataclass(slots=True, kw_only=True)
class KillGroup:
    """The OOM kills of one container in one step: one event, however many observations tell of it."""

    container: str
    step: int | None
    phase: PhaseName
    at_ns: int
    counted: list[tuple[Placed, OomKill]] = field(default_factory=list[tuple[Placed, OomKill]])
    records: list[tuple[Placed, KernelOomKill]] = field(default_factory=list[tuple[Placed, KernelOomKill]])
    told: list[Placed] = field(default_factory=list[Placed])
    """Runtime events and readings that say so."""

    @property
    def ids(self) -> list[str]:
        return [p.id for p, _ in self.counted] + [p.id for p, _ in self.records] + [p.id for p in self.told[:3]]

    @property
    def kills(self) -> int | None:
        return sum(v.delta for _, v in self.counted) or (len(self.records) or None)


@dataclass(slots=True, kw_only=True)
class ExecSeen:
    """One command run in a container through the runtime."""

    container: str
    exec_id: str
    step: int | None
    started: Placed | None = None
    ended: Placed | None = None
    exit_code: int | None = None
    plumbing: bool = False


@dataclass(slots=True)
class ContainerCase:
    """What was seen of one container; "own" is the command's own cgroup."""

    id: str
    seen: ContainerSeen | None = None
    seen_at: Placed | None = None
    gone: tuple[Placed, ContainerGone] | None = None
    """The end of its last life; None while it lives again."""
    ends: list[tuple[Placed, ContainerGone]] = field(default_factory=list[tuple[Placed, ContainerGone]])
    """The ends of all its lives."""
    readings: list[tuple[Placed, CgroupReading]] = field(default_factory=list[tuple[Placed, CgroupReading]])
    events: list[tuple[Placed, ContainerEvent]] = field(default_factory=list[tuple[Placed, ContainerEvent]])
    execs: dict[int | None, list[ExecSeen]] = field(default_factory=dict[int | None, list[ExecSeen]])
    """Commands run through the runtime by step, the harness's own plumbing left out."""

    def begins(self, placed: Placed, seen: ContainerSeen) -> None:
        """It was seen; with a start after its end it lives again."""
        if self.gone is not None and (seen.started_wall_ns or 0) > self.gone[0].at_ns:
            self.gone = None
        self.seen, self.seen_at = seen, self.seen_at or placed

    def ended(self, placed: Placed, gone: ContainerGone) -> None:
        """A life of it ended; one that began later is not over by that."""
        self.ends.append((placed, gone))
        if self.seen is None or (self.seen.started_wall_ns or 0) <= placed.at_ns:
            self.gone = placed, gone

    @property
    def role(self) -> str:
        if self.seen is not None:
            return self.seen.role
        return "own" if self.id == "own" else "main"


class Case:
    """Everything that the rules may ask about one trial.  Built once, in time linear in the observations."""

    def __init__(self, assembly: Assembly) -> None:
        self.trial: Trial = assembly.trial
        self.options: dict[str, object] = {}
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
        self.host: list[tuple[Placed, HostCounters]] = []
        self.unplaced_records: list[tuple[Placed, KernelOomKill]] = []
        self._attempts: dict[str, AttemptSeen] = {}
        self._open: dict[str, Placed] = {}
        self._execs: dict[tuple[str, str], ExecSeen] = {}
        self._groups: dict[tuple[str, int | None, PhaseName], KillGroup] = {}
        for placed in assembly.placed:
            if placed.observation.trust is not Trust.INSIDE:
                self._take(placed, placed.value)
        for one in self._execs.values():
            if not one.plumbing:
                self.containers[one.container].execs.setdefault(one.step, []).append(one)
        self.kills = sorted(self._groups.values(), key=lambda g: (g.at_ns, g.container))
        self._kill_keys = {(g.container, g.step) for g in self.kills}
        self.started_ns = wall_ns_of(self.trial.started)
        self.ended_ns: int | None = _at(self.ended)
        self.suspended = _suspensions(assembly)
        """Times in which the whole run was stopped (Ctrl-Z), wall ns."""
        _take_back(self._attempts)
        self.calls: list[CallSeen] = _calls(assembly, self._attempts, self._open)
        self.main_calls, self.strangers = _without_strangers(self.calls)
        kin = kinship([_asked(c) for c in self.main_calls])
        self.others = [c for c, k in zip(self.main_calls, kin, strict=True) if k is Kin.STRANGER]
        """Calls that a tool of the agent may have made: they decide nothing."""
        self.alike = frozenset(c.id for c, k in zip(self.main_calls, kin, strict=True) if k is Kin.ALIKE)
        """Ids of calls that are like the agent's own and share nothing with them: they prove nothing."""
        self.main_calls = [c for c, k in zip(self.main_calls, kin, strict=True) if k is not Kin.STRANGER]
        self._by_step: dict[int, list[CallSeen]] = {}
        for call in self.main_calls:
            if call.step is not None:
                self._by_step.setdefault(call.step, []).append(call)
        self.heads: dict[str, int] = _first_heads(self._attempts.values())

    # --- sorting -----------------------------------------------------------------------------------------------

    def _take(self, placed: Placed, value: Value) -> None:
        match value:
            case AttemptEnded():
                self._attempts.setdefault(value.attempt, _attempt(placed, value))
            case AttemptStarted():
                self._open.setdefault(value.attempt, placed)
            case CgroupReading():
                self._container(value.container_id).readings.append((placed, value))
            case HostCounters():
                self.host.append((placed, value))
            case ExecStarted() | ExecEnded():
                self._exec(placed, value)
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
            case TrialStarted():
                self.options = value.options
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

    @property
    def deaths_ns(self) -> list[int]:
        """When processes or containers of the trial were killed or went, in order."""
        gone = [c.gone[0].at_ns for c in self.containers.values() if c.gone is not None]
        return sorted([*(g.at_ns for g in self.kills), *gone])

    @property
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

    @property
    def answered_ns(self) -> list[int]:
        """When each attempt of any role or dialect that was not refused brought its first bytes, wall ns."""
        return [
            a.started_ns + round((a.value.ttfb or 0.0) * 1e9)
            for a in self._attempts.values()
            if a.value.request.operation != "hello" and a.value.reply.status is not None and a.value.reply.status < 400
        ]

    @property
    def failed_beside(self) -> list[CallSeen]:
        """Failed calls that may have been a tool's, of conversations that did not get through later."""
        last_good: dict[str | None, int] = {}
        for call in self.others:
            if call.completed:
                last_good[call.request.first_user_digest] = call.started_ns
        return [
            c
            for c in self.others
            if not c.completed and last_good.get(c.request.first_user_digest, c.started_ns) <= c.started_ns
        ]

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


def _attempt(placed: Placed, value: AttemptEnded) -> AttemptSeen:
    started = value.started_wall_ns or placed.at_ns
    length = value.ended_ns - value.started_ns if value.ended_ns and value.started_ns else 0
    return AttemptSeen(
        placed=placed,
        value=value,
        started_ns=started,
        ended_ns=started + length if length > 0 else max(started, placed.at_ns),
        whole=_whole(value),
    )


def _whole(value: AttemptEnded) -> bool:
    reply = value.reply
    if reply.error_in_stream or (reply.status is not None and reply.status >= 300):
        return False
    if reply.html and value.request.operation == "chat":
        return False
    return value.outcome == "ok"


def lost_only_its_end(value: AttemptEnded) -> bool:
    """A cut behind the stop reason: no content is missing, though most clients raise all the same."""
    reply = value.reply
    return value.outcome == "truncated" and reply.stop_reason is not None and not reply.open_tool_calls


def _take_back(attempts: dict[str, AttemptSeen]) -> None:
    """A reply cut behind its stop reason was whole if the conversation went on from it."""
    cut = [(key, a) for key, a in attempts.items() if lost_only_its_end(a.value) and not _refused(a.value)]
    for key, attempt in cut:
        asked = attempt.value.request
        for other in attempts.values():
            request = other.value.request
            if other.started_ns < attempt.ended_ns or request.first_user_digest != asked.first_user_digest:
                continue
            if (request.assistant_turns or 0) > (asked.assistant_turns or 0):
                attempts[key] = replace(attempt, whole=True)
                break


def _refused(value: AttemptEnded) -> bool:
    return value.reply.error_in_stream or (value.reply.status or 0) >= 300


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


def _calls(assembly: Assembly, ended: dict[str, AttemptSeen], opened: dict[str, Placed]) -> list[CallSeen]:
    """The calls of the trial's record, with the attempts that were folded into each."""
    attempts: dict[str, list[AttemptSeen]] = {}
    still_open: dict[str, list[Placed]] = {}
    for attempt_id, attempt in ended.items():
        attempts.setdefault(assembly.attempt_call.get(attempt_id, attempt_id), []).append(attempt)
    for attempt_id, placed in opened.items():
        if attempt_id not in ended:
            still_open.setdefault(assembly.attempt_call.get(attempt_id, attempt_id), []).append(placed)
    known: list[tuple[Call, int | None, PhaseName]] = [
        (call, step.index, step.phase) for step in assembly.trial.steps for call in step.calls
    ]
    known += [(call, None, PhaseName.AGENT) for call in assembly.trial.side_calls]
    calls: list[CallSeen] = []
    for call, step, phase in known:
        mine = sorted(attempts.get(call.id, ()), key=lambda a: (a.started_ns, a.placed.id))
        mine_open = still_open.get(call.id, [])
        if not mine and not mine_open:
            continue
        place = mine[0].placed if mine else mine_open[0]
        calls.append(
            CallSeen(
                id=call.id,
                role=call.role,
                step=step if step is not None else place.step,
                phase=phase if step is not None else place.phase,
                attempts=tuple(mine),
                open_attempts=tuple(mine_open),
                fell_back=frozenset((call.fell_back or "").split(",")) - {""},
                started_ns=mine[0].started_ns if mine else mine_open[0].at_ns,
                ended_ns=None if mine_open or not mine else mine[-1].ended_ns,
                completed=any(a.whole for a in mine),
                read_whole=any(a.whole and (a.value.parse == "full" or a.value.reply.terminator is True) for a in mine),
            )
        )
    return sorted(calls, key=lambda c: (c.started_ns, c.id))


def _asked(call: CallSeen) -> Asked:
    replies = [a.value.reply for a in call.attempts]
    answered = [
        a.started_ns + round((a.value.ttfb or 0.0) * 1e9)
        for a in call.attempts
        if a.value.reply.status is not None and a.value.reply.status < 400
    ]
    return Asked(
        request=call.request,
        started_ns=call.started_ns,
        answered_ns=min(answered, default=None),
        ended_ns=call.ended_ns,
        completed=call.completed,
        acts=any(r.tool_calls or r.open_tool_calls for r in replies) or not call.request.has_tools,
    )


def _without_strangers(calls: list[CallSeen]) -> tuple[list[CallSeen], list[CallSeen]]:
    """The main calls, and those that the trial's own clients did not make.

    A stranger is a failed call by a user agent that never completed a call, to an upstream where others did: a model
    may send junk to the door (curl), and that must not look like the provider's failure.
    """
    main = [c for c in calls if c.main]
    at_home: dict[str, set[str | None]] = {}
    for call in main:
        if call.completed and call.last is not None:
            at_home.setdefault(upstream(call.last.value), set()).add(call.request.user_agent)
    strangers: list[CallSeen] = []
    for call in main:
        clients = at_home.get(upstream(call.last.value)) if call.last is not None else None
        if clients is not None and not call.completed and call.request.user_agent not in clients:
            strangers.append(call)
    return [c for c in main if c not in strangers] if strangers else main, strangers


def _first_heads(attempts: Iterable[AttemptSeen]) -> dict[str, int]:
    """Upstream -> when its first response head came (end time of that attempt)."""
    heads: dict[str, int] = {}
    for attempt in attempts:
        if attempt.value.reply.status is None:
            continue
        name = upstream(attempt.value)
        heads[name] = min(heads.get(name, attempt.ended_ns), attempt.ended_ns)
    return heads


def upstream(value: AttemptEnded) -> str:
    """What identifies the upstream of an attempt."""
    return value.upstream_host or value.door


def evidence(placed: Placed, claim: str) -> Evidence:
    """One claim with the observation that it rests on."""
    return Evidence(
        id=placed.id,
        at=rfc3339(placed.at_ns),
        step=placed.step,
        phase=placed.phase,
        source=placed.observation.source,
        trust=placed.observation.trust,
        claim=claim,
    )


def yes(by: Iterable[str]) -> Question:
    return Question(answer=Answer.YES, by=list(dict.fromkeys(by)))


def no(by: Iterable[str] = ()) -> Question:
    return Question(answer=Answer.NO, by=list(dict.fromkeys(by)))


def unknown(by: Iterable[str] = ()) -> Question:
    return Question(answer=Answer.UNKNOWN, by=list(dict.fromkeys(by)))
