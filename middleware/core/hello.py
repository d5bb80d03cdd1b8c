"""The first word of the feed: what the run process tells the observer about the run.

In: the JSON payload of a HELLO record.  Out: a typed `Hello`; fields that another version of the run process leaves out
keep their defaults, unknown ones are skipped.  `relay/supervise.py` writes it.
"""

from __future__ import annotations

import msgspec

from fairtrial.middleware.core.records import Record


class DoorInfo(Record, frozen=True, kw_only=True):
    """One bound model door; with scheme `tcp` the connect door."""

    name: str = ""
    scheme: str = "https"
    host: str = ""
    port: int = 0
    """Port of the upstream."""
    door_port: int = 0
    base_path: str = ""


class DockerInfo(Record, frozen=True, kw_only=True):
    """The engine that the docker CLI would use, resolved from the environment; `skipped` says why there is none."""

    url: str | None = None
    tls_verify: bool = False
    tls_dir: str | None = None
    source: str | None = None
    skipped: str | None = None


class ServeInfo(Record, frozen=True, kw_only=True):
    """How a long-lived relay wants its trials kept."""

    guarded: bool = False
    """The path's token is `SECRET.NAME`, not `NAME`."""
    idle_s: float = 1800.0
    max_trials: int = 2000
    keys: dict[str, str] = {}
    """API key -> name of the trial whose it is; in memory only."""
    peers: dict[str, str] = {}
    """Address of a client -> name of its trial."""
    metrics: tuple[str, int] | None = None
    """Address and port of the metrics page."""
    hosts: list[str] = []
    """Names by which that page may be asked for, besides addresses and localhost."""


class Hello(Record, frozen=True, kw_only=True):
    """Everything the observer needs to know before the first byte."""

    protocol: int = 0
    pid: int = 0
    wall_ns: int = 0
    mono_ns: int = 0
    boot_ns: int = 0
    trial: str = ""
    name: str | None = None
    run: str | None = None
    task: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    command: list[str] = []
    store: str = ""
    json: str | None = None
    """File for the record; `-`: it goes back with the verdict."""
    trace_id: str | None = None
    root_span_id: str | None = None
    parent_span_id: str | None = None
    tokens: dict[str, str] = {}
    """Trial token -> trial id."""
    control: str | None = None
    """The control API's token; the socket that it listens on is inherited."""
    doors: list[DoorInfo] = []
    docker: DockerInfo = DockerInfo()
    oom_kill_at_start: int | None = None
    """The node's count of OOM kills (/proc/vmstat) before the command was started."""
    others_at_start: int = 0
    """Other trials that used the same engine when the run process started."""
    serve: ServeInfo | None = None
    """Of `fairtrial serve`: many trials, and `trial`, `command`, `tokens` are empty."""
    config: dict[str, object] = {}
    """The settings in force, as `core.config.to_tree` gives them."""
    options: dict[str, object] = {}
    verbose: bool = False
    quiet: bool = False
    gate: bool = False
    resumed: bool = False
    """This observer replaces one that died."""
    close_only: bool = False
    """Only close the trial: there will be no traffic."""
    gap_since_ns: int | None = None
    """CLOCK_MONOTONIC of the predecessor's death."""


def parse_hello(payload: bytes) -> Hello:
    """Raises `msgspec.ValidationError` or `DecodeError` for a payload that is no hello."""
    return msgspec.json.decode(payload, type=Hello)
