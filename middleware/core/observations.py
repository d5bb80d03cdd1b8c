"""`fairtrial.observation/1`: the one thing that collectors and doors write, and the values it may carry.

In: facts as their sources saw them.  Out: typed records that are stored append-only, idempotent by
(source_id, seq), and from which steps and verdicts are computed.  Nothing here judges.

Every kind is one `Value` struct below; `decode` turns a stored observation back into it and gives None for a
kind that this version does not know (a newer writer), which consumers must skip.
Durations are seconds, sizes bytes, `None` is *not observed*.  **Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec

from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName, Record, TimeLimits, Trust, Victim

OBSERVATION_SCHEMA: Final = "fairtrial.observation/1"


class Host(Record, frozen=True, kw_only=True):
    """The machine whose clock stamped the observation."""

    name: str | None = None
    boot_id: str | None = None


class Subject(Record, frozen=True, kw_only=True):
    """What the observation is about; all optional, nothing joins by container *name*."""

    trial: str | None = None
    call: str | None = None
    exec: str | None = None
    container_id: str | None = None
    pod_uid: str | None = None
    cgroup: str | None = None
    pid: int | None = None
    node: str | None = None


class Observation(Record, frozen=True, kw_only=True):
    """A fact with a time, a source and a trust.

    `wall_ns`: ns since the Unix epoch; `mono_ns`: CLOCK_MONOTONIC of `host` (order within one host);
    `uncertainty_s`: the fact happened within wall ± this.  `value` is the kind's struct as plain JSON types.
    """

    id: str
    source: str
    source_id: str
    seq: int
    host: Host = Host()
    subject: Subject = Subject()
    phase: PhaseName | None = None
    wall_ns: int
    mono_ns: int
    uncertainty_s: float = 0.0
    trust: Trust = Trust.HOST
    kind: str
    value: dict[str, object]


class Value(Record, frozen=True, kw_only=True):
    """Base of the typed values; `kind` names the observation kind it belongs to."""

    kind: ClassVar[str] = ""


# --- the trial itself -------------------------------------------------------------------------------------------


class TrialStarted(Value, frozen=True, kw_only=True):
    """The run process started the command."""

    kind: ClassVar[str] = "trial.started"
    command: list[str] = []
    name: str | None = None
    run: str | None = None
    harness: str | None = None
    task: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    fairtrial_version: str | None = None
    trace_id: str | None = None
    root_span_id: str | None = None
    parent_span_id: str | None = None
    options: dict[str, object] = {}
    kernel: str | None = None
    cores: int | None = None
    cpu_model: str | None = None
    cgroup: str | None = None


class TrialEnded(Value, frozen=True, kw_only=True):
    """The command is gone.  `closed` tells whether the run process itself said so."""

    kind: ClassVar[str] = "trial.ended"
    exit_code: int | None = None
    signal: int | None = None
    closed: Literal["normal", "recovered", "incomplete"] = "normal"
    why: str | None = None
    forwarded_signals: list[int] = []
    """Signals that someone sent to fairtrial from outside and that were passed on to the command."""
    keyboard_signals: list[int] = []
    """Signals typed at the terminal (Ctrl-C, Ctrl-\\) while the command ran; the terminal gave them to it as well."""


class MutationSeen(Value, frozen=True, kw_only=True):
    """Something that fairtrial changed."""

    kind: ClassVar[str] = "trial.mutation"
    what: str
    old: str | None = None
    new: str | None = None
    why: str | None = None
    side_effects: str | None = None


class Note(Value, frozen=True, kw_only=True):
    """A fact about fairtrial itself or its surroundings, for people; no rule reads its text."""

    kind: ClassVar[str] = "trial.note"
    event: str
    text: str | None = None
    fields: dict[str, object] = {}


class CoverageChanged(Value, frozen=True, kw_only=True):
    """A source began to watch, stopped, or could not.

    `source` e.g. "door.model.anthropic", "collector.cgroup", "collector.docker_events", "collector.kernel_log",
    "collector.vmstat", "collector.network", "observer".  `families`: which causes it can see.
    """

    kind: ClassVar[str] = "coverage"
    source: str
    families: list[str] = []
    state: Literal["on", "off", "lost"] = "on"
    why: str | None = None
    container_id: str | None = None
    containers_missed: bool = False
    """Containers of the trial may exist that nobody watches: one was not told to be its own, or events were late."""


class GapSeen(Value, frozen=True, kw_only=True):
    """A source did not see for a while (feed overrun, observer restart, event stream reconnect)."""

    kind: ClassVar[str] = "coverage.gap"
    source: str
    families: list[str] = []
    since_ns: int | None = None
    until_ns: int | None = None
    why: str | None = None
    lost_records: int | None = None
    lost_bytes: int | None = None


# --- the model door -----------------------------------------------------------------------------------------------


class DoorState(Value, frozen=True, kw_only=True):
    """A door was bound, or could not be."""

    kind: ClassVar[str] = "door"
    door: Literal["model", "docker", "egress"] = "model"
    name: str = ""
    upstream_host: str | None = None
    upstream_port: int | None = None
    scheme: str | None = None
    port: int | None = None
    ok: bool = True
    why: str | None = None


class ToolUse(Record, frozen=True, kw_only=True):
    """A tool call in a model's reply.  `text_digest`: blake2b-128 hex of the command text, when there is one."""

    id: str | None = None
    name: str | None = None
    text_digest: str | None = None


