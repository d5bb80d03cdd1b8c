"""What only our own reader refuses costs no client anything: a reply that every client reads is whole."""

import json

import pytest

from fairtrial.middleware.core.observations import AttemptEnded
from tests.middleware.wire.traffic import Wire, anthropic_request, openai_request

WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 7},
}
CHAT = {
    "id": "c1",
    "model": "gpt-test",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}


def answered(body: bytes, *, chat: bool = False) -> AttemptEnded:
    wire = Wire(door="model:openai" if chat else "model:anthropic")
    asked = openai_request(stream=False) if chat else anthropic_request(stream=False)
    wire.request(asked, path="/v1/chat/completions" if chat else "/v1/messages")
    wire.head(media="application/json")
    wire.data(body)
    wire.end()
    (ended,) = wire.ended()
    return ended


@pytest.mark.parametrize(
    "change",
    [
        {"content": [{"type": "text", "text": "\ud83d"}]},
        {"usage": {"input_tokens": 5.0, "output_tokens": 7.5}},
        {"usage": {"input_tokens": "5"}},
        {"usage": None},
        {"id": 5},
        {"x": float("nan")},
    ],
)
def test_a_reply_that_every_client_reads_is_whole(change: dict[str, object]) -> None:
    ended = answered(json.dumps(WHOLE | change).encode())
    assert (ended.outcome, ended.reply.terminator, ended.reply.stop_reason) == ("ok", True, "end_turn")
    told = answered(json.dumps(CHAT | {k: v for k, v in change.items() if k != "content"}).encode(), chat=True)
    assert (told.outcome, told.reply.terminator) == ("ok", True)


@pytest.mark.parametrize("body", [b"\xef\xbb\xbf" + json.dumps(WHOLE).encode(), json.dumps(WHOLE).encode() + b"\n "])
def test_bytes_around_a_reply_cost_nothing(body: bytes) -> None:
    assert answered(body).outcome == "ok"


@pytest.mark.parametrize(
    "change", [{"content": "Done."}, {"content": [{"type": "tool_use", "id": 1, "name": "Bash", "input": "x"}]}]
)
def test_a_reply_whose_content_is_not_as_promised_is_read_in_part_and_no_error(change: dict[str, object]) -> None:
    ended = answered(json.dumps(WHOLE | change).encode())
    assert ended.outcome == "ok"
    assert ended.reply.terminator is None or ended.parse == "full"


def test_arguments_that_are_an_object_are_no_error() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    assert answered(json.dumps(CHAT | {"choices": choices}).encode(), chat=True).outcome == "ok"


@pytest.mark.parametrize("body", [b"[]", b"ok", b'{"error":{"type":"x"}}', b""])
def test_what_is_no_answer_to_anybody_stays_an_error(body: bytes) -> None:
    assert answered(body).outcome == "error"


def test_a_request_with_a_cut_emoji_is_read_as_its_client_meant_it() -> None:
    wire = Wire()
    cut = anthropic_request(messages=[{"role": "user", "content": "\ud83d do it"}])
    wire.request(cut)
    wire.broken("cut", "upstream")
    (ended,) = wire.ended()
    assert (ended.request.unreadable, ended.request.has_tools, ended.request.history_len) == (None, True, 1)
