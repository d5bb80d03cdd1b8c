"""What a dialect is: one model API, read from copies, without keeping content.

In: a request's head and body, a response's head and decoded body pieces.  Out: `RequestFacts`, and a reply reader that
fills a `Tally`.  What this module does not do: time anything by itself (times come with the bytes) or decide an outcome
(`wire/exchange.py`).

Only digests and counts leave.  A body that is not what the API promises gives fewer facts, never an exception to the
caller: the tracker disables a dialect that raises for that one message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import Final, Protocol

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire import lenient
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from fairtrial.middleware.wire.session import Identity, identify
from fairtrial.middleware.wire.sse import SseFramer

MAX_JSON_BODY_BYTES: Final = 32 << 20
MAX_ARGUMENT_BYTES: Final = 1 << 20
KEPT_MESSAGES: Final = 8

UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What reading JSON of a stranger raises: brackets nested beyond measure end in the last, also in a skipped field."""

RETRY_FLIPPED: Final = frozenset(
    {
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
    }
)
"""Top-level keys of a request that clients change when they ask again; `body_digest` leaves them out."""


class ReplyReader(Protocol):
    """Reads one response; made after its head."""

    tally: Tally

    def feed(self, piece: bytes, t_ns: int) -> bool:
        """Take decoded body bytes of one read; False when they carried nothing but pings and comments."""
        ...

    def finish(self, *, whole: bool) -> None:
        """The body is over; `whole`: its framing came to its end."""
        ...


class Dialect(Protocol):
    """One model API."""

    @property
    def name(self) -> str:
        """As in the records' `dialect`."""
        ...

    @property
    def provider(self) -> str | None:
        """As in the records' `provider`, when the dialect alone tells."""
        ...

    def claims(self, method: str, path: str) -> bool:
        """Whether a request (path without token and query) speaks this dialect."""
        ...

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of a whole request body (already without content encoding)."""
        ...

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """A reader for the response to it."""
        ...


# --- requests -------------------------------------------------------------------------------------------------------

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Speaker(msgspec.Struct):
    """Who wrote a message, and nothing of what it says."""

    role: str = ""


_SPEAKER: Final = msgspec.json.Decoder(Speaker)


def read_object(body: bytes) -> dict[str, msgspec.Raw]:
    """The top level of a JSON object, values undecoded; raises `msgspec.DecodeError` for anything else."""
    return _RAW_OBJECT.decode(body)


def read_list(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """A JSON list, values undecoded; empty when it is absent or no list."""
    if raw is None:
        return []
    try:
        return _RAW_LIST.decode(raw)
    except UNREADABLE:
        return []


def read_roles(messages: Sequence[msgspec.Raw]) -> list[str]:
    """The role of each message; "" where there is none."""
    roles: list[str] = []
    for message in messages:
        try:
            roles.append(_SPEAKER.decode(message).role)
        except UNREADABLE:
            roles.append("")
    return roles


def body_digest(fields: Mapping[str, msgspec.Raw]) -> str:
    """Of a request body without the keys that clients flip on a retry, independent of their order."""
    state = blake2b(digest_size=16)
    for name in sorted(fields.keys() - RETRY_FLIPPED):
        state.update(name.encode())
        state.update(b"\0")
        state.update(fields[name])
        state.update(b"\0")
    return state.hexdigest()


def canonical_digest(raw: bytes) -> str:
    """Of a message, tool list or system prompt, the same whether or not cache marks were moved.

    Clients move `cache_control` along a growing history and then write a text as a list of one block.
    """
    return digest(msgspec.json.encode(_plain(msgspec.json.decode(raw)), order="deterministic"))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list):
        items = [_plain(v) for v in value]
        if len(items) == 1 and isinstance(items[0], dict) and items[0].keys() == {"type", "text"}:
            return items[0]["text"]
        return items
    return value


def read_scalar(raw: msgspec.Raw | None) -> object:
    """A small value (string, number, bool); None when absent, unreadable, or an object or list."""
    if raw is None or len(memoryview(raw)) > 4096:
        return None
    try:
        value: object = msgspec.json.decode(raw)
    except UNREADABLE:
        return None
    return value if isinstance(value, str | int | float | bool) else None


def as_int(value: object) -> int | None:
    """An integer, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_text(value: object) -> str | None:
    """A string of at most 200 characters, None for anything else."""
    return value[:200] if isinstance(value, str) else None


def as_bool(value: object) -> bool | None:
    """A truth value, None for anything else."""
    return value if isinstance(value, bool) else None


def history_facts(messages: Sequence[msgspec.Raw], roles: Sequence[str]) -> dict[str, object]:
    """The facts that every chat API's history has, as fields of `RequestFacts`."""
    first_user = next((m for m, role in zip(messages, roles, strict=True) if role == "user"), None)
    return {
        "history_len": len(messages),
        "assistant_turns": sum(1 for role in roles if role == "assistant"),
        "message_digests": [canonical_digest(bytes(m)) for m in messages[-KEPT_MESSAGES:]],
        "first_user_digest": None if first_user is None else canonical_digest(bytes(first_user)),
    }


