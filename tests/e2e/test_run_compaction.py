"""Claude Code sums a conversation up under `fairtrial run`: those calls are beside the steps, and the session goes on.

Asked for by /compact, or by itself when a prompt was refused for its length (the newer line alone).
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.demo.faults import PROMPT_TOO_LONG, Fault
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.test_standin_clients import FINAL, SCRIPT, claude_result
from tests.e2e.under import NO_DOCKER, Under, run_under


def compactions(trial: Trial) -> list[list[int | None]]:
    """Statuses of the attempts of each side call but probes, which all must sum up."""
    beside = [call for call in trial.side_calls if call.role != "probe"]
    assert {call.role for call in beside} <= {"compaction"}, beside
    return [[attempt.status for attempt in call.attempts] for call in beside]


def test_a_compaction_is_no_step_and_what_follows_it_is(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], claude_line: str
) -> None:
    """The newer line asks twice, in other words, since the stand-in's reply holds no summary."""
    asked_twice = claude_line == "claude-newer"
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
    assert len(asked) == 4 + asked_twice, under.told()
    assert b"<summary>" in asked[2].body, "the third call is not the one that sums up"
    assert compactions(under.trial) == [[200]] * (1 + asked_twice), under.told()
    assert [len(step.calls) for step in under.trial.steps] == [1, 1, 1], under.told()


def too_long(home: Path, project: Path, kept: Path, prefix: Sequence[str], refused: int) -> Under:
    fault = Fault(
        kind="http", step=1, attempts=refused, status=400, error_type="invalid_request_error", message=PROMPT_TOO_LONG
    )
    with running_standin(SCRIPT, [fault], command_prefix=prefix) as server:
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        return run_under(clients.claude_command("say hello using bash"), environment, project, kept=kept, prefix=prefix)


@pytest.mark.parametrize("claude_line", [pytest.param("claude-newer", marks=pytest.mark.dear)], indirect=True)
@pytest.mark.usefixtures("claude_line")
def test_what_sums_up_after_a_prompt_too_long_is_no_step(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    under = too_long(home, project, tmp_path / "kept", loopback_only, refused=2)
    assert claude_result(under.outcome)["result"] == FINAL, under.told()
    assert compactions(under.trial) == [[400, 200], [200]], under.told()
    # The step that was refused, and the same turn again behind the summary.
    statuses = [[attempt.status for call in step.calls for attempt in call.attempts] for step in under.trial.steps]
    assert statuses == [[200], [400], [200], [200]], under.told()


@pytest.mark.parametrize("claude_line", [pytest.param("claude-newer", marks=pytest.mark.dear)], indirect=True)
@pytest.mark.usefixtures("claude_line")
def test_a_compaction_that_fails_too_hides_neither_the_refusal_nor_whose_it_may_be(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    under = too_long(home, project, tmp_path / "kept", loopback_only, refused=99)
    assert under.outcome.returncode == 1, under.told()
    assert compactions(under.trial) == [[400, 400], [400, 400]], under.told()
    assert [step.index for step in under.trial.steps] == [1, 2], under.told()
    verdict = under.verdict
    assert (verdict.blame, verdict.cause, verdict.step) == (Blame.HARNESS, "model_api.client_error", 2), under.told()