class Sender(Record, frozen=True, kw_only=True):
    """The process that opened a connection to a door, as the kernel told it while the connection was open."""

    pid: int
    """0: none of the processes that descend from the run's."""
    start_ticks: int
    """Clock ticks since boot: tells a reused pid from the first one."""
    parents: list[int] = []
    """Pids of its parents up to the run's own process, nearest first."""


class RequestFacts(Record, frozen=True, kw_only=True):
    """What the request body said, without content.  Digests are blake2b-128 hex."""

    operation: str = "other"
    """chat | count_tokens | models | hello | other"""
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    history_len: int | None = None
    assistant_turns: int | None = None
    has_tools: bool | None = None
    tool_count: int | None = None
    body_digest: str | None = None
    """Of the body without the keys that clients flip on a retry: `stream`, `stream_options`, `max_tokens`."""
    raw_digest: str | None = None
    tools_digest: str | None = None
    system_digest: str | None = None
    first_user_digest: str | None = None
    message_digests: list[str] = []
    """Of each message of the history, the last 8 only."""
    last_assistant_digest: str | None = None
    """Of the text of the last assistant message, to compare with a reply's `text_digest`."""
    last_assistant_chars: int | None = None
    tool_result_ids: list[str] = []
    """Ids of tool results after the last assistant message."""
    session_kind: str | None = None
    session: str | None = None
    """Session id as the client sent it, hashed."""
    agent: str | None = None
    """Agent id within the session as the client sent it, hashed; clients that run subagents send one."""
    parent_agent: str | None = None
    """The agent that started this one, as the client sent it, hashed."""
    purpose: str | None = None
    """What the client says that the call is for: Codex's x-openai-subagent or request_kind (compaction, review …)."""
    previous_response: str | None = None
    """Id of the response that this request continues at the server."""
    call_key: str | None = None
    """A key that the client repeats on each attempt of one call (Inspect's x-irid), hashed."""
    retry_count: int | None = None
    key: str | None = None
    """Digest of the API key, keyed with a secret of the store's."""
    user_agent: str | None = None
    traceparent: str | None = None
    unreadable: str | None = None
    unseen: bool = False
    """The body was sent whole and could not be seen whole: too large, in an unknown encoding, or with a hole in the
    copy."""


