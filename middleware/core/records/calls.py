"""What went to the model: an HTTP request, the logical call that its attempts make, and a connection that was not read.

In: nothing.  Out: shapes only.  The step that a call belongs to is in `steps.py`.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from fairtrial.middleware.core.records.base import CallOutcome, CallRole, ClosedBy, Record


class Attempt(Record, frozen=True, kw_only=True):
    """One HTTP request of a call.  Durations in seconds from the request's first byte unless named otherwise."""

    status: int | None = None
    error_type: str | None = None
    outcome: CallOutcome | None = None
    started: str | None = None
    wait_before: float | None = None
    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    ttfb: float | None = None
    first_token: float | None = None
    duration: float | None = None
    retry_after: float | None = None
    """What this reply asked to wait."""
    retry_after_obeyed: bool | None = None
    """Whether this attempt waited as long as the reply before it asked; None where none was asked."""
    request_id: str | None = None
    framing_cut: ClosedBy | None = None
    """Of a reply that was whole: who cut the framing behind its end mark."""
    first_failure: ClosedBy | None = None
    """Who failed first, of an attempt that failed."""
    errno: str | None = None
    closed_by: ClosedBy | None = None
    close_kind: str | None = None
    via_proxy: str | None = None
    remote: str | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    observation: str | None = None
    """Id of the `attempt.ended` observation that this row was made from."""
    key: str | None = None
    """Digest of the API key that it carried, keyed with a secret of the store's: tells keys apart and nothing else."""
    per_key: bool | None = None
    """Whether its refusal named a limit per key."""


class Call(Record, frozen=True, kw_only=True):
    """One logical model call: its attempts folded."""

    id: str
    span_id: str | None = None
    role: CallRole = "step"
    dialect: str | None = None
    provider: str | None = None
    upstream_host: str | None = None
    model: str | None = None
    stream: bool | None = None
    outcome: CallOutcome | None = None
    ttft: float | None = None
    duration: float | None = None
    max_gap: float | None = None
    max_gap_with_pings: float | None = None
    downstream_blocked: float | None = None
    our_lag: float | None = None
    upstream_gap: float | None = None
    """The longest silence that is proved to be the upstream's: pings do not count as bytes, the wait for the first byte
    counts, s.  `max_gap` is the longest whoever's it was, between bytes."""
    upstream_gap_with_pings: float | None = None
    """The same with pings counted as bytes, s."""
    backoff: float | None = None
    """The waits between its attempts, s."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    stop_reason: str | None = None
    fell_back: str | None = None
    """What the client gave up after errors: non_streaming, model, max_tokens, capability; joined by commas."""
    duplicate_of: str | None = None
    """The call that asked the same and had been answered whole: this one is no retry, it samples again."""
    concurrent_duplicate: str | None = None
    """The call that asked the same and was in flight when this one began: hedging."""
    agent: str | None = None
    """Of a subagent's call: the subagent, called by its first call's id; None is the main agent."""
    parent_agent: str | None = None
    """Of a subagent's call: the agent that started it; None is the main agent."""
    body_digest: str | None = None
    """Of its request's body, without the keys that clients flip on a retry."""
    spawned_by: str | None = None
    """Of a subagent's call: the parent's call whose reply set the tool to work that the subagent runs in."""
    container_id: str | None = None
    """The container that its client is in, as the engine told; None: the host, or not known."""
    attempts: list[Attempt] = []


class Connection(Record, frozen=True, kw_only=True):
    """One connection through the connect door (`--via connect`): what can be known of it without reading it.

    `tls` is the first wait of the handshake; `max_wait` from a byte of the client to the upstream's next, `max_gap`
    between two of the upstream; `silent` from the last byte to the end.  `cut`: the upstream ended it first, and
    without TLS's close_notify.
    """

    host: str
    port: int | None = None
    provider: str | None = None
    started: str | None = None
    ok: bool = False
    stage: str | None = None
    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    via_proxy: str | None = None
    remote: str | None = None
    duration: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    max_wait: float | None = None
    max_gap: float | None = None
    silent: float | None = None
    closed_by: ClosedBy | None = None
    close_kind: str | None = None
    cut: bool | None = None
    errno: str | None = None
    error: str | None = None
