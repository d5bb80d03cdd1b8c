"""Claude Code, both lines that npm offers, under `fairtrial run`: what it sends, what it books, and what fairtrial says
instead.  The newer line is run by `make test-all`.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from fairtrial.middleware.core.observations import AttemptEnded, decode
from fairtrial.middleware.core.records import Blame, Mutation, Outcome, Trial
from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.faults import Fault, catalogue
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e import clients
from tests.e2e.claude_ways import LINES, ways_of
from tests.e2e.corporate import running_proxy
from tests.e2e.test_standin_clients import FINAL, SCRIPT, claude_result
from tests.e2e.under import NO_DOCKER, Under, ended_by, missed, passed, run_under, step_call

pytestmark = pytest.mark.usefixtures("claude_line")

PROMPT = "say hello using bash"
DOOR = re.compile(r"http://127\.0\.0\.1:\d+/t/\S+")
READ_BY_PART = {"tools", "system", "messages", "metadata"}
NEW_WITH_US = {"traceparent"}
"""Headers that Claude Code adds because of CLAUDE_CODE_PROPAGATE_TRACEPARENT, a recorded mutation."""


def run_claude(url: str | None, home: Path, project: Path, kept: Path, prefix: Sequence[str], **more: str) -> Under:
    environment = clients.claude_environment(home, url, **NO_DOCKER, **more)
    return run_under(clients.claude_command(PROMPT), environment, project, kept=kept, prefix=prefix)


def mutation(trial: Trial, what: str) -> Mutation:
    found = [each for each in trial.mutations if each.what == what]
    assert len(found) == 1, trial.mutations
    return found[0]


def test_a_good_run_of_claude_code_is_recorded_step_by_step(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        under = run_claude(server.url, home, project, tmp_path / "kept", loopback_only)
        everything, calls = server.calls, server.model_calls
    result = claude_result(under.outcome)
    assert (under.outcome.returncode, result["result"]) == (0, FINAL), under.told()
    assert (project / "hello.txt").read_text() == "hello\n"
    assert not (told := missed(under, passed())), told

    trial = under.trial
    assert trial.outcome is Outcome.PASSED
    assert [call.step for call in calls if not call.side] == [0, 1]
    assert [step.index for step in trial.steps] == [1, 2], under.told()
    for index, theirs in enumerate((call for call in calls if not call.side), start=1):
        ours = step_call(trial, index)
        assert theirs.usage is not None
        assert (ours.input_tokens, ours.output_tokens, ours.cache_read_tokens, ours.cache_write_tokens) == (
            theirs.usage.input_tokens,
            theirs.usage.output_tokens,
            theirs.usage.cache_read_tokens,
            theirs.usage.cache_write_tokens,
        ), under.told()
        assert (ours.model, ours.stream, ours.outcome, len(ours.attempts)) == (theirs.model, True, "ok", 1)
        assert ours.attempts[0].request_id == theirs.request_id
    assert [step_call(trial, n).stop_reason for n in (1, 2)] == ["tool_use", "end_turn"]

    # All else that came in (HEAD / before the first call) is beside the steps, and counted.
    beside = sum(len(call.attempts) for call in trial.side_calls) + sum(trial.unassigned.values())
    assert beside == len(everything) - 2, under.told()

    tools = trial.steps[0].tools
    assert [tool.name for tool in tools] == ["Bash"], under.told()
    assert (tools[0].call_id or "-").encode() in calls[-1].body
    assert tools[0].join is not None
    assert trial.steps[1].tools == []

    changed = mutation(trial, "environment ANTHROPIC_BASE_URL")
    assert changed.old is not None
    assert changed.old.startswith(server.url), changed
    assert DOOR.match(changed.new or ""), changed
    assert changed.side_effects
    assert mutation(trial, "environment CLAUDE_CODE_PROPAGATE_TRACEPARENT").new == "1"


def test_529_without_end_which_claude_code_books_as_success_is_infra_proved(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["overloaded_for_ever"], command_prefix=loopback_only) as server:
        under = run_claude(server.url, home, project, tmp_path / "kept", loopback_only, CLAUDE_CODE_MAX_RETRIES="2")
    result = claude_result(under.outcome)
    assert (under.outcome.returncode, result["subtype"], result["is_error"]) == (1, "success", True), under.told()
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.overloaded", 2))), told
    call = step_call(under.trial, 2)
    assert [attempt.status for attempt in call.attempts] == [529, 529, 529], under.told()
    assert call.outcome == "error"
    assert all(attempt.wait_before for attempt in call.attempts[1:]), under.told()
    assert "fairtrial: failed (exit 1) → infra, proved · model_api.overloaded in step 2" in under.outcome.stderr
    assert "529" in under.verdict.sentence


def test_a_stream_cut_each_time_ends_claude_code_and_is_a_truncation_proved(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], claude_line: str
) -> None:
    """The older line asks once more, without streaming; the newer does so after as many retries as it may have."""
    streamed = {"claude": 1, "claude-newer": 3}[claude_line]
    faults = [Fault(kind="cut", step=1, attempts=streamed + 1, after_events=3)]
    with running_standin(SCRIPT, faults, command_prefix=loopback_only) as server:
        under = run_claude(server.url, home, project, tmp_path / "kept", loopback_only, CLAUDE_CODE_MAX_RETRIES="2")
        calls = server.model_calls
    result = claude_result(under.outcome)
    assert (under.outcome.returncode, result["subtype"], result["is_error"]) == (1, "success", True), under.told()
    assert [(call.step, call.stream, call.ended) for call in calls] == [
        (0, True, "complete"),
        *[(1, True, "fin")] * streamed,
        (1, False, "fin"),
    ]
    assert not (told := missed(under, ended_by(Blame.INFRA, "model_api.truncated", 2))), told
    call = step_call(under.trial, 2)
    assert [attempt.outcome for attempt in call.attempts] == ["truncated"] * (streamed + 1), under.told()
    assert {attempt.closed_by for attempt in call.attempts} == {"upstream"}


def test_a_stream_cut_once_is_present_since_claude_code_asked_again(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], claude_line: str
) -> None:
    with running_standin(SCRIPT, catalogue(1)["cut_once"], command_prefix=loopback_only) as server:
        under = run_claude(server.url, home, project, tmp_path / "kept", loopback_only)
    assert claude_result(under.outcome)["result"] == FINAL
    assert not (told := missed(under, passed(("model_api.truncated", 2)))), told
    call = step_call(under.trial, 2)
    assert [attempt.outcome for attempt in call.attempts] == ["truncated", "ok"], under.told()
    assert ("non_streaming" in (call.fell_back or "")) == (claude_line == "claude"), under.told()


# --- what the door changes --------------------------------------------------------------------------------------------


def fresh(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder)
        folder.mkdir()


def plain(body: Mapping[str, Any], session: str) -> str:
    """A request body without what differs from run to run by nature: who asks, in which session, at which moment."""
    kept = {name: value for name, value in body.items() if name != "metadata"}
    text = json.dumps(kept).replace(session, "SESSION")
    text = re.sub(r"cch=[0-9a-f]+", "cch=CHECKSUM", text)
    return re.sub(r"(toolu|msg)_[0-9A-Za-z]+", r"\1_ID", text)


def session_of(call: Call) -> str:
    return call.header("x-claude-code-session-id") or "-"


def test_the_model_server_gets_from_claude_code_what_it_gets_without_fairtrial(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url)
        alone = clients.run(clients.claude_command(PROMPT), environment, project, prefix=loopback_only)
        direct = server.model_calls
    assert alone.returncode == 0, alone.told()
    fresh(home, project)
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        under = run_claude(server.url, home, project, tmp_path / "kept", loopback_only)
        through = server.model_calls
    assert len(direct) == len(through) == 2, under.told()
    for before, after in zip(direct, through, strict=True):
        assert after.path == before.path
        assert plain(after.json(), session_of(after)) == plain(before.json(), session_of(before))
        names = [{name.lower() for name, _ in call.headers} for call in (before, after)]
        assert names[1] - names[0] <= NEW_WITH_US
        assert names[0] <= names[1]
        by_nature = {"x-claude-code-session-id", "host", "content-length", *NEW_WITH_US}
        values = [
            {name.lower(): value for name, value in call.headers if name.lower() not in by_nature}
            for call in (before, after)
        ]
        assert values[0] == values[1]
        assert abs(after.body_bytes - before.body_bytes) <= 64
    # To the byte: what arrived is what the door was given.
    database = open_database(under.store, read_only=True)
    seen = [value for each in observations_of(database, under.trial.trial) if (value := decode(each)) is not None]
    database.close()
    given = [value.request.raw_digest for value in seen if isinstance(value, AttemptEnded) and value.method == "POST"]
    arrived = [hashlib.blake2b(call.body, digest_size=16).hexdigest() for call in through]
    assert given == arrived


def test_what_claude_code_offers_differently_behind_a_door_is_listed_in_the_mutations(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], claude_line: str
) -> None:
    """Its provider's own address, with and without the door: the only case in which its first-party ways can change.

    A corporate proxy leads the provider's name to the stand-in, which has a certificate of the company's CA.
    """
    authority = trustme.CA()
    issued = authority.issue_cert("api.anthropic.com")
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    first: dict[str, Call] = {}
    beside: dict[str, set[str]] = {}
    ran: Under | None = None
    for way in ("direct", "door"):
        with (
            running_standin(SCRIPT, tls=(chain, key), command_prefix=loopback_only) as server,
            running_proxy(server.port, tmp_path, command_prefix=loopback_only) as proxy,
        ):
            more = {"HTTPS_PROXY": proxy.url, "NODE_EXTRA_CA_CERTS": str(ca)}
            if way == "direct":
                environment = clients.claude_environment(home, None, **more)
                alone = clients.run(clients.claude_command(PROMPT), environment, project, prefix=loopback_only)
                assert alone.returncode == 0, alone.told()
            else:
                ran = run_claude(None, home, project, tmp_path / "kept", loopback_only, **more)
                assert ran.outcome.returncode == 0, ran.told()
                assert not (told := missed(ran, passed())), told
            assert any("api.anthropic.com:443" in line for line in proxy.requests)
            first[way] = next(call for call in server.model_calls if call.tools)
            beside[way] = {f"{call.method} {call.path}" for call in server.calls} - {"POST /v1/messages?beta=true"}
        fresh(home, project)
    assert ran is not None
    changed = mutation(ran.trial, "environment ANTHROPIC_BASE_URL")
    assert changed.old is None
    assert DOOR.match(changed.new or ""), changed
    attempt = step_call(ran.trial, 1).attempts[0]
    assert attempt.via_proxy is not None, ran.told()
    assert attempt.tls is not None
    assert first["door"].model == first["direct"].model
    bodies = {way: cast("dict[str, Any]", dict(call.json())) for way, call in first.items()}
    seen = {way: ways_of(call, bodies[way]) for way, call in first.items()}
    differs = {name: (seen["direct"][name], seen["door"][name]) for name in seen["direct"]}
    line = LINES[claude_line]
    assert (beside["direct"], beside["door"]) == line.beside
    assert {name: pair for name, pair in differs.items() if pair[0] != pair[1]} == line.changed
    # All else is the same: each tool that both have, the last message, every other field.
    shared = [[tool for tool in body["tools"] if tool["name"] in line.core] for body in bodies.values()]
    assert shared[0] == shared[1]
    assert [len(tools) for tools in shared] == [len(line.core)] * 2
    others = [
        {name: value for name, value in body.items() if name not in {*READ_BY_PART, "diagnostics"}}
        for body in bodies.values()
    ]
    assert others[0] == others[1]
    told = changed.side_effects or ""
    for word in line.told:
        assert word in told, (word, told)


# --- settings that beat the environment -------------------------------------------------------------------------------


def hold(home: Path, url: str) -> Path:
    """Claude Code's own settings file names an address, which it prefers to its environment."""
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": url}}))
    return path


