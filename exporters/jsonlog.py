"""The JSON log: one line per call, step, tool, infra event and verdict, written when a trial is closed.

In: a `Trial` record.  Out: lines of `fairtrial.log/1` (docs/formats.md) appended to a file, or to standard error; for a
person at a terminal in columns.  The fields are those of the record; what was not observed is absent.  Texts are masked
and cut as on spans (`bounds.py`).  Each line is one write, so several processes may share a file.

It says what the record says: nothing is judged here, and nothing is logged while a call runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Final, TextIO

import msgspec
import structlog

from fairtrial.exporters.bounds import cut
from fairtrial.exporters.spans import span_id
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.masking import mask_text
from fairtrial.middleware.core.records import Blame, Call, ContainerUse, Outcome, Step, Trial

SCHEMA: Final = "fairtrial.log/1"
STDERR: Final = "-"
LINE_TEXT_BYTES: Final = 1024
"""Of one text: a sentence stays whole, a line stays far below what a log shipper splits."""
STATUSES: Final = 20

Line = dict[str, object]


def lines_of(trial: Trial) -> Iterator[Line]:
    """The lines of a closed trial: step by step, what is of no step, then the verdict.  Pure."""
    shared = _known({"trial": trial.trial, "run": trial.run, "task": trial.task, "trace_id": trial.trace_id})
    for step in trial.steps:
        for line in _of_step(trial, step):
            yield _line(line, shared)
    for call in trial.side_calls:
        yield _line(_of_call(trial, call, None), shared)
    for line in _of_verdict(trial):
        yield _line(line, shared)


def _line(fields: Line, shared: Line) -> Line:
    head = {"schema": SCHEMA, "event": fields.pop("event"), "level": fields.pop("level"), "at": fields.pop("at", None)}
    return {key: _clean(value) for key, value in (_known(head) | shared | _known(fields)).items()}


def _of_step(trial: Trial, step: Step) -> Iterator[Line]:
    for call in step.calls:
        yield _of_call(trial, call, step.index)
    for number, tool in enumerate(step.tools):
        failed = bool(tool.exit_code or tool.signal or tool.timed_out_by)
        yield {
            "event": "tool",
            "level": "warning" if failed else "info",
            "at": tool.ended or tool.started,
            "span_id": span_id(trial.trial, "tool", step.index, number),
            "step": step.index,
            **_fields(tool),
        }
    for use in step.containers:
        yield from _of_container(trial, step, use)
    counts = {"calls": len(step.calls), "tools": len(step.tools), "containers": len(step.containers)}
    yield {
        "event": "step",
        "level": "info",
        "at": step.ended or step.started,
        "span_id": span_id(trial.trial, "step", step.index),
        "step": step.index,
        "phase": step.phase.value,
        "started": step.started,
        "ended": step.ended,
        **counts,
    }


def _of_call(trial: Trial, call: Call, step: int | None) -> Line:
    last = call.attempts[-1] if call.attempts else None
    begun_ns = clock.wall_ns_of(last.started) if last else None
    took = timedelta(seconds=(last.duration or 0.0) if last else 0.0)
    ended = None if begun_ns is None else clock.rfc3339(begun_ns + took // timedelta(microseconds=1) * 1000)
    waits = [attempt.wait_before for attempt in call.attempts if attempt.wait_before is not None]
    return {
        "event": "call",
        "level": "info" if call.outcome in (None, "ok") else "warning",
        "at": ended,
        "step": step,
        **_fields(call),
        "span_id": call.span_id or span_id(trial.trial, "call", call.id),
        "attempts": len(call.attempts),
        "statuses": [attempt.status for attempt in call.attempts[-STATUSES:]],
        "error_type": next((a.error_type for a in reversed(call.attempts) if a.error_type), None),
        "wait": sum(waits) if waits else None,
    }


def _of_container(trial: Trial, step: Step, use: ContainerUse) -> Iterator[Line]:
    shared: Line = {"event": "infra", "level": "warning", "at": step.ended, "step": step.index, "container": use.id}
    shared |= {"container_name": use.name, "memory_limit": use.memory_limit, "memory_peak": use.memory_peak}
    if use.oom_kills:
        victims = [victim.comm for victim in use.oom_victims if victim.comm]
        yield shared | {
            "what": "oom_kill",
            "span_id": span_id(trial.trial, "oom", step.index, use.id),
            "oom_kills": use.oom_kills,
            "victims": victims or None,
        }
    if use.cpu_throttled:
        yield shared | {"what": "cpu_throttled", "cpu_throttled": use.cpu_throttled}


def _of_verdict(trial: Trial) -> Iterator[Line]:
    verdict = trial.verdict
    if verdict is None:
        return
    for present in verdict.present:
        yield {"event": "infra", "level": "info", "at": trial.ended, "what": "present", **_fields(present)}
    if verdict.terminated_by is not None:
        ended_by = _fields(verdict.terminated_by)
        yield {"event": "infra", "level": "warning", "at": trial.ended, "what": "terminated_by", **ended_by}
    if trial.outcome is Outcome.PASSED:
        level = "info"
    else:
        level = "error" if verdict.blame in (Blame.INFRA, Blame.FAIRTRIAL) else "warning"
    yield {
        "event": "verdict",
        "level": level,
        "at": trial.ended,
        "name": trial.name,
        "outcome": trial.outcome.value,
        "closed": trial.closed,
        "exit_code": trial.exit_code,
        "signal": trial.signal,
        "blame": verdict.blame.value,
        "grade": verdict.grade.value if verdict.grade else None,
        "cause": verdict.cause,
        "step": verdict.step,
        "sentence": verdict.sentence,
        "ended_as": verdict.ended_as.value,
        "terminated_by": verdict.terminated_by.cause if verdict.terminated_by else None,
        "revision": verdict.revision,
        "steps": len(trial.steps),
    }


def _fields(record: msgspec.Struct) -> Line:
    built = msgspec.to_builtins(record)
    assert isinstance(built, dict)
    return built


def _known(fields: Mapping[str, object]) -> Line:
    return {key: value for key, value in fields.items() if value is not None}


def _clean(value: object) -> object:
    if isinstance(value, str):
        return cut(mask_text(value), LINE_TEXT_BYTES)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


class JsonLog:
    """A log that is open.  Raises `OSError` when the file cannot be opened or written."""

    def __init__(self, target: str, *, beside: Path) -> None:
        """`target`: a path, relative to the folder `beside`, or `-` for standard error."""
        self._file: BinaryIO | None = None
        if target == STDERR:
            out: BinaryIO | TextIO = sys.stderr if sys.stderr.isatty() else sys.stderr.buffer
        else:
            path = beside / target
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Unbuffered and appending: a line is one write at the end of whatever is there by then.
            out = self._file = os.fdopen(
                os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb", buffering=0
            )
        self._logger = _logger(out)

    def write(self, trial: Trial) -> int:
        """Write a closed trial's lines; how many there were."""
        count = 0
        for line in lines_of(trial):
            say = {"warning": self._logger.warning, "error": self._logger.error}.get(
                str(line["level"]), self._logger.info
            )
            say(str(line.pop("event")), **line)
            count += 1
        return count

    def close(self) -> None:
        """Close the file; standard error stays open."""
        if self._file is not None:
            self._file.close()


class _OneWrite:
    """A logger of bytes whose every message is one write: `structlog.BytesLogger` makes two of it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def msg(self, message: bytes) -> None:
        self._out.write(message + b"\n")
        self._out.flush()

    log = debug = info = warning = error = critical = msg


def _logger(out: BinaryIO | TextIO) -> structlog.typing.FilteringBoundLogger:
    bound = structlog.make_filtering_bound_logger(20)
    if isinstance(out, TextIO) or hasattr(out, "encoding"):
        renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer()
        logger: object = structlog.PrintLogger(out)  # type: ignore[arg-type]  # a text stream has an encoding
    else:
        renderer = structlog.processors.JSONRenderer(serializer=lambda line, **_: msgspec.json.encode(line))
        logger = _OneWrite(out)
    return structlog.wrap_logger(logger, processors=[renderer], wrapper_class=bound)  # type: ignore[no-any-return]  # Any
