"""The base line: real clients run against the stand-in directly, without fairtrial between them.

What holds here and not behind the door is the door's doing. Each client is tried with a good run; the SDKs also with
every fault of the catalogue, where the outcome (error class, number of attempts) is what these versions are known to
do.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.faults import FOREVER, Fault, catalogue
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients, sdks
from tests.e2e.engine import Engine

FINAL = "Done: the file hello.txt now says hello, as you asked."
SCRIPT = (shell("echo hello > hello.txt", text="I will write it."), say(FINAL))
MINI_SCRIPT = (
    shell("echo hello > hello.txt; cat hello.txt", text="I will write it."),
    shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", text="That is all."),
)

# Fault → kind (or its ending) → (final text or error class, attempts seen at the faulty step).
GOOD = (FINAL, 1)
OK_SECOND, OK_THIRD = (FINAL, 2), (FINAL, 3)
EXPECTED: dict[str, dict[str, tuple[str, int]]] = {
    "rate_limited_once": {"": OK_SECOND},
    "rate_limited_for_ever": {"": ("RateLimitError", 3)},
    "overloaded_twice": {"": OK_THIRD},
    "overloaded_for_ever": {
        "messages_json": ("OverloadedError", 3),
        "messages_stream": ("OverloadedError", 3),
        "": ("InternalServerError", 3),
    },
    "server_error_once": {"": OK_SECOND},
    "server_error_for_ever": {"": ("InternalServerError", 3)},
    "unauthorised_for_ever": {"": ("AuthenticationError", 1)},
    "prompt_too_long": {"": ("BadRequestError", 1)},
    "stall_mid_stream": {"": GOOD},
    "stall_headers": {"": GOOD},
    "cut_once": {"messages_stream": ("RemoteProtocolError", 1), "stream": ("APIConnectionError", 1), "json": OK_SECOND},
    "cut_for_ever": {
        "messages_stream": ("RemoteProtocolError", 1),
        "stream": ("APIConnectionError", 1),
        "json": ("APIConnectionError", 3),
    },
    "close_once": {"": OK_SECOND},
    "close_for_ever": {"": ("APIConnectionError", 3)},
    "reset_once": {"": OK_SECOND},
    "error_event_once": {
        "messages_stream": ("APIStatusError", 1),
        "chat_stream": ("APIError", 1),
        "responses_stream": ("RuntimeError", 1),
        "json": ("TypeError", 1),
    },
    "error_event_for_ever": {
        "messages_stream": ("APIStatusError", 1),
        "chat_stream": ("APIError", 1),
        "responses_stream": ("RuntimeError", 1),
        "json": ("TypeError", 1),
    },
    "garbage_once": {
        "messages_stream": ("AssertionError", 1),
        "chat_stream": ("", 1),
        "responses_stream": ("RuntimeError", 1),
        "json": ("AttributeError", 1),
    },
}


def expected(fault: str, kind: str) -> tuple[str, int]:
    """The row of a kind: its own, else that of its ending, else the one for all."""
    rows = EXPECTED[fault]
    return rows.get(kind) or rows.get(kind.rpartition("_")[2]) or rows[""]


def at_step(calls: Sequence[Call], kind: str, step: int) -> list[Call]:
    return [call for call in calls if call.prefix == f"/run/{kind}" and call.step == step]


def test_every_sdk_kind_ends_well_without_faults() -> None:
    with running_standin(SCRIPT) as server:
        spoken = sdks.talk_all(server.url)
        calls = server.calls
    assert {kind: said.text for kind, said in spoken.items()} == dict.fromkeys(sdks.KINDS, FINAL)
    assert len(calls) == 2 * len(sdks.KINDS)
    assert {call.stream for call in calls if call.prefix.endswith("_stream")} == {True}


@pytest.mark.parametrize("fault", sorted(EXPECTED))
def test_sdks_meet_each_fault_as_known(fault: str) -> None:
    with running_standin(SCRIPT, catalogue(1, stall_s=1.0)[fault]) as server:
        spoken = sdks.talk_all(server.url)
        calls = server.calls
    met = {
        kind: (said.error if said.text is None else said.text, len(at_step(calls, kind, 1)))
        for kind, said in spoken.items()
    }
    assert met == {kind: expected(fault, kind) for kind in sdks.KINDS}


def test_the_expectations_cover_the_whole_catalogue() -> None:
    assert set(EXPECTED) == set(catalogue())


def test_a_stream_that_ends_early_but_cleanly_is_taken_for_whole_by_the_sdks() -> None:
    """Why truncation must be seen from outside: no error, half of the words."""
    with running_standin(SCRIPT, [Fault(kind="short", step=1, after_events=4)]) as server:
        spoken = sdks.talk_all(server.url, "messages_stream", "chat_stream")
    for said in spoken.values():
        assert said.error is None
        assert said.text
        assert FINAL.startswith(said.text)
        assert said.text != FINAL


def claude_result(outcome: clients.Outcome) -> dict[str, Any]:
    try:
        return dict(cast("dict[str, Any]", outcome.json()))
    except ValueError as error:
        raise AssertionError(outcome.told()) from error


@pytest.mark.usefixtures("claude")
def test_claude_code_runs_its_bash_tool_and_ends(home: Path, project: Path, loopback_only: Sequence[str]) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        command = clients.claude_command("say hello using bash")
        outcome = clients.run(command, clients.claude_environment(home, server.url), project, prefix=loopback_only)
        calls = server.model_calls
    result = claude_result(outcome)
    assert (outcome.returncode, result["is_error"], result["result"]) == (0, False, FINAL), outcome.told()
    assert (project / "hello.txt").read_text() == "hello\n"
    assert [(call.step, call.attempt, call.stream, call.ended) for call in calls] == [
        (0, 1, True, "complete"),
        (1, 1, True, "complete"),
    ]
    assert calls[0].path == "/v1/messages?beta=true"
    assert {call.header("x-claude-code-session-id") for call in calls} == {result["session_id"]}
    usage = [call.usage for call in calls if call.usage is not None]
    assert sum(each.output_tokens for each in usage) == sum(
        each["outputTokens"] for each in cast("dict[str, Any]", result["modelUsage"]).values()
    )


@pytest.mark.usefixtures("claude")
def test_claude_code_asks_without_stream_after_a_cut(home: Path, project: Path, loopback_only: Sequence[str]) -> None:
    with running_standin(SCRIPT, catalogue(1)["cut_once"], command_prefix=loopback_only) as server:
        command = clients.claude_command("say hello using bash")
        outcome = clients.run(command, clients.claude_environment(home, server.url), project, prefix=loopback_only)
        calls = server.model_calls
    assert claude_result(outcome)["result"] == FINAL
    assert [(call.step, call.stream, call.ended) for call in calls] == [
        (0, True, "complete"),
        (1, True, "fin"),
        (1, False, "complete"),
    ]


@pytest.mark.usefixtures("claude")
def test_claude_code_books_success_after_overload_without_end(
    home: Path, project: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["overloaded_for_ever"], command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, CLAUDE_CODE_MAX_RETRIES="2")
        outcome = clients.run(
            clients.claude_command("say hello using bash"), environment, project, prefix=loopback_only
        )
        calls = server.model_calls
    result = claude_result(outcome)
    assert (outcome.returncode, result["subtype"], result["is_error"]) == (1, "success", True), outcome.told()
    assert [call.status for call in calls if call.step == 1] == [529, 529, 529]


@pytest.mark.usefixtures("claude")
def test_claude_code_sends_its_traces_and_its_trace_context(
    home: Path, project: Path, loopback_only: Sequence[str]
) -> None:
    trace_id = "0123456789abcdef0123456789abcdef"
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        environment = clients.claude_environment(
            home,
            server.url,
            CLAUDE_CODE_PROPAGATE_TRACEPARENT="1",
            CLAUDE_CODE_ENABLE_TELEMETRY="1",
            CLAUDE_CODE_ENHANCED_TELEMETRY_BETA="1",
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/json",
            OTEL_EXPORTER_OTLP_ENDPOINT=server.url,
            OTEL_BSP_SCHEDULE_DELAY="200",
            TRACEPARENT=f"00-{trace_id}-0123456789abcdef-01",
        )
        outcome = clients.run(
            clients.claude_command("say hello using bash"), environment, project, prefix=loopback_only
        )
        calls = server.calls
    assert outcome.returncode == 0, outcome.told()
    contexts = [call.header("traceparent") or "" for call in calls if call.is_model_call]
    assert all(context.startswith(f"00-{trace_id}-") for context in contexts)
    assert len(set(contexts)) == len(contexts) == 2
    exported = b"".join(call.body for call in calls if call.path == "/v1/traces")
    assert b"claude_code.llm_request" in exported


@pytest.fixture
def mini_label(docker_engine: Engine, tmp_path: Path) -> Iterator[str]:
    """A label for mini's containers, which it stops in the background after its end: here they are removed at once."""
    label = f"fairtrial.test={tmp_path.name}"
    yield label
    if left := docker_engine.containers(f"label={label}"):
        docker_engine.docker("rm", "-f", *left, check=False)


