"""Planted secrets, an agent that carries them, a model API that answers with more of them, and the search for them.

In: nothing. Out: `SECRETS` (way → secret), `python -m tests.e2e.canary` as the agent, `upstream()`, and `pieces`:
everything in the files of a folder as bytes, rows of a store unpacked. Each secret holds its own way's name, so that a
leak says where it came in. Two kinds: *opaque*, a word that nothing could recognise, for what is never kept; *shaped*,
with the form of a real key, for texts of others that are kept (a model's name, an error's type, a user agent), where
the shape is all that there is to go by.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import os
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from fairtrial.middleware.store.database import all_observations, latest_record, open_database

_OPAQUE = """
HeaderApiKey HeaderCookie HeaderProxyBasic HeaderGoogApiKey HeaderAzureKey HeaderAnthropicToken HeaderBaggage
HeaderSession QueryKey QueryToken BodySystem BodyPrompt BodyToolDescription BodyToolResult BodyMetadata BodyStop
ReplyText ReplyToolArguments ReplyThinking ErrorMessage ErrorPage ReplyCookie ReplyHeader
EnvProviderKey EnvSecret EnvOtlpHeader ArgvOption ArgvEquals ArgvPrompt UrlPassword UrlQuery ProxyPassword
DockerExecCommand DockerExecOption DockerExecEnv DockerEnv DockerLabel ServeAccess ServeKey
"""
_SHAPED = """
HeaderAuthorization HeaderTraceState UserAgent ModelAsked ModelReplied RequestId ErrorType StopReason ToolName
PathSegment BasePath ArgvBare UpstreamName ErrorStatusPage DockerName DockerMissingProgram
"""
SECRETS = {way: f"qz{way}zq7" for way in _OPAQUE.split()} | {
    way: f"sk-ant-api03-qz{way}zq7Aa9" for way in _SHAPED.split()
}
MARKS = {way: f"qz{way}zq7".lower().encode() for way in SECRETS}
"""What is looked for, in small letters: names of hosts are folded."""
CONTROL = "controlTaskOfTheCanary"
"""A task's name: it must be found wherever a trial is told."""
CONTROL_MODEL = "claude-control-canary"


# --- the model API ----------------------------------------------------------------------------------------------------


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        kind = self.headers.get("x-canary-want", "tool")
        status, body, content_type = _ANSWERS[kind]
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("request-id", SECRETS["RequestId"])
        self.send_header("set-cookie", f"session={SECRETS['ReplyCookie']}; Path=/")
        self.send_header("x-internal-token", SECRETS["ReplyHeader"])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def _message(content: list[object], model: str, stop: str) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 2}
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content}
    return json.dumps({**told, "stop_reason": stop, "usage": usage}).encode()