class ReplyFacts(Record, frozen=True, kw_only=True):
    """What the response said, without content."""

    status: int | None = None
    content_type: str | None = None
    html: bool = False
    provider_id: bool | None = None
    """Whether the reply carried the provider's own request id."""
    request_id: str | None = None
    retry_after: float | None = None
    should_retry: bool | None = None
    error_type: str | None = None
    error_in_stream: bool = False
    error_names: list[str] = []
    """Recognised tokens of the provider's error body: quota, credit, billing, per_key, context, spend."""
    model: str | None = None
    declined_model: str | None = None
    """A model that declined, after which another one (`model`) went on at the server (Anthropic's `fallback`)."""
    server_first_token: float | None = None
    """The server's own time to the first token, where it tells (vLLM), s; its queue is not in it."""
    server_queue: float | None = None
    """How long the request waited in the server's queue, by its own word, s."""
    response_id: str | None = None
    stop_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    usage_partial: bool | None = None
    tool_calls: list[ToolUse] = []
    open_tool_calls: int = 0
    """Tool-call blocks that began and did not end."""
    text_digest: str | None = None
    text_chars: int | None = None
    terminator: bool | None = None
    """Whether the dialect's end mark was seen; None where the dialect is unknown."""
    started_content: bool = False
    events: int | None = None
    pings: int | None = None


class AttemptStarted(Value, frozen=True, kw_only=True):
    """A request's head (and, where readable, body) reached the model door."""

    kind: ClassVar[str] = "attempt.started"
    attempt: str
    conn: int = 0
    msg: int = 0
    door: str = ""
    provider: str | None = None
    dialect: str = "unknown"
    upstream_host: str | None = None
    method: str | None = None
    path: str | None = None
    request: RequestFacts = RequestFacts()
    assigned_by: str | None = None
    """How the trial was told, as in `core.claims.Assigned.how`; None: by a token, or by nothing."""
    unassigned_why: str | None = None
    """Why it was given to no trial."""
    trial_hint: str | None = None
    """Of an unassigned request: the trial whose trace it shares."""
    named: str | None = None
    """Under `run`: what the client called its trial, by path, header or baggage; its own word."""
    container_id: str | None = None
    """The container that the client is in, as the engine told by its address; None: the host, or not known."""


