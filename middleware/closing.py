"""From stored observations to a closed trial: used live, on replay, and for trials whose run process died.

In: observations.  Out: a `Trial` with its verdict.  A fault of ours in assembling or judging gives an
indeterminate verdict that says so; it never takes the record away.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds, thresholds_of
from fairtrial.middleware.attribution.time_limit import timeout_of
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import Observation, Subject, TrialEnded
from fairtrial.middleware.core.records import Blame, Grade, Outcome, Trial, Verdict
from fairtrial.middleware.core.selfevents import Journal, RecordIgnored
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.core.yardsticks import NO_YARDSTICKS, Yardsticks
from fairtrial.middleware.parted import PartedRun
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.parting import part
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.store.database import latest_record, observations_of, open_database
from fairtrial.middleware.store.queries import OpenTrial, orphans
from fairtrial.middleware.store.writer import Owner, StoreWriter

GATE_EXIT: Final = 75
"""EX_TEMPFAIL: worth a retry."""
STILL_CLOSING_S: Final = 10.0
_MADE_S: Final = 5.0
"""How long the writer may take to make a store that is new."""


def judged(
    observations: Iterable[Observation],
    trial_id: str,
    journal: Journal,
    *,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    revision: int = 1,
    store: Path | None = None,
) -> Trial:
    """Assemble and judge.  `store`: where the other trials are by which one that has a time limit is measured."""
    kept = list(observations)
    try:
        assembly = assemble(kept, trial_id)
    except Exception as error:  # noqa: BLE001 - a fault of ours must not take the record away
        journal.note(RecordIgnored(label="assemble", detail=repr(error)))
        return Trial(trial=trial_id, verdict=_our_fault("assembling", error, revision))
    try:
        measures = beside(store, assembly.trial, journal)
        verdict = judge(assembly, thresholds, revision=revision, yardsticks=measures)
    except Exception as error:  # noqa: BLE001 - same
        journal.note(RecordIgnored(label="judge", detail=repr(error)))
        verdict = _our_fault("judging", error, revision)
    return msgspec.structs.replace(assembly.trial, verdict=verdict)


def beside(store: Path | None, trial: Trial, journal: Journal) -> Yardsticks:
    """What the other trials of a store say of one with a time limit; a store that cannot be read says nothing."""
    if store is None or (trial.limits.time.agent is None and timeout_of(trial.command) is None):
        return NO_YARDSTICKS
    from fairtrial.middleware.analysis.yardsticks import yardsticks

    try:
        database = open_database(store, read_only=True)
    except (OSError, sqlite3.Error):
        return NO_YARDSTICKS
    try:
        return yardsticks(database, trial)
    except (OSError, sqlite3.Error, msgspec.MsgspecError, zlib.error) as error:
        journal.note(RecordIgnored(label="yardsticks", detail=repr(error)))
        return NO_YARDSTICKS
    finally:
        database.close()


def _our_fault(doing: str, error: Exception, revision: int) -> Verdict:
    return Verdict(
        blame=Blame.INDETERMINATE,
        sentence=f"fairtrial itself failed while {doing} ({error!r}); the observations are stored, please report it.",
        revision=revision,
    )


def gate_answer(trial: Trial) -> int | None:
    """75 when a failed trial was ended by infra, proved, or blamed on it, proved; None: keep the command's status."""
    verdict = trial.verdict
    if verdict is None or trial.outcome is Outcome.PASSED or verdict.blame is Blame.MODEL:
        return None
    ended = verdict.terminated_by
    by_infra = (
        ended is not None
        and ended.grade is Grade.PROVED
        and ended.cause in CAUSES
        and Blame.INFRA in CAUSES[ended.cause].may_blame
        and verdict.blame in (Blame.INFRA, Blame.INDETERMINATE)
    )
    blamed = verdict.blame is Blame.INFRA and verdict.grade is Grade.PROVED
    return GATE_EXIT if by_infra or blamed else None


