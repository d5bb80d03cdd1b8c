"""The matrix's agent: the demo's, with the habits and bugs that harnesses have, each behind an option.

In: `ANTHROPIC_BASE_URL`, a script behind it, options.  Out: words on stdout and an exit status: 0 when the check passed
(or `--swallow`), 1 when it failed or the model API gave up.  It knows nothing of fairtrial but the mark that it hands
on to its container.  Run by its path, so that it needs no folder of ours on the path.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from fairtrial.middleware.demo.agent import TOOL, ApiError, Box, Json, LocalBox, events, headers

MAX_TURNS = 16
SERVICE = "--network none --label com.docker.compose.project=task --label com.docker.compose.service=db"
"""How compose marks what it starts."""


class DockerBox:
    """Commands run by `docker exec` in a container that `docker run` made with the options given."""

    def __init__(self, name: str, image: str, options: str, main: str) -> None:
        self._name = name
        self._run = ["docker", "run", "-d", "--name", name, "-e", "FAIRTRIAL_TRIAL", "-w", "/work"]
        self._run += [*shlex.split(options), image, *shlex.split(main)]

    def start(self) -> None:
        """Raises SystemExit 1 with the engine's own words."""
        done = subprocess.run(self._run, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"the sandbox did not start: {done.stderr.strip()}")

    def run(self, command: str) -> tuple[int, str]:
        """By `docker exec`."""
        done = subprocess.run(
            ["docker", "exec", self._name, "/bin/sh", "-c", command], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def close(self) -> None:
        """Throw the container away."""
        subprocess.run(["docker", "rm", "-f", "-v", self._name], capture_output=True, check=False)


class TimedBox:
    """A box whose every command is given up after a limit of the harness's own."""

    def __init__(self, box: Box, limit_s: float) -> None:
        self._box = box
        self._limit_s = limit_s

    def run(self, command: str) -> tuple[int, str]:
        """As timeout(1) tells it: 124."""
        return self._box.run(f"timeout -s KILL {self._limit_s:g} /bin/sh -c {shlex.quote(command)}; exit $?")

    def close(self) -> None:
        """As the box."""
        self._box.close()


class Agent:
    """One conversation."""

    def __init__(self, options: argparse.Namespace, box: Box) -> None:
        self.options = options
        self.box = box
        self.model = "stand-in"
        self.messages: list[Json] = [{"role": "user", "content": "Make a file named answer."}]
        self.first_call = threading.Event()

    def body(self, messages: list[Json], *, tools: bool = True) -> bytes:
        """One request of the Messages API."""
        asked: Json = {"model": self.model, "max_tokens": 1024, "stream": True, "messages": messages}
        return json.dumps(asked | ({"tools": [TOOL]} if tools else {})).encode()

    def call(self, messages: list[Json], *, tools: bool = True) -> Json:
        """The assistant's message.  Raises ApiError once the patience is used up."""
        for attempt in range(self.options.retries + 1):
            try:
                return self.ask(self.body(messages, tools=tools))
            except ApiError as error:
                if attempt == self.options.retries:
                    raise
                print(f"again: {error}", flush=True)
            if self.options.fallback:
                self.model = self.options.fallback
            time.sleep(self.options.wait_s)
        raise AssertionError("the last attempt returns or raises")

    def ask(self, body: bytes) -> Json:
        """One attempt."""
        base = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
        connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=self.options.patience_s)
        more = {"x-session-id": self.options.session} if self.options.session else {}
        watchdog: threading.Timer | None = None
        try:
            connection.connect()
            if self.options.deadline_s:
                watchdog = threading.Timer(self.options.deadline_s, give_up, [connection.sock])
                watchdog.start()
            connection.request("POST", f"{base.path}/v1/messages", body, headers(len(body)) | more)
            self.first_call.set()
            response = connection.getresponse()
            if response.status != 200:
                said = response.read().decode(errors="replace")
                raise ApiError(f"{response.status} {said[:200]}")
            blocks, whole = read(events(response))
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise ApiError(f"the answer broke off: {error!r}") from error
        finally:
            if watchdog is not None:
                watchdog.cancel()
            connection.close()
        if not whole and not self.options.keep_cuts:
            raise ApiError("the stream ended before its last event")
        return {"role": "assistant", "content": blocks or [{"type": "text", "text": "(nothing)"}], "whole": whole}

    def work(self) -> None:
        """Turn by turn until the model asks for nothing more.  Raises ApiError."""
        for turn in range(MAX_TURNS):
            if self.options.compact_every and turn and turn % self.options.compact_every == 0:
                self.compact()
            said = self.call(self.messages)
            whole = said.pop("whole")
            self.messages.append(said)
            content = said["content"]
            uses = [b for b in content if b.get("type") == "tool_use"] if isinstance(content, list) else []
            if self.options.transcript:
                with open(self.options.transcript, "w") as file:
                    json.dump({"session": self.options.session, "messages": self.messages}, file)
            if not uses and not whole and self.options.go_on:
                self.messages.append({"role": "user", "content": "Go on."})
                continue
            if not uses:
                return
            results: list[Json] = []
            for use in uses:
                command = str(use["input"].get("command", ""))
                code, output = self.box.run(command)
                print(f"$ {command[:200]}\n{output.strip()[:2000]} [exit {code}]", flush=True)
                shown = f"{output}\n[exit {code}]"
                results.append(
                    {"type": "tool_result", "tool_use_id": use["id"], "content": shown, "is_error": code != 0}
                )
            self.messages.append({"role": "user", "content": results})
            if self.options.done_after and turn + 1 >= self.options.done_after:
                return

    def compact(self) -> None:
        """Sum up all that was said, and begin anew from the summary."""
        self.call([*self.messages, {"role": "user", "content": "Sum up."}], tools=False)
        self.messages = [{"role": "user", "content": f"Summary no. {time.monotonic_ns()}. Make a file named answer."}]


