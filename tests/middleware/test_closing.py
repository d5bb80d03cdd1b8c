"""From observations to a closed trial: our own faults are said, the gate is exact, dead runs are closed by the next."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware import closing
from fairtrial.middleware.closing import gate_answer, judged, owner_alive, recover_orphans, revise
from fairtrial.middleware.core.observations import Observation, TrialStarted
from fairtrial.middleware.core.records import Blame, Grade, Outcome, TerminatedBy, Trial, Verdict
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.store.database import latest_record, open_database
from fairtrial.middleware.store.queries import OpenTrial, open_trials
from fairtrial.middleware.store.writer import Owner, StoreWriter
from tests.middleware.attribution.scene import TRIAL as SCENE
from tests.middleware.attribution.scene import Scene

TRIAL = "01930000-0000-7000-8000-00000000000a"


def test_an_empty_trial_is_indeterminate() -> None:
    trial = judged([], TRIAL, Journal(io.StringIO()))
    assert trial.verdict is not None
    assert trial.verdict.blame is Blame.INDETERMINATE


def test_a_fault_of_ours_while_judging_is_said_and_keeps_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is put where a bug would be: the engine raises."""

    def broken(*_: object, **__: object) -> Verdict:
        raise ZeroDivisionError("bug")

    monkeypatch.setattr(closing, "judge", broken)
    journal = Journal(io.StringIO())
    trial = judged(started(), TRIAL, journal)
    assert trial.verdict is not None
    assert trial.verdict.blame is Blame.INDETERMINATE
    assert "fairtrial itself failed while judging" in trial.verdict.sentence
    assert trial.command == ["agent"]
    assert journal.counts["RecordIgnored", "judge"] == 1


def started() -> list[Observation]:
    kept: list[Observation] = []
    Source("run", kept.append, host=this_host(), trial=TRIAL).emit(TrialStarted(command=["agent"], name="n"))
    return kept


def trial_with(
    blame: Blame, grade: Grade | None, ended: tuple[str, Grade] | None = None, outcome: Outcome = Outcome.FAILED
) -> Trial:
    by = None if ended is None else TerminatedBy(cause=ended[0], grade=ended[1])
    return Trial(trial="t", outcome=outcome, verdict=Verdict(blame=blame, grade=grade, sentence="s", terminated_by=by))


@pytest.mark.parametrize(
    "trial, answer",
    [
        (trial_with(Blame.INFRA, Grade.PROVED), 75),
        (trial_with(Blame.INFRA, Grade.SUSPECTED), None),
        (trial_with(Blame.INFRA, Grade.SUSPECTED, ("container.oom_kill", Grade.PROVED)), 75),
        (trial_with(Blame.INFRA, Grade.SUSPECTED, ("container.oom_kill", Grade.SUSPECTED)), None),
        (trial_with(Blame.MODEL, Grade.PROVED, ("container.oom_kill", Grade.PROVED)), None),
        (trial_with(Blame.OPERATOR, Grade.PROVED, ("operator.auth", Grade.PROVED)), None),
        (trial_with(Blame.INFRA, Grade.PROVED, outcome=Outcome.PASSED), None),
        (trial_with(Blame.INDETERMINATE, None), None),
        (Trial(trial="t"), None),
    ],
)
def test_the_gate_asks_for_a_retry_only_when_infra_is_proved(trial: Trial, answer: int | None) -> None:
    assert gate_answer(trial) == answer


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


def test_an_owner_is_alive_only_as_the_same_process_of_the_same_boot() -> None:
    me, boot = os.getpid(), this_host().boot_id
    assert owner_alive(OpenTrial("t", me, boot, ticks(me)))
    assert not owner_alive(OpenTrial("t", me, boot, ticks(me) + 1))
    assert not owner_alive(OpenTrial("t", me, "another boot", ticks(me)))
    assert not owner_alive(OpenTrial("t", None, boot, None))