def identity_fields(head: RequestHead) -> dict[str, object]:
    """What the headers say about the sender, as fields of `RequestFacts`."""
    return fields_of(identify(head.headers))


def fields_of(identity: Identity) -> dict[str, object]:
    """An `Identity` as fields of `RequestFacts`."""
    return {
        "session_kind": identity.session_kind,
        "session": identity.session,
        "agent": identity.agent,
        "parent_agent": identity.parent_agent,
        "purpose": identity.purpose,
        "call_key": identity.call_key,
        "retry_count": identity.retry_count,
        "user_agent": identity.user_agent,
        "traceparent": identity.traceparent,
    }


def bare_facts(head: RequestHead, operation: str, **more: object) -> RequestFacts:
    """Facts of a request without a readable body."""
    fields: dict[str, object] = {"operation": operation, **identity_fields(head), **more}
    return RequestFacts(**fields)  # type: ignore[arg-type]  # names and types are RequestFacts' own


# --- texts and tools ------------------------------------------------------------------------------------------------


_COMMAND_KEYS: Final = ("command", "cmd", "script", "keystrokes", "code", "input")


def command_digest(arguments: object) -> str | None:
    """Of the command text in a tool call's arguments: a string, or the last word of a list (`bash -lc TEXT`)."""
    if not isinstance(arguments, dict):
        return None
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, list) and value:
            value = value[-1]
        if isinstance(value, str) and value:
            return digest(value)
    return None


def arguments_digest(text: str | bytes) -> str | None:
    """Of the command text in arguments written as JSON text; None when they cannot be read."""
    try:
        return command_digest(msgspec.json.decode(text))
    except UNREADABLE:
        return None


def numbered_call(turn: int | None, name: str | None, nth: int) -> str:
    """An id for a tool call in an API that has none: the turn that asked, the tool, and which call of it.

    The result comes back in the same order under the same name, so both sides count to the same id.
    """
    return f"{'' if turn is None else turn}:{(name or '')[:100]}#{nth}"


# --- replies --------------------------------------------------------------------------------------------------------

_ERROR_WORDS: Final = (
    ("quota", re.compile(r"insufficient_quota|quota", re.IGNORECASE)),
    ("credit", re.compile(r"credit", re.IGNORECASE)),
    ("billing", re.compile(r"billing", re.IGNORECASE)),
    ("spend", re.compile(r"spend|usage limit|budget", re.IGNORECASE)),
    ("per_key", re.compile(r"api[ _-]?key|your organization|workspace|per[ _-]?key", re.IGNORECASE)),
    (
        "context",
        re.compile(r"context[ _](?:length|window)|prompt is too long|maximum context|too many tokens", re.IGNORECASE),
    ),
)


def error_names(*texts: str | None) -> list[str]:
    """The recognised words of an error body; the texts themselves are not kept."""
    whole = " ".join(text[:4096] for text in texts if text)
    return [name for name, pattern in _ERROR_WORDS if pattern.search(whole)]


def note_error(tally: Tally, error: object, *, in_stream: bool) -> None:
    """Keep the type and the recognised words of an error object (or string)."""
    if isinstance(error, dict):
        kind, message, code = error.get("type"), error.get("message"), error.get("code")
    else:
        kind, message, code = None, error, None
    tally.error_type = as_text(kind) or as_text(code) or tally.error_type or "error"
    tally.error_in_stream = tally.error_in_stream or in_stream
    for name in error_names(as_text(kind), as_text(code), message if isinstance(message, str) else None):
        if name not in tally.error_names:
            tally.error_names.append(name)


def head_tally(head: ResponseHead, request_id_header: str | None) -> Tally:
    """What the head of a response says in any dialect."""
    headers = head.headers
    content_type = headers.get("content-type")
    media = content_type.split(";", 1)[0].strip().lower()[:100] if content_type else None
    request_id = headers.get("request-id") or headers.get("x-request-id")
    should = (headers.get("x-should-retry") or "").lower()
    return Tally(
        content_type=media,
        html=media == "text/html",
        request_id=as_text(request_id),
        provider_id=None if request_id_header is None else headers.get(request_id_header) is not None,
        retry_after=retry_after_s(headers),
        should_retry={"true": True, "false": False}.get(should),
    )


def is_stream(tally: Tally, status: int, request: RequestFacts) -> bool:
    """Whether a reply is an event stream: it says so, or was asked to be one and does not deny it."""
    if status >= 400:
        return False
    if tally.content_type == "text/event-stream":
        return True
    return bool(request.stream) and tally.content_type not in {"application/json", "text/html"}


