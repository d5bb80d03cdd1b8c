"""What all dialects share: digests of texts and commands, words of errors, waits."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base
from fairtrial.middleware.wire.dialects.base import command_digest, error_names, retry_after_s
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import TextDigest
from fairtrial.middleware.wire.http1 import Headers
from fairtrial.middleware.wire.redact import digest


@given(text=st.text(max_size=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_a_text_has_one_digest_however_it_is_cut_and_padded(text: str, cuts: list[int]) -> None:
    whole, cut = TextDigest(), TextDigest()
    whole.add(text.strip())
    places = [0, *sorted(cuts), len(text)]
    for a, b in pairwise(places):
        cut.add(text[a:b])
    assert cut.result() == whole.result()
    assert whole.result()[1] == (len(text.strip()) or None)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"command": "ls"}, "ls"),
        ({"cmd": ["bash", "-lc", "ls"]}, "ls"),
        ({"path": "x"}, None),
        ({"command": {"a": 1}}, None),
        ({"command": ""}, None),
        ("ls", None),
    ],
)
def test_the_command_of_a_tool_call_is_a_string_or_the_last_word_of_a_list(arguments: object, text: str | None) -> None:
    assert command_digest(arguments) == (None if text is None else digest(text))


def test_error_words_are_names_from_a_closed_list() -> None:
    assert error_names("Your credit balance is too low", None) == ["credit"]
    assert error_names("prompt is too long: 210000 tokens > 200000 maximum") == ["context"]
    assert error_names("Overloaded") == []


@pytest.mark.parametrize(
    "fields, seconds",
    [
        ((("retry-after", "2"),), 2.0),
        ((("retry-after-ms", "1500"), ("retry-after", "9")), 1.5),
        (
            (
                ("retry-after", "Sun, 29 Nov 2026 23:00:10 GMT"),
                ("date", "Sun, 29 Nov 2026 23:00:00 GMT"),
            ),
            10.0,
        ),
        ((("retry-after", "soon"),), None),
        ((), None),
    ],
)
def test_waits_are_read_as_seconds_milliseconds_or_a_date(
    fields: tuple[tuple[str, str], ...], seconds: float | None
) -> None:
    assert retry_after_s(Headers(fields)) == seconds


def test_a_json_body_beyond_the_bound_is_not_kept_and_makes_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_JSON_BODY_BYTES", 10)
    reply = base.JsonReply(Tally(), status=200)
    for _ in range(5):
        reply.feed(b"12345", 1)
    assert reply._body == b""
    reply.finish(whole=True)
    assert (reply.tally.terminator, reply.tally.unread_frames) == (None, 1)


@pytest.mark.parametrize(
    "media, status, asked, stream",
    [
        ("text/event-stream", 200, False, True),
        ("text/event-stream", 529, True, False),
        (None, 200, True, True),
        ("application/octet-stream", 200, True, True),
        ("application/json", 200, True, False),
        ("text/html", 200, True, False),
        (None, 200, False, False),
    ],
)
def test_a_reply_is_a_stream_when_it_says_so_or_was_asked_to_be(
    media: str | None, status: int, asked: bool, stream: bool
) -> None:
    assert base.is_stream(Tally(content_type=media), status, RequestFacts(stream=asked)) is stream
