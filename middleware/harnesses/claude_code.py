"""Claude Code: transcripts (`~/.claude/projects/…/<session>.jsonl`), `--output-format stream-json` or `json` output.

In: a file, or a folder of transcripts.  Out: one `Booked` per session, joined by request ids, reply ids, tool-call ids
and the session's id.  Claude Code is agent and harness in one and nobody verifies: its own word is never `scored`, and
since its tools could write these files, its trust is `inside`.
A stream-json without a `result` line was killed, or still runs.  Calls that worked after retries leave no trace in a
transcript (`api_retry` lines stand in stream-json only).
**Source:** Claude Code 2.1.197; reference pages harnesses.md 5, 7 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import BookedError, BookedPhase, HarnessOutcome
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName, Trust
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import Lines, parse_json, read_bytes, shown, wall_ns
from fairtrial.middleware.wire.redact import digest

HARNESS: Final = "claude-code"
_TYPES: Final = frozenset(
    {
        "assistant",
        "user",
        "system",
        "result",
        "summary",
        "queue-operation",
        "last-prompt",
        "attachment",
        "progress",
        "file-history-snapshot",
        "stream_event",
        "rate_limit_event",
        "tool_progress",
        "ai-title",
        "custom-title",
        "mode",
    }
)
_SYNTHETIC: Final = "<synthetic>"


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: object = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Line(msgspec.Struct):
    type: str | None = None
    subtype: str | None = None
    timestamp: str | None = None
    sessionId: str | None = None  # noqa: N815 - as Claude Code spells it
    session_id: str | None = None
    requestId: str | None = None  # noqa: N815 - same
    request_id: str | None = None
    version: str | None = None
    isSidechain: bool | None = None  # noqa: N815 - same
    isApiErrorMessage: bool | None = None  # noqa: N815 - same
    error: object = None
    message: object = None
    is_error: bool | None = None
    api_error_status: int | None = None
    num_turns: int | None = None
    total_cost_usd: float | None = None
    usage: object = None
    claude_code_version: str | None = None


@dataclass(slots=True)
class _Session:
    id: str
    files: list[str] = field(default_factory=list[str])
    requests: set[str] = field(default_factory=set[str])
    responses: set[str] = field(default_factory=set[str])
    tools: set[str] = field(default_factory=set[str])
    times: list[int] = field(default_factory=list[int])
    model: str | None = None
    version: str | None = None
    error: str | None = None
    """The last API error that it showed as an answer; a later answer takes it back."""
    retries: int = 0
    streamed: bool = False
    result: _Line | None = None
    usage: _Usage | None = None
    whole: bool = True


def read(path: Path) -> Reading:
    """A transcript, the output of one run, or a folder of either."""
    reading = Reading()
    top = path if path.is_dir() else path.parent
    files = sorted(f for f in path.rglob("*.jsonl") if f.is_file()) if path.is_dir() else [path]
    if not files:
        reading.note(path.name, "foreign", "holds no transcript (*.jsonl)")
    sessions: dict[str, _Session] = {}
    for file in files:
        _file(file, shown(file, top), sessions, reading)
    reading.booked += [_booked(session) for session in sessions.values()]
    return reading


def _file(file: Path, name: str, sessions: dict[str, _Session], reading: Reading) -> None:
    lines = Lines(file)
    foreign = 0
    here: dict[str, _Session] = {}
    for raw in lines:
        found = _line(raw)
        if found is None:
            lines.bad += 1
            continue
        lines.good += 1
        session_id = found.sessionId or found.session_id
        if found.type not in _TYPES and session_id is None:
            foreign += 1
            continue
        if session_id is None:
            continue
        session = sessions.setdefault(session_id, _Session(session_id))
        here[session_id] = session
        _take(session, found)
    if not here and lines.bad and _whole_json(file, name, sessions, reading):
        return
    trouble = lines.told()
    if not here:
        if trouble is not None and not lines.good:
            said = "is no file of JSON lines" if lines.bad else trouble
            reading.note(name, "unreadable" if lines.trouble or not lines.bad else "foreign", said)
        else:
            reading.note(name, "foreign", "is no transcript and no stream-json of Claude Code (no line with a session)")
        return
    for session in here.values():
        session.files.append(name)
        session.whole = session.whole and trouble is None
    sentences = [trouble] if trouble else []
    if foreign:
        sentences.append(f"{foreign} lines are not Claude Code's")
    ended = [s for s in here.values() if s.streamed and s.result is None]
    if ended:
        sentences.append("has no `result` line: it was killed, or still runs")
    reading.note(name, "partial" if sentences else "whole", "; ".join(sentences))


def _whole_json(file: Path, name: str, sessions: dict[str, _Session], reading: Reading) -> bool:
    """`--output-format json` over several lines, or cut off."""
    content = read_bytes(file)
    found = parse_json(content.value or b"", _Line)
    value = found.value
    if value is None or value.session_id is None:
        return False
    session = sessions.setdefault(value.session_id, _Session(value.session_id))
    _take(session, value)
    session.files.append(name)
    session.whole = found.whole
    reading.note(name, "whole" if found.whole else "partial", found.trouble or "")
    return True


def _line(raw: bytes) -> _Line | None:
    try:
        return msgspec.json.decode(raw, type=_Line, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _convert(value: object, wanted: type[_Message | _Usage]) -> _Message | _Usage | None:
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError:
        return None


def _take(session: _Session, line: _Line) -> None:
    moment = wall_ns(line.timestamp)
    if moment is not None:
        session.times.append(moment)
    session.version = line.version or line.claude_code_version or session.version
    for request in (line.requestId, line.request_id):
        if request:
            session.requests.add(request)
    if line.type == "result" or (line.type is None and line.is_error is not None):
        session.result = line
        usage = _convert(line.usage, _Usage)
        session.usage = usage if isinstance(usage, _Usage) else None
    elif line.type == "system":
        session.streamed = session.streamed or line.subtype == "init"
        session.retries += line.subtype == "api_retry"
    elif line.type == "assistant":
        _take_answer(session, line)


def _take_answer(session: _Session, line: _Line) -> None:
    message = _convert(line.message, _Message)
    if not isinstance(message, _Message):
        return
    if line.isApiErrorMessage or message.model == _SYNTHETIC:
        if not line.isSidechain:
            session.error = line.error[:80] if isinstance(line.error, str) else "api_error"
        return
    if not line.isSidechain:
        session.error = None
    session.model = message.model or session.model
    if message.id:
        session.responses.add(message.id)
    blocks = message.content if isinstance(message.content, list) else []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            session.tools.add(block["id"])


def _booked(session: _Session) -> Booked:
    result = session.result
    started, ended = min(session.times, default=None), max(session.times, default=None)
    failed = session.error is not None or (result is not None and bool(result.is_error))
    status = None if result is None else result.subtype
    if result is not None and result.is_error:
        status = f"is_error{f' {result.api_error_status}' if result.api_error_status else ''}"
    killed = session.streamed and result is None
    through = ended if result is not None or failed else None  # the last line of a killed one is not its end
    outcome = HarnessOutcome(
        harness=HARNESS,
        harness_version=session.version,
        identity=digest(f"{HARNESS}/{session.id}"),
        label=session.id,
        outcome=Outcome.ERRORED if failed else Outcome.UNKNOWN,
        exit_status=session.error or status,
        ended_as=_ended_as(failed=failed, killed=killed, result=result),
        errors=[BookedError(type=session.error or "error")] if failed else [],
        marks=(["no_result"] if killed else []) + (["retried_calls"] if session.retries else []),
        started_ns=started,
        ended_ns=ended,
        phases=[] if started is None else [BookedPhase(name=PhaseName.AGENT, started_ns=started, ended_ns=through)],
        agent=HARNESS,
        model=session.model,
        model_calls=len(session.responses) or None,
        input_tokens=session.usage.input_tokens if session.usage else None,
        output_tokens=session.usage.output_tokens if session.usage else None,
        cost_usd=result.total_cost_usd if result is not None else None,
        complete=session.whole and not killed,
        files=session.files,
    )
    keys = Keys(
        requests=frozenset(session.requests),
        responses=frozenset(session.responses),
        tool_calls=frozenset(session.tools),
        sessions=frozenset({digest(session.id)}),
    )
    return Booked(outcome=outcome, keys=keys, trust=Trust.INSIDE, program=("claude",))


def _ended_as(*, failed: bool, killed: bool, result: _Line | None) -> EndedAs | None:
    if failed:
        return EndedAs.AGENT_GAVE_UP
    if killed:
        return None
    if result is not None and result.subtype == "error_max_turns":
        return EndedAs.STEP_LIMIT
    return EndedAs.AGENT_FINISHED if result is not None else None


ADAPTER: Final = Adapter(
    name=HARNESS,
    takes="a transcript (.jsonl), what --output-format stream-json or json wrote, or a folder",
    read=read,
)
