"""mini-swe-agent: trajectories (`*.traj.json`) and a batch's `exit_statuses_*.yaml`.

In: a file, or a folder with those below it.  Out: one `Booked` per instance, joined by the ids of replies and of tool
calls.  mini has no verifier: an exit status says how its loop ended, never that the task was solved, so nothing here is
`scored`; `Submitted` alone leaves the outcome open.
An instance that the batch lists and that has no trajectory is a finding: its container did not start, or mini died.
**Source:** mini-swe-agent 2.4.6 (format mini-swe-agent-1.1); reference pages harnesses.md 9, taxonomy.md 2.4.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import BookedError, BookedPhase, HarnessOutcome
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName, TimeLimits
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import MAX_FILES, from_seconds, read_bytes, read_json, shown
from fairtrial.middleware.wire.redact import digest

HARNESS: Final = "mini-swe-agent"
_FORMAT: Final = re.compile(r"mini-swe-agent-1(?:\.\d+)?")
_LOOP_ENDS: Final = {
    "Submitted": EndedAs.AGENT_FINISHED,
    "LimitsExceeded": EndedAs.STEP_LIMIT,
    "TimeExceeded": EndedAs.HARNESS_TIMEOUT,
    "RepeatedFormatError": EndedAs.AGENT_GAVE_UP,
    "UserInterruption": EndedAs.KILLED,
}
_LISTED: Final = re.compile(r"^ +(?P<status>[^\s:#-][^:]*):\s*$|^ *- *(?P<instance>\S.*?)\s*$")


class _Stats(msgspec.Struct):
    instance_cost: float | None = None
    api_calls: int | None = None


class _AgentConfig(msgspec.Struct):
    wall_time_limit_seconds: float | None = None


class _ModelConfig(msgspec.Struct):
    model_name: str | None = None


class _BoxConfig(msgspec.Struct):
    timeout: float | None = None


class _Config(msgspec.Struct):
    agent: _AgentConfig = msgspec.field(default_factory=_AgentConfig)
    model: _ModelConfig = msgspec.field(default_factory=_ModelConfig)
    environment: _BoxConfig = msgspec.field(default_factory=_BoxConfig)


class _Info(msgspec.Struct):
    model_stats: _Stats = msgspec.field(default_factory=_Stats)
    config: _Config = msgspec.field(default_factory=_Config)
    mini_version: str | None = None
    exit_status: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    usage: _Usage | None = None


class _Extra(msgspec.Struct):
    timestamp: float | None = None
    response: _Response | None = None


class _ToolCall(msgspec.Struct):
    id: str | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    extra: _Extra | None = None
    tool_calls: list[_ToolCall] | None = None
    call_id: str | None = None
    """Of a tool's result, where the model speaks the Responses API."""


class _Trajectory(msgspec.Struct):
    trajectory_format: str | None = None
    info: _Info | None = None
    messages: list[_Message] | None = None
    instance_id: str | None = None


def read(path: Path) -> Reading:
    """A trajectory, an exit_statuses file, or a folder."""
    reading = Reading()
    if path.is_dir():
        top = path
        files = [file for file in _walk(path) if _is_ours(file)]
        if not files:
            reading.note(path.name, "foreign", "holds no *.traj.json and no exit_statuses_*.yaml")
    else:
        top, files = path.parent, [path]
    listed: dict[str, tuple[str, str]] = {}
    for file in files:
        if file.suffix in {".yaml", ".yml"}:
            listed |= _statuses(file, top, reading)
        else:
            _trajectory(file, top, reading)
    seen = {one.outcome.label for one in reading.booked}
    for instance, (status, where) in sorted(listed.items()):
        if instance not in seen:
            folder = (top / where).parent / instance
            reading.booked.append(_listed_only(instance, status, where, folder))
    return reading


def _walk(folder: Path) -> list[Path]:
    found: list[Path] = []
    for number, file in enumerate(sorted(folder.rglob("*"))):
        if number > MAX_FILES:
            break
        if file.is_file() and not file.is_symlink():
            found.append(file)
    return found


def _is_ours(file: Path) -> bool:
    return file.name.endswith(".traj.json") or (file.name.startswith("exit_statuses") and file.suffix == ".yaml")


def _trajectory(file: Path, top: Path, reading: Reading) -> None:
    found = read_json(file, _Trajectory)
    name = shown(file, top)
    value = found.value
    if value is None:
        reading.note(name, "foreign" if found.foreign else "unreadable", found.trouble or "could not be read")
        return
    if value.info is None and value.messages is None:
        reading.note(name, "foreign", "is no trajectory of mini-swe-agent (no info, no messages)")
        return
    if value.trajectory_format is not None and not _FORMAT.fullmatch(value.trajectory_format):
        reading.note(name, "foreign", f"is a trajectory of another format ({value.trajectory_format[:60]})")
        return
    reading.note(name, "whole" if found.whole else "partial", found.trouble or "")
    reading.booked.append(_booked(value, file, name, whole=found.whole))


