"""Harbor's set-ups of the table: one task of ours, or four side by side."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec

from fairtrial.middleware.core.records import Run
from fairtrial.middleware.demo.script import Scenario as Script
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients, harbor
from tests.e2e.table.bench import Bench, claude_line, stamped
from tests.e2e.table.outcome import Ran, faults, imported
from tests.e2e.table.rows import Scenario
from tests.e2e.under import fairtrial, run_command, run_under, shown

OPTIONS = {
    "oracle": (),
    "terminus-2": ("-m", "openai/stand-in", "--ak", "record_terminal_session=false"),
    "claude-code": ("-m", "anthropic/claude-opus-4-8", "--ae", "CLAUDE_CODE_MAX_RETRIES=1"),
}
_LIMIT_S = 240


def _job(scenario: Scenario, bench: Bench, folder: Path, url: str) -> harbor.Job:
    agent = scenario.setup.api
    options = OPTIONS[agent]
    if agent == "claude-code":
        options = (*options, "--ak", f"version={stamped('claude')}")
    asked = harbor.Task(
        verify=scenario.verify or harbor.VERIFY,
        solve=scenario.solve if agent == "oracle" else None,
        agent_s=scenario.agent_s,
        memory_mb=scenario.limit_mb,
        tmpfs="/scratch:size=400m" if scenario.tmpfs else None,
    )
    bench.image(harbor.IMAGE)
    (folder / "home").rmdir()
    return harbor.job(agent, bench.engine(), folder, url, options=options, asked=asked)


def _command(job: harbor.Job, agent: str) -> list[str]:
    if agent != "terminus-2":
        return list(job.command)
    # litellm is told by an option, which must hold what the run put into the variable
    return ["sh", "-c", 'exec "$@" --ak api_base=$OPENAI_BASE_URL', "sh", *job.command]


def one(scenario: Scenario, bench: Bench, folder: Path) -> Ran:
    """One task, one trial."""
    script = Script(steps=tuple(scenario.steps) or (harbor.typed(),), faults=faults(scenario), side_text=None)
    with claude_line("claude"), running_standin(script) as server:
        job = _job(scenario, bench, folder, server.url)
        command = _command(job, scenario.setup.api)
        kept, options = folder / "kept", ("--run", "table")
        under = run_under(command, job.environment, folder / "project", kept=kept, options=options, timeout_s=_LIMIT_S)
    return imported(under, "harbor", job.results / "one", job.environment)


def many(scenario: Scenario, bench: Bench, folder: Path) -> Ran:
    """One run of several tasks at once; the fault meets the last one's calls."""
    spared = tuple(replace(fault, task=f"task-{len(scenario.trials)}") for fault in faults(scenario))
    script = Script(steps=tuple(scenario.steps), faults=spared, side_text=None)
    with claude_line("claude"), running_standin(script) as server:
        job = _job(scenario, bench, folder, server.url)
        for n in range(1, len(scenario.trials) + 1):
            task = folder / "tasks" / f"hello-{n}"
            shutil.copytree(folder / "task", task)
            (task / "instruction.md").write_text(f"This is task-{n}. Write hello into /work/hello.txt.\n")
            settings = (task / "task.toml").read_text().replace("fairtrial/hello", f"fairtrial/hello-{n}")
            (task / "task.toml").write_text(f'{settings}[environment.env]\nTASK = "task-{n}"\n')
        command = _command(job, scenario.setup.api)
        command[command.index("-p") + 1] = str(folder / "tasks")
        command[command.index("-n") + 1] = str(len(scenario.trials))
        store, record = folder / "store.db", folder / "run.json"
        outcome = clients.run(
            run_command(command, store, record, ("--run", "table")),
            job.environment,
            folder / "project",
            timeout_s=_LIMIT_S,
        )
    run = msgspec.json.decode(record.read_bytes(), type=Run)
    asked = ("--run", "table", "--store", str(store))
    done = fairtrial("import", "harbor", str(job.results), *asked, environment=job.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = [shown(store, job.environment, trial.trial) for trial in run.trials]
    booked = [trial for trial in trials if trial.booked]
    return Ran(status=outcome.returncode, trials=sorted(booked, key=lambda trial: trial.booked[0].label))
