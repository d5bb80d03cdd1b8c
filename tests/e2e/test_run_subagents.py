"""Claude Code's subagents under `fairtrial run`: whose they are, and by which call they were set to work."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.demo.script import Step, say
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, run_under, step_call

pytestmark = pytest.mark.usefixtures("claude_line")

DELEGATE = Step(
    text="I delegate.",
    tool="Agent",
    arguments={"description": "count", "prompt": "Count to one.", "subagent_type": "general-purpose"},
)
"""Said to whoever speaks for the first time, so that each agent has a child, down to where the client allows none."""


def test_subagents_are_a_tree_by_the_ids_that_claude_code_sends(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin([DELEGATE, say("All is done.")], command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        command = clients.claude_command("delegate it")
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
        calls = [call for call in server.model_calls if not call.side]
    assert under.outcome.returncode == 0, under.told()
    assert under.trial.outcome is Outcome.PASSED

    # Who is whose child, by the headers as the server got them.
    named = [{name.lower(): value for name, value in call.headers} for call in calls]
    parent_of = {who.get("x-claude-code-agent-id"): who.get("x-claude-code-parent-agent-id") for who in named}
    assert len(parent_of) > 2, named

    # 2.1.332 lets its subagents work in the background: their end is a turn more of the main agent.
    turns = sum("x-claude-code-agent-id" not in who for who in named)
    assert turns >= 2, named
    assert [step.index for step in under.trial.steps] == list(range(1, turns + 1)), under.told()
    assert [call.agent for step in under.trial.steps for call in step.calls] == [None] * turns
    subs = [call for call in under.trial.side_calls if call.role == "subagent"]
    ours = {call.agent: call.parent_agent for call in subs} | {None: None}
    assert len(ours) == len(parent_of), under.told()
    assert depths(ours) == depths(parent_of), under.told()
    # Each was set to work by its parent's first call, which is what the parent is called by.
    first = step_call(under.trial, 1).id
    assert all(call.spawned_by == (call.parent_agent or first) for call in subs), under.told()


def depths(parents: Mapping[str | None, str | None]) -> list[int]:
    """How deep each stands below the main agent, sorted."""

    def depth(name: str | None) -> int:
        return 0 if name is None else 1 + depth(parents[name])

    return sorted(depth(name) for name in parents)