@pytest.mark.usefixtures("mini")
def test_mini_swe_agent_runs_commands_in_its_container_and_submits(
    docker_engine: Engine, python_image: str, mini_label: str, home: Path, project: Path, loopback_only: Sequence[str]
) -> None:
    trajectory = project / "run.traj.json"
    with running_standin(MINI_SCRIPT, command_prefix=loopback_only) as server:
        command = clients.mini_command(
            "Say hello.", image=python_image, trajectory=trajectory, run_args=("--rm", f"--label={mini_label}")
        )
        environment = clients.mini_environment(home, docker_engine.docker_host, server.url)
        outcome = clients.run(command, environment, project, prefix=loopback_only)
        calls = server.model_calls
    assert outcome.returncode == 0, outcome.told()
    written = json.loads(trajectory.read_text())
    assert written["info"]["exit_status"] == "Submitted"
    assert [(call.step, call.route, call.stream, call.tools) for call in calls] == [
        (0, "chat", False, ("bash",)),
        (1, "chat", False, ("bash",)),
    ]
    assert b"hello" in calls[1].body
    assert not (project / "hello.txt").exists()


@pytest.mark.usefixtures("mini")
def test_mini_swe_agent_gives_up_on_overload_with_an_error_of_its_own(
    docker_engine: Engine, python_image: str, mini_label: str, home: Path, project: Path, loopback_only: Sequence[str]
) -> None:
    faults = [Fault(kind="http", step=1, status=529, attempts=FOREVER)]
    with running_standin(MINI_SCRIPT, faults, command_prefix=loopback_only) as server:
        command = clients.mini_command(
            "Say hello.",
            image=python_image,
            trajectory=project / "run.traj.json",
            run_args=("--rm", f"--label={mini_label}"),
        )
        environment = clients.mini_environment(
            home, docker_engine.docker_host, server.url, MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1"
        )
        outcome = clients.run(command, environment, project, prefix=loopback_only)
        calls = server.model_calls
    assert outcome.returncode == 1, outcome.told()
    assert [call.status for call in calls] == [200, 529, 529, 529]
    assert json.loads((project / "run.traj.json").read_text())["info"]["exit_status"] == "APIError"


