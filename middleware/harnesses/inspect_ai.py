"""Inspect: evaluation logs, `.json` or `.eval` (a zip), one trial per sample and epoch.

In: a log or a folder of logs.  Out: one `Booked` per sample, joined by request ids, reply ids, `x-irid` call keys,
tool-call ids, and the name that our hooks gave its calls.  A score is the scorer's; a sample with an error or a limit
has its own word beside it.  Inspect may score the text of an API error as an answer: the ids still lead to the calls
that failed.
What this module does not do: read transcripts' texts.
**Source:** inspect-ai 0.3.285, inspect_ai/log/_log.py (log version 2); reference pages harnesses.md 7 and 9.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fairtrial.middleware.core.observations import BookedError, BookedPhase, HarnessOutcome
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName, TimeLimits
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import MAX_BYTES, Read, parse_json, read_bytes, read_json, shown, wall_ns
from fairtrial.middleware.harnesses.zipped import UNPACK_ERRORS, salvaged, unpacked
from fairtrial.middleware.wire.redact import digest
from fairtrial.middleware.wire.session import TRIAL_HEADER

HARNESS: Final = "inspect"
_TIME_LIMITS: Final = frozenset({"time", "working"})
T = TypeVar("T")


class _RequestId(msgspec.Struct):
    id: str | None = None


class _Request(msgspec.Struct):
    extra_headers: dict[str, object] | None = None


class _Reply(msgspec.Struct):
    id: object = None


class _RawCall(msgspec.Struct):
    request: _Request | None = None
    response: _Reply | None = None


class _Event(msgspec.Struct):
    event: str | None = None
    timestamp: str | None = None
    id: str | None = None
    type: object = None
    request_ids: list[_RequestId] | None = None
    call: _RawCall | None = None


class _Score(msgspec.Struct):
    value: object = None


class _Error(msgspec.Struct):
    message: str = ""


class _Limit(msgspec.Struct):
    type: str | None = None
    limit: float | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Sample(msgspec.Struct):
    id: str | int | None = None
    epoch: int | None = None
    uuid: str | None = None
    scores: dict[str, _Score] | None = None
    error: _Error | None = None
    error_retries: list[_Error] | None = None
    limit: _Limit | None = None
    events: list[_Event] | None = None
    model_usage: dict[str, _Usage] | None = None
    started_at: str | None = None
    completed_at: str | None = None


class _EvalConfig(msgspec.Struct):
    time_limit: float | None = None
    working_limit: float | None = None
    max_samples: int | None = None
    epochs: int | None = None


class _Packages(msgspec.Struct):
    inspect_ai: str | None = None


class _Spec(msgspec.Struct):
    eval_id: str | None = None
    task: str | None = None
    model: str | None = None
    config: _EvalConfig = msgspec.field(default_factory=_EvalConfig)
    packages: _Packages = msgspec.field(default_factory=_Packages)


class _Log(msgspec.Struct):
    version: int | None = None
    status: str | None = None
    eval: _Spec | None = None
    samples: list[_Sample] | None = None


def read(path: Path) -> Reading:
    """A log, or a folder of logs."""
    reading = Reading()
    if not path.is_dir():
        _log(path, path.parent, reading)
        return reading
    files = sorted(file for file in path.rglob("*") if file.suffix in {".eval", ".json"} and file.is_file())
    for file in files:
        _log(file, path, reading)
    if not files:
        reading.note(path.name, "foreign", "holds no .eval and no .json log")
    return reading


def _log(file: Path, top: Path, reading: Reading) -> None:
    name = shown(file, top)
    first = read_bytes(file, 4)
    if first.value is None:
        reading.note(name, "unreadable", first.trouble or "could not be read")
        return
    if file.suffix == ".eval" or _is_zip(file):
        _zipped(file, name, reading)
        return
    found = read_json(file, _Log)
    log = found.value
    if log is None:
        reading.note(name, "foreign" if found.foreign else "unreadable", found.trouble or "could not be read")
        return
    if log.eval is None or (log.eval.eval_id is None and log.eval.task is None):
        reading.note(name, "foreign", "is no log of Inspect's (no `eval`)")
        return
    reading.note(name, "whole" if found.whole else "partial", found.trouble or "")
    samples = log.samples or []
    for number, sample in enumerate(samples):
        cut = not found.whole and number == len(samples) - 1
        reading.booked.append(_booked(sample, log, name, whole=not cut))


def _is_zip(file: Path) -> bool:
    return (read_bytes(file, 4).value or b"")[:2] == b"PK"


def _zipped(file: Path, name: str, reading: Reading) -> None:
    """A zip of one JSON per sample.  While the evaluation runs it has no header yet, only `_journal/start.json`."""
    try:
        with zipfile.ZipFile(file) as archive:
            _members(archive.namelist(), lambda member: _member(archive, member), name, reading)
    except UNPACK_ERRORS as error:
        if _is_zip(file):
            _cut_off(file, name, reading, str(error))
        else:
            reading.note(name, "foreign", f"is no .eval log, or could not be read ({error})")


def _cut_off(file: Path, name: str, reading: Reading, why: str) -> None:
    """The directory stands at a zip's end; the samples before it can be found without it."""
    found = dict(salvaged(read_bytes(file).value or b"", MAX_BYTES + 1))
    if not _HEADS & set(found):
        reading.note(name, "unreadable", f"is cut off or damaged ({why}), and holds no whole header")
        return
    said = f"is cut off or damaged ({why}); what stood whole before was read"
    _members(list(found), lambda member: Read(value=found[member]), name, reading, trouble=said)


