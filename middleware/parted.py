"""A run that held several trials: each gets its rows, a beginning and an end, and its record.

In: the facts of a run and its `Parting`.  Out: rows for the store's writer, and one judged `Trial` after another.
Used at the end of a run (`app.py`) and for runs whose process died (`closing.py`); what judges is given.  What this
module does not do: decide what was whose (`steps/parting.py`).

What concerns the whole run (doors, coverage, gaps, mutations) is told again of each trial that it reaches in time; the
command's own cgroup is no trial's.  The host's count of OOM kills is told without those that another trial's containers
had, so that an OOM in one trial touches no other.  What was given to none is told to the trials that it may belong to:
a container that nobody watched for them, a failed call as a gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from fairtrial.middleware.core import clock, ids
from fairtrial.middleware.core.observations import (
    CoverageChanged,
    GapSeen,
    Host,
    HostCounters,
    KernelOomKill,
    Observation,
    TrialEnded,
    TrialStarted,
    Value,
    decode,
)
from fairtrial.middleware.core.records import Closed, Trial
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.parting import Part, Parting
from fairtrial.middleware.steps.row_log import Row
from fairtrial.middleware.steps.run_facts import OWN, RunFacts
from fairtrial.middleware.store.database import of_trial
from fairtrial.middleware.store.parted_runs import PartedRow
from fairtrial.middleware.store.writer import Owner

PART_OF: Final = "part_of"
"""Option of a trial's begin: the run whose rows it was told apart from."""


class Takes(Protocol):
    """The part of a `StoreWriter` that is used here; who only reads gives one that writes nothing."""

    def put(self, observation: Observation) -> None: ...

    def open_trial(self, trial: Trial, owner: Owner) -> None: ...

    def assign(self, run: PartedRow, rows: Mapping[str, Sequence[tuple[str, int]]]) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """One trial of the run."""

    trial: str
    span: str
    trace: str
    part: Part
    index: int
    made: list[Observation] = field(default_factory=list[Observation])
    """What was told of it now."""


