"""Responses is read as OpenAI and Codex write it: turns of several items, and one of several terminal events."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire import sse as framing
from fairtrial.middleware.wire.dialects import openai_responses
from fairtrial.middleware.wire.dialects.openai_responses import OpenAIResponses
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import TextDigest
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import Wire, sse, typed

DIALECT = OpenAIResponses()
PATH = "/v1/responses"

Json = dict[str, object]

TURN: list[Json] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are a test."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do it"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I will. "}]},
    {"type": "function_call", "name": "exec_command", "call_id": "call_1", "arguments": '{"cmd":"ls"}'},
    {"type": "custom_tool_call", "name": "apply_patch", "call_id": "call_2", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "call_1", "output": "a b"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
]


def request(**changes: object) -> bytes:
    fields: Json = {
        "model": "gpt-test",
        "stream": True,
        "max_output_tokens": 100,
        "tools": [{"type": "function", "name": "exec_command"}],
        "input": TURN,
    }
    return json.dumps(fields | changes).encode()


def read(body: bytes, path: str = PATH, **headers: str) -> RequestFacts:
    """Header names are written with underscores."""
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return DIALECT.read_request(RequestHead("POST", path, Headers(fields)), path, body)


def facts(**changes: object) -> RequestFacts:
    return read(request(**changes))


def ended(status: str = "completed", *, output: Sequence[object] = (), **more: object) -> Json:
    usage = {
        "input_tokens": 20,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-test-1",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": list(output),
        "usage": usage,
    } | more


CALL: Json = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_3",
    "name": "exec_command",
    "arguments": '{"cmd":"make test"}',
    "status": "completed",
}
MESSAGE: Json = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Grüße, Welt."}],
}
BEGUN: list[Json] = [
    {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-test-1", "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Grüße, "},
    {"type": "keepalive", "sequence_number": 3},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Welt."},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 1, "item": CALL | {"arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"cmd":"make test"}'},
]
DONE: list[Json] = [
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
    {"type": "response.completed", "response": ended(output=[MESSAGE, CALL])},
]
STREAM = sse(*typed(*BEGUN, *DONE))


def stream(body: bytes, *, size: int = 1 << 20) -> Tally:
    reader = DIALECT.read_reply(
        ResponseHead(200, Headers((("content-type", "text/event-stream"), ("x-request-id", "r")))),
        RequestFacts(operation="chat"),
    )
    for i in range(0, len(body), size):
        reader.feed(body[i : i + size], 1000 + i)
    reader.finish(whole=True)
    return reader.tally


def whole(body: object, *, status: int = 200, operation: str = "chat") -> Tally:
    reader = DIALECT.read_reply(
        ResponseHead(status, Headers((("content-type", "application/json"),))), RequestFacts(operation=operation)
    )
    reader.feed(json.dumps(body).encode(), 1)
    reader.finish(whole=True)
    return reader.tally


def text_digest(text: str) -> str | None:
    state = TextDigest()
    state.add(text)
    return state.result()[0]


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_run_of_assistant_items_is_one_turn_and_outputs_name_their_calls() -> None:
    seen = facts()
    assert (seen.operation, seen.model, seen.stream, seen.max_tokens) == ("chat", "gpt-test", True, 100)
    assert (seen.history_len, seen.assistant_turns, seen.has_tools, seen.tool_count) == (8, 1, True, 1)
    assert seen.tool_result_ids == ["call_1", "call_2"]
    assert (seen.last_assistant_digest, seen.last_assistant_chars) == (text_digest("I will."), 7)
    assert seen.system_digest is not None
    assert seen.system_digest != facts(instructions="You are another.").system_digest


def test_the_next_turn_names_only_the_outputs_after_it() -> None:
    more = [*TURN, {"role": "assistant", "content": "Again."}, {"type": "local_shell_call_output", "id": "call_4"}]
    seen = facts(input=more)
    assert (seen.assistant_turns, seen.tool_result_ids, seen.last_assistant_chars) == (2, ["call_4"], 6)


def test_a_text_instead_of_a_list_is_one_message_of_the_user() -> None:
    seen = facts(input="do it")
    assert (seen.history_len, seen.assistant_turns, seen.last_assistant_digest) == (1, 0, None)
    assert seen.first_user_digest is not None


@pytest.mark.parametrize("chained", [{"previous_response_id": "resp_0"}, {"conversation": "conv_1"}])
def test_a_history_at_the_server_is_not_observed(chained: Json) -> None:
    outputs = [{"type": "function_call_output", "call_id": "call_1", "output": "a"}]
    seen = facts(input=outputs, **chained)
    assert (seen.history_len, seen.assistant_turns, seen.message_digests, seen.first_user_digest) == (
        None,
        None,
        [],
        None,
    )
    assert seen.tool_result_ids == ["call_1"]
    assert facts(previous_response_id=None).history_len == 8


def test_codex_names_session_and_subagent_in_headers_or_turn_metadata() -> None:
    main = read(request(), session_id="s", thread_id="s", user_agent="codex_exec/0.171.0")
    assert (main.session_kind, main.session, main.agent) == ("session-id", digest("s"), None)
    assert read(request(), session_id="s", thread_id="t").agent == digest("t")
    told = read(request(), x_codex_turn_metadata='{"session_id": "s", "thread_id": "t"}')
    assert (told.session_kind, told.session, told.agent) == ("x-codex-turn-metadata", digest("s"), digest("t"))
    for broken in ("{", "[1]", '{"session_id": 3}', '"\xff"'):
        assert read(request(), x_codex_turn_metadata=broken).session is None


def test_other_clients_are_known_by_their_conversation_or_cache_key() -> None:
    assert facts(conversation={"id": "conv_1"}).session == digest("conv_1")
    seen = facts(prompt_cache_key="k")
    assert (seen.session_kind, seen.session) == ("prompt_cache_key", digest("k"))


def test_a_compaction_has_no_tools_by_path_or_by_codexs_word() -> None:
    assert read(request(), f"{PATH}/compact").has_tools is False
    kind = read(request(), x_codex_turn_metadata='{"request_kind": "compaction"}')
    assert (kind.has_tools, kind.operation) == (False, "chat")
    assert read(request(), f"{PATH}/input_tokens").operation == "count_tokens"


def test_what_a_call_is_for_is_kept_where_codex_says_it() -> None:
    for kind in ("compaction", "memory", "prewarm"):
        assert read(request(), x_codex_turn_metadata=json.dumps({"request_kind": kind})).purpose == kind
        said = {"x-codex-turn-metadata": json.dumps({"request_kind": kind})}
        assert facts(client_metadata=said).purpose == kind
    assert read(request(), x_codex_turn_metadata='{"request_kind": "turn"}').purpose is None
    assert read(request(), x_openai_subagent="review").purpose == "review"
    assert read(request(), x_openai_subagent="\x1b[31m").purpose is None
    # Where the history is at the server, nothing else tells a compaction.
    assert read(request(previous_response_id="resp_1"), f"{PATH}/compact").purpose == "compaction"


def test_what_the_handshake_of_a_websocket_was_for_is_not_what_its_calls_are_for() -> None:
    """Codex 0.171.0 opens it with a warm-up: its ids hold for all calls, its purpose for none of them."""
    handshake = json.dumps({"request_kind": "prewarm", "session_id": "s", "thread_id": "t", "parent_thread_id": "p"})
    call = read(request(type="response.create"), x_codex_turn_metadata=handshake)
    assert (call.purpose, call.session, call.agent, call.parent_agent) == (None, digest("s"), digest("t"), digest("p"))
    own = {"x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})}
    assert read(request(type="response.create", client_metadata=own), x_codex_turn_metadata=handshake).purpose == (
        "compaction"
    )


def test_what_is_continued_at_the_server_is_named() -> None:
    assert facts(previous_response_id="resp_1").previous_response == "resp_1"
    assert facts(previous_response_id=None).previous_response is None
    assert facts(previous_response_id={"a": 1}).previous_response is None


def test_what_a_retry_changes_is_not_in_the_body_digest() -> None:
    same = facts().body_digest
    assert facts(stream=False).body_digest == same
    assert facts(max_output_tokens=1).body_digest == same
    assert facts(client_metadata={"b": "1", "a": "2"}).body_digest == same
    assert facts(model="other").body_digest != same


def test_a_wish_has_one_digest_over_http_and_over_a_websocket() -> None:
    fields = json.loads(request(client_metadata={"a": "1"}, type="response.create", stream_id="x"))
    del fields["stream"]
    over = read(json.dumps(fields).encode())
    assert (over.body_digest, over.stream) == (facts().body_digest, True)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"input": 3}', b'{"input": [3, null, {"type": 4}]}'])
def test_a_body_that_is_no_request_gives_fewer_facts_and_no_exception(body: bytes) -> None:
    assert DIALECT.read_request(RequestHead("POST", PATH, Headers()), PATH, body).raw_digest == digest(body)


@given(junk=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_values_of_any_other_type_give_fewer_facts_and_no_exception(junk: object) -> None:
    for name in ("input", "tools", "model", "conversation", "instructions", "previous_response_id", "stream"):
        facts(**{name: junk})
    facts(
        input=[junk, {"type": "message", "role": "assistant", "content": junk}, {"type": "function_call", "id": junk}]
    )


def test_stored_responses_and_models_are_left_to_others() -> None:
    assert DIALECT.claims("POST", "/backend-api/codex/responses")
    assert DIALECT.claims("POST", "/openai/v1/responses/compact")
    assert not DIALECT.claims("GET", "/v1/responses/resp_1")
    assert not DIALECT.claims("POST", "/v1/responses/resp_1/cancel")
    assert not DIALECT.claims("POST", "/v1/chat/completions")


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_whole_stream_gives_usage_stop_reason_text_and_tools() -> None:
    tally = stream(STREAM)
    assert (tally.terminator, tally.stop_reason, tally.model, tally.response_id) == (
        True,
        "completed",
        "gpt-test-1",
        "resp_1",
    )
    assert (tally.input_tokens, tally.output_tokens, tally.cache_read_tokens) == (20, 7, 4)
    assert (tally.usage_partial, tally.text_digest, tally.provider_id) == (False, text_digest("Grüße, Welt."), True)
    (tool,) = tally.tool_calls
    assert (tool.id, tool.name, tool.text_digest) == ("call_3", "exec_command", digest("make test"))
    assert (tally.open_tool_calls, tally.pings, tally.events, tally.unread_frames) == (0, 1, 10, 0)


@given(size=st.integers(1, 900))
def test_any_cut_gives_the_same_tally_but_for_times(size: int) -> None:
    cut, uncut = stream(STREAM, size=size), stream(STREAM)
    cut.first_token_ns = uncut.first_token_ns
    assert cut == uncut


@given(end=st.integers(0, len(STREAM)))
def test_a_stream_cut_anywhere_before_its_terminal_event_is_not_whole(end: int) -> None:
    tally = stream(STREAM[:end])
    assert tally.terminator is (end >= len(STREAM) - 2)
    assert tally.unread_frames == 0


@given(junk=st.binary(max_size=200))
def test_junk_never_raises_and_completes_nothing(junk: bytes) -> None:
    assert stream(b"data: " + junk + b"\n\n" + junk).terminator is False


@pytest.mark.parametrize("name", ["response", "item", "error", "delta", "output_index", "type"])
@given(junk=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_events_of_any_other_form_never_raise(name: str, junk: object) -> None:
    for event in [*BEGUN, *DONE]:
        stream(sse((None, event | {name: junk})))


def test_an_incomplete_response_is_whole_and_says_why() -> None:
    last = ended("incomplete", incomplete_details={"reason": "max_output_tokens"})
    tally = stream(sse(*typed(*BEGUN[:6], {"type": "response.incomplete", "response": last})))
    assert (tally.terminator, tally.stop_reason, tally.error_in_stream) == (True, "max_output_tokens", False)


def test_a_call_that_the_limit_cut_off_stays_open() -> None:
    cut = CALL | {"status": "incomplete", "arguments": '{"cmd":'}
    last = ended("incomplete", output=[MESSAGE, cut], incomplete_details={"reason": "max_output_tokens"})
    tally = stream(sse(*typed(*BEGUN, {"type": "response.incomplete", "response": last})))
    assert (tally.open_tool_calls, [tool.text_digest for tool in tally.tool_calls]) == (1, [None])


def test_a_stream_that_stops_early_has_open_tool_calls_and_partial_usage() -> None:
    tally = stream(sse(*typed(*BEGUN)))
    assert (tally.terminator, tally.open_tool_calls, tally.usage_partial) == (False, 1, True)
    assert tally.tool_calls[0].text_digest is None


@pytest.mark.parametrize(
    "event, kind, names",
    [
        (
            {
                "type": "response.failed",
                "response": ended("failed", error={"code": "server_is_overloaded", "message": "try later"}),
            },
            "server_is_overloaded",
            [],
        ),
        ({"type": "response.failed", "response": {"error": None}}, "error", []),
        ({"type": "error", "code": "insufficient_quota", "message": "You exceeded"}, "insufficient_quota", ["quota"]),
        ({"type": "error", "error": {"type": "rate_limit_exceeded", "message": "x"}}, "rate_limit_exceeded", []),
        ({"error": {"type": "api_error", "message": "x"}}, "api_error", []),
    ],
)
def test_a_failed_response_and_an_error_event_are_errors_inside_a_200(event: Json, kind: str, names: list[str]) -> None:
    tally = stream(sse(*[(None, each) for each in BEGUN], (None, event)))
    assert (tally.error_in_stream, tally.error_type, tally.error_names) == (True, kind, names)
    assert not tally.terminator


def test_a_server_that_sends_only_the_terminal_event_is_read_from_its_output() -> None:
    tally = stream(sse((None, {"type": "response.completed", "response": ended(output=[MESSAGE, CALL])})))
    assert (tally.text_digest, tally.tool_calls[0].id) == (text_digest("Grüße, Welt."), "call_3")


def test_an_item_or_usage_of_an_unknown_form_costs_itself_only() -> None:
    strange = ended(output=[3, {"type": 4}, CALL], usage={"input_tokens": "many"})
    tally = stream(sse((None, {"type": "response.completed", "response": strange})))
    assert (tally.terminator, [tool.id for tool in tally.tool_calls], tally.input_tokens) == (True, ["call_3"], None)


def test_calls_that_the_server_carries_out_are_not_the_agents() -> None:
    tally = stream(
        sse(
            *typed(
                {"type": "response.output_item.added", "output_index": 0, "item": {"type": "web_search_call"}},
                {"type": "response.output_item.done", "output_index": 0, "item": {"type": "web_search_call"}},
                DONE[-1] | {"response": ended()},
            )
        )
    )
    assert (tally.tool_calls, tally.open_tool_calls, tally.first_token_ns) == ([], 0, None)


@pytest.mark.parametrize(
    "item, name, command",
    [
        ({"type": "local_shell_call", "action": {"command": ["bash", "-lc", "ls"]}}, "local_shell", digest("ls")),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", digest("ls")),
        ({"type": "shell_call", "action": {"commands": ["ls", "pwd"]}}, "shell", None),
        ({"type": "custom_tool_call", "name": "sh", "input": "ls"}, "sh", digest("ls")),
        ({"type": "function_call", "name": "f", "arguments": "no json"}, "f", None),
        ({"type": "function_call", "name": "f", "arguments": {"cmd": "ls"}}, "f", digest("ls")),
        ({"type": "computer_call", "action": {"type": "click"}}, "computer", None),
    ],
)
def test_each_kind_of_client_tool_gives_its_name_and_command(item: Json, name: str, command: str | None) -> None:
    event: Json = {"type": "response.output_item.done", "output_index": 0, "item": item | {"call_id": "c"}}
    (tool,) = stream(sse(*typed(event))).tool_calls
    assert (tool.id, tool.name, tool.text_digest) == ("c", name, command)


def test_a_terminal_event_that_is_too_long_to_read_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", 800)
    long: Json = {"type": "response.completed", "response": ended(instructions="x" * 900)}
    tally = stream(sse(*typed(*BEGUN, long)))
    assert (tally.terminator, tally.unread_frames) == (None, 1)


def test_tool_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_responses, "MAX_TOOL_CALLS", 3)
    many: list[Json] = [
        {"type": "response.output_item.done", "output_index": n, "item": CALL | {"call_id": str(n)}} for n in range(9)
    ]
    assert len(stream(sse(*typed(*many))).tool_calls) == 3


# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_json_answer_is_read_at_its_end() -> None:
    tally = whole(ended(output=[{"type": "reasoning"}, MESSAGE, CALL]))
    assert (tally.terminator, tally.stop_reason, tally.output_tokens, tally.cache_read_tokens) == (
        True,
        "completed",
        7,
        4,
    )
    assert (tally.text_digest, tally.tool_calls[0].text_digest) == (text_digest("Grüße, Welt."), digest("make test"))


def test_json_answers_that_failed_or_are_none_are_no_whole_answers() -> None:
    failed = whole(ended("failed", error={"code": "server_error", "message": "x"}))
    assert (failed.terminator, failed.error_in_stream, failed.error_type) == (False, True, "server_error")
    assert whole({"object": "nothing"}).terminator is False
    assert whole(3).terminator is False
    quota = whole({"error": {"message": "exceeded", "type": "x", "code": "insufficient_quota"}}, status=429)
    assert (quota.error_type, quota.error_names) == ("x", ["quota"])


def test_counts_and_compactions_have_forms_of_their_own() -> None:
    counted = whole({"object": "response.input_tokens", "input_tokens": 77}, operation="count_tokens")
    assert (counted.terminator, counted.input_tokens) == (True, 77)
    compacted = whole({"object": "response.compaction", "id": "r", "output": [{"type": "compaction"}]})
    assert (compacted.terminator, compacted.response_id) == (True, "r")


# --- behind the door ------------------------------------------------------------------------------------------------


def test_the_tracker_tells_a_whole_a_cut_and_a_failed_response_apart() -> None:
    wire = Wire(door="model:openai")
    for body in (STREAM, sse(*typed(*BEGUN)), sse(*typed(*BEGUN, {"type": "error", "code": "server_error"}))):
        wire.request(request(), path=PATH)
        wire.head()
        wire.data(body)
        wire.end()
    assert [(each.dialect, each.outcome, each.parse) for each in wire.ended()] == [
        ("openai_responses", "ok", "full"),
        ("openai_responses", "truncated", "full"),
        ("openai_responses", "error", "full"),
    ]
    assert wire.tracker.faults == 0