class AttemptEnded(Value, frozen=True, kw_only=True):
    """One HTTP request of a model call is over; repeats what `attempt.started` said, so it stands alone.

    Durations are seconds since `started_ns` (CLOCK_MONOTONIC of the relay, first byte of the request).
    """

    kind: ClassVar[str] = "attempt.ended"
    attempt: str
    conn: int = 0
    msg: int = 0
    door: str = ""
    provider: str | None = None
    dialect: str = "unknown"
    upstream_host: str | None = None
    method: str | None = None
    path: str | None = None
    request: RequestFacts = RequestFacts()
    assigned_by: str | None = None
    """How the trial was told, as in `core.claims.Assigned.how`; None: by a token, or by nothing."""
    unassigned_why: str | None = None
    """Why it was given to no trial."""
    trial_hint: str | None = None
    """Of an unassigned request: the trial whose trace it shares."""
    named: str | None = None
    """Under `run`: what the client called its trial, by path, header or baggage; its own word."""
    container_id: str | None = None
    """The container that the client is in, as the engine told by its address; None: the host, or not known."""
    reply: ReplyFacts = ReplyFacts()
    outcome: Literal["ok", "error", "truncated", "client_disconnect", "proxy_shutdown"] = "ok"
    started_ns: int = 0
    started_wall_ns: int = 0
    ended_ns: int = 0
    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    reused: bool | None = None
    request_sent: float | None = None
    ttfb: float | None = None
    first_token: float | None = None
    duration: float | None = None
    max_gap: float | None = None
    """Longest silence between content-bearing reads, pings not counted as bytes, s."""
    max_gap_with_pings: float | None = None
    """Longest silence between any bytes on the wire, s."""
    upstream_gap: float | None = None
    """Of the longest silence, pings not counted as bytes and the wait for the first byte included: what is proved to be
    the upstream's, because we read, were on time, and nothing came, s."""
    upstream_gap_with_pings: float | None = None
    """The same of the longest silence between any bytes, s."""
    silence_at_end: float | None = None
    """Silence before the end (any byte counts), s."""
    quiet_at_end: float | None = None
    """The same where pings and comments do not count as bytes, s; None before the first byte."""
    downstream_blocked: float | None = None
    """How long the client did not read, so that the upstream was not read either, s."""
    blocked_before_end: float | None = None
    """How long the client had not been reading when it ended, s; 0 when it was reading."""
    upload_blocked: float | None = None
    """How long the upstream did not take the request, so that the client was not read either, s."""
    request_whole: bool | None = None
    """Whether the client had sent the whole request when the attempt ended; None when that was not seen."""
    after_close: bool | None = None
    """Whether the request came behind a `Connection: close` of either side, or after the upstream's FIN was passed on:
    nobody owes it an answer (RFC 9112 section 9.6)."""
    our_lag: float | None = None
    """The longest that our own loop was late while it was open, s."""
    suspended: float | None = None
    """How long the machine slept while its connection was open (CLOCK_BOOTTIME - CLOCK_MONOTONIC), s."""
    client_last: float | None = None
    """When the client's last byte came, for an attempt that broke, s."""
    upstream_last: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    first_failure: Literal["client", "upstream", "fairtrial"] | None = None
    framing_cut: Literal["client", "upstream", "fairtrial"] | None = None
    """Of a reply that was whole by its end mark (so `outcome` is ok): who cut its framing behind that, if it was cut.
    Clients that read to the end of the framing then have an error."""
    closed_by: Literal["client", "upstream", "fairtrial"] | None = None
    close_kind: str | None = None
    errno: str | None = None
    dial_stage: str | None = None
    """dns | connect | tls | proxy: where the dial failed; None when it did not."""
    dial_error: str | None = None
    proxy_status: int | None = None
    via_proxy: str | None = None
    remote: str | None = None
    parse: Literal["full", "partial", "none"] = "full"
    parse_why: str | None = None
    sender: Sender | None = None
    """Who opened the connection; None where nobody looked, or it was gone before."""


# --- containers and cgroups -----------------------------------------------------------------------------------------


class OpaqueConnection(Value, frozen=True, kw_only=True):
    """A tunnel through the connect door has ended, or never stood; durations s, sizes bytes, nothing of it was read."""

    kind: ClassVar[str] = "connection.ended"
    host: str = ""
    port: int | None = None
    provider: str | None = None
    """Whose model API the host is, where it is a known one."""
    started_wall_ns: int = 0
    ok: bool = False
    """It was dialled."""
    stage: str | None = None
    """Where a dial failed: dns, proxy, connect."""
    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    """From the client's first byte to the upstream's first."""
    via_proxy: str | None = None
    remote: str | None = None
    duration: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    max_wait: float | None = None
    """The longest time from a byte of the client to the upstream's next one."""
    max_gap: float | None = None
    """The longest time between two reads of the upstream without a byte of the client between."""
    silent: float | None = None
    """From the last byte of either side to the end."""
    closed_by: Literal["client", "upstream", "fairtrial"] | None = None
    close_kind: str | None = None
    cut: bool | None = None
    """The upstream ended first and without TLS's close_notify; None where that cannot be told."""
    errno: int | str | None = None
    error: str | None = None


