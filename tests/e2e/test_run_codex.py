"""Codex under `fairtrial run --adapt`: the Responses API as its most stubborn client speaks it."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from fairtrial.middleware.core.observations import AttemptEnded, decode
from fairtrial.middleware.core.records import Blame, Outcome
from fairtrial.middleware.demo.faults import Fault, catalogue
from fairtrial.middleware.demo.script import Scenario, say, shell
from fairtrial.middleware.demo.standin import RunningStandIn, running_standin
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e import clients
from tests.e2e.test_standin_clients import FINAL, SCRIPT
from tests.e2e.under import NO_DOCKER, Under, ended_by, missed, passed, run_under, step_call

pytestmark = pytest.mark.usefixtures("codex")

PROMPT = "say hello using the shell"


def run_codex(
    server: RunningStandIn, home: Path, project: Path, kept: Path, prefix: Sequence[str], *, adapt: bool = True
) -> Under:
    environment = clients.codex_environment(home, server.url, **NO_DOCKER)
    options = ["--adapt"] if adapt else []
    return run_under(clients.codex_command(PROMPT), environment, project, kept=kept, options=options, prefix=prefix)


def events(stdout: str) -> list[dict[str, Any]]:
    """What Codex says of its run, one event a line."""
    return [cast("dict[str, Any]", json.loads(line)) for line in stdout.splitlines()]


def test_a_good_run_of_codex_is_recorded_step_by_step(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
        calls = server.calls
    last = events(under.outcome.stdout)[-1]
    assert (under.outcome.returncode, last["type"]) == (0, "turn.completed"), under.told()
    assert (project / "hello.txt").read_text() == "hello\n"
    assert not (told := missed(under, passed())), told

    trial = under.trial
    assert trial.outcome is Outcome.PASSED
    assert [(call.route, call.step) for call in calls] == [("responses", 0), ("responses", 1)]
    assert [step.index for step in trial.steps] == [1, 2], under.told()
    for index, theirs in enumerate(calls, start=1):
        ours = step_call(trial, index)
        assert theirs.usage is not None
        assert (ours.dialect, ours.model, ours.stream, ours.outcome) == (
            "openai_responses",
            theirs.model,
            True,
            "ok",
        ), under.told()
        assert (ours.input_tokens, ours.output_tokens) == (theirs.usage.all_input_tokens, theirs.usage.output_tokens)
        assert [attempt.request_id for attempt in ours.attempts] == [theirs.request_id]
        assert ours.stop_reason == "completed"
    assert trial.side_calls == []
    assert last["usage"]["output_tokens"] == sum(step_call(trial, n).output_tokens or 0 for n in (1, 2))

    (tool,) = trial.steps[0].tools
    assert tool.name == "exec_command", under.told()
    assert (tool.call_id or "-").encode() in calls[1].body
    assert tool.ended is not None
    assert trial.steps[1].tools == []


def test_several_calls_in_one_turn_are_tools_of_one_step(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    script = (shell("echo a > a", "echo b > b"), shell("cat a b"), say(FINAL))
    with running_standin(script, command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
    assert not (told := missed(under, passed())), told
    assert [len(step.tools) for step in under.trial.steps] == [2, 1, 0], under.told()
    assert all(tool.ended for step in under.trial.steps for tool in step.tools), under.told()


def test_529_without_end_is_infra_proved_with_every_attempt_of_codex(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["overloaded_for_ever"], command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
        calls = server.model_calls
    assert (under.outcome.returncode, events(under.outcome.stdout)[-1]["type"]) == (1, "turn.failed"), under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.overloaded", 2))), told
    call = step_call(under.trial, 2)
    assert len(call.attempts) == len(calls) - 1 > 5, under.told()
    assert {attempt.status for attempt in call.attempts} == {529}
    assert call.fell_back is None
    assert all(attempt.wait_before for attempt in call.attempts[1:]), under.told()


def test_a_stream_cut_every_time_is_a_truncation_proved(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["cut_for_ever"], command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
        calls = server.model_calls
    assert under.outcome.returncode == 1, under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.truncated", 2))), told
    attempts = step_call(under.trial, 2).attempts
    assert len(attempts) == len(calls) - 1
    assert {(attempt.outcome, attempt.closed_by) for attempt in attempts} == {("truncated", "upstream")}


def test_a_stream_that_ends_cleanly_without_its_terminal_event_is_a_truncation_too(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    faults = [Fault(kind="short", step=1, attempts=1, after_events=5)]
    with running_standin(SCRIPT, faults, command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
    assert not (told := missed(under, passed(("model_api.truncated", 2)))), told
    call = step_call(under.trial, 2)
    assert [attempt.outcome for attempt in call.attempts] == ["truncated", "ok"], under.told()
    assert call.fell_back is None


def test_an_error_event_in_a_200_is_the_providers_error(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["error_event_for_ever"], command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
    assert under.outcome.returncode == 1, under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.overloaded", 2))), told
    assert {attempt.error_type for attempt in step_call(under.trial, 2).attempts} == {"overloaded_error"}


def test_a_response_that_failed_by_its_own_terminal_event_is_the_providers_error(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    faults = [Fault(kind="failed", step=1, attempts=None, after_events=3)]
    with running_standin(SCRIPT, faults, command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only)
    assert under.outcome.returncode == 1, under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.server_error", 2))), told
    assert {attempt.error_type for attempt in step_call(under.trial, 2).attempts} == {"server_error"}


def test_without_adapt_the_settings_file_is_named_and_the_unseen_run_is_nobodys(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["prompt_too_long"], command_prefix=loopback_only) as server:
        under = run_codex(server, home, project, tmp_path / "kept", loopback_only, adapt=False)
        assert len(server.model_calls) == 2
    assert under.outcome.returncode == 1, under.told()
    said = [line for line in under.outcome.stderr.splitlines() if "~/.codex/config.toml" in line]
    assert said, under.told()
    assert "--adapt" in said[0]
    assert under.trial.steps == []
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()


# --- over a WebSocket, which its built-in provider prefers ------------------------------------------------------------


def run_builtin(server: RunningStandIn, home: Path, project: Path, kept: Path, prefix: Sequence[str]) -> Under:
    environment = clients.codex_builtin_environment(home, server.url, **NO_DOCKER)
    return run_under(clients.codex_command(PROMPT), environment, project, kept=kept, options=["--adapt"], prefix=prefix)


def over_sockets(*faults: Fault) -> Scenario:
    return Scenario(steps=SCRIPT, faults=faults, websockets=True)


def test_calls_over_a_websocket_are_steps_with_tools_and_usage(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(over_sockets(), command_prefix=loopback_only) as server:
        under = run_builtin(server, home, project, tmp_path / "kept", loopback_only)
        calls = server.model_calls
    assert under.outcome.returncode == 0, under.told()
    assert not (told := missed(under, passed())), told
    asked = [call for call in calls if call.step is not None]
    assert {call.method for call in asked} == {"GET"}, under.told()
    assert [step.index for step in under.trial.steps] == [1, 2], under.told()
    for index, theirs in enumerate(asked, start=1):
        ours = step_call(under.trial, index)
        assert theirs.usage is not None
        assert (ours.dialect, ours.outcome, ours.stream) == ("openai_responses", "ok", True), under.told()
        assert (ours.input_tokens, ours.output_tokens) == (theirs.usage.all_input_tokens, theirs.usage.output_tokens)
    (tool,) = under.trial.steps[0].tools
    assert (tool.name, tool.ended is not None) == ("exec_command", True), under.told()
    assert under.trial.coverage.families["model_api"].level == "full", under.told()


def test_a_websocket_cut_once_is_present_since_codex_asked_again(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    scenario = over_sockets(*catalogue(1)["cut_once"])
    with running_standin(scenario, command_prefix=loopback_only) as server:
        under = run_builtin(server, home, project, tmp_path / "kept", loopback_only)
    assert not (told := missed(under, passed(("model_api.truncated", 2)))), told
    # It had sent what was new; after the cut it sends the whole history: one call all the same.
    call = step_call(under.trial, 2)
    assert [attempt.outcome for attempt in call.attempts] == ["truncated", "ok"], under.told()
    assert (call.fell_back, len(under.trial.steps[1].calls)) == (None, 1), under.told()


def test_a_websocket_cut_every_time_is_a_truncation_proved(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    scenario = over_sockets(*catalogue(1)["cut_for_ever"])
    with running_standin(scenario, command_prefix=loopback_only) as server:
        under = run_builtin(server, home, project, tmp_path / "kept", loopback_only)
    assert under.outcome.returncode == 1, under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.truncated", 2))), told


def test_refusals_over_a_websocket_are_infra_proved(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    scenario = over_sockets(*catalogue(1)["overloaded_for_ever"])
    with running_standin(scenario, command_prefix=loopback_only) as server:
        under = run_builtin(server, home, project, tmp_path / "kept", loopback_only)
    assert under.outcome.returncode == 1, under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.overloaded", 2))), told


# --- what the door changes --------------------------------------------------------------------------------------------


def plain(text: str, home: Path) -> str:
    """Without ids, times, the test's own folder, and the tokens that the stand-in counts from all their lengths."""
    text = text.replace(str(home), "HOME")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\b(msg|fc|fco|call)_[0-9A-Za-z]+", r"\1_ID", text)
    text = re.sub(r'"input_tokens":\d+', "N", text)
    text = re.sub(r"Chunk ID: \w+", "Chunk ID", text)
    return re.sub(r"[0-9.]+ seconds", "N seconds", text)


