"""The JSON log of an observer process: opened with the first line, given up by itself, never by the trial.

In: closed trials and the setting `export.log`.  Out: what `exporters/jsonlog.py` writes.  A file that cannot be written
is noted and tried again with the next trial; structlog is loaded when there is something to say.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import ExportFailed, Journal

if TYPE_CHECKING:
    from fairtrial.exporters.jsonlog import JsonLog


class TrialLog:
    """Calls block on the file: make them in a thread."""

    def __init__(self, target: str | None, *, store: Path, journal: Journal) -> None:
        """`target` None: no log.  A relative path lies beside the store."""
        self._target = target
        self._beside = store.parent
        self._journal = journal
        self._log: JsonLog | None = None

    def write(self, trial: Trial) -> None:
        """The trial's lines.  Raises nothing: the record is stored, whatever becomes of its lines."""
        if not self._target:
            return
        try:
            if self._log is None:
                from fairtrial.exporters.jsonlog import JsonLog

                self._log = JsonLog(self._target, beside=self._beside)
            self._log.write(trial)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            self._journal.note(ExportFailed(label="log", detail=repr(error)))
            self.close()

    def close(self) -> None:
        """Close the file."""
        log, self._log = self._log, None
        if log is not None:
            log.close()
