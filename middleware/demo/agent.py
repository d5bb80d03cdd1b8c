"""A small agent of our own for the demo: speaks the Messages API, runs a shell tool, checks its work.

In: `ANTHROPIC_BASE_URL` (whatever stands behind it), a task and its check, and where to run commands.  Out: words on
stdout and an exit status: 0 when the check passed, 1 when it did not or the model API gave up.  It retries overload and
server errors five times and takes a cut stream as the end, as many agents do.  All that it knows of fairtrial is a mark
that it hands on to its container.

Standard library only, so that it starts fast; the Docker package is loaded for containers alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

MAX_TURNS: Final = 12
RETRIES: Final = 5
FIRST_WAIT_S: Final = 0.1
TOOL: Final = {
    "name": "bash",
    "description": "Run a shell command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}

Json = dict[str, object]


class ApiError(Exception):
    """The model API did not give a whole answer."""


class Box(Protocol):
    """Where the tool's commands run."""

    def run(self, command: str) -> tuple[int, str]:
        """Run one shell command; its exit status and its output."""
        ...

    def close(self) -> None:
        """Throw the box away."""
        ...


class LocalBox:
    """Commands run as children of the agent, in a folder of their own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fairtrial-demo-")

    def run(self, command: str) -> tuple[int, str]:
        """As a shell would report it: a death by signal N is 128+N."""
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=self._folder.name, capture_output=True, text=True, check=False
        )
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return code, done.stdout + done.stderr

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


class DockerBox:
    """Commands run by exec in a container with a memory ceiling."""

    def __init__(self, image: str, memory: str) -> None:
        import docker

        self._client = docker.from_env(timeout=20)
        self._container = self._client.containers.run(
            image,
            ["sleep", "600"],
            detach=True,
            auto_remove=True,
            network_mode="none",
            mem_limit=memory,
            memswap_limit=memory,
            working_dir="/work",
            # Handing the mark on is all that a harness needs to do where several trials share one engine.
            environment={name: os.environ[name] for name in ("FAIRTRIAL_TRIAL",) if name in os.environ},
        )

    def run(self, command: str) -> tuple[int, str]:
        """By `docker exec`."""
        code, output = self._container.exec_run(["/bin/sh", "-c", command])
        if not isinstance(output, bytes):
            raise TypeError("without stream=True the output is bytes")
        # An unknown exit code counts as a failure.
        return -1 if code is None else code, output.decode(errors="replace")

    def close(self) -> None:
        """Kill the container; it removes itself."""
        self._container.kill()
        self._client.close()


def events(response: http.client.HTTPResponse) -> Iterator[Json]:
    """The data of each server-sent event.  Raises `http.client.IncompleteRead` or `OSError` for a cut stream."""
    while line := response.readline():
        if line.startswith(b"data:"):
            yield json.loads(line[5:])


def call(messages: list[Json]) -> Json:
    """One model call: the assistant's message.  Raises `ApiError` once retries are used up."""
    base = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    body = json.dumps(
        {"model": "stand-in", "max_tokens": 1024, "stream": True, "tools": [TOOL], "messages": messages}
    ).encode()
    for attempt in range(RETRIES + 1):
        connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=60)
        try:
            connection.request("POST", f"{base.path}/v1/messages", body, headers(len(body)))
            response = connection.getresponse()
            if response.status == 200:
                return message(events(response))
            text = response.read().decode(errors="replace")
            if response.status < 500 or attempt == RETRIES:
                raise ApiError(f"{response.status} {text[:200]}")
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise ApiError(f"the answer broke off: {error!r}") from error
        finally:
            connection.close()
        time.sleep(FIRST_WAIT_S * 2**attempt)
    raise ApiError("no attempt left")


def headers(length: int) -> dict[str, str]:
    """What a client of the Messages API sends."""
    return {
        "content-type": "application/json",
        "content-length": str(length),
        "anthropic-version": "2023-06-01",
        "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "dummy"),
        "user-agent": "fairtrial-demo-agent",
    }


def message(stream: Iterator[Json]) -> Json:
    """Put the blocks of a stream together.  Raises `ApiError` when it ends before its last event, or with an error."""
    blocks: list[Json] = []
    partial = ""
    whole = False
    for event in stream:
        kind = event.get("type")
        if kind == "error":
            raise ApiError(f"error in the stream: {event.get('error')}")
        if kind == "content_block_start":
            blocks.append(dict(_mapping(event["content_block"])))
            partial = ""
        elif kind == "content_block_delta":
            delta = _mapping(event["delta"])
            if "text" in delta:
                blocks[-1]["text"] = str(blocks[-1].get("text", "")) + str(delta["text"])
            partial += str(delta.get("partial_json", ""))
        elif kind == "content_block_stop" and blocks[-1].get("type") == "tool_use":
            blocks[-1]["input"] = json.loads(partial or "{}")
        elif kind == "message_stop":
            whole = True
    if not whole:
        raise ApiError("the stream ended before its last event")
    return {"role": "assistant", "content": blocks}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def work(box: Box, task: str) -> None:
    """Turn by turn until the model asks for nothing more."""
    messages: list[Json] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        turn = call(messages)
        messages.append(turn)
        content = turn["content"]
        uses = [b for b in content if b.get("type") == "tool_use"] if isinstance(content, list) else []
        if not uses:
            return
        results: list[Json] = []
        for use in uses:
            code, output = box.run(str(_mapping(use["input"]).get("command", "")))
            print(f"$ {_mapping(use['input']).get('command')}\n{output.strip()} [exit {code}]", flush=True)
            shown = f"{output}\n[exit {code}]"
            results.append({"type": "tool_result", "tool_use_id": use["id"], "content": shown, "is_error": code != 0})
        messages.append({"role": "user", "content": results})


def main() -> int:
    """Exit status 0: the check passed; 1: it failed, or the model API gave up."""
    parser = argparse.ArgumentParser(prog="demo-agent")
    parser.add_argument("--task", default="Make a file named answer.", help="what the model is asked for")
    parser.add_argument("--check", default="test -f answer", help="shell command that must succeed in the box")
    parser.add_argument("--image", help="run commands in a container of this image")
    parser.add_argument("--memory", default="64m", help="the container's memory ceiling")
    options = parser.parse_args()
    box: Box = DockerBox(options.image, options.memory) if options.image else LocalBox()
    try:
        work(box, options.task)
        code, _ = box.run(options.check)
    except ApiError as error:
        print(f"model API: {error}", flush=True)
        return 1
    finally:
        box.close()
    print("check passed" if code == 0 else "check failed", flush=True)
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
