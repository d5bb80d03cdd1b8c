"""What is known of the trials in the store, as far as a harness's files can be joined to it.

In: an open store.  Out: `Known` records, by trial, and what was imported before.  What this module does not do: decide
(`join.py`), or write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    ContainerSeen,
    HarnessOutcome,
    Observation,
    TrialStarted,
    decode,
)
from fairtrial.middleware.steps.booked import CONTROL
from fairtrial.middleware.store.database import observations_of
from fairtrial.middleware.store.queries import TrialRow

SOURCE: Final = "import"
_KINDS: Final = frozenset(
    {AttemptStarted.kind, AttemptEnded.kind, ContainerSeen.kind, HarnessOutcome.kind, TrialStarted.kind}
)
PROJECT_LABEL: Final = "com.docker.compose.project"


@dataclass(slots=True, kw_only=True)
class Known:
    """One trial of the store.  `alone`: it was only imported; `open`: nobody closed it yet."""

    trial: str
    run: str | None
    name: str | None
    task: str | None
    started_ns: int
    ended_ns: int | None
    open: bool
    alone: bool = False
    command: tuple[str, ...] = ()
    """Last parts of the words of its command line."""
    keys: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By the name of the field of `base.Keys`; `founders`: identities of booked trials that it was made for."""

    def add(self, kind: str, value: str | None) -> None:
        if value:
            self.keys.setdefault(kind, set()).add(value)


def known_trials(database: sqlite3.Connection, rows: Iterable[TrialRow], *, with_ids: bool) -> list[Known]:
    """`with_ids`: read each trial's observations as well, for its ids; names and times come without."""
    found: list[Known] = []
    for row in rows:
        known = Known(
            trial=row.trial,
            run=row.run,
            name=row.name,
            task=row.task,
            started_ns=row.started_ns,
            ended_ns=row.ended_ns,
            open=row.closed is None,
        )
        known.add("trial_ids", row.trial)
        known.add("names", row.name)
        known.add("names", row.task)
        if with_ids:
            _take_ids(known, observations_of(database, row.trial))
        found.append(known)
    return found


def _take_ids(known: Known, observations: Iterable[Observation]) -> None:
    begun = False
    for observation in observations:
        if observation.kind not in _KINDS:
            continue
        value = decode(observation)
        match value:
            case TrialStarted():
                begun = True
                known.command = tuple(PurePosixPath(word).name for word in value.command[:64])
            case AttemptStarted() | AttemptEnded():
                known.add("sessions", value.request.session)
                known.add("call_keys", value.request.call_key)
                if isinstance(value, AttemptEnded):
                    known.add("requests", value.reply.request_id)
                    known.add("responses", value.reply.response_id)
                    for call in value.reply.tool_calls:
                        known.add("tool_calls", call.id)
            case ContainerSeen():
                known.add("containers", value.container_id)
                known.add("projects", value.labels.get(PROJECT_LABEL, "").lower())
            case HarnessOutcome() if observation.source == CONTROL:
                pass  # a name that the agent may have chosen joins nothing
            case HarnessOutcome():
                known.alone = True
                known.add("names", value.label)
                if value.joined_by is None:
                    known.add("founders", value.identity)
            case _:
                pass
    known.alone = known.alone and not begun


def source_of(harness: str, identity: str, content: str) -> str:
    """The source id of one imported outcome: the same content of the same trial is the same row."""
    return f"{SOURCE}.{harness}/{identity}/{content}"


@dataclass(frozen=True, slots=True)
class Before:
    """What earlier imports made of one booked trial."""

    trials: frozenset[str]
    contents: frozenset[str]


def imported_before(database: sqlite3.Connection, harness: str, identity: str) -> Before:
    """Trials that rows of this identity belong to, and the digests of what was read then."""
    prefix = source_of(harness, identity, "")
    rows = database.execute(
        """SELECT s.source_id, k.trial FROM sources s JOIN observations o ON o.source = s.id
           JOIN trial_keys k ON k.id = o.trial WHERE s.source_id >= ? AND s.source_id < ?""",
        (prefix, prefix + "\x7f"),
    ).fetchall()
    return Before(
        trials=frozenset(str(trial) for _, trial in rows),
        contents=frozenset(str(source).removeprefix(prefix) for source, _ in rows),
    )
