"""From closed trials to the histograms that drift is read from.

In: a store.  Out: per provider, model and signal, slots of ten minutes.  A call counts when it ended well: its time to
the first token (streamed), its duration (its last attempt's), its output tokens per second behind the first token.
Trials that closed since the last time are counted into the store first; where the store cannot be written they are
counted in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from fairtrial.middleware.analysis.drift import SLOT_S, Signal
from fairtrial.middleware.analysis.loghist import LogHistogram
from fairtrial.middleware.core.records import Call, Trial
from fairtrial.middleware.store import paces
from fairtrial.middleware.store.database import latest_record

Series = dict[tuple[str, str, Signal], dict[int, LogHistogram]]
_BATCH: Final = 200
_LEAST_TOKENS: Final = 16
_UNKNOWN: Final = "unknown"


def of_trial(trial: Trial) -> Iterator[tuple[str, str, Signal, int, float]]:
    """(provider, model, signal, slot, value) of each call that says something."""
    for call in (*(call for step in trial.steps for call in step.calls), *trial.side_calls):
        yield from _of_call(call)


def _of_call(call: Call) -> Iterator[tuple[str, str, Signal, int, float]]:
    last = call.attempts[-1] if call.attempts else None
    if call.outcome != "ok" or last is None or last.started is None or call.role == "probe":
        return
    where = call.provider or _UNKNOWN, call.model or _UNKNOWN
    slot = int(datetime.fromisoformat(last.started).timestamp()) // SLOT_S
    if last.duration is not None:
        yield (*where, "duration", slot, last.duration)
    first = last.first_token
    if call.stream and first is not None:
        yield (*where, "ttft", slot, first)
        tokens = call.output_tokens
        if tokens is not None and tokens >= _LEAST_TOKENS and last.duration is not None and last.duration > first:
            yield (*where, "token_rate", slot, tokens / (last.duration - first))


def read_series(database: sqlite3.Connection, since: int, *, writable: bool) -> Series:
    """All series from slot `since` on.  Raises `sqlite3.Error` when the store cannot be read."""
    known = paces.has_table(database)
    if writable and known:
        with suppress(sqlite3.OperationalError):  # locked, full or read only after all: then in memory
            _catch_up(database)
    series: Series = {}
    if known:
        for (provider, model, signal, slot), counts in paces.stored(database, since):
            histogram = series.setdefault((provider, model, _signal(signal)), {}).setdefault(slot, LogHistogram())
            histogram.merge(LogHistogram.from_json(counts))
    left = paces.uncounted(database) if known else _closed(database)
    for (provider, model, signal, slot), histogram in _count(database, left).items():
        if slot >= since:
            series.setdefault((provider, model, _signal(signal)), {}).setdefault(slot, LogHistogram()).merge(histogram)
    return series


def _closed(database: sqlite3.Connection) -> list[str]:
    return [trial for (trial,) in database.execute("SELECT trial FROM trials WHERE closed IS NOT NULL")]


def _signal(text: str) -> Signal:
    return "ttft" if text == "ttft" else "token_rate" if text == "token_rate" else "duration"


def _catch_up(database: sqlite3.Connection) -> None:
    waiting = paces.uncounted(database)
    for begin in range(0, len(waiting), _BATCH):
        batch = waiting[begin : begin + _BATCH]
        counts = {key: histogram.as_json() for key, histogram in _count(database, batch).items()}
        with suppress(sqlite3.IntegrityError):  # another process was faster: the next look finds what is left
            paces.add(database, batch, counts, _merged)


def _count(database: sqlite3.Connection, trials: Iterable[str]) -> dict[paces.Key, LogHistogram]:
    counted: dict[paces.Key, LogHistogram] = {}
    for trial in trials:
        record = latest_record(database, trial)
        for provider, model, signal, slot, value in () if record is None else of_trial(record):
            counted.setdefault((provider, model, signal, slot), LogHistogram()).add(value)
    return counted


def _merged(one: paces.Counts, other: paces.Counts) -> paces.Counts:
    histogram = LogHistogram.from_json(one)
    histogram.merge(LogHistogram.from_json(other))
    return histogram.as_json()
