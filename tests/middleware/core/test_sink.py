"""Observations are numbered, stamped and never repeat an identity."""

from __future__ import annotations

from pathlib import Path

from fairtrial.middleware.core.observations import Note, Observation, Subject, TrialStarted
from fairtrial.middleware.core.records import PhaseName, Trust
from fairtrial.middleware.core.sink import Source, this_host


def test_a_source_numbers_from_one_and_another_start_has_another_id() -> None:
    seen: list[Observation] = []
    host = this_host()
    first, second = (Source("collector.x", seen.append, host=host, trial="t") for _ in range(2))
    for source in (first, first, second):
        source.emit(Note(event="e"))
    assert [o.seq for o in seen] == [1, 2, 1]
    assert len({(o.source_id, o.seq) for o in seen}) == 3
    assert {o.source for o in seen} == {"collector.x"}
    assert all(o.subject == Subject(trial="t") and o.host == host for o in seen)


def test_what_is_given_is_kept() -> None:
    seen: list[Observation] = []
    Source("s", seen.append, host=this_host()).emit(
        Note(event="e"),
        subject=Subject(container_id="c"),
        wall_ns=5,
        mono_ns=6,
        uncertainty_s=0.5,
        trust=Trust.INSIDE,
        phase=PhaseName.VERIFY,
    )
    only = seen[0]
    assert (only.wall_ns, only.mono_ns, only.uncertainty_s, only.trust, only.phase) == (
        5,
        6,
        0.5,
        Trust.INSIDE,
        PhaseName.VERIFY,
    )


def test_a_host_without_proc_has_no_boot_id(tmp_path: Path) -> None:
    assert this_host(tmp_path).boot_id is None


def test_a_key_that_others_put_into_a_text_is_kept_by_nobody() -> None:
    seen: list[Observation] = []
    source = Source("s", seen.append, host=this_host())
    source.emit(Note(event="e", text="refused: sk-ant-api03-abcdefgh", fields={"url": "http://u:p@h/"}))
    assert (seen[0].value["text"], seen[0].value["fields"]) == ("refused: ***", {"url": "http://***@h/"})


def test_what_the_operator_calls_a_trial_is_its_name_whatever_it_looks_like() -> None:
    seen: list[Observation] = []
    Source("s", seen.append, host=this_host()).emit(TrialStarted(name="sk-learn-fix-1", task="sk-learn-fix"))
    assert (seen[0].value["name"], seen[0].value["task"]) == ("sk-learn-fix-1", "sk-learn-fix")