_HEADS: Final = frozenset({"header.json", "_journal/start.json"})


def _members(
    names: list[str], content: Callable[[str], Read[bytes]], name: str, reading: Reading, *, trouble: str = ""
) -> None:
    head = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
    log = _parsed(content(head), _Log).value if head is not None else None
    if log is None or log.eval is None:
        reading.note(name, "foreign", "is a zip, but no log of Inspect's (no header.json and no _journal/start.json)")
        return
    if not trouble and head != "header.json":
        trouble = "has no header yet: the evaluation runs, or was stopped"
    reading.note(name, "partial" if trouble else "whole", trouble)
    for member in sorted(n for n in names if n.startswith("samples/") and n.endswith(".json")):
        sample = _parsed(content(member), _Sample)
        if sample.value is None or sample.value.id is None:
            reading.note(f"{name}:{member}", "unreadable", sample.trouble or "is no sample of Inspect's")
            continue
        if sample.trouble is not None:
            reading.note(f"{name}:{member}", "partial", sample.trouble)
        reading.booked.append(_booked(sample.value, log, name, whole=sample.whole))


def _member(archive: zipfile.ZipFile, member: str) -> Read[bytes]:
    try:
        content = unpacked(archive, member, MAX_BYTES + 1)
    except UNPACK_ERRORS as error:
        return Read(trouble=f"could not be unpacked: {error}")
    if len(content) > MAX_BYTES:
        return Read(trouble=f"is larger than {MAX_BYTES >> 20} MiB unpacked; it was not read")
    return Read(value=content)


def _parsed(content: Read[bytes], wanted: type[T]) -> Read[T]:
    return Read(trouble=content.trouble) if content.value is None else parse_json(content.value, wanted)


# --- one sample -------------------------------------------------------------------------------------------------------


def identity_of(eval_id: str | None, sample: str | int | None, epoch: int | None) -> str:
    """What `HarnessOutcome.identity` is for a sample."""
    return digest(f"{HARNESS}/{eval_id}/{sample}/{epoch or 1}")


def _booked(sample: _Sample, log: _Log, name: str, *, whole: bool) -> Booked:
    spec = log.eval or _Spec()
    epoch = sample.epoch or 1
    label = f"{spec.task or 'task'}/{sample.id}" + (f"/{epoch}" if (spec.config.epochs or 1) > 1 or epoch > 1 else "")
    started, ended = wall_ns(sample.started_at), wall_ns(sample.completed_at)
    score = _score(sample)
    limit = sample.limit.type if sample.limit is not None else None
    calls = [e for e in sample.events or [] if e.event == "model"]
    usages = list((sample.model_usage or {}).values())
    config = spec.config
    outcome = HarnessOutcome(
        harness=HARNESS,
        harness_version=spec.packages.inspect_ai,
        identity=identity_of(spec.eval_id, sample.id, epoch),
        label=label,
        task=f"{spec.task}/{sample.id}" if spec.task else str(sample.id),
        job=spec.eval_id,
        try_=epoch,
        outcome=_outcome(sample, score, whole=whole),
        scored=score is not None,
        reward=score,
        exit_status="error" if sample.error is not None else (f"limit: {limit}" if limit else None),
        ended_as=_ended_as(sample, limit),
        errors=[BookedError(type=_error_name(sample.error))] if sample.error is not None else [],
        started_ns=started,
        ended_ns=ended,
        phases=_phases(sample, started, ended),
        time=TimeLimits(
            agent=config.time_limit or config.working_limit,
            source="inspect: eval.config" if config.time_limit or config.working_limit else None,
        ),
        concurrency=config.max_samples,
        model=spec.model,
        model_calls=len(calls) or None,
        input_tokens=_sum([u.input_tokens for u in usages]),
        output_tokens=_sum([u.output_tokens for u in usages]),
        complete=whole and log.status != "started",
        files=[name],
    )
    return Booked(outcome=outcome, keys=_keys(sample, calls, label), program=("inspect",))