def revise(store: Path, writer: StoreWriter, journal: Journal, trials: Iterable[str]) -> list[Trial]:
    """Judge closed trials again for which late evidence came; a verdict that it changes becomes a new revision.

    The earlier verdicts stay as they are.  Thresholds are those of the settings, as when the trial was closed.
    """
    revised: list[Trial] = []
    database = open_database(store, read_only=True)
    try:
        for trial_id in trials:
            before = latest_record(database, trial_id)
            if before is None or before.verdict is None:
                continue  # open still: whoever closes it sees the evidence
            kept = observations_of(database, trial_id)
            thresholds = thresholds_of(before.verdict.thresholds)
            revision = before.verdict.revision + 1
            after = judged(kept, trial_id, journal, thresholds=thresholds, revision=revision, store=store)
            if after.verdict is not None and _differs(before.verdict, after.verdict):
                writer.close_trial(after)
                revised.append(after)
    finally:
        database.close()
    return revised


def _differs(before: Verdict, after: Verdict) -> bool:
    """Whether two verdicts say something else; evidence that only adds to one is no other verdict."""
    same = ("blame", "grade", "cause", "step", "phase", "terminated_by", "ended_as")
    return any(getattr(before, name) != getattr(after, name) for name in same)


def recover_orphans(store: Path, writer: StoreWriter, journal: Journal) -> int:
    """Close the trials whose run process and observer are both dead, as `recovered`; how many there were."""
    if not writer.flush(_MADE_S):
        return 0  # a store that is being made, or waited for: who asks next finds them
    database = open_database(store, read_only=True)
    closed = 0
    try:
        for trial_id in orphans(database, owner_alive):
            kept = list(observations_of(database, trial_id))
            last = max(kept, key=lambda o: o.wall_ns, default=None)
            if last is not None and clock.now().wall_ns - last.wall_ns < STILL_CLOSING_S * 1e9:
                # Its own observer outlives the run process by a moment, and knows more.
                continue
            closed += 1
            if _recover_parted(kept, trial_id, writer, journal):
                continue
            source = Source("observer", kept.append, host=this_host(), trial=trial_id)
            ended = TrialEnded(closed="recovered", why="fairtrial was killed while the trial ran")
            observation = source.emit(
                ended,
                subject=Subject(trial=trial_id),
                wall_ns=last.wall_ns if last else None,
                mono_ns=last.mono_ns if last else None,
            )
            writer.put(observation)
            writer.close_trial(judged(kept, trial_id, journal, store=store))
    finally:
        database.close()
    return closed


def _recover_parted(kept: list[Observation], run_id: str, writer: StoreWriter, journal: Journal) -> bool:
    """Close the trials of a run that held several; False when it was one."""
    facts = RunFacts(run_id)
    for observation in kept:
        facts.take(observation)
    parting = part(facts, named=facts.named)
    if parting is None:
        return False
    host = this_host()
    parted = PartedRun(
        facts, parting, writer=writer, host=host, owner=Owner(os.getpid(), host.boot_id, None), closed="recovered"
    )
    parted.open()
    for trial_id, rows in parted.split(kept).items():
        writer.close_trial(judged(rows, trial_id, journal))
    return True


def owner_alive(trial: OpenTrial) -> bool:
    """Whether the run process of an open trial still lives: same boot, same pid, same start time."""
    if trial.pid is None:
        return False
    host = this_host()
    if trial.boot_id is not None and host.boot_id is not None and trial.boot_id != host.boot_id:
        return False
    try:
        stat = Path(f"/proc/{trial.pid}/stat").read_bytes()
    except OSError:
        return _exists(trial.pid) if not Path("/proc/self/stat").exists() else False
    if trial.start_ticks is None:
        return True
    fields = stat.rpartition(b")")[2].split()
    return len(fields) > 19 and int(fields[19]) == trial.start_ticks and fields[0] not in (b"Z", b"X")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
