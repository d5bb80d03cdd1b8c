"""By what a trial is measured, from the other trials of one store: how long calls take, and how long its task needs.

In: a store (read only) and the trial.  Out: `Yardsticks`.
- *Reference*: whole, streamed calls of trials that began in the same hour of the week within the 4 weeks before this
  one and had ended before it began, so that it is frozen: p95 of the time to the first token by model and input size,
  p5 of the output tokens per second by model.  A model or a size with fewer than 20 such calls is not in it.
- *Need*: p90 of how long trials of the same task took that passed; None below 3 of them.
What this module does not do: charge anything (`attribution/ledger.py`).
How it can be wrong: who may write the store may write the past; what rests on it is never more than `suspected`.

**Source:** design page VERDICTS.md section 4.
"""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Iterator
from typing import Final

from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Call, Outcome, Trial
from fairtrial.middleware.core.yardsticks import Reference, Yardsticks, bucket_of
from fairtrial.middleware.store.database import latest_record

WEEKS: Final = 4
LEAST_CALLS: Final = 20
"""Below this a p95 is the largest value or a guess."""
LEAST_PASSED: Final = 3
_LEAST_TOKENS: Final = 16
"""A shorter reply says little of the rate."""
_MOST_TRIALS: Final = 400
_HOUR_NS: Final = 3_600_000_000_000
_WEEK_NS: Final = 168 * _HOUR_NS


def yardsticks(database: sqlite3.Connection, trial: Trial) -> Yardsticks:
    """What other trials of the store say about this one.  Raises `sqlite3.Error` when it cannot be read."""
    lengths = list(_passed(database, trial))
    need = _quantile(lengths, 9, of=10) if len(lengths) >= LEAST_PASSED else None
    return Yardsticks(reference=_reference(database, trial), need_s=need, need_trials=len(lengths))


def _passed(database: sqlite3.Connection, trial: Trial) -> Iterator[float]:
    if trial.task is None:
        return
    rows = database.execute(
        "SELECT ended_ns - started_ns FROM trials WHERE task = ? AND outcome = ? AND trial != ? AND closed = 'normal'"
        " AND ended_ns IS NOT NULL ORDER BY started_ns DESC LIMIT ?",
        (trial.task, Outcome.PASSED.value, trial.trial, _MOST_TRIALS),
    )
    for (length_ns,) in rows:
        yield length_ns / 1e9


def _reference(database: sqlite3.Connection, trial: Trial) -> Reference | None:
    began = wall_ns_of(trial.started)
    if began is None:
        return None
    first: dict[tuple[str, int], list[float]] = {}
    rates: dict[str, list[float]] = {}
    calls = 0
    for other in _same_hour(database, trial.trial, began):
        record = latest_record(database, other)
        for call in () if record is None else (c for step in record.steps for c in step.calls):
            measured = _measured(call)
            if measured is None:
                continue
            model, sent, first_s, rate = measured
            calls += 1
            first.setdefault((model, bucket_of(sent)), []).append(first_s)
            if rate is not None:
                rates.setdefault(model, []).append(rate)
    known = {key: _quantile(values, 19) for key, values in first.items() if len(values) >= LEAST_CALLS}
    slow = {model: _quantile(values, 1) for model, values in rates.items() if len(values) >= LEAST_CALLS}
    if not known or not slow:
        return None
    return Reference(
        source=f"the same hour of the week over {WEEKS} weeks ({calls} calls)",
        first_token_p95_s=known,
        token_rate_p5=slow,
    )


def _same_hour(database: sqlite3.Connection, trial: str, began_ns: int) -> list[str]:
    """Trials of the same hour of the week that were over before this one began, the newest first."""
    hour = began_ns // _HOUR_NS
    rows = database.execute(
        "SELECT trial FROM trials WHERE closed = 'normal' AND started_ns >= ? AND started_ns < ? AND ended_ns < ?"
        " AND trial != ? AND (? - started_ns / ?) % 168 = 0 ORDER BY started_ns DESC LIMIT ?",
        (began_ns - WEEKS * _WEEK_NS - _HOUR_NS, began_ns, began_ns, trial, hour, _HOUR_NS, _MOST_TRIALS),
    )
    return [row[0] for row in rows]


def _measured(call: Call) -> tuple[str, int, float, float | None] | None:
    """Model, tokens sent, time to the first token, rate behind it; None for a call that says nothing."""
    last = call.attempts[-1] if call.attempts else None
    if call.outcome != "ok" or not call.stream or call.model is None or last is None or call.input_tokens is None:
        return None
    if last.first_token is None or last.duration is None:
        return None
    sent = call.input_tokens + (call.cache_read_tokens or 0) + (call.cache_write_tokens or 0)
    behind, tokens = last.duration - last.first_token, call.output_tokens or 0
    rate = tokens / behind if tokens >= _LEAST_TOKENS and behind > 0 else None
    return call.model, sent, last.first_token, rate


def _quantile(values: list[float], nth: int, *, of: int = 20) -> float:
    """The nth of the cuts that part the values into `of` groups (19 of 20: p95)."""
    if len(values) == 1:
        return values[0]
    return round(statistics.quantiles(values, n=of, method="inclusive")[nth - 1], 6)
