"""The real harnesses: where they are, their command lines and their environment, with every call home switched off.

In: the folder that `tools.sh` filled. Out: argument lists and environments, to be run as they are or behind
`fairtrial run --`, and `Outcome` of such a run. Nothing here asserts anything.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

REPO_ROOT = Path(__file__).resolve().parents[2]
CLAUDE_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
MINI_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else a download is tried for 10 to 20 s
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
}
_CODEX_QUIET = """
[analytics]
enabled = false

[otel]
exporter = "none"
"""
CODEX_SETTINGS = f"""\
model = "stand-in"
model_provider = "standin"
check_for_update_on_startup = false

[model_providers.standin]
name = "standin"
base_url = "{{url}}"
env_key = "STANDIN_KEY"
wire_api = "responses"
{_CODEX_QUIET}"""
CODEX_BUILTIN_SETTINGS = f"""\
model = "stand-in"
openai_base_url = "{{url}}"
check_for_update_on_startup = false
{_CODEX_QUIET}"""
OPENCODE_QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}


class ToolMissing(Exception):
    """A harness is not installed; the message says how to get it."""


def e2e_folder() -> Path:
    """Where tools and image tars are kept: $FAIRTRIAL_E2E_DIR, else .e2e at the top of the checkout."""
    return Path(os.environ.get("FAIRTRIAL_E2E_DIR", REPO_ROOT / ".e2e")).resolve()


def _tool(stamp: str, program: str) -> Path:
    folder = e2e_folder()
    found = folder / program
    if not (folder / "stamps" / stamp).exists() or not found.exists():
        raise ToolMissing(f"{stamp} is not installed in {folder.name}; run tests/e2e/tools.sh {stamp}")
    return found


def claude_program() -> Path:
    """The claude command; of the newer of both npm lines where $FAIRTRIAL_E2E_CLAUDE says so. Raises ToolMissing."""
    line = os.environ.get("FAIRTRIAL_E2E_CLAUDE", "claude")
    return _tool(line, f"npm-{line}/node_modules/.bin/claude")


def agent_sdk_python() -> Path:
    """The interpreter that has the Claude Agent SDK. Raises ToolMissing."""
    return _tool("agent-sdk", "agent-sdk/bin/python")


def aider_program() -> Path:
    """The aider command. Raises ToolMissing."""
    return _tool("aider", "aider/bin/aider")


def codex_program() -> Path:
    """The codex command. Raises ToolMissing."""
    return _tool("codex", "npm-codex/node_modules/.bin/codex")


def opencode_program() -> Path:
    """The opencode command. Raises ToolMissing."""
    return _tool("opencode", "npm-opencode/node_modules/.bin/opencode")


def gemini_program() -> Path:
    """The gemini command. Raises ToolMissing."""
    return _tool("gemini", "npm-gemini/node_modules/.bin/gemini")


def sdks_python() -> Path:
    """The interpreter that has the SDKs of Gemini, Ollama, Vertex and Bedrock. Raises ToolMissing."""
    return _tool("sdks", "sdks/bin/python")


def aiodocker_python() -> Path:
    """The interpreter that has aiodocker. Raises ToolMissing."""
    return _tool("aiodocker", "aiodocker/bin/python")


def docker_plugins() -> Path:
    """A configuration folder for the docker command, with its plugins compose and buildx. Raises ToolMissing."""
    return _tool("plugins", "plugins/cli-plugins/docker-buildx").parent.parent


def mini_program() -> Path:
    """The mini command of mini-swe-agent. Raises ToolMissing."""
    return _tool("mini", "mini/bin/mini")


def claude_binary() -> Path:
    """Claude Code as the one native file that it is, to be mounted into a container. Raises ToolMissing."""
    program = claude_program().resolve()
    found = sorted(program.parents[2].glob("claude-code-linux-*/claude"))
    if not found:
        raise ToolMissing("Claude Code's native file is not where its package puts it")
    return found[0]


def harbor_program() -> Path:
    """The harbor command. Raises ToolMissing."""
    return _tool("harbor", "harbor/bin/harbor")


def inspect_program() -> Path:
    """The inspect command. Raises ToolMissing."""
    return _tool("inspect", "inspect/bin/inspect")


def newer_dockerd() -> Path:
    """A Docker daemon of 26.1, beside the one that is installed. Raises ToolMissing."""
    return _tool("engine", "engine/sbin/dockerd")


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """An environment with nothing of the caller's but PATH's system part; HOME is the test's own."""
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        **more,
    }


