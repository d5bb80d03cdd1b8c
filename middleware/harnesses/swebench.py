"""SWE-bench's evaluation: run reports (`<model>.<run>.json`) and the logs of instances.

In: a report, an instance's folder, or any folder above (`logs/run_evaluation/…`).  Out: one `Booked` per instance,
joined by its name and by the evaluation container's id.  The evaluation is a trial's verifier: its times are phase
verify.  SWE-bench's own guesses of environment faults rest on what tests print, so they are marks and no more.
Times in its log have no zone; they are taken as this machine's.
**Source:** swebench 5.0.2, harness/reporting.py, run_evaluation.py, grading.py, infra_failure.py.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import BookedError, BookedPhase, HarnessOutcome
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import MAX_FILES, read_bytes, read_json, shown
from fairtrial.middleware.wire.redact import digest

HARNESS: Final = "swe-bench"
_LOG_FILES: Final = frozenset({"report.json", "run_instance.log"})
_STAMP: Final = re.compile(rb"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) - \w+ - ", re.MULTILINE)
_STARTED: Final = re.compile(rb"Container for \S+ (?:created|started): ([0-9a-f]{64})\b")
_TIMED_OUT: Final = re.compile(rb"Timeout error: \d+ seconds exceeded|Test timed out after")
_LOG_BYTES: Final = 16 << 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Run(msgspec.Struct):
    """A run's report, schema 1 (none) and 2."""

    submitted_ids: list[str] | None = None
    resolved_ids: list[str] | None = None
    unresolved_ids: list[str] = []
    error_ids: list[str] = []
    empty_patch_ids: list[str] = []
    incomplete_ids: list[str] = []
    infra_failure_ids: list[str] = []
    ambiguous_failure_ids: list[str] = []


class _Instance(msgspec.Struct):
    resolved: bool | None = None
    patch_is_None: bool | None = None  # noqa: N815 - as SWE-bench spells it
    patch_exists: bool | None = None
    patch_successfully_applied: bool | None = None
    infra_failure: bool | None = None


def read(path: Path) -> Reading:
    """A report, an instance's folder, or a folder above those."""
    reading = Reading()
    if path.is_file():
        if path.name in _LOG_FILES:
            _instance(path.parent, path.parent, reading)
        else:
            _report(path, path.name, reading)
        return reading
    if not path.is_dir():
        reading.note(path.name, "unreadable", read_bytes(path, 1).trouble or "is no regular file")
        return reading
    folders: set[Path] = set()
    reports: list[Path] = []
    seen = 0
    for place, subfolders, files in os.walk(path):
        subfolders.sort()
        seen += len(files)
        if seen > MAX_FILES:
            reading.note(path.name, "partial", f"holds more than {MAX_FILES} files; the rest was not looked at")
            break
        if _LOG_FILES & set(files):
            folders.add(Path(place))
        else:
            reports += [Path(place) / file for file in sorted(files) if file.endswith(".json")]
    for folder in sorted(folders):
        _instance(folder, path, reading)
    known = {one.outcome.identity for one in reading.booked if one.outcome.outcome is not Outcome.UNKNOWN}
    for report in reports:
        _report(report, shown(report, path), reading, known)
    if not reading.booked and not reading.notes:
        reading.note(path.name, "foreign", "holds no report and no instance log of SWE-bench")
    return reading


def _report(file: Path, name: str, reading: Reading, known: set[str] | None = None) -> None:
    found = read_json(file, _Run)
    run = found.value
    if run is None:
        reading.note(name, "foreign" if found.foreign else "unreadable", found.trouble or "could not be read")
        return
    if run.submitted_ids is None and run.resolved_ids is None:
        reading.note(name, "foreign", "is no run report of SWE-bench (no submitted_ids, no resolved_ids)")
        return
    reading.note(name, "whole" if found.whole else "partial", found.trouble or "")
    job = file.name.removesuffix(".json")
    said: dict[str, tuple[Outcome, str]] = {}
    for ids, outcome, word in (
        (run.error_ids, Outcome.ERRORED, "error"),
        (run.unresolved_ids, Outcome.FAILED, "unresolved"),
        (run.empty_patch_ids, Outcome.FAILED, "empty_patch"),
        (run.resolved_ids or [], Outcome.PASSED, "resolved"),
    ):
        said |= dict.fromkeys(ids, (outcome, word))
    marks = dict.fromkeys(run.infra_failure_ids, "names_environment")
    marks |= dict.fromkeys(run.ambiguous_failure_ids, "names_environment_maybe")
    for instance, (outcome, word) in sorted(said.items()):
        identity = _identity(job, instance)
        if known is not None and identity in known:
            continue
        booked = HarnessOutcome(
            harness=HARNESS,
            identity=identity,
            label=instance,
            task=instance,
            job=job,
            outcome=outcome,
            scored=word in {"resolved", "unresolved"},
            reward={"resolved": 1.0, "unresolved": 0.0}.get(word),
            exit_status=word,
            errors=[BookedError(type="EvaluationError")] if word == "error" else [],
            marks=[marks[instance]] if instance in marks else [],
            complete=found.whole,
            files=[name],
        )
        reading.booked.append(Booked(outcome=booked, keys=Keys(names=frozenset({instance}))))


