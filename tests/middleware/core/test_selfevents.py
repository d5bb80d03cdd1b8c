"""Internal events are counted always and logged at powers of two."""

from __future__ import annotations

import io
import json

from fairtrial.middleware.core.selfevents import ExportFailed, Journal, StoreFailed


def test_a_storm_of_one_event_is_a_handful_of_lines_and_an_exact_count() -> None:
    stream = io.StringIO()
    journal = Journal(stream)
    for _ in range(1000):
        journal.note(StoreFailed(label="write", detail="full"))
    journal.note(ExportFailed(label="otlp", detail="refused"))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["times"] for line in lines if line["event"] == "StoreFailed"] == [2**n for n in range(10)]
    assert journal.counts["StoreFailed", "write"] == 1000
    assert lines[-1]["detail"] == "refused"


def test_a_closed_log_stops_nothing() -> None:
    stream = io.StringIO()
    journal = Journal(stream)
    stream.close()
    journal.note(StoreFailed(label="write", detail="full"))
    assert journal.counts["StoreFailed", "write"] == 1


def test_an_errors_text_brings_no_key_into_the_log() -> None:
    stream = io.StringIO()
    Journal(stream).note(StoreFailed(label="write", detail="cannot reach http://u:p@h/ with sk-ant-api03-abcdefgh"))
    assert json.loads(stream.getvalue())["detail"] == "cannot reach http://***@h/ with ***"