def test_a_trial_whose_run_died_is_closed_as_recovered_and_never_blames_infra(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as dead:
        owner = Owner(dead.pid, this_host().boot_id, ticks(dead.pid))
        dead.kill()
    journal = Journal(io.StringIO())
    path = tmp_path / "store.db"
    writer = StoreWriter(path, journal)
    observations = started()
    old = [msgspec.structs.replace(o, wall_ns=o.wall_ns - 60 * 10**9) for o in observations]
    writer.open_trial(Trial(trial=TRIAL, name="n", started="2026-11-29T10:00:00.000000Z"), owner)
    for one in old:
        writer.put(one)
    assert writer.flush(5)
    assert recover_orphans(path, writer, journal) == 1
    assert recover_orphans(path, writer, journal) in (0, 1)
    writer.close()
    database = open_database(path, read_only=True)
    record = latest_record(database, TRIAL)
    assert open_trials(database) == []
    database.close()
    assert record is not None
    assert record.closed == "recovered"
    assert record.verdict is not None
    assert record.verdict.blame is Blame.INDETERMINATE


def test_a_trial_that_wrote_a_moment_ago_is_left_to_its_own_observer(tmp_path: Path) -> None:
    journal = Journal(io.StringIO())
    path = tmp_path / "store.db"
    writer = StoreWriter(path, journal)
    writer.open_trial(Trial(trial=TRIAL, started="2026-11-29T10:00:00.000000Z"), Owner(0, None, None))
    writer.put(started()[0])
    assert writer.flush(5)
    assert recover_orphans(path, writer, journal) == 0
    writer.close()


def test_a_store_that_its_writer_is_only_just_making_has_no_orphans_and_no_fault(tmp_path: Path) -> None:
    journal = Journal(io.StringIO())
    for number in range(20):
        path = tmp_path / f"{number}.db"
        writer = StoreWriter(path, journal)
        assert recover_orphans(path, writer, journal) == 0
        writer.close()


# --- late evidence --------------------------------------------------------------------------------------------------


def late_kill(path: Path, told: Scene, *, seen: bool) -> StoreWriter:
    """A store with a trial that was judged before a collector of another host delivered its count of kills."""
    writer = StoreWriter(path, Journal(io.StringIO()))
    late = [o for o in told.observations if o.kind == "cgroup.oom_kill"]
    early = [o for o in told.observations if o not in late]
    for observation in early:
        writer.put(observation)
    writer.close_trial(judged(early, SCENE, Journal(io.StringIO())))
    for observation in late if seen else early[-1:]:
        writer.put(observation)
    assert writer.flush(10)
    return writer


def test_late_evidence_makes_a_new_revision_and_leaves_the_first(tmp_path: Path) -> None:
    told = Scene(counters=False).call().ran(0).call().ran(137, oom=True, told=False).call(tools=0).end(1)
    writer = late_kill(tmp_path / "store.db", told, seen=True)
    journal = Journal(io.StringIO())
    (revised,) = revise(tmp_path / "store.db", writer, journal, [SCENE])
    assert revised.verdict is not None
    assert (revised.verdict.revision, revised.verdict.cause) == (2, "container.oom_kill")
    assert writer.flush(10)
    assert revise(tmp_path / "store.db", writer, journal, [SCENE]) == []
    writer.close()
    database = open_database(tmp_path / "store.db", read_only=True)
    kept = database.execute("SELECT revision FROM verdicts WHERE trial = ? ORDER BY revision", (SCENE,)).fetchall()
    assert kept == [(1,), (2,)]
    newest = latest_record(database, SCENE)
    database.close()
    assert newest is not None
    assert newest.verdict == revised.verdict


def test_evidence_that_changes_nothing_is_no_revision(tmp_path: Path) -> None:
    told = Scene().call().ran(1).call(tools=0).end(1)
    writer = late_kill(tmp_path / "store.db", told, seen=False)
    assert revise(tmp_path / "store.db", writer, Journal(io.StringIO()), [SCENE, "unknown"]) == []
    writer.close()
