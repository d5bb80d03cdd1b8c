"""Runs one scenario with the real harness under `fairtrial run`, imports what it wrote, and reads the record.

In: a `Scenario` and the `Bench`.  Out: its rows.  Nothing of ours is replaced: the program, the store, the import.
Without a container a kill anywhere on the machine rightly clouds a verdict, so such a run is repeated where the
machine's own counter moved and the scenario kills nothing.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from fairtrial.middleware.core.records import Booked, PhaseName, Trial
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.report.words import headline
from tests.e2e import clients
from tests.e2e.engine import EngineUnavailable
from tests.e2e.table import in_harbor, in_inspect
from tests.e2e.table.bench import Bench, NotHere, claude_line, limited
from tests.e2e.table.outcome import Ran, faults, imported
from tests.e2e.table.rows import Kind, Row, Scenario
from tests.e2e.under import NO_DOCKER, host_oom_kills, run_under

MODELS = {
    "chat": ("openai/stand-in", None),
    "messages": ("anthropic/claude-sonnet-4-5-20250929", None),
    "responses": ("openai/gpt-5-mini", "litellm_response"),
}
_TRIES = 3


def rows_of(scenario: Scenario, bench: Bench, number: int) -> list[Row]:
    """The rows of a scenario: one, or one for each of its trials; one with a reason where it was not run."""
    if scenario.no is not None:
        return [_said(scenario, f"does not apply: {scenario.no}")]
    try:
        ran = _ran(scenario, bench, number)
    except (clients.ToolMissing, EngineUnavailable, NotHere) as reason:
        return [_said(scenario, f"not run: {reason}")]
    except Exception as error:
        traceback.print_exc()  # one row's fault must not cost the others
        return [_said(scenario, f"not run: the table's own fault, {type(error).__name__}")]
    names = scenario.names
    if len(ran.trials) != len(names):
        why = f"not run: {len(ran.trials)} trials came out of it"
        return [Row(section=scenario.setup.title, name=name, kind=scenario.kind, cells=(why,)) for name in names]
    return [_row(scenario, name, ran.status, trial) for name, trial in zip(names, ran.trials, strict=True)]


def _ran(scenario: Scenario, bench: Bench, number: int) -> Ran:
    on_host = scenario.setup.where == "local" or scenario.setup.runs in {"claude", "plain"}
    attempt = 0
    while True:
        folder = bench.folder / f"{number}-{attempt}"
        (folder / "home").mkdir(parents=True)
        (folder / "project").mkdir()
        kills = host_oom_kills()
        ran = RUNNERS[scenario.setup.runs](scenario, bench, folder)
        attempt += 1
        clouded = on_host and scenario.limit_mb is None and host_oom_kills() != kills
        if not clouded or attempt == _TRIES:
            return ran


def _said(scenario: Scenario, why: str) -> Row:
    return Row(section=scenario.setup.title, name=scenario.names[0], kind=scenario.kind, cells=(why,))


def _row(scenario: Scenario, name: str, status: int, trial: Trial) -> Row:
    verdict = trial.verdict
    assert verdict is not None
    told = next((b for b in trial.booked if b.harness == scenario.setup.adapter), None)
    ended = verdict.terminated_by
    cells = (
        str(status),
        _booked(told),
        headline(verdict) + (_in(verdict.phase) if verdict.cause else ""),
        "-" if ended is None else f"{ended.cause} ({ended.grade.value}{_in(ended.phase)})",
        verdict.ended_as.value,
        (told.joined_by if told is not None else None) or "-",
    )
    return Row(section=scenario.setup.title, name=name, kind=scenario.kind, cells=cells)


def _in(phase: PhaseName | None) -> str:
    return "" if phase is None or phase is PhaseName.AGENT else f" in {phase.value}"


def _booked(told: Booked | None) -> str:
    if told is None:
        return "nothing"
    reward = "" if told.reward is None else f"reward {told.reward:g}"
    return ", ".join(w for w in (told.outcome.value, told.error or told.exit_status, reward) if w)


def _checked(command: Sequence[str], check: str | None) -> list[str]:
    """The command, and behind its good end a grader's line."""
    return list(command) if check is None else ["/bin/sh", "-c", f'"$@" && {check}', "sh", *command]


def _mini(scenario: Scenario, bench: Bench, folder: Path) -> Ran:
    docker = scenario.setup.where == "docker"
    image = bench.image("ft-python") if docker else None
    host = bench.engine().docker_host if docker else "unix:///nowhere"
    trajectory = folder / "run.traj.json"
    model, model_class = MODELS[scenario.setup.api]
    more = {} if docker else dict(NO_DOCKER)
    with limited(scenario.limit_mb) as prefix, running_standin(scenario.steps, faults(scenario)) as server:
        command = clients.mini_command(
            "Say hello.",
            image=image,
            trajectory=trajectory,
            model=model,
            model_class=model_class,
            run_args=("--rm", *scenario.box),
            step_limit=scenario.step_limit,
        )
        tries = "2" if scenario.kind is Kind.WAIT else "1"  # of mini's own; the SDK of Chat Completions has more
        retries = {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": tries, "ANTHROPIC_BASE_URL": server.url}
        environment = clients.mini_environment(folder / "home", host, server.url, **retries, **more)
        options = ("--run", "table")
        under = run_under([*prefix, *command], environment, folder / "project", kept=folder / "kept", options=options)
    return imported(under, "mini-swe-agent", trajectory, environment)


def _claude(scenario: Scenario, bench: Bench, folder: Path) -> Ran:
    line = claude_line(scenario.setup.api)
    with line, limited(scenario.limit_mb) as prefix, running_standin(scenario.steps, faults(scenario)) as server:
        environment = clients.claude_environment(folder / "home", server.url, CLAUDE_CODE_MAX_RETRIES="1", **NO_DOCKER)
        command = clients.claude_command("say hello using bash", output_format="stream-json")
        command = [*prefix, *_checked(command, scenario.check)]
        under = run_under(command, environment, folder / "project", kept=folder / "kept", options=("--run", "table"))
    output = folder / "stream.jsonl"
    output.write_text(under.outcome.stdout)
    return imported(under, "claude-code", output, environment)


def _plain(scenario: Scenario, bench: Bench, folder: Path) -> Ran:
    with running_standin(scenario.steps, faults(scenario)) as server:
        more = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "dummy", **NO_DOCKER}
        environment = clients.clean_environment(folder / "home", PYTHONPATH=str(clients.REPO_ROOT), **more)
        command = _checked([sys.executable, "-m", "tests.e2e.one_sdk", *scenario.command], scenario.check)
        options = ("--run", "table", "--name", "plain")
        under = run_under(command, environment, folder / "project", kept=folder / "kept", options=options)
    status = folder / "plain.status"
    status.write_text(f"{under.outcome.returncode}\n")
    return imported(under, "exit-code", status, environment)


RUNNERS: dict[str, Callable[[Scenario, Bench, Path], Ran]] = {
    "mini": _mini,
    "claude": _claude,
    "plain": _plain,
    "harbor": in_harbor.one,
    "many": in_harbor.many,
    "inspect": in_inspect.one,
}
