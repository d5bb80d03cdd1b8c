"""`fairtrial summary --run R`: a run in numbers, as text or as `fairtrial.summary/1`.

In: an open store and a run's name.  Out: text or JSON; whether the run has a trial.
"""

from __future__ import annotations

import sqlite3
import sys

import msgspec

from fairtrial.middleware.analysis.summary import Summary, summed_up
from fairtrial.middleware.cli.parted import held_before, live_counts
from fairtrial.middleware.report.summary import Look, Told, summary_lines
from fairtrial.middleware.report.words import printable
from fairtrial.middleware.store.database import latest_records
from fairtrial.middleware.store.queries import list_trials


def show_summary(database: sqlite3.Connection, run: str, *, as_json: bool, width: int) -> bool:
    """Print it; False when there is no trial of this run."""
    records = list(latest_records(database, run))
    still_open = sum(1 for row in list_trials(database, run=run, limit=-1) if row.closed is None)
    if not records and not still_open:
        held = held_before(database, run)
        if held is None:
            return False
        records = held.records()
    over = 0
    if still_open:
        apart, over = live_counts(database, run)
        still_open = max(still_open, apart)
    found = msgspec.structs.replace(summed_up(run, records), still_open=still_open)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        print("\n".join(summary_lines(_told(found), width=width)))
        if over:
            print(f"     Of those that still run {over} are over: fairtrial trials --run {printable(run)}")
    return True


def _told(found: Summary) -> Told:
    ended, scores = found.ended_by_infra, found.scores
    return Told(
        run=found.run,
        trials=found.trials,
        started=found.started,
        ended=found.ended,
        harnesses=found.harnesses,
        booked=found.booked,
        mean_reward=found.mean_reward,
        rewards=found.rewards,
        by_exit_code_only=found.by_exit_code_only,
        outcome_unknown=found.outcome_unknown,
        classes=found.classes,
        ended_by_infra=(ended.trials, ended.proved, ended.suspected),
        infra_causes=ended.causes,
        passed_by_dead_harness=found.passed_by_dead_harness,
        as_failures=(scores.infra_as_failures.passed, scores.infra_as_failures.counted),
        excluded=(scores.infra_excluded.passed, scores.infra_excluded.counted),
        lowest=(scores.lowest.passed, scores.lowest.counted),
        highest=(scores.highest.passed, scores.highest.counted),
        coverage=found.coverage,
        imported_only=found.imported_only,
        still_open=found.still_open,
        retried=found.retried,
        wholes=found.wholes,
        looks=[
            Look(
                trial=look.trial,
                name=look.name,
                why=look.why,
                blame=look.blame,
                grade=look.grade,
                cause=look.cause,
                step=look.step,
                sentence=look.sentence,
            )
            for look in found.worth_a_look
        ],
    )
