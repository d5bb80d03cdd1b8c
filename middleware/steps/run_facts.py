"""What the observations of one run say about whose they are: small facts, kept while the run goes on.

In: every observation of the run, in any order, each once.  Out: calls, containers and commands as `parting.py` weighs
them, the rows that belong to each, and what concerns every trial of the run alike.  Pure and bounded: a run of more
than `MAX_CALLS` calls or `MAX_ROWS` rows is `too_many` and stays one trial.  It keeps no text: digests, numbers and the
ids by which things are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    DoorContainer,
    DoorExec,
    DoorState,
    ExecStarted,
    GapSeen,
    HostCounters,
    KernelOomKill,
    MutationSeen,
    Observation,
    OomKill,
    TrialStarted,
    Value,
    decode,
)
from fairtrial.middleware.steps.call_log import CallFacts, CallLog
from fairtrial.middleware.steps.row_log import Row, RowLog
from fairtrial.middleware.steps.steady import Clock
from fairtrial.middleware.steps.words import word_about

MAX_CALLS: Final = 30_000
MAX_ROWS: Final = 500_000
MAX_SHARED: Final = 2048
OWN: Final = "own"
"""The command's own cgroup: every trial of the run lives in it, so it is no trial's."""

_LAST_WORDS_NS: Final = 2_000_000_000
"""So long after its end the engine may still speak of a container that does not live again."""

_EVERYBODYS: Final = (DoorState, CoverageChanged, GapSeen, MutationSeen)

Key = tuple[str, str]
"""("call" | "container" | "exec" | "named" | "word", id): what a row belongs to.  Of a word: of whom it
was said."""


@dataclass(slots=True, kw_only=True)
class BoxFacts:
    """One container; wall ns."""

    id: str
    name: str | None = None
    project: str | None = None
    mark: str | None = None
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RanFacts:
    """A command that ran in a container, or that a container was made for."""

    container: str
    at_ns: int
    text_digest: str


class AskedFor(NamedTuple):
    """An exec that a client of the run started, wall ns; of what it typed into a terminal the digest."""

    exec_id: str
    at_ns: int
    typed_digest: str | None


@dataclass(slots=True)
class RunFacts:
    """Feed it with `take`; `root`: the id under which the run's rows are kept until it is parted."""

    root: str
    started: tuple[Observation, TrialStarted] | None = None
    told: CallLog = field(default_factory=CallLog)
    """Of model calls."""
    boxes: dict[str, BoxFacts] = field(default_factory=dict[str, BoxFacts])
    ran: list[RanFacts] = field(default_factory=list[RanFacts])
    execs: dict[str, str] = field(default_factory=dict[str, str])
    """exec id -> container id."""
    asked_for: list[AskedFor] = field(default_factory=list["AskedFor"])
    """Execs that a client of the run started through the Docker door: health checks are not."""
    heard_ns: dict[str, int] = field(default_factory=dict[str, int])
    """container id -> when it was last heard of, readings of its counters left out."""
    gone_ns: dict[str, int] = field(default_factory=dict[str, int])
    kills: dict[str, int] = field(default_factory=dict[str, int])
    """container id -> kills that its own counter showed."""
    others: RowLog[Key] = field(default_factory=RowLog[Key])
    """The rows that belong to no call."""
    everybodys: list[Observation] = field(default_factory=list[Observation])
    """Doors, coverage, gaps and mutations that concern no container in particular."""
    unplaced_kills: list[Observation] = field(default_factory=list[Observation])
    """Kernel records of kills outside the run's containers, the command's own cgroup included."""
    host_first: Observation | None = None
    host_last: Observation | None = None
    too_many: bool = False
    _row_count: int = 0
    _clock: Clock | None = None

    @property
    def calls(self) -> Mapping[str, CallFacts]:
        """Attempt → what is known of it."""
        return self.told.calls

    def rows(self) -> Iterator[tuple[Key, Sequence[Row]]]:
        """The rows in the store, by what they belong to."""
        yield from self.others.rows()
        for attempt, rows in self.told.rows().items():
            yield ("call", attempt), rows

    @property
    def words(self) -> dict[str, int]:
        """Name of a trial → how many words of the control API bear it; "": of the run itself."""
        return {name: count for (kind, name), count in self.others.counts().items() if kind == "word"}

    @property
    def named(self) -> bool:
        """`--run` without `--name` and `--task`: the user says that the command runs trials, not that it is one."""
        said = self.started[1] if self.started is not None else TrialStarted()
        return said.run is not None and said.name is None and said.task is None

    def take(self, observation: Observation) -> None:
        """Note what it says; an observation that is nobody's business is let go."""
        if self.too_many:
            return
        if self._clock is not None:
            observation = self._clock.steadied(observation)
        value = decode(observation)
        if value is None:
            return
        if (about := word_about(observation, value)) is not None:
            self._keep(("word", about), observation)
            return
        match value:
            case TrialStarted():
                if self.started is None:
                    self.started, self._clock = (observation, value), Clock.begun_by(observation)
            case HostCounters():
                self._host(observation)
            case AttemptStarted() | AttemptEnded():
                self._row_count += 1
                self.told.take(observation, value)
            case KernelOomKill() if value.container_id in {None, OWN}:
                self.unplaced_kills.append(observation)
            case _ if isinstance(value, _EVERYBODYS) and _container(observation, value) is None:
                self.everybodys.append(observation)
            case _:
                self._box(observation, value)
        if (
            self.told.more_than(MAX_CALLS)
            or self._row_count > MAX_ROWS
            or len(self.everybodys) + len(self.unplaced_kills) > MAX_SHARED
        ):
            self.too_many = True
            self.told = CallLog()
            self.others = RowLog()

    def over_ns(self, container: str) -> int | None:
        """When a container was gone for good; None while it lives, or lived again."""
        gone_ns = self.gone_ns.get(container)
        if gone_ns is None or self.heard_ns.get(container, 0) > gone_ns + _LAST_WORDS_NS:
            return None
        return gone_ns

    def key_of(self, observation: Observation, value: Value | None = None) -> Key | None:
        """What a row belongs to; None: to the run as a whole."""
        value = decode(observation) if value is None else value
        if isinstance(value, AttemptStarted | AttemptEnded):
            return "call", value.attempt
        if isinstance(value, DoorExec):
            return "exec", value.exec_id
        if value is None or isinstance(value, HostCounters | TrialStarted):
            return None
        if (about := word_about(observation, value)) is not None:
            return "word", about
        if isinstance(value, DoorContainer) and value.container_id is None and value.container_named is not None:
            return "named", value.container_named
        container = _container(observation, value)
        return None if container in {None, OWN} else ("container", str(container))

    def container_of(self, key: Key) -> str | None:
        """The container that a key of a row leads to.

        A name leads to the one container of the run that bore it: only what a client itself asked for is told so.
        """
        kind, text = key
        if kind == "container":
            return text
        if kind == "exec":
            return self.execs.get(text)
        bearers = [box.id for box in self.boxes.values() if box.name == text]
        return bearers[0] if kind == "named" and len(bearers) == 1 else None

    def _host(self, observation: Observation) -> None:
        if observation.value.get("oom_kill") is None:
            return
        if self.host_first is None or observation.wall_ns < self.host_first.wall_ns:
            self.host_first = observation
        if self.host_last is None or observation.wall_ns >= self.host_last.wall_ns:
            self.host_last = observation

    def _box(self, observation: Observation, value: Value) -> None:
        key = self.key_of(observation, value)
        if key is None:
            return
        self._keep(key, observation)
        container = self.container_of(key)
        if container is not None and not isinstance(value, CgroupReading | CoverageChanged):
            self.heard_ns[container] = max(self.heard_ns.get(container, 0), observation.wall_ns)
        match value:
            case ContainerSeen():
                self._seen(observation, value)
            case ContainerGone():
                self.gone_ns[value.container_id] = observation.wall_ns
            case OomKill():
                self.kills[value.container_id] = self.kills.get(value.container_id, 0) + value.delta
            case ExecStarted():
                self.execs[value.exec_id] = value.container_id
                if value.text_digest is not None and not value.plumbing:
                    self._ran(value.container_id, observation.wall_ns, value.text_digest)
            case DoorExec():
                if value.started_wall_ns is not None:
                    self.asked_for.append(AskedFor(value.exec_id, value.started_wall_ns, value.typed_digest))
                if value.container_id is not None:
                    self.execs.setdefault(value.exec_id, value.container_id)
            case DoorContainer() if value.action == "create" and container is not None and value.text_digest:
                self._ran(container, value.started_wall_ns or observation.wall_ns, value.text_digest)
            case _:
                return

    def _ran(self, container: str, at_ns: int, digest: str) -> None:
        self.ran.append(RanFacts(container=container, at_ns=at_ns, text_digest=digest))

    def _seen(self, observation: Observation, value: ContainerSeen) -> None:
        since_ns = min(observation.wall_ns, value.started_wall_ns or observation.wall_ns)
        box = self.boxes.setdefault(value.container_id, BoxFacts(id=value.container_id, since_ns=since_ns))
        box.since_ns = min(box.since_ns, since_ns)
        box.name = value.name or box.name
        box.project = value.labels.get("com.docker.compose.project") or box.project
        if value.trial_mark not in {None, self.root}:
            box.mark = value.trial_mark

    def _keep(self, key: Key, observation: Observation) -> None:
        self._row_count += 1
        self.others.add(key, observation.source_id, observation.seq)


def _container(observation: Observation, value: Value) -> str | None:
    said = getattr(value, "container_id", None)
    return said if isinstance(said, str) else observation.subject.container_id
