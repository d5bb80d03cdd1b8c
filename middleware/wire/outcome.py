"""What is said of an exchange: when its request was read, and when it is over, with how it ended and who failed first.

In: a passing exchange, its finished tally, and how it ended.  Out: `attempt.started` and `attempt.ended` values.  What
this module does not do: follow the traffic (`exchange.py`), fold attempts (`steps/attempts.py`) or blame anybody.

**Source:** design page VERDICTS.md section 7; reference page model-api.md sections 1.3 (terminators) and 6.4.
"""

from __future__ import annotations

import errno

from msgspec import structs

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, ReplyFacts, RequestFacts
from fairtrial.middleware.wire.dialects import UNKNOWN
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.passing import NO_HEAD, PARTIES, Conn, Ending, Exchange, Outcome
from fairtrial.middleware.wire.redact import safe_path
from fairtrial.middleware.wire.session import split_token


def attempt_started(conn: Conn, exchange: Exchange) -> AttemptStarted:
    """The value for a request that was read."""
    assigned = exchange.assigned
    return AttemptStarted(
        attempt=exchange.id,
        conn=exchange.conn,
        msg=exchange.msg,
        door=conn.door,
        provider=exchange.dialect.provider or conn.provider,
        dialect=exchange.dialect.name,
        upstream_host=conn.upstream_host,
        method=exchange.head.method or None,
        path=_path(exchange),
        request=_with_key(exchange),
        assigned_by=assigned.how if assigned.how != "token" else None,
        unassigned_why=assigned.why,
        trial_hint=assigned.hint,
        named=assigned.named,
        container_id=conn.container,
    )


def attempt_ended(
    conn: Conn, exchange: Exchange, tally: Tally, ending: Ending, ended_ns: int, at: clock.Instant
) -> AttemptEnded:
    """The value for an exchange that is over; `ended_ns` is on the relay's clock, which `at` turns into a date."""
    started_ns, stalls = exchange.started_ns, exchange.stalls
    known = exchange.dialect is not UNKNOWN
    outcome = judge(exchange.status, tally, ending, known=known)
    dial = exchange.dial
    failed = dial if dial is not None and not dial.ok else None
    first = PARTIES.get(ending.first)
    # An answer that came, and is none, is the upstream's fault even if its framing came to its end.
    refused = (outcome == "error" and exchange.status is not None) or (outcome == "truncated" and bool(ending.complete))
    fin_before = first == "upstream" and ending.first_ns is not None and ending.first_ns <= started_ns
    since_ns = max(stalls.last_byte_ns or 0, exchange.request_end_ns or started_ns, started_ns)
    assigned = exchange.assigned
    return AttemptEnded(
        attempt=exchange.id,
        conn=exchange.conn,
        msg=exchange.msg,
        door=conn.door,
        provider=exchange.dialect.provider or conn.provider,
        dialect=exchange.dialect.name,
        upstream_host=conn.upstream_host,
        method=exchange.head.method or None,
        path=_path(exchange),
        request=exchange.request,
        assigned_by=assigned.how if assigned.how != "token" else None,
        unassigned_why=assigned.why,
        trial_hint=assigned.hint,
        named=assigned.named,
        container_id=conn.container,
        reply=reply_facts(exchange.status, tally),
        outcome=outcome,
        started_ns=started_ns,
        started_wall_ns=at.wall_at(started_ns),
        ended_ns=ended_ns,
        dns=dial.dns_s if dial is not None else None,
        connect=dial.connect_s if dial is not None else None,
        tls=dial.tls_s if dial is not None else None,
        reused=dial is None if conn.dialled else None,
        request_sent=_seconds(started_ns, exchange.request_end_ns),
        ttfb=_seconds(started_ns, stalls.first_byte_ns),
        first_token=_seconds(started_ns, tally.first_token_ns),
        duration=_seconds(started_ns, ended_ns),
        max_gap=stalls.max_gap_s,
        max_gap_with_pings=stalls.max_gap_with_pings_s,
        upstream_gap=stalls.upstream_gap_s,
        upstream_gap_with_pings=stalls.upstream_gap_with_pings_s,
        silence_at_end=round(max(0, ended_ns - since_ns) / 1e9, 6),
        quiet_at_end=None if stalls.last_spoken_ns is None else _seconds(stalls.last_spoken_ns, ended_ns),
        downstream_blocked=round(stalls.blocked_ns / 1e9, 6),
        blocked_before_end=stalls.blocked_before_s(started_ns, ended_ns),
        upload_blocked=round(stalls.upload_blocked_ns / 1e9, 6),
        request_whole=_request_whole(exchange),
        after_close=exchange.after_close or fin_before,
        our_lag=round(stalls.lag_s, 6),
        suspended=ending.suspend_gap_s,
        client_last=_since(started_ns, ending.client_last_ns),
        upstream_last=_since(started_ns, ending.upstream_last_ns),
        bytes_up=exchange.bytes_up,
        bytes_down=exchange.bytes_down,
        first_failure=("upstream" if failed is not None or refused else first) if outcome != "ok" else None,
        framing_cut=first if outcome == "ok" and ending.complete is False else None,
        closed_by=first if first is not None else ("upstream" if ending.how == "close_delimited" else None),
        close_kind=ending.close_how or ending.how,
        errno=_errno_name(ending.errno if ending.errno is not None else (failed.errno if failed is not None else None)),
        dial_stage=failed.stage if failed is not None else None,
        dial_error=failed.error[:200] if failed is not None and failed.error else None,
        proxy_status=dial.status if dial is not None else None,
        via_proxy=dial.via_proxy if dial is not None else None,
        remote=dial.remote if dial is not None else None,
        far_listens=ending.far_listens,
        sender=conn.sender,
        parse=exchange.parse if known else "none",
        parse_why=exchange.parse_why or (None if known else "no dialect reads it"),
    )