_TEXT: object = {"type": "text", "text": f"The key is {SECRETS['ReplyText']}."}
_THOUGHT: object = {"type": "thinking", "thinking": f"Keep {SECRETS['ReplyThinking']}.", "signature": "x"}
_ARGUMENTS = {"command": f"echo {SECRETS['ReplyToolArguments']}"}
_USE: object = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": _ARGUMENTS}
_OTHER_USE: object = {"type": "tool_use", "id": "toolu_2", "name": SECRETS["ToolName"], "input": _ARGUMENTS}
_ERROR = {"type": SECRETS["ErrorType"], "message": f"bad key {SECRETS['ErrorMessage']}"}
_PAGE = f"<html>{SECRETS['ErrorPage']} {SECRETS['ErrorStatusPage']}</html>"
_EVENTS = b"".join(
    b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())
    for event in (
        {"type": "message_start", "message": {"id": "msg_2", "model": CONTROL_MODEL, "role": "assistant"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": SECRETS["ReplyText"]}},
        {"type": "error", "error": _ERROR},
    )
)
_ANSWERS = {
    "tool": (200, _message([_THOUGHT, _TEXT, _USE, _OTHER_USE], CONTROL_MODEL, "tool_use"), "application/json"),
    "done": (200, _message([_TEXT], SECRETS["ModelReplied"], SECRETS["StopReason"]), "application/json"),
    "error": (401, json.dumps({"type": "error", "error": _ERROR}).encode(), "application/json"),
    "stream": (200, _EVENTS, "text/event-stream"),
    "page": (502, _PAGE.encode(), "text/html"),
}


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    """The answering API; its port as a URL without user part."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


# --- the agent --------------------------------------------------------------------------------------------------------


def headers(want: str) -> dict[str, str]:
    """A request's, with every kind of credential that clients send."""
    basic = base64.b64encode(f"user:{SECRETS['HeaderProxyBasic']}".encode()).decode()
    return {
        "content-type": "application/json",
        "x-canary-want": want,
        "x-api-key": SECRETS["HeaderApiKey"],
        "authorization": f"Bearer {SECRETS['HeaderAuthorization']}",
        "cookie": f"session={SECRETS['HeaderCookie']}",
        "proxy-authorization": f"Basic {basic}",
        "x-goog-api-key": SECRETS["HeaderGoogApiKey"],
        "api-key": SECRETS["HeaderAzureKey"],
        "anthropic-workspace-token": SECRETS["HeaderAnthropicToken"],
        "baggage": f"token={SECRETS['HeaderBaggage']}",
        "tracestate": f"vendor={SECRETS['HeaderTraceState']}",
        "x-session-affinity": SECRETS["HeaderSession"],
        "user-agent": f"my-agent/1.0 ({SECRETS['UserAgent']})",
    }


def body(model: str = CONTROL_MODEL) -> bytes:
    """A request's, second turn: prompt, tools, and the first one's result."""
    tool = {"name": "bash", "description": SECRETS["BodyToolDescription"], "input_schema": {"type": "object"}}
    messages: list[object] = [
        {"role": "user", "content": f"The password is {SECRETS['BodyPrompt']}."},
        {"role": "assistant", "content": [_USE]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": SECRETS["BodyToolResult"]}],
        },
    ]
    asked = {
        "model": model,
        "max_tokens": 9,
        "system": SECRETS["BodySystem"],
        "tools": [tool],
        "messages": messages,
        "metadata": {"user_id": SECRETS["BodyMetadata"]},
        "stop_sequences": [SECRETS["BodyStop"]],
    }
    return json.dumps(asked).encode()


def call(url: str, want: str, model: str = CONTROL_MODEL, prefix: str = "") -> int:
    """One call; its status, 0 when the door broke off."""
    door = urlsplit(url)
    path = f"{door.path}{prefix}/proxy/{SECRETS['PathSegment']}/v1/messages"
    query = f"beta=true&key={SECRETS['QueryKey']}&access_token={SECRETS['QueryToken']}"
    connection = http.client.HTTPConnection(door.hostname or "", door.port, timeout=30)
    try:
        connection.request("POST", f"{path}?{query}", body(model), headers(want))
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
    return answer.status


def main() -> int:
    """Call in every way; exec in a container where an engine is named; fail."""
    url = os.environ["ANTHROPIC_BASE_URL"]
    for want in ("tool", "error", "page", "stream", "done"):
        print(want, call(url, want))
    print("asked", call(url, "done", SECRETS["ModelAsked"]))
    for variable in ("LOST_URL", "TLS_URL"):
        if variable in os.environ:
            print(variable, call(os.environ[variable], "done"))
    image = os.environ.get("CANARY_IMAGE")
    if image:
        name = SECRETS["DockerName"] + os.environ["CANARY_SUFFIX"]
        label, inside = f"com.example.token={SECRETS['DockerLabel']}", f"TOKEN={SECRETS['DockerEnv']}"
        _docker("run", "-d", "--name", name, "--label", label, "-e", inside, "--network", "none", image, "sleep", "60")
        _docker("exec", "-e", f"T={SECRETS['DockerExecEnv']}", name, "sh", "-c", f"echo {SECRETS['DockerExecCommand']}")
        _docker("exec", name, f"/bin/{SECRETS['DockerMissingProgram']}")
        _docker("exec", name, "true", "--password", SECRETS["DockerExecOption"])
        _docker("rm", "-f", name)
    return 1


def _docker(*words: str) -> None:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=60)
    print("docker", words[0], done.returncode)


# --- the search -------------------------------------------------------------------------------------------------------


def pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every file below a folder, and of every row of every store among them, unpacked."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        yield str(path), raw
        if raw.startswith(b"SQLite format 3\0"):
            yield from _rows(path)


def _rows(path: Path) -> Iterator[tuple[str, bytes]]:
    database = open_database(path, read_only=True)
    try:
        yield from unpacked(database, path)
        tables = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in database.execute(f"SELECT * FROM {table}"):
                for cell in row:
                    yield f"{path}:{table}", _plain(cell)
    finally:
        database.close()


def unpacked(database: sqlite3.Connection, path: Path) -> Iterator[tuple[str, bytes]]:
    """Observations and records as JSON; fails when a row is left out."""
    observations = list(all_observations(database))
    count = database.execute("SELECT count(*) FROM observations").fetchone()[0]
    assert len(observations) == count, f"{count - len(observations)} rows of {path} cannot be read"
    for observation in observations:
        yield f"{path}:observation {observation.kind}", msgspec.json.encode(observation)
    for (trial,) in database.execute("SELECT DISTINCT trial FROM verdicts").fetchall():
        yield f"{path}:record {trial}", msgspec.json.encode(latest_record(database, str(trial)))


def _plain(cell: object) -> bytes:
    if not isinstance(cell, bytes):
        return str(cell).encode()
    try:
        return zlib.decompress(cell)
    except zlib.error:
        return cell


def leaks(said: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> list[str]:
    """Which secret stands where; base64 of a user's part is looked for as well."""
    basic = base64.b64encode(f"user:{SECRETS['HeaderProxyBasic']}".encode()).lower()
    found: list[str] = []
    for where, raw in said:
        low = raw.lower()
        found += [f"{way} in {where}: …{_around(low, mark)}…" for way, mark in MARKS.items() if mark in low]
        if basic in low:
            found.append(f"HeaderProxyBasic (base64) in {where}")
    return found


def _around(low: bytes, mark: bytes) -> str:
    at = low.index(mark)
    return low[max(0, at - 60) : at + 60].decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