def retry_after_s(headers: Headers) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or Retry-After as seconds or as a date (RFC 9110,
    10.2.3)."""
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) * factor)
        except ValueError:
            pass
        try:
            until = parsedate_to_datetime(value)
            since = parsedate_to_datetime(headers.get("date") or "")
            return max(0.0, (until - since).total_seconds())
        except (ValueError, TypeError):
            continue
    return None


class JsonReply:
    """A reply that is one JSON body: gathered (bounded), read at its end, then let go.  Dialects fill in `_read`."""

    def __init__(self, tally: Tally, *, status: int) -> None:
        self.tally = tally
        self._status = status
        self._body = bytearray()
        self._size = 0

    def feed(self, piece: bytes, t_ns: int) -> bool:  # noqa: ARG002 - a body that comes as a whole has no first token
        """Gather; bytes beyond the bound are dropped, and the body is then not read."""
        self._size += len(piece)
        if self._size <= MAX_JSON_BODY_BYTES:
            self._body += piece
        else:
            self._body.clear()
        return True

    def finish(self, *, whole: bool) -> None:
        """Read what was gathered; a body that cannot be read has no terminator."""
        body = bytes(self._body)
        self._body.clear()
        tally = self.tally
        start = body[:256].lstrip().lower()
        if start.startswith((b"<!doctype", b"<html")):
            tally.html = True
        if self._status >= 400:
            self._read_error(body)
            tally.terminator = None
        elif self._size > MAX_JSON_BODY_BYTES:
            tally.terminator = None
            tally.unread_frames += 1
        else:
            try:
                tally.terminator = self._read(body) and whole
            except UNREADABLE:
                tally.terminator = self._read_leniently(body) if whole else False
                tally.unread_frames += whole and tally.terminator is not True

    def _read_leniently(self, body: bytes) -> bool | None:
        """What other readers take: the end mark if all that matters could be read, None if only a part could.

        False for what is no answer to anybody.
        """
        tidy = lenient.tidied(body)
        if tidy is None or not lenient.is_answer(tidy):
            return False
        harmless = True
        for _ in range(lenient.MAX_DROPPED):
            try:
                read = self._read(tidy)
            except msgspec.ValidationError as error:
                field = lenient.refused_field(error)
                left = None if field is None else lenient.without(tidy, field)
                if field is None or left is None:
                    return None
                tidy, harmless = left, harmless and lenient.harmless(field)
            except UNREADABLE:
                return None
            else:
                # A plain value that is no reply of this API stays none, however it was read.
                return read if harmless else None
        return None

    def _read(self, body: bytes) -> bool:
        """Fill the tally; True when this is a whole answer.  May raise `msgspec.DecodeError`."""
        raise NotImplementedError

    def _read_error(self, body: bytes) -> None:
        try:
            value: object = msgspec.json.decode(body[:MAX_ARGUMENT_BYTES])
        except UNREADABLE:
            return
        if isinstance(value, dict):
            note_error(self.tally, value.get("error", value), in_stream=False)


class SseReply:
    """A reply that is an event stream: framed here, each frame given to the dialect's `_event`."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        tally.events = 0
        tally.pings = 0
        tally.terminator = False
        self._framer = SseFramer()
        self._head = b""
        self._text = ReplyText()

    def feed(self, piece: bytes, t_ns: int) -> bool:
        """Frame and read; False when the piece held pings and comments only."""
        tally = self.tally
        if not tally.events and len(self._head) < 16:
            self._head += piece[:16]
            if self._head.lstrip().lower().startswith((b"<!doctype", b"<html")):
                tally.html = True
        spoke = False
        frames = self._framer.feed(piece)
        for frame in frames:
            if frame.data is None:
                tally.pings = (tally.pings or 0) + 1
                continue
            tally.events = (tally.events or 0) + 1
            try:
                if self._event(frame.event, frame.data, t_ns):
                    spoke = True
                else:
                    tally.pings = (tally.pings or 0) + 1
            except UNREADABLE:
                tally.unread_frames += 1
                spoke = True
        return spoke or not frames or self._framer.pending

    def finish(self, *, whole: bool) -> None:  # noqa: ARG002 - an event stream says itself whether it is whole
        """Read the last frame; close what is open."""
        for frame in self._framer.finish():
            if frame.data is not None:
                self.tally.events = (self.tally.events or 0) + 1
                try:
                    self._event(frame.event, frame.data, 0)
                except UNREADABLE:
                    # Half a frame at a cut is expected.
                    continue
        self.tally.unread_frames += self._framer.skipped
        self._text.note(self.tally)
        self._close()

    def _event(self, event: bytes | None, data: bytes, t_ns: int) -> bool:
        """Read one frame; False for a ping.  May raise `msgspec.DecodeError`."""
        raise NotImplementedError

    def _close(self) -> None:
        """Count what is still open."""