def claude_environment(home: Path, base_url: str | None, **more: str) -> dict[str, str]:
    """For Claude Code; `base_url` without /v1."""
    base = {"ANTHROPIC_BASE_URL": base_url} if base_url is not None else {}
    return clean_environment(home, ANTHROPIC_API_KEY="dummy", **CLAUDE_QUIET, **base, **more)


def claude_command(prompt: str, *, output_format: str = "json") -> list[str]:
    """Claude Code in print mode with its Bash tool allowed."""
    verbose = ["--verbose"] if output_format == "stream-json" else []
    program = str(claude_program())
    return [program, "-p", prompt, "--output-format", output_format, *verbose, "--allowedTools", "Bash"]


def codex_environment(home: Path, base_url: str, **more: str) -> dict[str, str]:
    """For Codex, whose settings are a file: it is written into HOME; `base_url` without /v1 (it is added)."""
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CODEX_SETTINGS.format(url=f"{base_url}/v1"))
    return clean_environment(home, STANDIN_KEY="dummy", **more)


def codex_builtin_environment(home: Path, base_url: str, **more: str) -> dict[str, str]:
    """For Codex with its built-in provider, which prefers a WebSocket; `base_url` without /v1 (it is added)."""
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CODEX_BUILTIN_SETTINGS.format(url=f"{base_url}/v1"))
    return clean_environment(home, OPENAI_API_KEY="dummy", CODEX_API_KEY="dummy", **more)


def codex_command(prompt: str) -> list[str]:
    """Codex without a terminal, its events as JSON lines, its shell without a sandbox of its own."""
    program = str(codex_program())
    return [program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]


def opencode_environment(home: Path, project: Path, base_url: str, **more: str) -> dict[str, str]:
    """For opencode, whose settings are a file in the project: it is written there; `base_url` without /v1 (added)."""
    options = {"baseURL": f"{base_url}/v1", "apiKey": "dummy"}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
        "provider": {
            "standin": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"stand-in": {}}},
            "anthropic": {"options": options, "models": {"claude-sonnet-4-5": {}}},
        },
    }
    (project / "opencode.json").write_text(json.dumps(settings))
    return clean_environment(home, **OPENCODE_QUIET, **more)


def opencode_command(prompt: str, *, model: str = "standin/stand-in") -> list[str]:
    """opencode without a terminal, its events as JSON lines. `model`: `anthropic/claude-sonnet-4-5` for Messages."""
    return [str(opencode_program()), "run", "--format", "json", "-m", model, prompt]


