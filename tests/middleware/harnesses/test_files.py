"""Reading within bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware.harnesses import files
from fairtrial.middleware.harnesses.files import Lines, below, from_seconds, read_bytes, read_json, shown, wall_ns
from fairtrial.middleware.harnesses.known import source_of
from tests.middleware.harnesses.real import DATA, read


class _Doc(msgspec.Struct):
    a: int | None = None
    b: list[int] | None = None


def test_a_file_larger_than_the_bound_gives_its_beginning_and_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"x" * 5000)
    found = read_bytes(file, 4096)
    assert (len(found.value or b""), found.whole) == (4096, False)
    assert "is larger than" in (found.trouble or "")


def test_a_huge_document_still_gives_what_stands_at_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (DATA / "inspect/ok.json").read_bytes()
    file = tmp_path / "log.json"
    file.write_bytes(content)
    monkeypatch.setattr(files, "MAX_BYTES", len(content) - 200)
    monkeypatch.setattr(files.read_bytes, "__defaults__", (len(content) - 200,))
    reading = read("inspect", file)
    assert len(reading.booked) >= 1
    assert "is larger than" in reading.notes[0].said


def test_lines_longer_than_the_bound_are_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 16)
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"a": 1}\n' + b"x" * 100 + b'\n{"a": 2}\n')
    lines = Lines(file)
    assert list(lines) == [b'{"a": 1}', b'{"a": 2}']
    assert lines.bad == 1


@pytest.mark.parametrize(
    "content, whole, value",
    [
        (b'{"a": 1, "b": [1, 2]}', True, _Doc(a=1, b=[1, 2])),
        (b'{"a": 1, "b": [1, 2', False, _Doc(a=1, b=[1])),
        (b'{"a": "text"}', False, None),
        (b"", False, None),
    ],
)
def test_a_document_is_read_as_far_as_it_goes(content: bytes, whole: bool, value: _Doc | None, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    found = read_json(file, _Doc)
    assert (found.whole, found.value) == (whole, value)
    assert bool(found.trouble) is not whole


def test_times_without_a_zone_are_utc_and_nonsense_is_none() -> None:
    assert wall_ns("2026-11-30T00:00:00Z") == wall_ns("2026-11-30T00:00:00") == 1_795_996_800 * 10**9
    assert [wall_ns(text) for text in ("", "soon", 3, None)] == [None] * 4
    assert (from_seconds(1.5), from_seconds(True), from_seconds(-1), from_seconds("1")) == (
        15 * 10**8,
        None,
        None,
        None,
    )


def test_times_that_the_store_cannot_count_are_none() -> None:
    """The store's clock counts ns in 63 bits; an agent's trajectory may name any year."""
    assert [wall_ns(f"{year}-12-31T23:59:59Z") for year in ("0001", "1969", "2262", "9999")] == [None] * 4
    assert wall_ns("0001-01-01T00:00:00+23:59") is None
    assert [from_seconds(value) for value in (9.3e9, 9e10, float("inf"), float("nan"))] == [None] * 4
    assert (wall_ns("2254-12-31T00:00:00Z") or 0) < 1 << 63


def test_paths_are_told_below_what_was_given_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.json").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert below(tmp_path, "x.json") == [tmp_path / "a" / "x.json"]
    assert shown(tmp_path / "a" / "x.json", tmp_path) == "a/x.json"
    assert shown(Path("/elsewhere/x.json"), tmp_path) == "x.json"
    assert source_of("h", "i", "c") == "import.h/i/c"
