"""Claude Code with what people have around it: key helper, login token, hooks, an MCP server, another path, a resumed
session.  Under fairtrial each works as it does alone, arrives upstream as it was sent, and leaves no secret behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, Under, missed, passed, run_under

pytestmark = pytest.mark.usefixtures("claude_line")

KEY = "sk-ant-api03-helper-key-0123456789abcdef"
LOGIN = "sk-ant-oat01-login-token-0123456789abcdef"

MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "notes", "version": "1"}}
        case "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
            result = {"tools": [{"name": "add", "description": "Adds a note.", "inputSchema": schema}]}
        case "tools/call":
            open("note.txt", "w").write(asked["params"]["arguments"]["text"])
            result = {"content": [{"type": "text", "text": "noted"}]}
        case _:
            result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def kept_text(under: Under) -> bytes:
    """Everything that fairtrial wrote: store, record, and what it said."""
    folder = under.store.parent
    files = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return files + under.outcome.stderr.encode()


def test_key_helper_hooks_mcp_stream_json_and_a_base_url_with_a_path_work_in_one_run(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], claude_line: str
) -> None:
    (tmp_path / "server.py").write_text(MCP_SERVER)
    helper, hooked = tmp_path / "helper.sh", tmp_path / "hooked"
    helper.write_text(f"#!/bin/sh\necho {KEY}\n")
    helper.chmod(0o755)
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": f"cat >> {hooked}"}]}
    (home / ".claude").mkdir()
    settings = {"apiKeyHelper": str(helper), "hooks": {"PreToolUse": [hook]}}
    (home / ".claude" / "settings.json").write_text(json.dumps(settings))
    servers = {"mcpServers": {"notes": {"command": sys.executable, "args": [str(tmp_path / "server.py")]}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    # The newer line offers an MCP server's tools only when they were searched for.
    search = [Step(tool="ToolSearch", arguments={"query": "select:mcp__notes__add", "max_results": 1})]
    script = [
        shell("echo hello > hello.txt"),
        *(search if claude_line == "claude-newer" else []),
        Step(tool="mcp__notes__add", arguments={"text": "remember"}),
        say("All done."),
    ]
    with running_standin(script, command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, f"{server.url}/api/anthropic", **NO_DOCKER)
        del environment["ANTHROPIC_API_KEY"]
        command = clients.claude_command("say hello", output_format="stream-json")
        command[command.index("Bash")] = "Bash,mcp__notes__add"
        command += ["--mcp-config", str(tmp_path / "mcp.json")]
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
        calls = [call for call in server.model_calls if not call.side]
    assert not (told := missed(under, passed())), told
    lines = [json.loads(line) for line in under.outcome.stdout.splitlines()]
    assert (lines[0]["type"], lines[-1]["type"], lines[-1]["result"]) == ("system", "result", "All done.")
    assert (project / "hello.txt").read_text() == "hello\n"
    assert (project / "note.txt").read_text() == "remember"
    assert json.loads(hooked.read_text())["tool_name"] == "Bash"
    assert all(call.path.startswith("/api/anthropic/v1/messages") for call in calls), [call.path for call in calls]
    sent = {call.header("x-api-key") or call.header("authorization") for call in calls}
    assert len(sent) == 1
    assert None not in sent
    used = [step.tool for step in script if step.tool]
    assert [tool.name for step in under.trial.steps for tool in step.tools] == ["Bash", *used]
    assert [step.calls[0].outcome for step in under.trial.steps] == ["ok"] * len(script)
    assert KEY.encode() not in kept_text(under)


def test_a_login_token_arrives_and_a_resumed_session_is_a_trial_of_its_own(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    runs: list[Under] = []
    lengths: list[list[int]] = []
    with running_standin([shell("echo hello > hello.txt"), say("Done.")], command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, CLAUDE_CODE_OAUTH_TOKEN=LOGIN, **NO_DOCKER)
        del environment["ANTHROPIC_API_KEY"]
        command = clients.claude_command("say hello")
        for resumed in (False, True):
            if resumed:
                command = [*clients.claude_command("and again"), "--resume", str(runs[0].outcome.json()["session_id"])]
            before = len(server.model_calls)
            kept = tmp_path / f"kept{len(runs)}"
            runs.append(run_under(command, environment, project, kept=kept, prefix=loopback_only))
            new = [call for call in server.model_calls[before:] if not call.side]
            lengths.append([len(cast("list[object]", call.json()["messages"])) for call in new])
            assert all((call.header("authorization") or "").startswith("Bearer ") for call in new)
    first, second = runs
    for under in runs:
        assert under.outcome.returncode == 0, under.told()
        assert under.verdict.blame is Blame.NONE, under.told()
        assert LOGIN.encode() not in kept_text(under)
    assert first.outcome.json()["session_id"] == second.outcome.json()["session_id"]
    assert first.trial.trial != second.trial.trial
    # What was said before the resumption is history: the steps of the second trial count from 1.
    assert min(lengths[1]) > max(lengths[0])
    assert [step.index for step in second.trial.steps] == list(range(1, len(second.trial.steps) + 1))
