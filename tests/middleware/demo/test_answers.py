"""A step becomes the same answer as body and as stream, in all three APIs, with usage that can be checked."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fairtrial.middleware.demo.answers import Answer, NoSuchTool, answer, error_body, error_frame, ping_frame
from fairtrial.middleware.demo.asked import Api, Asked, read_request
from fairtrial.middleware.demo.script import Step, say, shell

APIS: tuple[Api, ...] = ("messages", "chat", "responses")
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS: Mapping[Api, object] = {
    "messages": {"name": "bash", "input_schema": SCHEMA},
    "chat": {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}},
    "responses": {"type": "function", "name": "bash", "parameters": SCHEMA},
}


def asked(api: Api, *, stream: bool = False, **more: object) -> Asked:
    history = "input" if api == "responses" else "messages"
    body: dict[str, object] = {"model": "m", history: [{"role": "user", "content": "x"}], "tools": [TOOLS[api]]}
    return read_request(api, {**body, "stream": stream, **more})


def events(made: Answer) -> list[tuple[str | None, Any]]:
    """Name and decoded data of each frame; every frame must be one whole SSE event."""
    found: list[tuple[str | None, Any]] = []
    for frame in made.frames:
        assert frame.endswith(b"\n\n")
        fields = dict(line.split(": ", 1) for line in frame.decode().strip().split("\n"))
        data = fields["data"]
        found.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found


def test_messages_stream_carries_the_same_content_as_the_body() -> None:
    step = shell("echo 'a long enough command to be cut in pieces'", "ls", text="Some words that come in pieces too.")
    whole = json.loads(answer(asked("messages"), step, "u").body)
    content: list[dict[str, Any]] = []
    names: list[str | None] = []
    for name, data in events(answer(asked("messages", stream=True), step, "u")):
        names.append(name)
        assert data["type"] == name
        match name:
            case "content_block_start":
                assert data["index"] == len(content)
                content.append(dict(data["content_block"], raw=""))
            case "content_block_delta":
                content[data["index"]]["raw"] += data["delta"].get("text", data["delta"].get("partial_json"))
            case "message_delta":
                assert data["delta"]["stop_reason"] == whole["stop_reason"] == "tool_use"
                assert data["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
            case _:
                pass
    assert [names[0], *names[-2:]] == ["message_start", "message_delta", "message_stop"]
    assert content[0]["raw"] == whole["content"][0]["text"]
    assert [json.loads(block["raw"]) for block in content[1:]] == [block["input"] for block in whole["content"][1:]]
    assert [block["id"] for block in content[1:]] == [block["id"] for block in whole["content"][1:]]


def test_chat_stream_carries_the_same_content_as_the_body() -> None:
    step = shell("echo 'a long enough command to be cut in pieces'", "ls", text="Some words that come in pieces too.")
    whole = json.loads(answer(asked("chat"), step, "u").body)
    stream = events(answer(asked("chat", stream=True, stream_options={"include_usage": True}), step, "u"))
    assert {name for name, _ in stream} == {None}
    assert stream[-1][1] == "[DONE]"
    assert stream[-2][1] == {**stream[-2][1], "choices": [], "usage": whole["usage"]}
    deltas = [data["choices"][0]["delta"] for _, data in stream[:-2]]
    assert all(data["usage"] is None for _, data in stream[:-2])
    assert "".join(delta.get("content") or "" for delta in deltas) == whole["choices"][0]["message"]["content"]
    for index, call in enumerate(whole["choices"][0]["message"]["tool_calls"]):
        pieces = [part for delta in deltas for part in delta.get("tool_calls", []) if part["index"] == index]
        assert pieces[0]["id"] == call["id"]
        assert "".join(part["function"]["arguments"] for part in pieces) == call["function"]["arguments"]
    assert stream[-3][1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "tool_calls"


def test_chat_stream_has_no_usage_unless_asked_for() -> None:
    stream = events(answer(asked("chat", stream=True), say("x"), "u"))
    assert all("usage" not in data for _, data in stream if data != "[DONE]")


def test_responses_stream_carries_the_same_content_as_the_body() -> None:
    step = shell("echo 'a long enough command to be cut in pieces'", text="Some words that come in pieces too.")
    whole = json.loads(answer(asked("responses"), step, "u").body)
    stream = events(answer(asked("responses", stream=True), step, "u"))
    assert [data["sequence_number"] for _, data in stream] == list(range(len(stream)))
    assert all(name == data["type"] for name, data in stream)
    assert stream[0][0] == "response.created"
    assert stream[-1][1]["response"] == whole
    text = "".join(data["delta"] for name, data in stream if name == "response.output_text.delta")
    arguments = "".join(data["delta"] for name, data in stream if name == "response.function_call_arguments.delta")
    assert text == whole["output"][0]["content"][0]["text"]
    assert arguments == whole["output"][1]["arguments"]


def test_a_cut_short_response_ends_as_incomplete() -> None:
    step = Step(text="half a sen", stop_reason="max_tokens")
    name, data = events(answer(asked("responses", stream=True), step, "u"))[-1]
    assert name == "response.incomplete"
    assert data["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert json.loads(answer(asked("chat"), step, "u").body)["choices"][0]["finish_reason"] == "length"
    assert json.loads(answer(asked("messages"), step, "u").body)["stop_reason"] == "max_tokens"


def test_a_local_shell_tool_gets_its_own_kind_of_item() -> None:
    request = read_request("responses", {"input": "x", "tools": [{"type": "local_shell"}]})
    item = json.loads(answer(request, shell("ls"), "u").body)["output"][0]
    assert (item["type"], item["action"]["command"]) == ("local_shell_call", ["bash", "-lc", "ls"])


def test_the_words_and_the_commands_name_the_task_of_the_request() -> None:
    request = asked("messages", messages=[{"role": "user", "content": "This is task-7."}])
    told = json.loads(answer(request, shell("echo {task}", text="on {task}"), "u").body)["content"]
    assert (told[0]["text"], told[1]["input"]["command"]) == ("on task-7", "echo task-7")


@pytest.mark.parametrize("api", APIS)
def test_a_retry_gets_the_same_tool_ids_and_another_history_gets_others(api: Api) -> None:
    step = shell("ls")
    first, retried = answer(asked(api), step, "a"), answer(asked(api), step, "b")
    other = answer(asked(api, messages=["other"], input="other"), step, "a")

    def tool_ids(made: Answer) -> set[str]:
        words = made.body.decode().split('"')
        return {word for word in words if word.startswith(("toolu_", "call_")) and word != "call_id"}

    assert tool_ids(first) == tool_ids(retried) != tool_ids(other)
    assert first.body != retried.body


@pytest.mark.parametrize("api", APIS)
def test_usage_is_counted_from_sizes_unless_the_step_says_it(api: Api) -> None:
    request = asked(api)
    counted = answer(request, say("x" * 40), "u").usage
    assert (counted.input_tokens, counted.output_tokens) == (-(-request.content_bytes // 4), 10)
    said = answer(
        request, Step(text="x", input_tokens=5, output_tokens=6, cache_read_tokens=7, cache_write_tokens=8), "u"
    )
    assert said.usage.all_input_tokens == 20
    shown = json.loads(said.body)["usage"]
    assert shown.get("prompt_tokens", shown.get("input_tokens")) == (5 if api == "messages" else 20)


@pytest.mark.parametrize("api", APIS)
def test_a_script_that_wants_a_missing_tool_names_those_on_offer(api: Api) -> None:
    with pytest.raises(NoSuchTool, match=r"a tool named submit at step 0; the request offers: bash"):
        answer(asked(api), Step(tool="submit"), "u")
    with pytest.raises(NoSuchTool, match=r"a shell tool at step 0; the request offers: none"):
        answer(asked(api, tools=[]), shell("ls"), "u")


def test_errors_have_the_shape_of_their_api() -> None:
    assert json.loads(error_body("messages", "overloaded_error", "Overloaded", "req_1")) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "req_1",
    }
    shaped = json.loads(error_body("chat", "t", "m", "req_1"))
    assert shaped["error"] == {"message": "m", "type": "t", "param": None, "code": "t"}
    assert error_frame("messages", "t", "m", 3).startswith(b"event: error\n")
    assert json.loads(error_frame("responses", "t", "m", 3).split(b"data: ")[1])["sequence_number"] == 3
    assert error_frame("chat", "t", "m", 3).startswith(b'data: {"error":')


def test_pings_are_events_in_messages_and_comments_elsewhere() -> None:
    assert ping_frame("messages").startswith(b"event: ping\n")
    assert ping_frame("chat").startswith(b":")
