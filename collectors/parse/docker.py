"""What the Docker Engine says about containers, execs and events: its JSON in, records out.

In: decoded JSON (`object`, nothing is trusted to have a shape).  Out: records; a field that is missing or of another
type is None.  **Source:** Docker Engine API v1.41, `ContainerInspect`, `ExecInspect`, `SystemEvents`; docker 20.10 and
26.1 as seen in tests/data/docker.  Environment values are never kept, only those of fairtrial's own variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, cast

from fairtrial.middleware.core import semconv

KEPT_LABELS: Final = (
    "com.docker.compose.project",
    "com.docker.compose.service",
    "com.docker.compose.oneoff",
    semconv.TRIAL,
    semconv.RUN,
)
TRIAL_VARIABLE: Final = "FAIRTRIAL_TRIAL"
TRIAL_LABEL: Final = semconv.TRIAL
ID: Final = re.compile(r"[0-9A-Za-z_-]{1,128}\Z")
"""What may stand for a container or an exec: engines give 64 hex digits.  Ids become parts of paths (of requests to the
engine, of cgroup directories), so anything else, `../` above all, is no id."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """One container at one moment.  Limits are None where none is set."""

    id: str
    name: str | None = None
    image: str | None = None
    image_digest: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    trial_in_env: str | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    finished_ns: int | None = None
    """When its last life ended; None while it never ended."""
    running: bool | None = None
    init_pid: int | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    error: str | None = None
    restarts: int | None = None
    memory_limit: int | None = None
    memory_reservation: int | None = None
    memory_swap_limit: int | None = None
    oom_kill_disabled: bool = False
    cpu_limit: float | None = None
    pids_limit: int | None = None
    tmpfs: tuple[str, ...] = ()
    network_mode: str | None = None
    own_pid_namespace: bool | None = None
    """False: it shares the host's or another container's, so that a process beside it can kill its first one."""
    healthcheck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecFacts:
    """One exec.  `pid` is its first process in the engine's pid namespace, kept after it ended; `argv` as asked for."""

    id: str
    running: bool | None = None
    pid: int | None = None
    exit_code: int | None = None
    argv: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """One event of a container.  `command` is what follows `exec_create: ` and `exec_start: `, joined by the engine."""

    container_id: str
    action: str
    at_ns: int
    exec_id: str | None = None
    command: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    trial_label: str | None = None
    name: str | None = None
    image: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those of `KEPT_LABELS`."""

    def container_facts(self) -> ContainerFacts:
        """What an event alone tells of a container that was gone before it could be inspected."""
        return ContainerFacts(id=self.container_id, name=self.name, image=self.image, labels=self.labels)

    @property
    def key(self) -> tuple[int, str, str, str | None]:
        """What makes an event the same one when it is replayed."""
        return self.at_ns, self.action, self.container_id, self.exec_id


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return value if isinstance(value, int) else None


def _positive(value: object) -> int | None:
    number = _whole(value)
    return number if number is not None and number > 0 else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(x for x in cast("list[object]", value) if isinstance(x, str)) if isinstance(value, list) else ()


def parse_stamp(text: object) -> int | None:
    """An RFC 3339 time with up to nine decimals as ns since the epoch; None for the engine's zero time and for junk."""
    if not isinstance(text, str):
        return None
    found = _STAMP.match(text)
    if found is None or found[1].startswith("0001-"):
        return None
    moment = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00")).astimezone(UTC)
    return int(moment.timestamp()) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