def parts(body: bytes) -> object:
    """The request without Codex's own metadata, whose order changes from call to call."""
    return {name: value for name, value in json.loads(body).items() if name != "client_metadata"}


def test_the_model_server_and_codexs_events_are_what_they_are_without_fairtrial(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        environment = clients.codex_environment(home, server.url)
        alone = clients.run(clients.codex_command(PROMPT), environment, project, prefix=loopback_only)
        direct = server.calls
    assert alone.returncode == 0, alone.told()
    second = tmp_path / "second"
    second.mkdir()
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        under = run_codex(server, second, project, tmp_path / "kept", loopback_only)
        through = server.calls
    assert len(direct) == len(through) == 2, under.told()
    for before, after in zip(direct, through, strict=True):
        assert after.path == before.path
        one = plain(json.dumps(parts(before.body)), home)
        assert plain(json.dumps(parts(after.body)), second) == one
        assert [name.lower() for name, _ in after.headers] == [name.lower() for name, _ in before.headers]
    assert plain(under.outcome.stdout, second) == plain(alone.stdout, home)

    # To the byte: what arrived is what the door was given.
    database = open_database(under.store, read_only=True)
    seen = [value for each in observations_of(database, under.trial.trial) if (value := decode(each)) is not None]
    database.close()
    given = [value.request.raw_digest for value in seen if isinstance(value, AttemptEnded)]
    assert given == [hashlib.blake2b(call.body, digest_size=16).hexdigest() for call in through]