def _booked(value: _Trajectory, file: Path, name: str, *, whole: bool) -> Booked:
    info = value.info or _Info()
    extras = [m.extra for m in value.messages or [] if m.extra is not None]
    replies = [extra.response for extra in extras if extra.response is not None]
    times = [t for extra in extras if (t := from_seconds(extra.timestamp)) is not None]
    calls = [call.id for m in value.messages or [] for call in m.tool_calls or [] if call.id]
    calls += [m.call_id for m in value.messages or [] if m.call_id]
    label = value.instance_id or file.name.removesuffix(".json").removesuffix(".traj")
    started, ended = min(times, default=None), max(times, default=None)
    status = info.exit_status or None
    through = ended if status is not None else None  # mini writes the file step by step: one without status goes on
    usages = [reply.usage for reply in replies if reply.usage is not None]
    outcome = HarnessOutcome(
        harness=HARNESS,
        harness_version=info.mini_version,
        identity=_identity(label, file.parent),
        label=label,
        task=value.instance_id,
        outcome=_outcome(status),
        exit_status=status,
        ended_as=_ended_as(status),
        errors=[BookedError(type=status[:80])] if status is not None and status not in _LOOP_ENDS else [],
        started_ns=started,
        ended_ns=ended,
        phases=[] if started is None else [BookedPhase(name=PhaseName.AGENT, started_ns=started, ended_ns=through)],
        time=_limits(info.config),
        model=info.config.model.model_name,
        model_calls=info.model_stats.api_calls,
        input_tokens=_total(usages, "prompt_tokens", "input_tokens"),
        output_tokens=_total(usages, "completion_tokens", "output_tokens"),
        cost_usd=info.model_stats.instance_cost,
        complete=whole,
        files=[name],
    )
    keys = Keys(
        responses=frozenset(reply.id for reply in replies if reply.id),
        tool_calls=frozenset(calls),
        names=frozenset({label}),
    )
    return Booked(outcome=outcome, keys=keys, program=("mini", "mini-extra", "mini-swe-agent", "minisweagent"))


def _identity(label: str, folder: Path) -> str:
    """A file's name is all that mini calls a single run, so its place tells two of them apart."""
    return digest(f"{HARNESS}/{label}/{folder.resolve()}")


def _total(usages: list[_Usage], *names: str) -> int | None:
    known = [v for usage in usages for name in names if (v := getattr(usage, name)) is not None]
    return sum(known) if known else None


def _outcome(status: str | None) -> Outcome:
    if status is None or status == "Submitted":
        return Outcome.UNKNOWN
    return Outcome.FAILED if status in _LOOP_ENDS else Outcome.ERRORED


def _ended_as(status: str | None) -> EndedAs | None:
    if status is None:
        return None
    known = _LOOP_ENDS.get(status)
    if known is not None:
        return known
    # Python class names of whatever escaped: litellm's are the model API's, given up after mini's own retries.
    return EndedAs.AGENT_GAVE_UP if status.endswith("Error") and status not in _OWN_FAULTS else EndedAs.AGENT_CRASHED


_OWN_FAULTS: Final = frozenset(
    {"TypeError", "KeyError", "ValueError", "AttributeError", "RuntimeError", "AssertionError", "CalledProcessError"}
)


def _limits(config: _Config) -> TimeLimits:
    wall = config.agent.wall_time_limit_seconds or None
    tool = config.environment.timeout
    return TimeLimits(agent=wall, tool=tool, source=f"{HARNESS}: info.config" if wall or tool else None)


# --- a batch's list ---------------------------------------------------------------------------------------------------


def _statuses(file: Path, top: Path, reading: Reading) -> dict[str, tuple[str, str]]:
    """instance → (status, file): two levels of YAML, which is all that mini writes here."""
    name = shown(file, top)
    content = read_bytes(file, 64 << 20)
    if content.value is None:
        reading.note(name, "unreadable", content.trouble or "could not be read")
        return {}
    lines = content.value.decode("utf-8", "replace").splitlines()
    if not any(line.startswith("instances_by_exit_status:") for line in lines):
        reading.note(name, "foreign", "is no list of exit statuses (no `instances_by_exit_status:`)")
        return {}
    found: dict[str, tuple[str, str]] = {}
    status: str | None = None
    for line in lines:
        match = _LISTED.match(line)
        if match is None:
            continue
        if match.group("status") is not None:
            status = match.group("status").strip("'\"")
        elif status is not None:
            found[match.group("instance").strip("'\"")] = (status, name)
    said = content.trouble or ("" if found else "names no instance")
    reading.note(name, "partial" if said else "whole", said)
    return found


def _listed_only(instance: str, status: str, where: str, folder: Path) -> Booked:
    outcome = HarnessOutcome(
        harness=HARNESS,
        identity=_identity(instance, folder),
        label=instance,
        task=instance,
        outcome=_outcome(status),
        exit_status=status,
        ended_as=_LOOP_ENDS.get(status, EndedAs.NEVER_RAN),
        errors=[BookedError(type=status[:80])] if status not in _LOOP_ENDS else [],
        complete=False,
        files=[where],
        marks=["no_trajectory"],
    )
    return Booked(outcome=outcome, keys=Keys(names=frozenset({instance})))


ADAPTER: Final = Adapter(name=HARNESS, takes="a *.traj.json, an exit_statuses_*.yaml, or a folder with them", read=read)
