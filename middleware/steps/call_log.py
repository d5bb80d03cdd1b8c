"""What was told of the model calls of one run, packed until somebody wants to tell its trials apart.

In: starts and ends of attempts, in any order.  Out: `CallFacts`, and the rows of each call.  That a run held several
trials may show with its last call, so none can be let go before the end; and most runs are one trial and never ask.  So
what is told is kept as it came, in compressed blocks (some hundred bytes a call, as digests come again and again), and
read through when it is asked for.  What this module does not do: decide anything, or bound itself (`run_facts.py`).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    Observation,
    ReplyFacts,
    RequestFacts,
    Sender,
    ToolUse,
)
from fairtrial.middleware.steps.row_log import Row

_BLOCK_BYTES: Final = 32 * 1024
"""Packed together: deflate looks no farther back."""
_LEVEL: Final = 1
"""A higher one takes four times the time and saves a tenth."""
_ARRAY: Final = b"\xdd"
"""MessagePack: an array whose length follows in four bytes."""


@dataclass(slots=True, kw_only=True)
class CallFacts:
    """One attempt of a model call; wall ns."""

    attempt: str
    started_ns: int
    ended_ns: int | None = None
    request: RequestFacts
    reply: ReplyFacts | None = None
    ok: bool = False
    container: str | None = None
    """Where it came from, by the engine's word."""
    named: str | None = None
    sender: Sender | None = None
    """The process that made it, by the kernel's word; None: not seen, or none of the run's."""

    @property
    def chat(self) -> bool:
        """It asks a model for a turn."""
        return self.request.operation == "chat"


class _Asked(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What tells conversations apart of a request, and where it came from."""

    started_ns: int
    container: str | None
    named: str | None
    operation: str
    history_len: int | None
    assistant_turns: int | None
    has_tools: bool | None
    tools_digest: str | None
    system_digest: str | None
    first_user_digest: str | None
    message_digests: list[str]
    last_assistant_digest: str | None
    tool_result_ids: list[str]
    session: str | None
    agent: str | None
    parent_agent: str | None


class _Answered(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """How an attempt ended, and what its reply asked for."""

    ended_ns: int
    ok: bool
    tool_calls: list[tuple[str | None, str | None, str | None]]
    text_digest: str | None
    typed_digests: list[str]
    sender: tuple[int, int, list[int]] | None


class _Told(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One observation.  `asked`: unless the attempt's begin was told before."""

    attempt: str
    source_id: str
    seq: int
    asked: _Asked | None
    answered: _Answered | None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[_Told])


