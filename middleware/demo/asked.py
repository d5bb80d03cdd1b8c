"""Reads a model request in any of the three APIs: which API, which step, which tools.

In: a path and a decoded JSON body. Out: `Asked`, all that an answer depends on. Nothing is remembered between requests:
the step is the number of assistant turns in the history, so that a retry of a turn is seen as the same turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import msgspec

Api: TypeAlias = Literal["messages", "chat", "responses"]
Route: TypeAlias = Literal["messages", "chat", "responses", "count_tokens", "models", "otlp", "hello", "unknown"]
Json: TypeAlias = Mapping[str, object]

_ROUTES: tuple[tuple[str, re.Pattern[str], Route], ...] = (
    ("POST", re.compile(r"/v1/messages/count_tokens$"), "count_tokens"),
    ("POST", re.compile(r"/v1/messages$"), "messages"),
    ("POST", re.compile(r"(/v1)?/chat/completions$"), "chat"),
    ("POST", re.compile(r"(/v1)?/responses$"), "responses"),
    ("GET", re.compile(r"/v1/models(/[^/]+)?$"), "models"),
    ("POST", re.compile(r"/v1/(traces|metrics|logs)$"), "otlp"),
    ("HEAD", re.compile(r"/(api/hello)?$"), "hello"),
    ("GET", re.compile(r"/api/hello$"), "hello"),
)

# Names under which clients offer a shell, in the order of preference.
SHELL_TOOLS = (
    "bash",
    "shell",
    "exec_command",
    "shell_command",
    "local_shell",
    "run_shell_command",
    "run_command",
    "execute_command",
    "execute_bash",
    "run_terminal_cmd",
    "terminal",
)
_TASK = re.compile(rb"\btask-[a-z0-9]+\b")
_COMMAND_ARGUMENTS = ("command", "cmd", "commands", "script", "input", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as the client offers it; `schema` is its JSON schema, empty for built-in kinds."""

    name: str
    kind: str
    schema: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One model request, read.

    `step` counts the assistant turns before it; `history` is a digest of all it depends on.
    """

    api: Api
    model: str
    step: int
    stream: bool
    include_usage: bool
    tools: tuple[Tool, ...]
    history: str
    task: str
    """The first word of the form `task-…` in it: what tells trials apart that run the same script; "" without."""
    content_bytes: int
    """Size of system, messages and tools as compact JSON: what input tokens are counted from. Free of `stream`."""

    @property
    def shell_tool(self) -> Tool | None:
        """The client's own shell tool, or None when it offers none that we know."""
        by_name = {tool.name.lower(): tool for tool in reversed(self.tools)}
        return next((by_name[name] for name in SHELL_TOOLS if name in by_name), None)


def route_of(method: str, path: str) -> tuple[Route, str]:
    """Which endpoint a path (without its query) means, and the prefix before it.

    Any prefix is accepted (`/run/t42/v1/messages`), since clients are told apart by it.
    """
    for wanted, pattern, route in _ROUTES:
        if method == wanted and (found := pattern.search(path)):
            return route, path[: found.start()]
    return ("hello", path) if method == "HEAD" else ("unknown", "")


def _objects(value: object) -> list[Json]:
    """The objects in a JSON array; anything else counts as absent."""
    if not isinstance(value, list):
        return []
    return [cast("Json", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def _text(value: object, default: str = "") -> str:
    return value if isinstance(value, str) else default


def _mapping(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def read_request(api: Api, body: Json) -> Asked:
    """Read the decoded body of a model call. Lenient: what is missing or of a wrong type counts as absent."""
    content = {key: body.get(key) for key in ("system", "instructions", "messages", "input", "tools")}
    encoded = msgspec.json.encode(content)
    return Asked(
        api=api,
        model=_text(body.get("model"), "stand-in"),
        step=_responses_step(body) if api == "responses" else _assistant_messages(body.get("messages")),
        stream=body.get("stream") is True,
        include_usage=_mapping(body.get("stream_options")).get("include_usage") is True,
        tools=tuple(_tool(entry) for entry in _objects(body.get("tools"))),
        history=hashlib.sha256(encoded).hexdigest(),
        task=found.group().decode() if (found := _TASK.search(encoded)) is not None else "",
        content_bytes=len(encoded),
    )


def _assistant_messages(messages: object) -> int:
    return sum(message.get("role") == "assistant" for message in _objects(messages))


def _responses_step(body: Json) -> int:
    """Assistant turns in a Responses request.

    One turn may be several items (text, reasoning, calls), so runs of assistant items count once. With a
    `previous_response_id` of ours the turns before it are read from the id.
    """
    turns = 0
    within = False
    for item in _objects(body.get("input")):
        kind = _text(item.get("type"), "message")
        ours = item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")
        turns += ours and not within
        within = ours
    previous = re.match(r"resp_s(\d+)_", _text(body.get("previous_response_id")))
    return turns + (int(previous.group(1)) + 1 if previous else 0)


def _tool(entry: Json) -> Tool:
    inner = _mapping(entry.get("function")) or entry
    kind = _text(entry.get("type"), "function")
    schema = inner.get("input_schema") or inner.get("parameters")
    return Tool(name=_text(inner.get("name"), kind), kind=kind, schema=_mapping(schema))


def shell_arguments(tool: Tool, command: str) -> dict[str, object]:
    """Arguments that make the client's shell tool run `command`, filled in from the tool's own schema.

    The command goes into the first property with a known name, as a string or as an argument list; every other required
    property gets the smallest value of its type.
    """
    properties = _mapping(tool.schema.get("properties"))
    required = tool.schema.get("required")
    names = (
        [name for name in cast("Sequence[object]", required) if isinstance(name, str)]
        if isinstance(required, list)
        else []
    )
    holder = next((name for name in _COMMAND_ARGUMENTS if name in properties), "command")
    arguments: dict[str, object] = {holder: _command_value(_mapping(properties.get(holder)), command)}
    for name in names:
        if name != holder:
            arguments[name] = _smallest(_mapping(properties.get(name)))
    return arguments


def _command_value(schema: Json, command: str) -> object:
    kinds = _kinds(schema)
    return ["bash", "-lc", command] if "array" in kinds and "string" not in kinds else command


def _kinds(schema: Json) -> set[str]:
    kind = schema.get("type")
    kinds = set(cast("list[str]", kind)) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set[str]()
    for option in _objects(schema.get("anyOf")):
        kinds |= _kinds(option)
    return kinds


def _smallest(schema: Json) -> object:
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return cast("list[object]", choices)[0]
    kinds = _kinds(schema)
    if "string" in kinds or not kinds:
        return "run a command"
    if kinds & {"integer", "number"}:
        return schema.get("minimum", 1)
    if "boolean" in kinds:
        return False
    return [] if "array" in kinds else {}