def test_a_settings_file_that_beats_the_environment_is_named_and_the_unseen_run_is_nobodys(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], claude_line: str
) -> None:
    with running_standin(SCRIPT, catalogue(1)["prompt_too_long"], command_prefix=loopback_only) as server:
        hold(home, server.url)
        under = run_claude(None, home, project, tmp_path / "kept", loopback_only)
        # The newer line tries to compact what was too long, and is refused that as well.
        assert len(server.model_calls) == {"claude": 2, "claude-newer": 6}[claude_line]
    assert under.outcome.returncode == 1, under.told()
    said = [line for line in under.outcome.stderr.splitlines() if "~/.claude/settings.json" in line]
    assert said, under.told()
    assert "ANTHROPIC_BASE_URL" in said[0]
    assert "--adapt" in said[0] or "--settings" in said[0], said
    assert under.trial.steps == []
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()
    assert "door" in under.verdict.sentence


@pytest.mark.parametrize("own", [(), ("--settings", '{"includeCoAuthoredBy":false}')], ids=["plain", "own-settings"])
def test_adapt_leads_a_settings_file_through_the_door(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], own: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        path = hold(home, server.url)
        before = path.read_bytes()
        environment = clients.claude_environment(home, None, **NO_DOCKER)
        under = run_under(
            [*clients.claude_command(PROMPT), *own],
            environment,
            project,
            kept=tmp_path / "kept",
            options=["--adapt"],
            prefix=loopback_only,
        )
    assert claude_result(under.outcome)["result"] == FINAL, under.told()
    assert not (told := missed(under, passed())), told
    assert len(under.trial.steps) == 2
    assert path.read_bytes() == before, "the user's file is read, never written"
    assert [
        each
        for each in under.trial.mutations
        if DOOR.search(each.new or "") and "--settings" in each.what + (each.new or "")
    ]