def parse_container(raw: object) -> ContainerFacts | None:
    """The reply of GET /containers/ID/json; None without an id."""
    top = _mapping(raw)
    container_id = _id(top.get("Id"))
    if container_id is None:
        return None
    state, config, host = _mapping(top.get("State")), _mapping(top.get("Config")), _mapping(top.get("HostConfig"))
    labels = _mapping(config.get("Labels"))
    trial = next(
        (value for name, _, value in (x.partition("=") for x in _texts(config.get("Env"))) if name == TRIAL_VARIABLE),
        None,
    )
    nano, quota, period = (
        _positive(host.get("NanoCpus")),
        _positive(host.get("CpuQuota")),
        _positive(host.get("CpuPeriod")),
    )
    cpu: float | None = None
    if nano is not None:
        cpu = nano / 1e9
    elif quota is not None:
        cpu = quota / (period or 100_000)
    tmpfs = [f"{path}={options}" for path, options in _mapping(host.get("Tmpfs")).items()]
    mounts = top.get("Mounts")
    rows = [_mapping(row) for row in cast("list[object]", mounts)] if isinstance(mounts, list) else []
    tmpfs.extend(str(row.get("Destination")) for row in rows if row.get("Type") == "tmpfs")
    oom_killed, running = state.get("OOMKilled"), state.get("Running")
    name, pid_mode = _text(top.get("Name")), host.get("PidMode")
    return ContainerFacts(
        id=container_id,
        name=None if name is None else name.lstrip("/"),
        image=_text(config.get("Image")),
        image_digest=_text(top.get("Image")),
        labels=_kept(labels),
        trial_in_env=trial or None,
        created_ns=parse_stamp(top.get("Created")),
        started_ns=parse_stamp(state.get("StartedAt")),
        finished_ns=parse_stamp(state.get("FinishedAt")),
        running=running if isinstance(running, bool) else None,
        init_pid=_positive(state.get("Pid")),
        exit_code=_whole(state.get("ExitCode")),
        oom_killed=oom_killed if isinstance(oom_killed, bool) else None,
        error=_text(state.get("Error")),
        restarts=_whole(top.get("RestartCount")),
        memory_limit=_positive(host.get("Memory")),
        memory_reservation=_positive(host.get("MemoryReservation")),
        memory_swap_limit=_positive(host.get("MemorySwap")),
        oom_kill_disabled=host.get("OomKillDisable") is True,
        cpu_limit=cpu,
        pids_limit=_positive(host.get("PidsLimit")),
        tmpfs=tuple(tmpfs),
        network_mode=_text(host.get("NetworkMode")),
        own_pid_namespace=None if not isinstance(pid_mode, str) else pid_mode in ("", "private"),
        healthcheck=_texts(_mapping(config.get("Healthcheck")).get("Test")),
    )


def parse_exec(raw: object) -> ExecFacts | None:
    """The reply of GET /exec/ID/json; an exit code of a running exec is None whatever it says."""
    top = _mapping(raw)
    exec_id = _id(top.get("ID"))
    if exec_id is None:
        return None
    process = _mapping(top.get("ProcessConfig"))
    entry = _text(process.get("entrypoint"))
    running = top.get("Running")
    return ExecFacts(
        id=exec_id,
        running=running if isinstance(running, bool) else None,
        pid=_positive(top.get("Pid")),
        exit_code=None if running is True else _whole(top.get("ExitCode")),
        argv=None if entry is None else (entry, *_texts(process.get("arguments"))),
    )


def parse_event(raw: object) -> EventFacts | None:
    """One line of GET /events; None for what is not about a container."""
    top = _mapping(raw)
    actor = _mapping(top.get("Actor"))
    attributes = _mapping(actor.get("Attributes"))
    container_id = _id(actor.get("ID")) or _id(top.get("id"))
    action = _text(top.get("Action")) or _text(top.get("status"))
    if top.get("Type") != "container" or container_id is None or action is None:
        return None
    # A container's own labels stand among the attributes, so an `execID` counts in the events of execs only.
    exec_id = _id(attributes.get("execID")) if action.startswith("exec_") else None
    if exec_id is None and action.startswith("exec_"):
        return None
    at_ns = _positive(top.get("timeNano"))
    if at_ns is None:
        at_ns = (_positive(top.get("time")) or 0) * 1_000_000_000
    name, colon, command = action.partition(": ")
    is_exec = name in ("exec_create", "exec_start")
    return EventFacts(
        container_id=container_id,
        action=name,
        at_ns=at_ns,
        exec_id=exec_id,
        command=command if colon and is_exec else None,
        exit_code=_whole(attributes.get("exitCode")),
        signal=_whole(attributes.get("signal")),
        trial_label=_text(attributes.get(TRIAL_LABEL)),
        name=_text(attributes.get("name")),
        image=_text(attributes.get("image")),
        labels=_kept(attributes),
    )


def names_no_id(raw: object) -> bool:
    """Whether this is an event of a container, or of an exec, whose id is none (`ID`)."""
    top = _mapping(raw)
    actor = _mapping(top.get("Actor"))
    named = _text(actor.get("ID")) or _text(top.get("id"))
    if top.get("Type") != "container" or named is None:
        return False
    exec_id = _text(_mapping(actor.get("Attributes")).get("execID"))
    of_exec = (_text(top.get("Action")) or "").startswith("exec_") and exec_id is not None
    return _id(named) is None or (of_exec and _id(exec_id) is None)


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and ID.match(value) else None


def _kept(labels: Mapping[str, object]) -> dict[str, str]:
    return {key: str(labels[key])[:256] for key in KEPT_LABELS if key in labels}