def give_up(sock: socket.socket) -> None:
    """The watchdog's end of a call."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def read(stream: Iterator[Json]) -> tuple[list[Json], bool]:
    """The blocks of a stream, and whether its last event came.  Raises ApiError for an error event."""
    blocks: list[Json] = []
    partial = ""
    try:
        for event in stream:
            kind = event.get("type")
            if kind == "error":
                raise ApiError(f"error in the stream: {event.get('error')}")
            if kind == "content_block_start":
                block = event["content_block"]
                blocks.append(dict(block) if isinstance(block, dict) else {})
                partial = ""
            elif kind == "content_block_delta" and isinstance(delta := event["delta"], dict):
                if "text" in delta:
                    blocks[-1]["text"] = str(blocks[-1].get("text", "")) + str(delta["text"])
                partial += str(delta.get("partial_json", ""))
            elif kind == "content_block_stop" and blocks[-1].get("type") == "tool_use":
                blocks[-1]["input"] = json.loads(partial or "{}")
            elif kind == "message_stop":
                return blocks, True
    except (http.client.HTTPException, OSError):
        pass
    return [b for b in blocks if b.get("type") == "text" and b.get("text")], False


def start(options: argparse.Namespace) -> Box:
    """The box, started."""
    box: Box = LocalBox()
    if options.image:
        if options.service:
            DockerBox(options.service, options.image, SERVICE, "sleep 600").start()
        docker = DockerBox(options.name, options.image, options.box, options.main)
        docker.start()
        box = docker
    return TimedBox(box, options.tool_limit_s) if options.tool_limit_s else box


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="matrix-agent")
    parser.add_argument("--check", default="test -f answer")
    parser.add_argument("--image", help="run commands in a container of this image")
    parser.add_argument("--name", default="box")
    parser.add_argument("--box", default="--network none", help="options of docker run")
    parser.add_argument("--main", default="sleep 600", help="the container's own command")
    parser.add_argument("--service", help="name of a second container, started before the box")
    parser.add_argument("--setup", help="a command in the box while the first model call is open; its failure ends all")
    parser.add_argument("--retries", type=int, default=1)
    parser.add_argument("--wait-s", type=float, default=0.1)
    parser.add_argument("--patience-s", type=float, default=60.0, help="longest silence")
    parser.add_argument("--deadline-s", type=float, default=0.0, help="longest call, whatever flows")
    parser.add_argument("--tool-limit-s", type=float, default=0.0)
    parser.add_argument("--keep-cuts", action="store_true", help="take a cut reply for the whole one")
    parser.add_argument("--go-on", action="store_true", help="after a cut reply ask for more")
    parser.add_argument("--fallback", help="another model after an error")
    parser.add_argument("--swallow", action="store_true", help="exit 0 whatever happened")
    parser.add_argument("--compact-every", type=int, default=0)
    parser.add_argument("--done-after", type=int, default=0, help="end after so many turns without asking again")
    parser.add_argument("--session")
    parser.add_argument("--transcript", help="file that gets the conversation, as real agents keep one")
    options = parser.parse_args()
    box = start(options)
    agent = Agent(options, box)
    if options.setup:
        threading.Thread(target=set_up, args=(agent, options.setup), daemon=True).start()
    try:
        agent.work()
        code, _ = box.run(options.check)
    except ApiError as error:
        print(f"model API: {error}", flush=True)
        return 0 if options.swallow else 1
    finally:
        box.close()
    print("check passed" if code == 0 else "check failed", flush=True)
    return 0 if code == 0 or options.swallow else 1


def set_up(agent: Agent, command: str) -> None:
    """Part of the harness's own work, beside the first call: without it nothing can go on."""
    agent.first_call.wait()
    time.sleep(2.5)  # a set-up takes its time; fairtrial watches by then
    code, output = agent.box.run(command)
    if code != 0:
        print(f"the setup failed: {output.strip()[:500]} [exit {code}]", flush=True)
        time.sleep(3.0)  # as a harness takes to find out, and to write it down
        agent.box.close()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