class ContainerSeen(Value, frozen=True, kw_only=True):
    """A container of the trial was found; limits as the runtime reports them."""

    kind: ClassVar[str] = "container.seen"
    container_id: str
    name: str | None = None
    image: str | None = None
    image_digest: str | None = None
    role: Literal["main", "service", "verifier", "own"] = "main"
    labels: dict[str, str] = {}
    init_pid: int | None = None
    cgroup: str | None = None
    cgroup_version: Literal["v1", "v2", "hybrid"] | None = None
    memory_limit: int | None = None
    memory_reservation: int | None = None
    memory_swap_limit: int | None = None
    oom_group: bool | None = None
    oom_kill_disabled: bool | None = None
    """cgroup v1: at the limit processes are refused or wait, and none is killed."""
    cpu_limit: float | None = None
    pids_limit: int | None = None
    tmpfs: list[str] = []
    started_wall_ns: int | None = None
    network_mode: str | None = None
    strangers: int | None = None
    """Role "own": processes in the same cgroup that belong neither to the command nor to fairtrial."""
    trial_mark: str | None = None
    """`FAIRTRIAL_TRIAL` or the label that it was created with: whoever created it called its trial so."""
    restarts: int | None = None
    """How often the engine's restart policy had started it again by then."""
    own_pid_namespace: bool | None = None
    """False: a process of the host or of another container that it shares its namespace with can kill its first one."""
    join: str | None = None
    """How it was tied to this trial: started_after | label | env | only_trial | own."""


class ContainerEvent(Value, frozen=True, kw_only=True):
    """One event of the runtime, as it said it."""

    kind: ClassVar[str] = "container.event"
    container_id: str
    action: str
    """create | start | oom | die | kill | stop | restart | pause | unpause | destroy | health_status"""
    exit_code: int | None = None
    signal: int | None = None
    oom_killed_flag: bool | None = None
    daemon_wall_ns: int | None = None


class ExecStarted(Value, frozen=True, kw_only=True):
    """A process was started in a running container through the runtime."""

    kind: ClassVar[str] = "exec.started"
    container_id: str
    exec_id: str
    pid: int | None = None
    text_digest: str | None = None
    """blake2b-128 hex of the last argument of the command (the shell text), to join with a tool call."""
    plumbing: bool | None = None


class ExecEnded(Value, frozen=True, kw_only=True):
    """It ended; an unknown exit code is None, never 0."""

    kind: ClassVar[str] = "exec.ended"
    container_id: str
    exec_id: str
    exit_code: int | None = None
    started_wall_ns: int | None = None
    bytes_out: int | None = None


class DoorExec(Value, frozen=True, kw_only=True):
    """One exec as the Docker door saw it pass; written when its stream ended.

    `dispatch_delay` is from the start request to the engine's answer, `duration` from that request to the stream's end;
    bytes are what the process wrote (`raw`: a terminal, or text of the engine's own) and what was sent to it.
    """

    kind: ClassVar[str] = "door.exec"
    exec_id: str
    container_id: str | None = None
    """Only where the client named the container by its whole id: nothing joins by name."""
    command: list[str] | None = None
    """Its words, secrets masked and free text as its length (`core/masking.mask_command`)."""
    text_digest: str | None = None
    plumbing: bool | None = None
    tty: bool | None = None
    detached: bool | None = None
    status: int | None = None
    """HTTP status of the start request."""
    error: str | None = None
    """As in `DoorContainer`."""
    started_wall_ns: int | None = None
    dispatch_delay: float | None = None
    created_wall_ns: int | None = None
    """When the client asked for it to be made, before it asked for its start."""
    create_delay: float | None = None
    """From that request to the engine's answer."""
    duration: float | None = None
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    raw: int | None = None
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None
    """Who ended the stream: the process (an ordinary end), a client that left, an engine that broke off, or we."""


class DoorContainer(Value, frozen=True, kw_only=True):
    """The trial's own client asked the engine for something that makes, ends or holds up a container."""

    kind: ClassVar[str] = "door.container"
    action: str
    """create | start | attach | kill | stop | restart | pause | unpause | remove | wait"""
    container_id: str | None = None
    container_named: str | None = None
    """What the request called it, where that is no whole id."""
    status: int | None = None
    signal: str | None = None
    error: str | None = None
    """What kind of refusal the engine's message tells (`wire/docker_errors.py`); None: none was told."""
    exit_code: int | None = None
    """Of `wait`."""
    duration: float | None = None
    started_wall_ns: int | None = None
    """When the request came."""
    command: list[str] | None = None
    """Of `create`, as in `DoorExec`."""
    text_digest: str | None = None
    """Of `create`: of the last word of what it will run, to join with a tool call."""
    stdin: int | None = None
    """Of `attach`, as in `DoorExec`."""
    stdout: int | None = None
    stderr: int | None = None
    raw: int | None = None
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None


