"""The table gives each request to one dialect; what each makes of a reply, whatever the cuts, and when it fails itself.

Through the tracker, as the feed would bring it: the terminator table of model-api.md section 1.3 for every dialect.
"""

import gzip
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import AttemptEnded
from fairtrial.middleware.wire.dialects import DIALECTS, choose
from fairtrial.middleware.wire.dialects.base import Dialect, ReplyReader
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.wire.families import CHAT, FAMILIES, MESSAGES, RESPONSES, Family
from tests.middleware.wire.traffic import Wire

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@pytest.mark.parametrize(
    "method, path, provider, name",
    [
        ("POST", "/v1/messages", "openai", "anthropic_messages"),
        ("POST", "/v1/chat/completions", "anthropic", "openai_chat"),
        ("GET", "/v1/models", "openai", "openai_chat"),
        ("GET", "/v1/models", "anthropic", "anthropic_messages"),
        ("HEAD", "/", None, "anthropic_messages"),
        ("POST", "/v1/responses", "openai", "openai_responses"),
        ("POST", "/v1beta/models/x:generateContent", None, "gemini"),
    ],
)
def test_a_path_decides_and_the_door_breaks_ties(method: str, path: str, provider: str | None, name: str) -> None:
    assert choose(method, path, provider).name == name


# --- the terminator table ---------------------------------------------------------------------------------------------


def asked(family: Family, *, unary: bool = False, headers: tuple[str, ...] = ()) -> Wire:
    """A wire on which the request was sent and the head of a 200 has come."""
    wire = Wire(door="model:any")
    if unary:
        wire.request(family.unary_body, path=family.unary_path)
        wire.head(media="application/json", headers=headers)
    else:
        wire.request(family.body, path=family.path)
        wire.head(media=family.media, headers=headers)
    return wire


def ended(wire: Wire) -> AttemptEnded:
    (value,) = wire.ended()
    return value


@each_family
def test_a_whole_stream_is_complete(family: Family) -> None:
    wire = asked(family)
    for piece in family.pieces:
        wire.data(piece)
    wire.end()
    value = ended(wire)
    assert (value.outcome, value.parse, value.dialect) == ("ok", "full", family.dialect)
    assert (value.reply.input_tokens, value.reply.output_tokens) == family.usage
    assert value.reply.usage_partial is False
    assert (value.first_failure, value.framing_cut, wire.tracker.faults) == (None, None, 0)


@each_family
@pytest.mark.parametrize("how", ["well framed", "cut", "client"])
def test_a_stream_that_stops_early_is_truncated_or_aborted(family: Family, how: str) -> None:
    wire = asked(family)
    for piece in family.pieces[: family.cut]:
        wire.data(piece)
    if how == "well framed":
        wire.end()
    else:
        wire.broken("cut" if how == "cut" else "client_gone", "upstream" if how == "cut" else "client")
    value = ended(wire)
    assert value.outcome == ("client_disconnect" if how == "client" else "truncated")
    assert (value.reply.input_tokens, value.reply.output_tokens) == family.usage_at_cut
    assert value.reply.terminator is False
    assert value.first_failure == ("client" if how == "client" else "upstream")


@each_family
def test_a_client_that_leaves_behind_the_end_mark_has_its_answer(family: Family) -> None:
    wire = asked(family)
    for piece in family.pieces:
        wire.data(piece)
    wire.broken("client_gone", "client")
    assert (ended(wire).outcome, ended(wire).first_failure, ended(wire).framing_cut) == ("ok", None, "client")


@each_family
def test_a_stream_whose_framing_is_cut_behind_the_end_mark_is_whole_and_says_so(family: Family) -> None:
    """google-genai, ollama and httpx have an error then: they read to the end of the framing."""
    wire = asked(family)
    for piece in family.pieces:
        wire.data(piece)
    wire.broken("cut", "upstream", close="fin", errno=None)
    value = ended(wire)
    assert (value.outcome, value.framing_cut, value.closed_by) == ("ok", "upstream", "upstream")


