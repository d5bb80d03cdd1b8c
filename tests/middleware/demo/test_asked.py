"""The step is read from the history alone, in all three APIs; shell arguments follow the client's own schema."""

import pytest

from fairtrial.middleware.demo.asked import Api, Json, Tool, read_request, route_of, shell_arguments

USER: Json = {"role": "user", "content": "x"}
ASSISTANT: Json = {"role": "assistant", "content": "y"}


@pytest.mark.parametrize(
    "method, path, route, prefix",
    [
        ("POST", "/v1/messages", "messages", ""),
        ("POST", "/run/t42/v1/messages", "messages", "/run/t42"),
        ("POST", "/v1/messages/count_tokens", "count_tokens", ""),
        ("POST", "/t/tok/v1/chat/completions", "chat", "/t/tok"),
        ("POST", "/chat/completions", "chat", ""),
        ("POST", "/v1/responses", "responses", ""),
        ("GET", "/v1/models", "models", ""),
        ("GET", "/p/v1/models/stand-in", "models", "/p"),
        ("POST", "/v1/traces", "otlp", ""),
        ("HEAD", "/", "hello", ""),
        ("HEAD", "/api/hello", "hello", ""),
        ("HEAD", "/run/t42", "hello", "/run/t42"),
        ("GET", "/v1/messages", "unknown", ""),
        ("POST", "/v1/embeddings", "unknown", ""),
    ],
)
def test_a_path_is_known_behind_any_prefix(method: str, path: str, route: str, prefix: str) -> None:
    assert route_of(method, path) == (route, prefix)


@pytest.mark.parametrize(
    "api, body, step",
    [
        ("messages", {"messages": [USER]}, 0),
        ("messages", {"messages": [USER, ASSISTANT, USER, ASSISTANT, USER]}, 2),
        (
            "chat",
            {"messages": [{"role": "system", "content": "s"}, USER, ASSISTANT, {"role": "tool", "content": "r"}]},
            1,
        ),
        ("responses", {"input": "just text"}, 0),
        ("responses", {"input": [USER, {"type": "function_call"}, {"type": "function_call_output"}]}, 1),
        (
            "responses",
            {
                "input": [
                    USER,
                    {"type": "reasoning"},
                    ASSISTANT,
                    {"type": "function_call"},
                    {"type": "function_call"},
                    {"type": "function_call_output"},
                    {"type": "function_call_output"},
                    {"type": "local_shell_call"},
                    {"type": "local_shell_call_output"},
                ]
            },
            2,
        ),
        ("responses", {"previous_response_id": "resp_s3_abc", "input": [{"type": "function_call_output"}]}, 4),
        ("messages", {"messages": "nonsense"}, 0),
    ],
)
def test_the_step_is_the_number_of_assistant_turns_in_the_history(api: Api, body: Json, step: int) -> None:
    assert read_request(api, body).step == step


def test_the_stream_flag_changes_neither_history_nor_size() -> None:
    body: Json = {"messages": [USER], "tools": []}
    plain, streamed = read_request("messages", body), read_request("messages", {**body, "stream": True})
    assert (plain.history, plain.content_bytes) == (streamed.history, streamed.content_bytes)
    assert (plain.stream, streamed.stream) == (False, True)


def test_tools_are_read_from_all_three_shapes() -> None:
    schema: Json = {"type": "object"}
    flat = {"name": "bash", "input_schema": schema}
    chat = {"type": "function", "function": {"name": "bash", "parameters": schema}}
    responses = {"type": "function", "name": "bash", "parameters": schema}
    for api, entry in (("messages", flat), ("chat", chat), ("responses", responses)):
        asked = read_request(api, {"tools": [entry]})  # type: ignore[arg-type]  # the loop widens the literal
        assert asked.tools == (Tool(name="bash", kind="function", schema=schema),)


def test_the_shell_tool_is_found_by_name_whatever_its_case_and_place() -> None:
    def shell_of(*names: str) -> str | None:
        tool = read_request("messages", {"tools": [{"name": name} for name in names]}).shell_tool
        return tool.name if tool else None

    assert shell_of("Read", "Bash", "Write") == "Bash"
    assert shell_of("apply_patch", "exec_command") == "exec_command"
    assert shell_of("terminal", "bash") == "bash"
    assert shell_of("Read", "Write") is None


def test_arguments_are_filled_in_from_the_schema() -> None:
    def arguments(properties: Json, *required: str) -> dict[str, object]:
        schema: Json = {"type": "object", "properties": properties, "required": list(required)}
        return shell_arguments(Tool(name="bash", kind="function", schema=schema), "ls")

    text: Json = {"type": "string"}
    assert arguments({"command": text, "timeout": {"type": "number"}}, "command") == {"command": "ls"}
    assert arguments({"cmd": text, "login": {"type": "boolean"}}, "cmd", "login") == {"cmd": "ls", "login": False}
    assert arguments({"command": {"type": "array", "items": text}}) == {"command": ["bash", "-lc", "ls"]}
    assert arguments({"command": text, "why": text, "n": {"type": "integer", "minimum": 5}}, "why", "n") == {
        "command": "ls",
        "why": "run a command",
        "n": 5,
    }
    assert arguments({"command": text, "risk": {"enum": ["low", "high"]}}, "risk") == {"command": "ls", "risk": "low"}
    assert shell_arguments(Tool(name="local_shell", kind="local_shell", schema={}), "ls") == {"command": "ls"}