class CgroupReading(Value, frozen=True, kw_only=True):
    """Counters of one cgroup at one moment; all cumulative counters count from the cgroup's birth.

    Written at edges (start, before and after each model call, end) and when a counter of harm moved, never per sample.
    """

    kind: ClassVar[str] = "cgroup.reading"
    container_id: str
    """Container id, or "own" for the command's own cgroup."""
    edge: Literal["baseline", "call_started", "call_ended", "change", "exec", "end", "last"] = "change"
    memory_current: int | None = None
    memory_peak: int | None = None
    """High-water mark since the last reading (`peak_kind` exact) or since the cgroup's birth (at_most)."""
    memory_peak_kind: Literal["exact", "rose_in_step", "at_most", "sampled", "shared"] | None = None
    memory_sampled_peak: int | None = None
    memory_limit: int | None = None
    memory_anon: int | None = None
    memory_file: int | None = None
    memory_shmem: int | None = None
    memory_inactive_file: int | None = None
    memory_slab: int | None = None
    """Objects of the kernel; on cgroup v1, which does not split it, all memory of the kernel."""
    memory_max_hits: int | None = None
    memory_high_hits: int | None = None
    memory_under_oom: bool | None = None
    """cgroup v1: processes wait for memory that nobody frees, because the OOM killer is switched off."""
    swap_current: int | None = None
    oom_kill: int | None = None
    oom: int | None = None
    oom_group_kill: int | None = None
    cpu_used: float | None = None
    cpu_throttled: float | None = None
    cpu_throttled_periods: int | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    psi_memory_full: float | None = None
    psi_io: float | None = None
    pids_current: int | None = None
    pids_limit: int | None = None
    pids_max_hits: int | None = None
    disk_written: int | None = None
    egress_bytes: int | None = None
    ingress_bytes: int | None = None
    egress_rate_max: float | None = None
    """Highest rate between two samples since the last reading, bytes/s."""
    tcp_retrans: int | None = None
    tcp_attempt_fails: int | None = None
    populated: bool | None = None


class OomKill(Value, frozen=True, kw_only=True):
    """The cgroup's own kill counter rose: that a kill *happened* is proved by this, who died is not."""

    kind: ClassVar[str] = "cgroup.oom_kill"
    container_id: str
    delta: int
    total: int | None = None
    group_delta: int | None = None
    memory_limit: int | None = None
    memory_peak: int | None = None
    memory_shmem: int | None = None
    memory_anon: int | None = None
    swap_current: int | None = None
    parent_limit_hit: bool | None = None
    source_file: str | None = None
    exec_candidates: list[str] = []
    live_execs: list[str] = []


class PidsHit(Value, frozen=True, kw_only=True):
    """A fork was refused by the cgroup's limit of tasks: how many there were a moment later, and since when.

    The two shares count tasks (threads too) of processes that started after the first, and after the newest, reply of a
    model had passed; `None` while no reply had.  A process that came and went between two looks is in neither.
    """

    kind: ClassVar[str] = "cgroup.pids_hit"
    container_id: str
    hits: int | None = None
    limit: int | None = None
    tasks: int | None = None
    since_first_reply: int | None = None
    since_last_reply: int | None = None