@each_family
def test_an_error_inside_a_200_is_an_error_of_the_upstream(family: Family) -> None:
    wire = asked(family)
    for piece in family.pieces[: family.cut]:
        wire.data(piece)
    wire.data(family.error)
    wire.end()
    value = ended(wire)
    assert (value.outcome, value.reply.status, value.first_failure) == ("error", 200, "upstream")
    assert (value.reply.error_in_stream, value.reply.error_type) == (True, family.error_type)


@each_family
def test_one_body_is_complete_when_it_can_be_read_whole(family: Family) -> None:
    wire = asked(family, unary=True)
    wire.data(family.unary)
    wire.end()
    cut = asked(family, unary=True)
    cut.data(family.unary[:-20])
    cut.broken("cut", "upstream")
    assert (ended(wire).outcome, ended(wire).parse) == ("ok", "full")
    assert (ended(wire).reply.input_tokens, ended(wire).reply.output_tokens) == family.usage
    assert ended(cut).outcome == "truncated"


# --- cuts and encodings -----------------------------------------------------------------------------------------------


def brotlied(plain: bytes) -> bytes:
    """brotli at its fastest."""
    packed: bytes = brotli.compress(plain, quality=1)
    return packed


def two_frames(body: bytes) -> bytes:
    """zstd in two frames, as some servers flush."""
    compress = zstandard.ZstdCompressor().compress
    return compress(body[: len(body) // 2]) + compress(body[len(body) // 2 :])


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "br": brotlied,
    "zstd": two_frames,
}


def through(family: Family, body: bytes, cuts: list[int], *, encoding: str, unary: bool) -> AttemptEnded:
    """The facts of a reply that comes in these pieces, each at a time of its own."""
    wire = asked(family, unary=unary, headers=() if encoding == "identity" else (f"Content-Encoding: {encoding}",))
    edges = [0, *sorted({cut % len(body) for cut in cuts}), len(body)]
    for begin, end in pairwise(edges):
        wire.data(body[begin:end])
    wire.end()
    return ended(wire)


@each_family
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("unary", [False, True], ids=["stream", "body"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=30))
def test_any_cut_gives_the_same_facts(family: Family, encoding: str, unary: bool, cuts: list[int]) -> None:
    body = ENCODINGS[encoding](family.unary if unary else b"".join(family.pieces))
    cut = through(family, body, cuts, encoding=encoding, unary=unary)
    whole = through(family, body, [], encoding=encoding, unary=unary)
    assert cut.reply == whole.reply
    assert (cut.outcome, cut.parse, cut.request) == (whole.outcome, whole.parse, whole.request)
    assert cut.outcome == "ok"


@each_family
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(end=st.integers(0, 1 << 20))
def test_a_stream_cut_anywhere_never_claims_what_it_did_not_hold(family: Family, end: int) -> None:
    body = b"".join(family.pieces)
    wire = asked(family)
    if end := end % len(body):
        wire.data(body[:end])
    wire.broken("cut", "upstream")
    value = ended(wire)
    assert value.outcome == ("ok" if value.reply.terminator else "truncated")
    assert wire.tracker.faults == 0


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda plain: gzip.compress(plain, 1),
    "br": brotlied,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("encoding", BOMBS)
@pytest.mark.parametrize("side", ["response", "request"])
def test_200_megabytes_out_of_6_kilobytes_cost_the_facts_of_that_message_only(encoding: str, side: str) -> None:
    """T50.  zlib makes at most 1 032 out of one, so it needs 200 kB; brotli and zstd do with far less than 6."""
    bomb = BOMBS[encoding](b'{"type":"message","x":"' + b"a" * (200 << 20))
    wire = Wire()
    if side == "request":
        wire.request(bomb, headers=[f"Content-Encoding: {encoding}"])
        wire.head(media="application/json")
        wire.data(MESSAGES.unary)
    else:
        wire.request(MESSAGES.unary_body)
        wire.head(media="application/json", headers=[f"Content-Encoding: {encoding}"])
        wire.data(bomb)
    wire.end()
    value = ended(wire)
    assert (value.outcome, value.parse) == ("ok", "partial")
    assert (value.parse_why or "").startswith(f"{side}: more than")
    assert (wire.tracker.held_bytes, wire.tracker.faults) == (0, 0)
    wire.request(MESSAGES.unary_body)
    wire.head(media="application/json")
    wire.data(MESSAGES.unary)
    wire.end()
    assert wire.ended()[1].parse == "full"


# --- a dialect that fails itself --------------------------------------------------------------------------------------


class Bug(Exception):
    """What no dialect should raise, and one day does."""


def fails(*_: object, **__: object) -> Any:
    raise Bug("a bug of ours")


class _Faulty:
    """A reader with one broken method."""

    def __init__(self, inner: ReplyReader, broken: str) -> None:
        self.tally = inner.tally
        self._inner = inner
        self._broken = broken

    def feed(self, piece: bytes, t_ns: int) -> bool:
        return fails() if self._broken == "feed" else self._inner.feed(piece, t_ns)

    def finish(self, *, whole: bool) -> None:
        fails() if self._broken == "finish" else self._inner.finish(whole=whole)


@each_family
@pytest.mark.parametrize("broken", ["read_request", "read_reply", "feed", "finish"])
def test_an_exception_disables_the_dialect_for_that_call_and_nothing_else(
    family: Family, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect: Dialect = next(each for each in DIALECTS if each.name == family.dialect)
    kind = type(dialect)
    wire = Wire(door="model:any")
    with monkeypatch.context() as patch:
        if broken.startswith("read_"):
            patch.setattr(kind, broken, fails)
        else:
            whole = kind.read_reply
            patch.setattr(kind, "read_reply", lambda *asked: _Faulty(whole(*asked), broken))
        for _ in range(2):
            call(wire, family)
    call(wire, family)
    first, second, third = wire.ended()
    assert wire.tracker.faults == 2
    assert "a bug of ours" in (wire.tracker.last_fault or "")
    for value in (first, second):
        side = "request" if broken == "read_request" else "response"
        assert (value.parse, value.parse_why) == ("none", f"{side}: Bug")
        # It passed, and what needs no dialect is still told.
        assert (value.outcome, value.reply.status, value.first_failure) == ("ok", 200, None)
        assert (value.bytes_up, value.bytes_down) == (third.bytes_up, third.bytes_down)
        assert (value.ttfb, value.duration) == (third.ttfb, third.duration)
    assert (third.parse, third.outcome) == ("full", "ok")
    assert wire.tracker.open_attempts == 0


def call(wire: Wire, family: Family) -> None:
    wire.request(family.body, path=family.path)
    wire.head(media=family.media)
    for piece in family.pieces:
        wire.data(piece)
    wire.end()


def test_every_dialect_is_in_these_tables() -> None:
    assert {family.dialect for family in FAMILIES} == {dialect.name for dialect in DIALECTS}


def test_a_fault_in_one_dialect_leaves_calls_of_the_others_beside_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(choose("POST", "/v1/messages")), "read_reply", fails)
    wire = Wire(door="model:any")
    for number, family in enumerate((MESSAGES, CHAT, RESPONSES), start=1):
        wire.conn = number
        wire.json(Kind.OPEN, {"door": "model:any"})
        wire.msg = 0
        wire.request(family.body, path=family.path)
        wire.head(media=family.media)
    for index in range(len(CHAT.pieces)):
        for number, family in enumerate((MESSAGES, CHAT, RESPONSES), start=1):
            wire.conn, wire.msg = number, 1
            if index < len(family.pieces):
                wire.data(family.pieces[index])
    for number in (1, 2, 3):
        wire.conn = number
        wire.end()
    assert [value.parse for value in wire.ended()] == ["none", "full", "full"]


def test_facts_of_requests_are_the_same_whatever_their_cuts() -> None:
    for family in FAMILIES:
        seen = []
        for cuts in (1, 3, 50):
            wire = Wire(door="model:any")
            wire.request(family.body, path=family.path, cuts=cuts)
            seen.append(wire.started()[0].request)
        assert seen[0] == seen[1] == seen[2]
        assert seen[0].unreadable is None
