"""The log of an observer is opened with the first line, and its faults are noted, never raised."""

from __future__ import annotations

import io
import json
from pathlib import Path

from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.observer.log import TrialLog
from tests.fakes.traced import a_trial


def test_nothing_is_made_before_there_is_a_line_or_without_a_setting(tmp_path: Path) -> None:
    journal = Journal(io.StringIO())
    log = TrialLog("log.jsonl", store=tmp_path / "s.db", journal=journal)
    assert list(tmp_path.iterdir()) == []
    TrialLog(None, store=tmp_path / "s.db", journal=journal).write(a_trial())
    assert list(tmp_path.iterdir()) == []
    log.write(a_trial())
    log.write(a_trial())
    log.close()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines].count("verdict") == 2


def test_a_file_that_cannot_be_written_is_noted_and_tried_again(tmp_path: Path) -> None:
    journal = Journal(io.StringIO())
    log = TrialLog("/dev/full", store=tmp_path / "s.db", journal=journal)
    log.write(a_trial())
    log.write(a_trial())
    log.close()
    assert journal.counts[("ExportFailed", "log")] == 2
