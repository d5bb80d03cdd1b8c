"""Claude Code sums a conversation up under `fairtrial run`: that call is beside the steps, and the session goes on."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.test_standin_clients import SCRIPT
from tests.e2e.under import NO_DOCKER, run_under

pytestmark = pytest.mark.usefixtures("claude")


def test_a_compaction_is_no_step_and_what_follows_it_is(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    rounds = [
        clients.claude_command("say hello using bash"),
        [*clients.claude_command("/compact"), "--continue"],
        [*clients.claude_command("go on"), "--continue"],
    ]
    command = ["sh", "-ec", "; ".join(shlex.join(words) for words in rounds)]
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
        asked = [call for call in server.model_calls if not call.side]
    assert under.outcome.returncode == 0, under.told()
    assert len(asked) == 4, under.told()
    assert b"<summary>" in asked[2].body, "the third call is not the one that sums up"
    roles = {call.id: call.role for call in under.trial.side_calls if call.role != "probe"}
    assert list(roles.values()) == ["compaction"], under.told()
    assert [len(step.calls) for step in under.trial.steps] == [1, 1, 1], under.told()