class PartedRun:
    """See the module.  `closed`: how the run itself was closed; `ended`: how its command ended, if that was seen."""

    def __init__(
        self,
        facts: RunFacts,
        parting: Parting,
        *,
        writer: Takes,
        host: Host,
        owner: Owner,
        closed: Closed,
        ended: TrialEnded | None = None,
        new_id: Callable[[], str] = ids.new_id,
    ) -> None:
        self._facts = facts
        self._parting = parting
        self._writer = writer
        self._host = host
        self._owner = owner
        self._closed: Closed = closed
        self._ended = ended
        self.children = [
            Child(trial=new_id(), span=ids.new_span_id(), trace=ids.new_trace_id(), part=part, index=index)
            for index, part in enumerate(parting.parts)
        ]
        self._counts: dict[str, int] = {}
        self._child_of: dict[tuple[str, str], Child] = {}
        for child in self.children:
            self._child_of |= {("call", attempt): child for attempt in child.part.calls}
            self._child_of |= {("container", container): child for container in child.part.containers}
        self._child_of |= {("word", name): self.children[index] for name, index in parting.words.items()}

    @property
    def unassigned(self) -> dict[str, int]:
        """What was given to no trial: model calls, by why as well, containers, and words likewise."""
        whys = Counter(self._parting.stray_calls.values())
        counts = {"attempts": len(self._parting.stray_calls), "containers": len(self._parting.stray_containers)}
        counts |= {f"attempts.{why}": count for why, count in sorted(whys.items())}
        said, words = self._facts.words, Counter[str]()
        for name, why in self._parting.stray_words.items():
            words[why] += said[name]
        counts["words"] = words.total()
        counts |= {f"words.{why}": count for why, count in sorted(words.items())}
        return {name: count for name, count in counts.items() if count}

    def open(self) -> None:
        """Give each trial its row and its observations; the run's own row goes."""
        for child in self.children:
            started = self._started(child)
            begun = clock.rfc3339(child.part.started_ns)
            row = Trial(
                trial=child.trial,
                name=started.name,
                run=started.run,
                task=started.task,
                trace_id=child.trace,
                started=begun,
            )
            self._writer.open_trial(row, self._owner)
            self._tell(child, started)
        rows = self.rows
        self._counts = {trial: len(found) for trial, found in rows.items()}
        self._writer.assign(self._run(), rows)

    def _run(self) -> PartedRow:
        """What is kept of the run itself."""
        begun, said = self._facts.started or (None, TrialStarted())
        ended = self._ended
        return PartedRow(
            id=self._facts.root,
            name=said.name,
            run=said.run,
            task=said.task,
            command=said.command,
            started_ns=begun.wall_ns if begun is not None else min(c.part.started_ns for c in self.children),
            exit_code=ended.exit_code if ended is not None else None,
            signal=ended.signal if ended is not None else None,
            closed=self._closed,
            trials=[child.trial for child in self.children],
            unassigned=self.unassigned,
        )

    def rows_of(self, child: Child) -> int:
        """How many rows of the run are this trial's."""
        return self._counts.get(child.trial, 0)

    def child_of(self, observation: Observation) -> Child | None:
        """Whose an observation of the run is; None: nobody's, or everybody's."""
        key = self._facts.key_of(observation)
        if key is None:
            return None
        found = self._child_of.get(key)
        if found is None and (container := self._facts.container_of(key)) is not None:
            found = self._child_of.get(("container", container))
        return found

    def split(self, observations: Iterable[Observation]) -> dict[str, list[Observation]]:
        """The run's observations in memory, by trial; what was told now is with them."""
        rows = {child.trial: list(child.made) for child in self.children}
        for observation in observations:
            child = self.child_of(observation)
            if child is not None:
                rows[child.trial].append(of_trial(observation, child.trial))
        return rows

    @property
    def rows(self) -> Mapping[str, list[Row]]:
        """Trial → its rows in the store."""
        rows: dict[str, list[Row]] = {child.trial: [] for child in self.children}
        for key, found in self._facts.rows():
            child = self._child_of.get(key)
            if child is None and (container := self._facts.container_of(key)) is not None:
                child = self._child_of.get(("container", container))
            if child is not None:
                rows[child.trial] += found
        return rows

    # --- what is told of each ---------------------------------------------------------------------------------------

    def _started(self, child: Child) -> TrialStarted:
        said = self._facts.started[1] if self._facts.started is not None else TrialStarted()
        return msgspec.structs.replace(
            said,
            name=child.part.name,
            trace_id=child.trace,
            root_span_id=child.span,
            parent_span_id=None,
            options={**said.options, PART_OF: self._facts.root, "told_by": child.part.how},
        )

    def _tell(self, child: Child, started: TrialStarted) -> None:
        part, sources = child.part, dict[str, Source]()

        def take(observation: Observation) -> None:
            self._writer.put(observation)
            child.made.append(observation)

        def say(name: str, value: Value, wall_ns: int) -> None:
            source = sources.get(name)
            if source is None:
                source = sources[name] = Source(name, take, host=self._host, trial=child.trial)
            source.emit(value, wall_ns=wall_ns, mono_ns=self._mono_at(wall_ns))

        say("observer", started, part.started_ns)
        for observation in self._facts.everybodys:
            value = decode(observation)
            if value is not None and not (isinstance(value, GapSeen) and not _reaches(value, part)):
                say(observation.source, value, observation.wall_ns)
        for observation, value in self._host_counts(child):
            say(observation.source, value, observation.wall_ns)
        for observation in self._facts.unplaced_kills:
            if (value := decode(observation)) is not None and isinstance(value, KernelOomKill):
                say(observation.source, _nobodys(value), observation.wall_ns)
        for name, value, wall_ns in self._doubts(child):
            say(name, value, wall_ns)
        say("observer", TrialEnded(closed=self._closed_as(part), why="the last that was seen of it"), part.ended_ns)

    def _closed_as(self, part: Part) -> Closed:
        """A trial whose containers were gone before the run was killed had its end."""
        gone = [self._facts.over_ns(container) is not None for container in part.containers]
        return "normal" if gone and all(gone) else self._closed

    def _host_counts(self, child: Child) -> Iterator[tuple[Observation, HostCounters]]:
        """First and last of the host's counters; kills of other trials' containers taken off the last."""
        first, last = self._facts.host_first, self._facts.host_last
        if first is None or last is None or first is last:
            return
        begin, end = decode(first), decode(last)
        if not isinstance(begin, HostCounters) or not isinstance(end, HostCounters):
            return
        elsewhere = sum(
            count
            for container, count in self._facts.kills.items()
            if container != OWN
            and container not in child.part.containers
            and container not in self._parting.stray_containers
        )
        yield first, begin
        least = begin.oom_kill or 0
        yield last, msgspec.structs.replace(end, oom_kill=max(least, (end.oom_kill or 0) - elsewhere))

    def _doubts(self, child: Child) -> Iterator[tuple[str, Value, int]]:
        """What may be this trial's and could not be told to be."""
        part = child.part
        for container, users in self._parting.stray_containers.items():
            box = self._facts.boxes[container]
            if users and child.index not in users:
                continue
            if box.since_ns <= part.ended_ns and (self._facts.over_ns(container) or part.ended_ns) >= part.started_ns:
                what = "was used by several trials" if len(users) > 1 else "could not be told to be one trial's"
                why = f"partial: container {container[:12]} {what}"
                change = CoverageChanged(
                    source="collector.docker_events", families=["memory", "node"], why=why, containers_missed=True
                )
                yield "collector.docker_events", change, part.started_ns
        calls = self._facts.calls
        for attempt in self._parting.stray_calls:
            call = calls[attempt]
            ended_ns = call.ended_ns or call.started_ns
            if not call.ok and call.started_ns <= part.ended_ns and ended_ns >= part.started_ns:
                why = "a model call of this run failed, and nothing tells which trial made it"
                gap = GapSeen(
                    source="door", families=["model_api"], since_ns=call.started_ns, until_ns=ended_ns, why=why
                )
                yield "door.model", gap, call.started_ns

    def _mono_at(self, wall_ns: int) -> int:
        if self._facts.started is None:
            return max(0, wall_ns)
        begun = self._facts.started[0]
        return max(0, begun.mono_ns + (wall_ns - begun.wall_ns))


def _reaches(gap: GapSeen, part: Part) -> bool:
    """Whether a gap may lie in the trial's time; an end that it does not name is open."""
    begins = gap.since_ns is None or gap.since_ns <= part.ended_ns
    return begins and (gap.until_ns is None or gap.until_ns >= part.started_ns)


def _nobodys(kill: KernelOomKill) -> KernelOomKill:
    """A kill in the command's own cgroup may have been in any trial: it is told without a place."""
    if kill.container_id is None:
        return kill
    return msgspec.structs.replace(kill, container_id=None, oom_memcg=None, task_memcg=None)
