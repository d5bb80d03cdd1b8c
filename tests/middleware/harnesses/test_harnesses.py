"""What all readers have in common: any file, whole, cut off, foreign or gone, gives sentences and no traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.cli import HARNESSES
from fairtrial.middleware.core.observations import HarnessOutcome, Observation, decode, encode_value
from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.harnesses import ADAPTERS
from tests.middleware.harnesses.real import DATA, WHOLE, read

NAMES = {
    "harbor": "result.json",
    "mini-swe-agent": "x.traj.json",
    "inspect": "log.json",
    "claude-code": "x.jsonl",
    "swe-bench": "report.json",
    "junit": "x.xml",
    "exit-code": "status",
}
JUNK = (b"", b"{}", b"[]", b"null", b'{"a": [1, 2', b"\xff\xfe\x00", b"[" * 100_000, b"PK\x03\x04")


def test_the_command_line_names_every_reader() -> None:
    assert set(HARNESSES) == set(ADAPTERS)


@pytest.mark.parametrize("harness, path", WHOLE)
def test_a_whole_file_is_read_whole_and_says_nothing(harness: str, path: str) -> None:
    reading = read(harness, path)
    assert reading.booked
    assert [(n.state, n.said) for n in reading.notes if n.said and "no report.json" not in n.said] == []


@pytest.mark.parametrize("harness, path", WHOLE)
def test_what_is_booked_survives_the_store(harness: str, path: str) -> None:
    for one in read(harness, path).booked:
        kind, value = one.outcome.kind, encode_value(one.outcome)
        row = Observation(id="1", source="s", source_id="s/1", seq=1, wall_ns=1, mono_ns=1, kind=kind, value=value)
        assert decode(row) == one.outcome
        assert isinstance(decode(row), HarnessOutcome)


@pytest.mark.parametrize("harness, path", WHOLE)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1), last=st.booleans())
def test_any_beginning_of_a_file_gives_a_sentence_or_its_trials(
    harness: str, path: str, share: float, last: bool, tmp_path: Path
) -> None:
    content = (DATA / path).read_bytes()
    end = max(0, len(content) - 1 - round(share * 40)) if last else round(share * (len(content) - 1))
    cut = tmp_path / Path(path).name
    cut.write_bytes(content[:end])
    reading = ADAPTERS[harness].read(cut)
    whole = {one.outcome.identity: one.outcome for one in read(harness, path).booked}
    assert reading.booked or any(note.said for note in reading.notes)
    for one in reading.booked:
        known = whole.get(one.outcome.identity)
        if known is not None and one.outcome.scored:
            assert one.outcome.outcome in {known.outcome, Outcome.UNKNOWN}
    assert all(str(tmp_path) not in note.path + note.said for note in reading.notes)


@pytest.mark.parametrize("harness", sorted(ADAPTERS))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_junk_gives_a_sentence(harness: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / NAMES[harness]
    file.write_bytes(content)
    reading = ADAPTERS[harness].read(file)
    assert reading.booked or any(note.said for note in reading.notes)


@pytest.mark.parametrize("harness", sorted(ADAPTERS))
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b'{"a": [1, 2', b"\xff\xfe\x00", b"[" * 100_000, b"PK\x03\x04"]
)
def test_a_file_that_is_none_of_its_own_is_said_and_books_nothing(harness: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / NAMES[harness]
    file.write_bytes(content)
    reading = ADAPTERS[harness].read(file)
    assert reading.booked == []
    assert [note.state for note in reading.notes] in (["foreign"], ["unreadable"])
    assert all(note.said for note in reading.notes)


@pytest.mark.parametrize("harness", sorted(ADAPTERS))
def test_other_harnesses_files_are_foreign(harness: str, tmp_path: Path) -> None:
    for other, path in WHOLE:
        if other == harness or {other, harness} == {"harbor", "claude-code"}:
            continue
        file = tmp_path / NAMES[harness]
        shutil.copy(DATA / path, file)
        reading = ADAPTERS[harness].read(file)
        assert [one.outcome.label for one in reading.booked] == [], (harness, path)
        assert any(note.said for note in reading.notes)


@pytest.mark.parametrize("harness", sorted(ADAPTERS))
def test_what_is_not_there_or_no_file_is_said(harness: str, tmp_path: Path) -> None:
    gone = ADAPTERS[harness].read(tmp_path / "nowhere")
    assert [note.said for note in gone.notes if "could not be read" in note.said or "no such" in note.said]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert ADAPTERS[harness].read(empty).notes
    pipe = tmp_path / NAMES[harness]
    os.mkfifo(pipe)
    assert [n.state for n in ADAPTERS[harness].read(pipe).notes] in (["unreadable"], ["foreign"])