class DiskFull(Value, frozen=True, kw_only=True):
    """A file system of a container has no room left: less than a hundredth of it and 4 MiB, or no inode.

    Written once when it becomes so and again when it had room in between; `at_start`: it was so when the container was
    first looked at.  `layer_bytes` is what the container itself holds there: its own layer for the root file system,
    all of a tmpfs; None where that is not known (a volume, a layer too large to count).
    """

    kind: ClassVar[str] = "disk.full"
    container_id: str
    mount: str
    fs_type: str | None = None
    size: int | None = None
    free: int | None = None
    inodes_free: int | None = None
    used_at_start: int | None = None
    used: int | None = None
    layer_bytes: int | None = None
    at_start: bool = False
    edge: str | None = None
    """The edge at which it was looked at, as in `CgroupReading`; None: between two."""


class FdLimit(Value, frozen=True, kw_only=True):
    """A process of a container was seen with as many open files as its own limit allows; sampled, so a short one is
    missed.  `since_first_reply`: it started after a model's first reply had passed; None: no reply had."""

    kind: ClassVar[str] = "process.fd_limit"
    container_id: str
    pid: int | None = None
    comm: str | None = None
    open_files: int | None = None
    limit: int | None = None
    since_first_reply: bool | None = None


class KernelOomKill(Value, frozen=True, kw_only=True):
    """One victim record of the kernel log: says *who* and *which limit*."""

    kind: ClassVar[str] = "kernel.oom_kill"
    victim: Victim
    container_id: str | None = None
    exec_id: str | None = None
    exec_join: Literal["process_tree", "only_live_exec", "inferred"] | None = None
    constraint: str | None = None
    """CONSTRAINT_MEMCG | CONSTRAINT_NONE | …; NONE is a node-wide kill."""
    oom_memcg: str | None = None
    task_memcg: str | None = None
    parents: list[str] = []
    """comm of the victim's parent chain, nearest first."""


class ContainerGone(Value, frozen=True, kw_only=True):
    """A container or its cgroup vanished; the last readable counters were written before."""

    kind: ClassVar[str] = "container.gone"
    container_id: str
    exit_code: int | None = None
    oom_killed_flag: bool | None = None
    error: str | None = None
    ended_by: str | None = None
    """exit | oom | runtime_kill:<signal> | unknown: what the runtime's events say ended it."""
    init_signal: int | None = None
    """The signal that ended its first process by that process's own wait status, 0: it exited; None: the kernel did not
    tell (before 6.15, or a remote engine)."""


class RuntimeState(Value, frozen=True, kw_only=True):
    """The engine's event stream opened, broke off or came back."""

    kind: ClassVar[str] = "runtime.state"
    state: Literal["up", "lost", "back"]
    why: str | None = None
    version: str | None = None
    api_version: str | None = None
    restarted: bool | None = None
    """Of `back`: whether the engine is another process than before; None: that cannot be told."""


class DoorImage(Value, frozen=True, kw_only=True):
    """The trial's own client had the engine pull an image."""

    kind: ClassVar[str] = "door.image"
    image: str | None = None
    """Its name as asked for, without a digest's or a credential's text."""
    status: int | None = None
    error: str | None = None
    """As in `DoorContainer`; None: it was pulled, or the answer was not seen whole."""
    duration: float | None = None
    started_wall_ns: int | None = None


class HostCounters(Value, frozen=True, kw_only=True):
    """Counters of the node that anyone may read."""

    kind: ClassVar[str] = "host.counters"
    edge: Literal["baseline", "call_started", "call_ended", "change", "exec", "end", "last"] = "change"
    oom_kill: int | None = None
    """/proc/vmstat oom_kill, all kills of the node since boot."""
    memory_available: int | None = None
    steal_s: float | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    psi_io: float | None = None
    cpu_busy_s: float | None = None
    """Time that all cores together have worked since boot, for whomever; without waiting and stolen time."""
    load1: float | None = None


# --- a harness's own records ------------------------------------------------------------------------------------------


