"""What the store knows of a trial decides what is sent of it; the command: tests/middleware/test_cli_export.py."""

from __future__ import annotations

import io
from pathlib import Path

from fairtrial.exporters.resend import ask, send, write_lines
from fairtrial.exporters.settings import settings_of
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import insert_trial, open_database, open_trial_row
from tests.fakes.collector import http_collector
from tests.fakes.traced import a_trial, span_count


def test_trials_are_told_apart_by_what_was_made_of_them(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    fresh, still_open = a_trial(), a_trial()
    database = open_database(store)
    with database:
        insert_trial(database, fresh)
        open_trial_row(database, still_open, 1, None, None)
    assert ask(database, [fresh.trial, still_open.trial]).new == [fresh.trial]
    assert ask(database, [still_open.trial]).open == [still_open.trial]
    with http_collector("503") as collector:
        settings = settings_of({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        arguments = {"version": "0", "host": None, "within_s": 10.0}
        first = send(store, settings, Journal(io.StringIO()), **arguments)  # type: ignore[arg-type]  # one kind of value each
        assert (first.exported, first.waits) == (0, span_count(1))
        assert ask(database, [fresh.trial], again=True).known == [fresh.trial], "it still waits"
        second = send(store, settings, Journal(io.StringIO()), **arguments)  # type: ignore[arg-type]  # same
        assert (second.exported, second.waits, second.trouble) == (span_count(1), 0, None)
    assert ask(database, [fresh.trial]).known == [fresh.trial]
    assert ask(database, [fresh.trial], again=True).new == [fresh.trial]
    database.close()


def test_lines_of_a_trial_without_a_record_are_none(tmp_path: Path) -> None:
    database = open_database(tmp_path / "s.db")
    out = io.BytesIO()
    assert write_lines(database, ["nobody"], out, settings_of({}), version="0", host=None) == (0, 0)
    database.close()
    assert out.getvalue() == b""
