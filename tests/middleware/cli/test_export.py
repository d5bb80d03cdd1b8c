"""`fairtrial export`: what waits is sent, what was sent is not sent again, and the lines lose nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from fairtrial.exporters.otlp_json import from_json
from fairtrial.middleware.cli import main
from fairtrial.middleware.core.observations import Subject, TrialStarted
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import insert_observation, insert_trial, open_database, open_trial_row
from tests.fakes.collector import http_collector, ids_in
from tests.fakes.traced import a_trial, span_count

ROOT = "cd" * 8


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "FAIRTRIAL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FAIRTRIAL_STORE", str(tmp_path / "s.db"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def kept(store: Path, *trials: Trial, wanted: bool = False, closed: bool = True) -> None:
    """Trials as the observer leaves them."""
    database = open_database(store)
    with database:
        for trial in trials:
            open_trial_row(database, trial, os.getpid(), None, None)
            source = Source("observer", lambda o: insert_observation(database, o), host=this_host(), trial=trial.trial)
            source.emit(TrialStarted(trace_id=trial.trace_id, root_span_id=ROOT), subject=Subject(trial=trial.trial))
            if wanted:
                exports.want(database, trial.trial, None, None, 1)
            if closed:
                insert_trial(database, trial)
    database.close()


def lines_in(text: bytes) -> list[str]:
    return [span for line in text.splitlines() for span in ids_in(from_json(line))]


def test_lines_hold_every_span_uncut_under_the_ids_that_the_command_was_given(
    store: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    trial = a_trial(steps=200)
    kept(store, trial)
    assert main(["export", "last", "--jsonl"]) == 0
    out, err = capsysbinary.readouterr()
    assert len(lines_in(out)) == len(set(lines_in(out))) == span_count(200)
    assert lines_in(out)[0] == ROOT
    assert len(out.splitlines()) == 3
    assert b"x" * 1000 in out, "the sentence is not cut here"
    assert f"{span_count(200)} spans of 1 trial(s) written".encode() in err
    target = tmp_path / "lines.jsonl"
    assert main(["export", trial.trial, "--jsonl", "-o", str(target)]) == 0
    assert target.read_bytes() == out
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_run_is_exported_as_a_whole_and_open_trials_are_left_out(
    store: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    kept(store, *(a_trial() for _ in range(25)), a_trial(run="other"))
    kept(store, msgspec.structs.replace(a_trial(), ended=None, verdict=None), closed=False)
    assert main(["export", "--run", "r", "--jsonl"]) == 0
    out, err = capsysbinary.readouterr()
    assert len(lines_in(out)) == 25 * span_count(1)
    assert b"1 still open, left out" in err


def test_what_waits_is_sent_with_pending_and_counted(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(store, a_trial(), a_trial(), wanted=True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert main(["export", "--pending"]) == 1
    out = capsys.readouterr().out
    assert f"0 spans exported, {2 * span_count(1)} waiting, 0 dropped" in out
    assert "127.0.0.1:1" in out
    with http_collector("partial:1") as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        assert main(["export", "--pending", "--json"]) == 1
        said = json.loads(capsys.readouterr().out)
        assert (said["exported"], said["dropped"], said["waits"]) == (2 * span_count(1) - 1, {"rejected": 1}, 0)
        assert main(["export", "--pending"]) == 0
    assert len(collector.seen) == len(set(collector.seen)) == 2 * span_count(1)


def test_a_trial_from_before_there_was_a_collector_is_sent_once_and_again_only_when_asked(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = a_trial()
    kept(store, trial)
    with http_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        assert main(["export", "last"]) == 0
        assert f"{span_count(1)} spans exported, 0 waiting, 0 dropped" in capsys.readouterr().out
        assert collector.seen[0] == ROOT
        assert main(["export", "last"]) == 0
        assert "--again sends them once more, with the same span ids" in capsys.readouterr().out
        assert len(collector.seen) == span_count(1)
        assert main(["export", "last", "--again"]) == 0
    assert collector.seen[span_count(1) :] == collector.seen[: span_count(1)]


@pytest.mark.parametrize(
    "arguments, said, status",
    [
        (["export"], "Nothing is chosen", 2),
        (["export", "--pending", "--jsonl"], "Nothing is chosen", 2),
        (["export", "last"], "No collector is named", 2),
        (["export", "last", "-o", "x"], "--output is for --jsonl", 2),
        (["export", "nobody"], "no trial matches", 1),
        (["export", "--run", "nobody"], "no trial of run", 1),
        (["export", "last", "--jsonl", "-o", "/no/such/folder/x"], "could not be written", 69),
    ],
)
def test_a_choice_that_makes_no_sense_is_told(
    arguments: list[str], said: str, status: int, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(store, a_trial())
    assert main(arguments) == status
    assert said in capsys.readouterr().err


def test_a_setting_that_cannot_be_used_is_said(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(store, a_trial())
    monkeypatch.setenv("FAIRTRIAL_EXPORT__GENAI_NAMES", "0.9")
    assert main(["export", "last", "--jsonl"]) == 0
    assert "export.genai_names is '0.9'" in capsys.readouterr().err
