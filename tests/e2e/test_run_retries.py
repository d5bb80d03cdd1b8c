"""Claude Code's retries under `fairtrial run`: one call whatever it changes, with its waits and what it gave up."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.demo.faults import Fault, catalogue
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.test_standin_clients import SCRIPT
from tests.e2e.under import NO_DOCKER, missed, passed, run_under, step_call

pytestmark = pytest.mark.usefixtures("claude")

PROMPT = "say hello using bash"


def test_a_model_changed_after_errors_is_one_call_that_fell_back(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    faults = [Fault(kind="http", status=529, step=1, attempts=4)]
    with running_standin(SCRIPT, faults, command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        command = [*clients.claude_command(PROMPT), "--fallback-model", "gpt-5-mini"]
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
        asked = [call.model for call in server.model_calls if call.step == 1]
    assert under.outcome.returncode == 0, under.told()
    assert len(set(asked)) == 2, "it did not fall back"
    assert not (told := missed(under, passed(("model_api.overloaded", 2)))), told
    call = step_call(under.trial, 2)
    assert len(under.trial.steps[1].calls) == 1, under.told()
    assert [attempt.outcome for attempt in call.attempts] == ["error"] * (len(asked) - 1) + ["ok"], under.told()
    assert "model" in (call.fell_back or "").split(","), under.told()
    assert call.model == asked[-1]
    waits = [attempt.wait_before or 0.0 for attempt in call.attempts[1:]]
    assert all(waits), under.told()
    assert call.backoff == pytest.approx(sum(waits))
    assert {attempt.first_failure for attempt in call.attempts[:-1]} == {"upstream"}


def test_a_wait_that_was_asked_for_and_kept_is_said(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["rate_limited_once"], command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        command = clients.claude_command(PROMPT)
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    call = step_call(under.trial, 2)
    assert [attempt.status for attempt in call.attempts] == [429, 200], under.told()
    assert [attempt.retry_after for attempt in call.attempts] == [2.0, None]
    assert [attempt.retry_after_obeyed for attempt in call.attempts] == [None, True], under.told()
    assert (call.attempts[1].wait_before or 0.0) >= 1.9
