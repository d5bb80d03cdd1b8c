"""`fairtrial import HARNESS PATH`: results of harnesses become observations, and verdicts are revised by them.

In: a harness's name, a path, a store.  Out: rows in the store and an `Imported` that says what became of each file and
each trial.  Doing it twice changes nothing: a row's source id holds the digest of what was read.
A trial that is still open is left alone: rows that appear in its record from outside would convict its own command.
What this module does not do: print.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds
from fairtrial.middleware.closing import judged
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.core.masking import mask_values
from fairtrial.middleware.core.observations import HarnessOutcome, Observation, Subject, encode_value
from fairtrial.middleware.core.records import Outcome, Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import this_host
from fairtrial.middleware.harnesses import ADAPTERS
from fairtrial.middleware.harnesses.base import Booked, FileNote, Reading
from fairtrial.middleware.harnesses.join import Joined, join
from fairtrial.middleware.harnesses.known import SOURCE, imported_before, known_trials, source_of
from fairtrial.middleware.store.database import insert_observation, insert_trial, latest_record, observations_of
from fairtrial.middleware.store.queries import TrialRow, list_trials

LOOKED_AT: Final = 20_000
"""So many of the newest trials are candidates when no run is named."""
AROUND_NS: Final = 24 * 3600 * 10**9
"""How far from a booked trial's time a candidate may lie when no run is named."""
_ID_KEYS: Final = ("requests", "responses", "tool_calls", "call_keys", "sessions", "projects", "containers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrial:
    """What became of one booked trial.  `new`: something was written; `trial` None: it waits for its trial's end."""

    label: str
    trial: str | None
    alone: bool
    new: bool
    how: str | None
    said: str
    outcome: Outcome
    verdict: str | None = None


@dataclass(slots=True, kw_only=True)
class Imported:
    """One import."""

    trials: list[ImportedTrial] = field(default_factory=list[ImportedTrial])
    notes: list[FileNote] = field(default_factory=list[FileNote])


def import_results(
    database: sqlite3.Connection,
    harness: str,
    path: Path,
    *,
    run: str | None,
    journal: Journal,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Imported:
    """Read, join, write, judge anew.  Raises `KeyError` for an unknown harness, `sqlite3.Error` for the store."""
    try:
        reading = ADAPTERS[harness].read(path)
    except Exception as error:  # noqa: BLE001 - a fault of ours in reading must not look like the file's
        reading = Reading()
        reading.note(
            path.name, "unreadable", f"could not be read: fairtrial itself failed ({error!r}); please report it"
        )
    return take_reading(database, reading, run=run, journal=journal, thresholds=thresholds)


def take_reading(
    database: sqlite3.Connection,
    reading: Reading,
    *,
    run: str | None,
    journal: Journal,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Imported:
    """Join, write, judge anew."""
    known = known_trials(database, _candidates(database, reading.booked, run), with_ids=_needs_ids(reading.booked))
    answers = join(reading.booked, known, run=run)
    alone_before = {one.trial for one in known if one.alone}
    result = Imported(notes=reading.notes)
    touched: dict[str, None] = {}
    written: list[tuple[Booked, Joined, str, bool]] = []
    with database:
        for booked, answer in zip(reading.booked, answers, strict=True):
            if answer.waits:
                result.trials.append(_row(booked, answer, None, new=False))
                continue
            trial, new = _write(database, booked, answer, alone_before, run)
            written.append((booked, answer, trial, new))
            if new:
                touched[trial] = None
    records = {trial: _judge(database, trial, journal, thresholds) for trial in touched}
    for booked, answer, trial, new in written:
        record = records.get(trial)
        verdict = record.verdict if record is not None else None
        result.trials.append(_row(booked, answer, trial, new=new, verdict=verdict.sentence if verdict else None))
    return result


def _row(booked: Booked, answer: Joined, trial: str | None, *, new: bool, verdict: str | None = None) -> ImportedTrial:
    return ImportedTrial(
        label=booked.outcome.label,
        trial=trial,
        alone=answer.trial is None,
        new=new,
        how=answer.how,
        said=answer.said,
        outcome=booked.outcome.outcome,
        verdict=verdict,
    )


def _needs_ids(booked: Iterable[Booked]) -> bool:
    """Times and names are in the trials' rows; the rest must be read from their observations."""
    return any(one.program or one.keys.names or any(getattr(one.keys, k) for k in _ID_KEYS) for one in booked)


def _candidates(database: sqlite3.Connection, booked: list[Booked], run: str | None) -> list[TrialRow]:
    rows = list_trials(database, run=run, limit=-1 if run is not None else LOOKED_AT)
    if run is not None:
        return rows
    times = [t for one in booked for t in (one.outcome.started_ns, one.outcome.ended_ns) if t is not None]
    if not times or any(one.outcome.started_ns is None for one in booked):
        return rows
    begin, end = min(times) - AROUND_NS, max(times) + AROUND_NS
    return [row for row in rows if row.started_ns <= end and (row.ended_ns is None or row.ended_ns >= begin)]


def _write(
    database: sqlite3.Connection, booked: Booked, answer: Joined, alone_before: set[str], run: str | None
) -> tuple[str, bool]:
    """The trial that it belongs to, and whether a row was added."""
    outcome = booked.outcome
    before = imported_before(database, outcome.harness, outcome.identity)
    earlier = sorted(before.trials)
    trial = answer.trial
    if earlier and (trial is None or (trial in alone_before and trial not in before.trials)):
        trial = earlier[0]
    elif trial is None:
        trial = _own_id(outcome)
    told = msgspec.structs.replace(outcome, run=run, joined_by=answer.how, part_of=answer.part_of)
    content = _content(told)
    if content in before.contents and trial in before.trials:
        return trial, False
    now = clock.now()
    told = msgspec.structs.replace(told, imported_ns=now.wall_ns)
    observation = Observation(
        id=new_id(),
        source=f"{SOURCE}.{outcome.harness}",
        source_id=source_of(outcome.harness, outcome.identity, content),
        seq=1,
        host=this_host(),
        subject=Subject(trial=trial),
        wall_ns=outcome.ended_ns or outcome.started_ns or now.wall_ns,
        mono_ns=now.mono_ns,
        trust=booked.trust,
        kind=outcome.kind,
        value=mask_values(encode_value(told)) | {"identity": told.identity},  # a digest, which masking would take
    )
    changes = database.total_changes
    insert_observation(database, observation)
    return trial, database.total_changes > changes


def _content(told: HarnessOutcome) -> str:
    """Of what was read and how it was joined: a join that got better is news."""
    raw = msgspec.json.encode(msgspec.structs.replace(told, imported_ns=None, files=[]))
    return blake2b(raw, digest_size=16).hexdigest()


def _own_id(outcome: HarnessOutcome) -> str:
    """A trial id for one that was only imported: the same for the same trial, and sorted by its time."""
    seed = blake2b(f"{outcome.harness}/{outcome.identity}".encode(), digest_size=16).digest()
    stamp_ms = (outcome.started_ns or outcome.ended_ns or clock.now().wall_ns) // 1_000_000
    tail = int.from_bytes(seed, "big")
    value = (stamp_ms << 80) | (0x7 << 76) | ((tail >> 64 & 0xFFF) << 64) | (0b10 << 62) | (tail & ((1 << 62) - 1))
    text = f"{value & ((1 << 128) - 1):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _judge(database: sqlite3.Connection, trial: str, journal: Journal, thresholds: Thresholds) -> Trial:
    """A new revision of the trial's verdict from all that is stored."""
    stored = latest_record(database, trial)
    revision = (stored.verdict.revision if stored is not None and stored.verdict is not None else 0) + 1
    record = judged(list(observations_of(database, trial)), trial, journal, thresholds=thresholds, revision=revision)
    with database:
        insert_trial(database, record)
    return record
