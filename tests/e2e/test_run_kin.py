"""Claude Agent SDK and aider under `fairtrial run`: nothing to set up, each step in the record, an outage not theirs.

Both are run by `make test-all` alone, for what they weigh.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Answer, Blame, EndedAs
from fairtrial.middleware.demo.faults import Fault, catalogue
from fairtrial.middleware.demo.script import Scenario, say
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.test_standin_clients import FINAL, SCRIPT
from tests.e2e.under import NO_DOCKER, ended_by, missed, passed, run_under, step_call

pytestmark = pytest.mark.dear

SDK_AGENT = """
import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

async def main():
    async for message in query(prompt="say hello using bash", options=ClaudeAgentOptions(allowed_tools=["Bash"])):
        if isinstance(message, ResultMessage):
            print(message.result)
            raise SystemExit(message.is_error)

anyio.run(main)
"""
EDIT = "hello.txt\n```\nhello\n```\n"
"""aider's `whole` format: the file's name, and its new text between fences."""
EXAMPLES = 3
"""Assistant turns that aider puts before the first real one, to show the format: the stand-in counts them as steps."""


@pytest.fixture
def agent_sdk() -> Path:
    try:
        return clients.agent_sdk_python()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def aider() -> Path:
    try:
        return clients.aider_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


def test_an_agent_of_the_claude_agent_sdk_is_recorded_step_by_step(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], agent_sdk: Path
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        command = [str(agent_sdk), "-c", SDK_AGENT]
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
        calls = [call for call in server.model_calls if not call.side]
    assert FINAL in under.outcome.stdout, under.told()
    assert not (told := missed(under, passed())), told
    assert (project / "hello.txt").read_text() == "hello\n"
    assert [step_call(under.trial, n).attempts[0].request_id for n in (1, 2)] == [call.request_id for call in calls]
    assert [tool.name for tool in under.trial.steps[0].tools] == ["Bash"], under.told()
    assert "agent-sdk/" in (calls[0].header("user-agent") or "")


def test_an_overloaded_api_ends_an_agent_of_the_sdk_and_is_infra_proved(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], agent_sdk: Path
) -> None:
    with running_standin(SCRIPT, catalogue(1)["overloaded_for_ever"], command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, CLAUDE_CODE_MAX_RETRIES="1", **NO_DOCKER)
        command = [str(agent_sdk), "-c", SDK_AGENT]
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    assert under.outcome.returncode == 1, under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.overloaded", 2))), told


@pytest.mark.parametrize("held", ["environment", "dotenv", "adapted"])
def test_aider_edits_a_file_and_its_call_is_a_step(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], aider: Path, held: str
) -> None:
    """`dotenv`: an address in `.env`, which beats the environment, and the line of docs/ci.md against that; `adapted`:
    the true address is in `.env`, and `--adapt` puts the door before it."""
    del aider
    (project / "hello.txt").write_text("")
    if held == "dotenv":
        (project / ".env").write_text("OPENAI_API_BASE=http://127.0.0.1:9/v1\n")
    with running_standin(Scenario(steps=(say(EDIT),), side_text=None), command_prefix=loopback_only) as server:
        environment = clients.aider_environment(home, server.url, **NO_DOCKER)
        command = clients.aider_command("Write hello into hello.txt.", "hello.txt")
        if held == "dotenv":
            command = ["sh", "-c", f'exec {command[0]} --openai-api-base "$OPENAI_API_BASE" "$@"', *command]
        if held == "adapted":
            (project / ".env").write_text(f"OPENAI_API_BASE={environment.pop('OPENAI_API_BASE')}\n")
        options = ("--adapt",) if held == "adapted" else ()
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=options)
        assert len(server.model_calls) == 1, under.told()
        (theirs,) = server.model_calls
    assert (project / "hello.txt").read_text() == "hello\n", under.told()
    assert not (told := missed(under, passed())), told
    ours = step_call(under.trial, 1)
    assert ours.attempts[0].request_id == theirs.request_id
    assert (ours.dialect, ours.stream, ours.outcome) == ("openai_chat", True, "ok")


def test_a_refused_key_under_aider_is_the_operators_though_aider_exits_with_0(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], aider: Path
) -> None:
    del aider
    (project / "hello.txt").write_text("")
    fault = Fault(kind="http", step=EXAMPLES, attempts=99, status=401)
    scenario = Scenario(steps=(say(EDIT),), faults=(fault,), side_text=None)
    with running_standin(scenario, command_prefix=loopback_only) as server:
        environment = clients.aider_environment(home, server.url, **NO_DOCKER)
        command = clients.aider_command("Write hello into hello.txt.", "hello.txt")
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    assert under.outcome.returncode == 0, under.told()
    verdict = under.verdict
    assert (verdict.blame, verdict.cause, verdict.ended_as) == (
        Blame.OPERATOR,
        "operator.auth",
        EndedAs.NEVER_RAN,
    ), under.told()
    assert verdict.answers.reward_valid is Answer.NO