def _identity(job: str, instance: str) -> str:
    return digest(f"{HARNESS}/{job}/{instance}")


def _instance(folder: Path, top: Path, reading: Reading) -> None:
    """`<run>/<model>/<instance>/` with a report.json (absent when the evaluation failed) and run_instance.log."""
    instance, job = folder.name, f"{folder.parent.name}.{folder.parent.parent.name}"
    report = folder / "report.json"
    files: list[str] = []
    whole = True
    value: _Instance | None = None
    if report.exists():
        found = read_json(report, dict[str, _Instance])
        if found.value is None or not found.value:
            foreign = found.foreign or found.trouble is None
            reading.note(
                shown(report, top), "foreign" if foreign else "unreadable", found.trouble or "names no instance"
            )
            whole = False
        else:
            instance = instance if instance in found.value else next(iter(found.value))
            value = found.value[instance]
            whole = found.whole
            reading.note(shown(report, top), "whole" if whole else "partial", found.trouble or "")
        files.append(shown(report, top))
    log = folder / "run_instance.log"
    content = read_bytes(log, _LOG_BYTES).value or b""
    if value is None and not content:
        if not report.exists():
            reading.note(shown(log, top), "unreadable", read_bytes(log, 1).trouble or "is empty")
        return
    if content:
        files.append(shown(log, top))
        if value is None:
            reading.note(shown(log, top), "partial", "has no report.json: the evaluation failed or still runs")
    times = [_local_ns(m.group(1), m.group(2)) for m in _STAMP.finditer(content)]
    known = [t for t in times if t is not None]
    started, ended = min(known, default=None), max(known, default=None)
    timed_out = _TIMED_OUT.search(content) is not None
    errors = [BookedError(type="TestsTimedOut")] if timed_out else []
    if value is None and not errors:
        errors = [BookedError(type="EvaluationError")]
    outcome = HarnessOutcome(
        harness=HARNESS,
        identity=_identity(job, instance),
        label=instance,
        task=instance,
        job=job,
        outcome=_outcome(value),
        scored=value is not None and value.resolved is not None,
        reward=None if value is None or value.resolved is None else float(value.resolved),
        exit_status=_word(value),
        ended_as=EndedAs.AGENT_FINISHED if value is not None else None,
        errors=errors,
        marks=["names_environment"] if value is not None and value.infra_failure else [],
        started_ns=started,
        ended_ns=ended,
        phases=[] if started is None else [BookedPhase(name=PhaseName.VERIFY, started_ns=started, ended_ns=ended)],
        complete=whole and value is not None,
        files=files,
    )
    containers = frozenset(m.group(1).decode() for m in _STARTED.finditer(content))
    keys = Keys(names=frozenset({instance}), containers=containers)
    reading.booked.append(Booked(outcome=outcome, keys=keys))


def _outcome(value: _Instance | None) -> Outcome:
    if value is None or value.resolved is None:
        return Outcome.ERRORED if value is None else Outcome.UNKNOWN
    return Outcome.PASSED if value.resolved else Outcome.FAILED


def _word(value: _Instance | None) -> str:
    if value is None:
        return "error"
    if value.resolved:
        return "resolved"
    if value.patch_exists is False:
        return "empty_patch"
    return "unresolved" if value.patch_successfully_applied is not False else "patch_not_applied"


def _local_ns(stamp: bytes, milliseconds: bytes) -> int | None:
    try:
        moment = datetime.fromisoformat(stamp.decode()).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 + int(milliseconds) * 1_000_000


ADAPTER: Final = Adapter(
    name=HARNESS, takes="a run report (.json), an instance's log folder, or a folder above them", read=read
)