def _keys(sample: _Sample, calls: list[_Event], label: str) -> Keys:
    requests = {r.id for e in calls for r in e.request_ids or [] if r.id}
    replies = {
        e.call.response.id
        for e in calls
        if e.call is not None and e.call.response is not None and isinstance(e.call.response.id, str)
    }
    marks = [e.call.request.extra_headers or {} for e in calls if e.call is not None and e.call.request is not None]
    call_keys = {digest(mark) for headers in marks if isinstance(mark := headers.get("x-irid"), str)}
    said = {name for headers in marks if isinstance(name := headers.get(TRIAL_HEADER), str)}
    tools = {e.id for e in sample.events or [] if e.event == "tool" and e.id}
    return Keys(
        requests=frozenset(requests),
        responses=frozenset(replies),
        call_keys=frozenset(call_keys),
        tool_calls=frozenset(tools),
        names=frozenset({label, *said}),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


_LETTERS: Final = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's CORRECT, INCORRECT, PARTIAL, NOANSWER, as its own `value_to_float` takes them."""


def _score(sample: _Sample) -> float | None:
    """The first scorer's value as a number; None where there is none that is one."""
    for score in (sample.scores or {}).values():
        value = score.value
        if isinstance(value, str):
            known = _LETTERS.get(value)
            if known is not None:
                return known
        elif isinstance(value, bool | int | float):
            return float(value)
    return None


def _outcome(sample: _Sample, score: float | None, *, whole: bool) -> Outcome:
    if sample.error is not None:
        return Outcome.ERRORED
    if score is None:
        return Outcome.UNKNOWN
    if not whole and sample.completed_at is None:
        return Outcome.UNKNOWN
    return Outcome.PASSED if score >= 1 else Outcome.FAILED


def _error_name(error: _Error) -> str:
    """The class name that most of Inspect's error texts begin with; nothing of the rest is kept."""
    name = error.message.split("(", 1)[0].split(":", 1)[0].strip()
    return name[:80] if name.isidentifier() else "error"


def _ended_as(sample: _Sample, limit: str | None) -> EndedAs | None:
    if limit is not None:
        return EndedAs.HARNESS_TIMEOUT if limit in _TIME_LIMITS else EndedAs.STEP_LIMIT
    if sample.error is not None:
        return EndedAs.AGENT_GAVE_UP
    return EndedAs.AGENT_FINISHED if sample.completed_at is not None else None


def _phases(sample: _Sample, started: int | None, ended: int | None) -> list[BookedPhase]:
    """Before the first model call is set-up.

    Scoring begins with the span of the scorers, whose own commands are sandbox events as well; in a log without spans
    at the first score event after the last call or tool.
    """
    if started is None:
        return []
    events = [(e.event, at) for e in sample.events or [] if (at := wall_ns(e.timestamp)) is not None]
    first = min((at for kind, at in events if kind == "model"), default=None)
    last = max((at for kind, at in events if kind in {"model", "tool", "sandbox"}), default=None)
    scored = min((at for kind, at in events if kind == "score" and (last is None or at >= last)), default=None)
    spans = (e for e in sample.events or [] if e.event == "span_begin" and e.type == "scorers")
    scored = next((at for e in spans if (at := wall_ns(e.timestamp)) is not None), scored)
    if first is None:
        return [BookedPhase(name=PhaseName.AGENT, started_ns=started, ended_ns=scored or ended)]
    phases = [
        BookedPhase(name=PhaseName.SETUP, started_ns=started, ended_ns=max(started, first)),
        BookedPhase(name=PhaseName.AGENT, started_ns=max(started, first), ended_ns=scored or ended),
    ]
    if scored is not None:
        phases.append(BookedPhase(name=PhaseName.VERIFY, started_ns=scored, ended_ns=ended))
    return phases


ADAPTER: Final = Adapter(name=HARNESS, takes="a .eval or .json log, or a folder of logs", read=read)
