"""The vendor SDKs as the smallest real agents: one tool turn and one final turn, with the SDKs' own defaults.

In: a base URL. Out: `Spoken` (the final text, or how it failed). Six kinds: Messages, Chat Completions and Responses,
each as JSON and as a stream. The tool is not really run: its result is a fixed text.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL_RESULT = "hello"
MESSAGES_MODEL = "claude-opus-4-8"
OPENAI_MODEL = "gpt-5-mini"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """How an SDK's two turns ended. `error` is module-free class name; `status` is what the error carries, if any."""

    text: str | None = None
    error: str | None = None
    status: int | None = None
    request_id: str | None = None


def messages_json(url: str) -> str:
    """Two turns of `messages.create`."""
    with anthropic.Anthropic(base_url=url, api_key="dummy") as client:
        tools: Any = [{"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}]
        history: list[Any] = [{"role": "user", "content": "Say hello."}]
        for _ in range(8):
            said = client.messages.create(model=MESSAGES_MODEL, max_tokens=1000, tools=tools, messages=history)
            uses = [block for block in said.content if block.type == "tool_use"]
            if not uses:
                return "".join(block.text for block in said.content if block.type == "text")
            results = [{"type": "tool_result", "tool_use_id": use.id, "content": TOOL_RESULT} for use in uses]
            history += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    raise AssertionError("no final turn")


def messages_stream(url: str) -> str:
    """Two turns of `messages.stream`."""
    with anthropic.Anthropic(base_url=url, api_key="dummy") as client:
        tools: Any = [{"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}]
        history: list[Any] = [{"role": "user", "content": "Say hello."}]
        for _ in range(8):
            with client.messages.stream(model=MESSAGES_MODEL, max_tokens=1000, tools=tools, messages=history) as stream:
                said = stream.get_final_message()
            uses = [block for block in said.content if block.type == "tool_use"]
            if not uses:
                return "".join(block.text for block in said.content if block.type == "text")
            results = [{"type": "tool_result", "tool_use_id": use.id, "content": TOOL_RESULT} for use in uses]
            history += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    raise AssertionError("no final turn")


def _chat(url: str, ask: Callable[[openai.OpenAI, list[Any], Any], tuple[str, list[tuple[str, str]]]]) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="dummy") as client:
        tools: Any = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
        history: list[Any] = [{"role": "user", "content": "Say hello."}]
        for _ in range(8):
            text, uses = ask(client, history, tools)
            if not uses:
                return text
            calls = [
                {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": arguments}}
                for call_id, arguments in uses
            ]
            history.append({"role": "assistant", "content": text or None, "tool_calls": calls})
            history += [{"role": "tool", "tool_call_id": call_id, "content": TOOL_RESULT} for call_id, _ in uses]
    raise AssertionError("no final turn")


def _ask_chat_json(client: openai.OpenAI, history: list[Any], tools: Any) -> tuple[str, list[tuple[str, str]]]:
    said = client.chat.completions.create(model=OPENAI_MODEL, messages=history, tools=tools).choices[0].message
    calls = [call for call in said.tool_calls or [] if call.type == "function"]
    return said.content or "", [(call.id, call.function.arguments) for call in calls]


def _ask_chat_stream(client: openai.OpenAI, history: list[Any], tools: Any) -> tuple[str, list[tuple[str, str]]]:
    text = ""
    calls: dict[int, list[str]] = {}
    stream = client.chat.completions.create(
        model=OPENAI_MODEL, messages=history, tools=tools, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, ["", ""])
                call[0] += part.id or ""
                call[1] += (part.function.arguments if part.function else None) or ""
    return text, [(call[0], call[1]) for call in calls.values()]


def chat_json(url: str) -> str:
    """Two turns of `chat.completions.create`."""
    return _chat(url, _ask_chat_json)


def chat_stream(url: str) -> str:
    """Two turns of `chat.completions.create(stream=True)`, put together by hand as most agents do."""
    return _chat(url, _ask_chat_stream)


def _responses(url: str, *, stream: bool) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="dummy") as client:
        tools: Any = [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}]
        items: list[Any] = [{"role": "user", "content": "Say hello."}]
        for _ in range(8):
            if stream:
                with client.responses.stream(model=OPENAI_MODEL, input=items, tools=tools) as events:
                    for _event in events:
                        pass
                    said: Any = events.get_final_response()
            else:
                said = client.responses.create(model=OPENAI_MODEL, input=items, tools=tools)
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                return str(said.output_text)
            for item in said.output:
                shown = item.model_dump(exclude_none=True, exclude={"parsed_arguments"})
                for part in shown.get("content", []):
                    part.pop("parsed", None)
                items.append(shown)
            items += [
                {"type": "function_call_output", "call_id": call.call_id, "output": TOOL_RESULT} for call in calls
            ]
    raise AssertionError("no final turn")


def responses_json(url: str) -> str:
    """Two turns of `responses.create`, the whole history sent each time."""
    return _responses(url, stream=False)


def responses_stream(url: str) -> str:
    """Two turns of `responses.stream`, the whole history sent each time."""
    return _responses(url, stream=True)


KINDS: dict[str, Callable[[str], str]] = {
    "messages_json": messages_json,
    "messages_stream": messages_stream,
    "chat_json": chat_json,
    "chat_stream": chat_stream,
    "responses_json": responses_json,
    "responses_stream": responses_stream,
}


def talk(kind: str, url: str) -> Spoken:
    """Run one kind to its end; an error is an outcome, not an exception."""
    try:
        return Spoken(text=KINDS[kind](url))
    except Exception as error:  # what the SDK raises is what is asked for
        status = getattr(error, "status_code", None)
        request_id = getattr(error, "request_id", None)
        return Spoken(error=type(error).__name__, status=status, request_id=request_id)


def talk_all(url: str, *kinds: str) -> dict[str, Spoken]:
    """Run several kinds (default: all) at once, each under its own path prefix `/run/<kind>`."""
    wanted = kinds or tuple(KINDS)
    with ThreadPoolExecutor(len(wanted)) as pool:
        results = pool.map(lambda kind: talk(kind, f"{url}/run/{kind}"), wanted)
        return dict(zip(wanted, results, strict=True))