class BookedPhase(Record, frozen=True, kw_only=True):
    """One part of a trial as the harness timed it; wall ns of the harness's clock.  `step`: the harness's own word for
    a part of the task that has several."""

    name: PhaseName
    started_ns: int | None = None
    ended_ns: int | None = None
    outcome: str | None = None
    step: str | None = None


class BookedError(Record, frozen=True, kw_only=True):
    """A failure as the harness named it.  Its text is not kept: it may hold what the agent printed.

    The three answers are the harness's policy for this name: try again, run the verifier, count the reward.
    """

    type: str
    at_ns: int | None = None
    exit_code: int | None = None
    step: str | None = None
    should_retry: bool | None = None
    should_grade: bool | None = None
    reward_valid: bool | None = None


class HarnessOutcome(Value, frozen=True, kw_only=True):
    """What a harness booked for one trial, as read from its own files (`middleware/harnesses/`).

    Many may tell of one trial: several harnesses, or one file before and after it was whole.
    """

    kind: ClassVar[str] = "harness.outcome"
    harness: str
    harness_version: str | None = None
    identity: str
    """What the harness calls the trial, as a digest: the same trial has the same one in every file."""
    label: str
    """The same for people: its trial name, instance or sample."""
    about: str | None = None
    """Of a word of the control API: the name of the trial that it was said of; None: of the run's own."""
    task: str | None = None
    run: str | None = None
    """fairtrial's run that it was imported into."""
    job: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    retried: bool = False
    """The harness gave this attempt up and tried again: it counts in no score."""
    outcome: Outcome = Outcome.UNKNOWN
    scored: bool = False
    """A verifier or scorer said so.  False: an exit status, or the agent program's own word."""
    reward: float | None = None
    rewards: dict[str, float] = {}
    reward_valid: bool | None = None
    exit_status: str | None = None
    ended_as: EndedAs | None = None
    errors: list[BookedError] = []
    marks: list[str] = []
    """Known sentences of the harness's log, by name: terminal_gone."""
    started_ns: int | None = None
    ended_ns: int | None = None
    phases: list[BookedPhase] = []
    time: TimeLimits = TimeLimits()
    memory_declared: int | None = None
    cpus_declared: float | None = None
    concurrency: int | None = None
    """Trials that the harness may run at once."""
    agent: str | None = None
    model: str | None = None
    model_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    complete: bool = True
    """Every file that tells of it could be read whole."""
    files: list[str] = []
    """Names of the files that it was read from, below the path that was given."""
    joined_by: str | None = None
    """How it was tied to its trial: trial_id | request_id | response_id | tool_call | call_key | session | label | name
    | time | before; None: to none, it stands alone."""
    part_of: str | None = None
    """A trial that was observed as a whole and holds several of these: which part of it was this one's is not known."""
    imported_ns: int | None = None


VALUES: Final[dict[str, type[Value]]] = {
    v.kind: v
    for v in (
        TrialStarted,
        TrialEnded,
        MutationSeen,
        Note,
        CoverageChanged,
        GapSeen,
        DoorState,
        AttemptStarted,
        AttemptEnded,
        OpaqueConnection,
        ContainerSeen,
        ContainerEvent,
        ExecStarted,
        ExecEnded,
        DoorExec,
        DoorContainer,
        CgroupReading,
        OomKill,
        PidsHit,
        DiskFull,
        FdLimit,
        KernelOomKill,
        ContainerGone,
        RuntimeState,
        DoorImage,
        HostCounters,
        HarnessOutcome,
    )
}


def decode(observation: Observation) -> Value | None:
    """The typed value, or None for a kind or a shape that this version does not know."""
    value_type = VALUES.get(observation.kind)
    if value_type is None:
        return None
    try:
        return msgspec.convert(observation.value, value_type)
    except msgspec.ValidationError:
        return None


def encode_value(value: Value) -> dict[str, object]:
    """The value as plain JSON types with unobserved fields left out (a missing field reads as None)."""
    built = msgspec.to_builtins(value)
    return {k: v for k, v in built.items() if v is not None and v not in ([], {})}
