"""The SDKs of other providers through a real door: what they print, and what the trial's record says of each call."""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e import clients
from tests.e2e.formats import FINAL, USAGE, Running, running_formats
from tests.e2e.under import NO_DOCKER, Under, missed, passed, run_under, step_call

FOREIGN = str(Path(__file__).with_name("foreign.py"))

# Kind → dialect, model, provider, whether it streams, variable of the address, what else its client wants.
GEMINI = "GOOGLE_GEMINI_BASE_URL"
BEDROCK_KEY = {"AWS_BEARER_TOKEN_BEDROCK": "dummy"}
EXPECTED: Mapping[str, tuple[str, str, str, bool, str, Mapping[str, str]]] = {
    "gemini_stream": ("gemini", "gemini-3-pro", "gemini", True, GEMINI, {}),
    "gemini_json": ("gemini", "gemini-3-pro", "gemini", False, GEMINI, {}),
    "gemini_array": ("gemini", "gemini-3-pro", "gemini", True, GEMINI, {}),
    "ollama_stream": ("ollama", "llama3.2", "ollama", True, "OLLAMA_HOST", {}),
    "ollama_json": ("ollama", "llama3.2", "ollama", False, "OLLAMA_HOST", {}),
    "vertex_stream": ("vertex_claude", "claude-opus-4-8", "vertex", True, "ANTHROPIC_VERTEX_BASE_URL", {}),
    "bedrock_stream": (
        "bedrock",
        "claude-opus-4-8",
        "bedrock",
        True,
        "ANTHROPIC_BEDROCK_BASE_URL",
        BEDROCK_KEY,
    ),
    "converse_stream": (
        "bedrock",
        "anthropic.claude-opus-4-8",
        "bedrock",
        True,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        {"CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1"},
    ),
}


def run_foreign(kind: str, server: Running, python: Path, home: Path, project: Path, kept: Path) -> Under:
    *_, variable, more = EXPECTED[kind]
    environment = clients.clean_environment(home, **NO_DOCKER, **more)
    if variable == GEMINI:
        environment[GEMINI] = server.url
    options = () if variable == GEMINI else ("--route", f"{variable}={server.url}")
    return run_under([str(python), FOREIGN, kind], environment, project, kept=kept / kind, options=options)


def run_all(server: Running, python: Path, home: Path, project: Path, kept: Path) -> dict[str, Under]:
    with ThreadPoolExecutor(4) as pool:
        ran = pool.map(lambda kind: run_foreign(kind, server, python, home, project, kept), EXPECTED)
        return dict(zip(EXPECTED, ran, strict=True))


def test_each_sdk_prints_its_answer_and_each_call_is_recorded(
    sdks_python: Path, home: Path, project: Path, tmp_path: Path
) -> None:
    with running_formats() as server:
        ran = run_all(server, sdks_python, home, project, tmp_path / "kept")
    wrong: list[str] = []
    for kind, under in ran.items():
        dialect, model, provider, stream, *_ = EXPECTED[kind]
        if under.outcome.returncode != 0 or under.outcome.stdout != f"{FINAL}\n":
            wrong.append(f"== {kind} failed\n{under.told()}")
            continue
        if told := missed(under, passed()):
            wrong.append(f"== {kind}\n{told}")
            continue
        due = [(dialect, model, provider, stream, "ok", *USAGE)] * 2
        calls = [step_call(under.trial, step.index) for step in under.trial.steps]
        got = [(c.dialect, c.model, c.provider, c.stream, c.outcome, c.input_tokens, c.output_tokens) for c in calls]
        tools = [[tool.name for tool in step.tools] for step in under.trial.steps]
        if got != due or tools != [["bash"], []]:
            wrong.append(f"== {kind}: {got}, tools {tools}\n{under.told()}")
    assert not wrong, "\n".join(wrong)


def test_a_stream_that_is_cut_is_recorded_as_truncated_in_every_format(
    sdks_python: Path, home: Path, project: Path, tmp_path: Path
) -> None:
    with running_formats(cut=True) as server:
        ran = run_all(server, sdks_python, home, project, tmp_path / "kept")
    wrong: list[str] = []
    for kind, under in ran.items():
        streams = EXPECTED[kind][3]
        if not streams:
            continue
        attempts = [attempt for step in under.trial.steps for call in step.calls for attempt in call.attempts]
        if not attempts or {attempt.outcome for attempt in attempts} != {"truncated"}:
            wrong.append(f"== {kind}\n{under.told()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["bedrock_stream"])
def test_a_signed_bedrock_client_is_left_alone_and_that_is_said(
    kind: str, sdks_python: Path, home: Path, project: Path, tmp_path: Path
) -> None:
    with running_formats() as server:
        environment = clients.clean_environment(home, **NO_DOCKER, ANTHROPIC_BEDROCK_BASE_URL=server.url)
        options = ("--route", f"ANTHROPIC_BEDROCK_BASE_URL={server.url}")
        command = [str(sdks_python), "-c", "import os; print(os.environ['ANTHROPIC_BEDROCK_BASE_URL'])"]
        under = run_under(command, environment, project, kept=tmp_path / kind, options=options)
    assert under.outcome.stdout == f"{server.url}\n", under.told()
    assert "signed for their host" in under.outcome.stderr


@pytest.mark.usefixtures("gemini")
def test_gemini_cli_prints_and_sends_the_same_through_the_door(home: Path, project: Path, tmp_path: Path) -> None:
    command = clients.gemini_command("say hello using the shell")
    with running_formats() as server:
        environment = clients.gemini_environment(home, server.url, **NO_DOCKER)
        alone = clients.run(command, environment, project)
        direct, server.seen[:] = list(server.seen), []
        under = run_under(command, environment, project, kept=tmp_path / "kept")
        through = list(server.seen)
    assert (alone.returncode, alone.stdout) == (0, f"{FINAL}\n"), alone.told()
    assert (under.outcome.returncode, under.outcome.stdout) == (0, alone.stdout), under.told()
    assert not (told := missed(under, passed())), told
    assert len(direct) == len(through) == 2, under.told()
    for (path, headers, body), (path_2, headers_2, body_2) in zip(direct, through, strict=True):
        assert path_2 == path
        assert plain(str(headers_2)) == plain(str(headers))
        assert plain(str(body_2)) == plain(str(body))
    calls = [step_call(under.trial, step.index) for step in under.trial.steps]
    assert [(call.dialect, call.stream, call.outcome) for call in calls] == [("gemini", True, "ok")] * 2
    assert [[tool.name for tool in step.tools] for step in under.trial.steps] == [["run_shell_command"], []]


def plain(text: str) -> str:
    """Without what Gemini CLI makes anew for each run: session ids and its temporary folder's name."""
    text = re.sub(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"[0-9a-f]{64}", "HASH", text)
    return re.sub(r"run_shell_command[_-][0-9a-z_-]+|Process Group PGID: \d+", "ID", text)
