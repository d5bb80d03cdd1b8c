# mypy: disable-error-code="import-untyped, import-not-found, attr-defined"
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
"""One SDK of another provider as a whole agent: `python tests/e2e/foreign.py KIND`, by the Python of `tools.sh sdks`.

In: the base URL that the SDK itself takes from the environment. Out: the final text; the SDK's error ends it with
status 1. One tool turn and one final turn. Standard library and SDKs only: nothing of ours is importable there.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

ARGUMENTS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
ASK, RESULT = "Say hello.", "hello"


def gemini(stream: bool) -> str:
    """google-genai."""
    from google import genai
    from google.genai import types

    client = genai.Client(api_key="dummy")
    tool = types.Tool(function_declarations=[{"name": "bash", "parameters_json_schema": ARGUMENTS}])
    config = types.GenerateContentConfig(
        tools=[tool], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
    )
    history: list[Any] = [types.Content(role="user", parts=[types.Part(text=ASK)])]
    for _ in range(4):
        if stream:
            parts = [
                part
                for chunk in client.models.generate_content_stream(
                    model="gemini-3-pro", contents=history, config=config
                )
                for part in chunk.candidates[0].content.parts
            ]
        else:
            said = client.models.generate_content(model="gemini-3-pro", contents=history, config=config)
            parts = said.candidates[0].content.parts
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            return "".join(part.text or "" for part in parts)
        kept = [part for part in parts if part.function_call]
        answer = types.Part.from_function_response(name="bash", response={"result": RESULT})
        history += [types.Content(role="model", parts=kept), types.Content(role="user", parts=[answer])]
    raise AssertionError("no final turn")


def gemini_array() -> str:
    """The stream as one JSON array, which older clients ask for: without `alt=sse`."""
    tool = {"functionDeclarations": [{"name": "bash", "parameters": ARGUMENTS}]}
    history: list[Any] = [{"role": "user", "parts": [{"text": ASK}]}]
    for _ in range(4):
        url = os.environ["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/gemini-3-pro:streamGenerateContent"
        body = json.dumps({"contents": history, "tools": [tool]}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json", "x-goog-api-key": "dummy"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            parts = [part for chunk in json.load(answer) for part in chunk["candidates"][0]["content"]["parts"]]
        calls = [part for part in parts if "functionCall" in part]
        if not calls:
            return "".join(part.get("text", "") for part in parts)
        back = {"functionResponse": {"name": "bash", "response": {"result": RESULT}}}
        history += [{"role": "model", "parts": calls}, {"role": "user", "parts": [back]}]
    raise AssertionError("no final turn")


def ollama(stream: bool) -> str:
    """The ollama client."""
    import ollama as sdk

    tools = [{"type": "function", "function": {"name": "bash", "description": "Run.", "parameters": ARGUMENTS}}]
    history: list[Any] = [{"role": "user", "content": ASK}]
    for _ in range(4):
        if stream:
            said = [part.message for part in sdk.chat(model="llama3.2", messages=history, tools=tools, stream=True)]
        else:
            said = [sdk.chat(model="llama3.2", messages=history, tools=tools).message]
        calls = [call for message in said for call in message.tool_calls or []]
        if not calls:
            return "".join(message.content or "" for message in said)
        history.append({"role": "assistant", "content": "", "tool_calls": [call.model_dump() for call in calls]})
        history.append({"role": "tool", "tool_name": "bash", "content": RESULT})
    raise AssertionError("no final turn")


def vertex() -> str:
    """Anthropic at Vertex."""
    import anthropic

    return _messages(anthropic.AnthropicVertex(region="eu", project_id="p", access_token="dummy"))


def bedrock() -> str:
    """Anthropic at Bedrock by a key of Bedrock's, which is no signature."""
    import anthropic

    return _messages(anthropic.AnthropicBedrock(aws_region="eu-west-1", api_key=os.environ["AWS_BEARER_TOKEN_BEDROCK"]))


def _messages(client: Any) -> str:
    tools = [{"name": "bash", "description": "Run.", "input_schema": ARGUMENTS}]
    history: list[Any] = [{"role": "user", "content": ASK}]
    for _ in range(4):
        with client.messages.stream(model="claude-opus-4-8", max_tokens=99, tools=tools, messages=history) as stream:
            said = stream.get_final_message()
        uses = [block for block in said.content if block.type == "tool_use"]
        if not uses:
            return "".join(block.text for block in said.content)
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": RESULT} for use in uses]
        history += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    raise AssertionError("no final turn")


def converse(signed: bool = False) -> str:
    """boto3's Converse stream. Not signed: to a gateway that signs; botocore gives its keys to no plain http."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = None if signed else Config(signature_version=UNSIGNED)
    client = boto3.client("bedrock-runtime", region_name="eu-west-1", config=config)
    spec = {"name": "bash", "inputSchema": {"json": ARGUMENTS}}
    history: list[Any] = [{"role": "user", "content": [{"text": ASK}]}]
    for _ in range(4):
        answer = client.converse_stream(
            modelId="anthropic.claude-opus-4-8", messages=history, toolConfig={"tools": [{"toolSpec": spec}]}
        )
        text, use = "", None
        for event in answer["stream"]:
            use = event.get("contentBlockStart", {}).get("start", {}).get("toolUse", use)
            text += event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")
        if use is None:
            return text
        history += [
            {"role": "assistant", "content": [{"toolUse": {**use, "input": {"command": "echo hello"}}}]},
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": RESULT}]}}],
            },
        ]
    raise AssertionError("no final turn")


KINDS: dict[str, Callable[[], str]] = {
    "gemini_stream": lambda: gemini(True),
    "gemini_json": lambda: gemini(False),
    "gemini_array": gemini_array,
    "ollama_stream": lambda: ollama(True),
    "ollama_json": lambda: ollama(False),
    "vertex_stream": vertex,
    "bedrock_stream": bedrock,
    "converse_stream": lambda: converse(signed=False),
    "converse_signed": lambda: converse(signed=True),
}

if __name__ == "__main__":
    print(KINDS[sys.argv[1]]())