@pytest.mark.usefixtures("mini")
def test_mini_swe_agent_books_a_box_without_memory_as_a_used_up_step_limit(
    docker_engine: Engine, python_image: str, mini_label: str, home: Path, project: Path, loopback_only: Sequence[str]
) -> None:
    """The case that fairtrial is for: the first command fills a tmpfs that stays charged, each later one is killed."""
    script = (
        shell("dd if=/dev/zero of=/scratch/x bs=1M count=200"),
        shell("ls /scratch"),
        shell("ls /"),
    )
    limits = ("--memory=64m", "--memory-swap=64m", "--tmpfs=/scratch:size=300m")
    trajectory = project / "run.traj.json"
    started = docker_engine.now()
    with running_standin(script, command_prefix=loopback_only) as server:
        command = clients.mini_command(
            "Say hello.",
            image=python_image,
            trajectory=trajectory,
            run_args=("--rm", f"--label={mini_label}", *limits),
            step_limit=4,
        )
        environment = clients.mini_environment(home, docker_engine.docker_host, server.url)
        outcome = clients.run(command, environment, project, prefix=loopback_only)
        calls = server.model_calls
    assert outcome.returncode == 0, outcome.told()
    assert json.loads(trajectory.read_text())["info"]["exit_status"] == "LimitsExceeded"
    assert [call.step for call in calls] == [0, 1, 2, 3]
    filters = ("--filter", f"label={mini_label}", "--filter", "event=oom")
    events = docker_engine.docker("events", "--since", started, "--until", docker_engine.now(), *filters)
    assert len(events.stdout.splitlines()) >= 4