class CallLog:
    """Append with `take`; read with `calls` and `rows`, best once, at the end."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._fresh = bytearray()
        self._fresh_count = 0
        self._open: set[str] = set()
        """Attempts that have begun and not ended."""
        self._most = 0
        self._calls: dict[str, CallFacts] | None = None
        self.placed = False
        """Some call had a name, or a container that it came from."""

    @property
    def kept_bytes(self) -> int:
        """What it takes to keep them."""
        return sum(map(len, self._blocks)) + len(self._fresh)

    def more_than(self, count: int) -> bool:
        """Whether there were more calls."""
        if self._most > count:
            # An end that came before its begin was counted twice.
            self._most = len(self.calls)
            self._calls = None
        return self._most > count

    def take(self, observation: Observation, value: AttemptStarted | AttemptEnded) -> None:
        """Keep what it says."""
        attempt, asked, answered = value.attempt, None, None
        if attempt not in self._open:
            self._most += 1
            self.placed = self.placed or bool(value.named or value.container_id)
        if isinstance(value, AttemptStarted):
            asked = _asked(value, observation.wall_ns)
            self._open.add(attempt)
        else:
            if attempt not in self._open:
                asked = _asked(value, value.started_wall_ns)
            answered = _answered(value, observation.wall_ns)
            self._open.discard(attempt)
        told = _Told(
            attempt=attempt, source_id=observation.source_id, seq=observation.seq, asked=asked, answered=answered
        )
        _encoder.encode_into(told, self._fresh, -1)
        self._fresh_count += 1
        self._calls = None
        if len(self._fresh) >= _BLOCK_BYTES:
            self._blocks.append(zlib.compress(self._packed(), _LEVEL))
            self._fresh.clear()
            self._fresh_count = 0

    @property
    def calls(self) -> Mapping[str, CallFacts]:
        """Attempt → what is known of it."""
        if self._calls is None:
            self._calls = {}
            for told in self._all():
                _add(self._calls, told)
        return self._calls

    def rows(self) -> Mapping[str, Sequence[Row]]:
        """Attempt → its rows in the store."""
        rows: dict[str, list[Row]] = {}
        for told in self._all():
            rows.setdefault(told.attempt, []).append((sys.intern(told.source_id), told.seq))
        return rows

    def _packed(self) -> bytes:
        return _ARRAY + self._fresh_count.to_bytes(4, "big") + self._fresh

    def _all(self) -> Iterator[_Told]:
        for block in self._blocks:
            yield from _decoder.decode(zlib.decompress(block))
        yield from _decoder.decode(self._packed())


def _asked(value: AttemptStarted | AttemptEnded, started_ns: int) -> _Asked:
    request = value.request
    return _Asked(
        started_ns=started_ns,
        container=value.container_id,
        named=value.named,
        operation=request.operation,
        history_len=request.history_len,
        assistant_turns=request.assistant_turns,
        has_tools=request.has_tools,
        tools_digest=request.tools_digest,
        system_digest=request.system_digest,
        first_user_digest=request.first_user_digest,
        message_digests=request.message_digests,
        last_assistant_digest=request.last_assistant_digest,
        tool_result_ids=request.tool_result_ids,
        session=request.session,
        agent=request.agent,
        parent_agent=request.parent_agent,
    )


def _answered(value: AttemptEnded, ended_ns: int) -> _Answered:
    sender = value.sender
    return _Answered(
        ended_ns=ended_ns,
        ok=value.outcome == "ok",
        tool_calls=[(use.id, use.name, use.text_digest) for use in value.reply.tool_calls],
        text_digest=value.reply.text_digest,
        typed_digests=value.reply.typed_digests,
        sender=(sender.pid, sender.start_ticks, sender.parents) if sender is not None and sender.pid else None,
    )


def _add(calls: dict[str, CallFacts], told: _Told) -> None:
    known, asked, answered = calls.get(told.attempt), told.asked, told.answered
    if known is None:
        if asked is None:
            return
        known = calls[told.attempt] = CallFacts(
            attempt=told.attempt,
            started_ns=asked.started_ns,
            request=_request(asked),
            container=_once(asked.container),
            named=_once(asked.named),
        )
    if answered is not None:
        uses = [ToolUse(id=id_, name=_once(name), text_digest=digest) for id_, name, digest in answered.tool_calls]
        typed = [sys.intern(each) for each in answered.typed_digests]
        known.reply = ReplyFacts(tool_calls=uses, text_digest=_once(answered.text_digest), typed_digests=typed)
        known.ended_ns, known.ok = answered.ended_ns, answered.ok
        known.sender = None
        if answered.sender is not None:
            pid, start_ticks, parents = answered.sender
            known.sender = Sender(pid=pid, start_ticks=start_ticks, parents=parents)


def _request(asked: _Asked) -> RequestFacts:
    """Digests that come again and again are there once."""
    return RequestFacts(
        operation=sys.intern(asked.operation),
        history_len=asked.history_len,
        assistant_turns=asked.assistant_turns,
        has_tools=asked.has_tools,
        tools_digest=_once(asked.tools_digest),
        system_digest=_once(asked.system_digest),
        first_user_digest=_once(asked.first_user_digest),
        message_digests=[sys.intern(each) for each in asked.message_digests],
        last_assistant_digest=_once(asked.last_assistant_digest),
        tool_result_ids=[sys.intern(each) for each in asked.tool_result_ids],
        session=_once(asked.session),
        agent=_once(asked.agent),
        parent_agent=_once(asked.parent_agent),
    )


def _once(text: str | None) -> str | None:
    return None if text is None else sys.intern(text)