def gemini_environment(home: Path, base_url: str | None, **more: str) -> dict[str, str]:
    """For Gemini CLI, whose way to log in is a setting: it is written into HOME; `base_url` without a version.

    None: Google's own address.
    """
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    }
    (home / ".gemini").mkdir(exist_ok=True)
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    keys = {"GEMINI_API_KEY": "dummy", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    base = {"GOOGLE_GEMINI_BASE_URL": base_url} if base_url is not None else {}
    return clean_environment(home, **keys, **base, **more)


def gemini_command(prompt: str) -> list[str]:
    """Gemini CLI without a terminal, its tools allowed."""
    return [str(gemini_program()), "-p", prompt, "-m", "gemini-3-pro", "--yolo"]


def aider_environment(home: Path, base_url: str | None, **more: str) -> dict[str, str]:
    """For aider with an `openai/…` model; `base_url` without /v1 (it is added)."""
    base = {"OPENAI_API_BASE": f"{base_url}/v1"} if base_url is not None else {}
    return clean_environment(home, OPENAI_API_KEY="dummy", LITELLM_LOCAL_MODEL_COST_MAP="True", **base, **more)


def aider_command(message: str, file: str) -> list[str]:
    """aider without a terminal: one message, one file that it may edit, nothing committed."""
    options = ["--model", "openai/stand-in", "--edit-format", "whole", "--yes-always", "--no-check-update", "--no-git"]
    options += ["--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable", "--no-pretty"]
    return [str(aider_program()), *options, "--message", message, file]


def mini_environment(home: Path, docker_host: str, base_url: str | None, **more: str) -> dict[str, str]:
    """For mini-swe-agent with an `openai/…` model; `base_url` without /v1 (it is added)."""
    base = {"OPENAI_BASE_URL": f"{base_url}/v1"} if base_url is not None else {}
    keys = {"OPENAI_API_KEY": "dummy", "ANTHROPIC_API_KEY": "dummy", "DOCKER_HOST": docker_host}
    return clean_environment(home, **keys, **MINI_QUIET, **base, **more)


def mini_command(
    task: str,
    *,
    image: str | None,
    trajectory: Path,
    model: str = "openai/stand-in",
    model_class: str | None = None,
    run_args: Sequence[str] = ("--rm",),
    step_limit: int | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """mini-swe-agent with its Docker environment; without an image with its local one.

    `options` are further `-c` values, such as `environment.timeout=5`.
    """
    where = "docker" if image is not None else "local"
    command = [str(mini_program()), "-m", model, "--environment-class", where, "-y", "--exit-immediately"]
    command += ["-t", task, "-o", str(trajectory), "-c", "mini.yaml"]
    if model_class is not None:
        command += ["--model-class", model_class]
    if image is not None:
        command += ["-c", f"environment.image={image}", "-c", f"environment.run_args={json.dumps(list(run_args))}"]
    if step_limit is not None:
        command += ["-c", f"agent.step_limit={step_limit}"]
    for option in options:
        command += ["-c", option]
    return command


def mini_instances(folder: Path, image: str, count: int) -> Path:
    """A data folder for `mini_batch_command`: demo__1, demo__2, … which say "Solve task-1." and so on."""
    folder.mkdir()
    rows = [
        {"instance_id": f"demo__{n}", "problem_statement": f"Solve task-{n}.", "image_name": image}
        for n in range(1, count + 1)
    ]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def mini_batch_command(data: Path, *, workers: int, output: Path, run_args: Sequence[str] = ("--rm",)) -> list[str]:
    """`mini-extra swebench` over the instances in `data/test.jsonl`, each in a container of its own `image_name`."""
    command = [str(mini_program().with_name("mini-extra")), "swebench", "--subset", str(data), "--split", "test"]
    command += ["--workers", str(workers), "-o", str(output), "-m", "openai/stand-in", "-c", "swebench.yaml"]
    return [*command, "-c", f"environment.run_args={json.dumps(list(run_args))}", "-c", "environment.cwd=/"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended. `returncode` is negative for a signal; `timed_out` when we had to kill it."""

    returncode: int
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool

    def json(self) -> Mapping[str, object]:
        """Standard output as one JSON object."""
        return cast("Mapping[str, object]", json.loads(self.stdout))

    def told(self) -> str:
        """Everything, for an assertion's message."""
        return f"rc {self.returncode} after {self.duration_s:.1f} s\n--- out\n{self.stdout}\n--- err\n{self.stderr}"


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    prefix: Sequence[str] = (),
    timeout_s: float = 120.0,
) -> Outcome:
    """Run to the end, in a process group of its own that is killed at the timeout. Standard input is empty."""
    started = time.monotonic()
    child = subprocess.Popen(
        [*prefix, *command],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = False
    try:
        stdout, stderr = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
    return Outcome(
        returncode=child.returncode,
        stdout=stdout,
        stderr=stderr,
        duration_s=time.monotonic() - started,
        timed_out=timed_out,
    )