def judge(status: int | None, tally: Tally, ending: Ending, *, known: bool) -> Outcome:
    """The outcome of an attempt from its status, what its reply said, and how it ended.

    The end mark beats the end of the connection: a client that hangs up behind it has its answer.  A 200 whose content
    is an error, HTML, or a JSON body that cannot be read is an error; a stream that ends well framed without its end
    mark is truncated.  `known`: a dialect that has an end mark read the reply.
    """
    broken: Outcome | None = None
    if not ending.complete and ending.how != "blind":
        match ending.how:
            case "client_gone":
                broken = "client_disconnect"
            case "aborted" | "shutdown":
                broken = "proxy_shutdown"
            case _:
                broken = "truncated"
    if status is None:
        return "error" if broken is None or broken == "truncated" else broken
    if status >= 400 or tally.error_in_stream:
        return "error"
    if tally.terminator:
        return "ok"
    if broken is not None:
        return broken
    if not known or tally.terminator is None:
        return "ok"
    if tally.html:
        return "error"
    return "truncated" if tally.events is not None else "error"


def reply_facts(status: int | None, tally: Tally) -> ReplyFacts:
    """A finished tally as the observation holds it."""
    return ReplyFacts(
        status=status,
        content_type=tally.content_type,
        html=tally.html,
        provider_id=tally.provider_id,
        request_id=tally.request_id,
        retry_after=tally.retry_after,
        should_retry=tally.should_retry,
        error_type=tally.error_type,
        error_in_stream=tally.error_in_stream,
        error_names=tally.error_names,
        model=tally.model[:200] if tally.model else None,
        declined_model=tally.declined_model,
        server_first_token=tally.server_first_token,
        server_queue=tally.server_queue,
        response_id=tally.response_id[:200] if tally.response_id else None,
        stop_reason=tally.stop_reason[:100] if tally.stop_reason else None,
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        cache_read_tokens=tally.cache_read_tokens,
        cache_write_tokens=tally.cache_write_tokens,
        usage_partial=tally.usage_partial,
        tool_calls=tally.tool_calls,
        open_tool_calls=tally.open_tool_calls,
        text_digest=tally.text_digest,
        text_chars=tally.text_chars,
        typed_digests=tally.typed_digests,
        terminator=tally.terminator,
        started_content=tally.started_content,
        events=tally.events,
        pings=tally.pings,
    )


def _path(exchange: Exchange) -> str | None:
    return safe_path(split_token(exchange.head.target)[1]) if exchange.head.target else None


def _request_whole(exchange: Exchange) -> bool | None:
    """A request of which no end was seen is unfinished, unless the copy itself has holes."""
    if exchange.request_end_ns is not None:
        return exchange.request_whole
    return None if exchange.holed or exchange.head is NO_HEAD else False


def _seconds(begin_ns: int, end_ns: int | None) -> float | None:
    return None if end_ns is None else round(max(0, end_ns - begin_ns) / 1e9, 6)


def _with_key(exchange: Exchange) -> RequestFacts:
    return exchange.request if exchange.key is None else structs.replace(exchange.request, key=exchange.key)


def _since(begin_ns: int, end_ns: int | None) -> float | None:
    """As `_seconds`, but what lies before the begin belongs to another exchange."""
    return None if end_ns is None or end_ns < begin_ns else _seconds(begin_ns, end_ns)


def _errno_name(code: int | str | None) -> str | None:
    if isinstance(code, int):
        return errno.errorcode.get(code, str(code)) if code else None
    return code[:64] if code else None
