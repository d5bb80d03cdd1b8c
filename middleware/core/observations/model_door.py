"""The model door: its state, each attempt of a model call, and each tunnel that is not read.

What all of them share is said in the package. In: nothing.  Out: typed values, one struct an observation kind.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fairtrial.middleware.core.observations.base import Value
from fairtrial.middleware.core.records import Record


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
    typed_digests: list[str] = []
    """Of the keys that the text asks to be typed, for an agent that works in a terminal without tool calls."""
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
    far_listens: bool | None = None
    """Of an upstream of this machine that ended the connection: whether its server still listened then."""
    parse: Literal["full", "partial", "none"] = "full"
    parse_why: str | None = None
    sender: Sender | None = None
    """Who opened the connection; None where nobody looked, or it was gone before."""


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
