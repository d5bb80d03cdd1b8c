"""docs/harnesses.md, by a run: what real harnesses book and what fairtrial says, side by side.

    make harnesses [HARBOR=PATH/TO/harbor], or python -m tests.e2e.harness_table [--harbor …] [--only WORD]

In: the harnesses that tests/e2e/tools.sh installed, a Docker engine (FAIRTRIAL_TEST_DOCKER, else a private one), and
Harbor 0.26 where it is named (Python 3.12 or newer, `pip install harbor`).  Out: the page on standard output; one line
per scenario on standard error.  Each scenario is run under `fairtrial run` against the stand-in model server, then the
harness's own files are imported.  What could not be run stands in the page with its reason.
Not a test: it takes some minutes.  `test_harness_table.py` holds the page to the list of scenarios.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.demo.faults import Fault, catalogue
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.report.words import headline
from tests.e2e import clients
from tests.e2e.engine import Engine, EngineUnavailable, named_engine, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.under import FAIRTRIAL, NO_DOCKER, fairtrial, run_under, shown

BOX = ("--memory=64m", "--memory-swap=64m")
DONE = shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", text="That is all.")
MINI_GOOD = (shell("echo hello > hello.txt; cat hello.txt", text="I will write it."), DONE)
MINI_FULL = (shell("dd if=/dev/zero of=/scratch/x bs=1M count=200"), shell("ls /scratch"), shell("ls /"), shell("ls /"))
GREEDY = 'python3 -c "x=bytearray(400<<20); print(len(x))"'
CLAUDE_GOOD = (shell("echo hello > hello.txt", text="I will write it."), say("Done."))
VERIFY = "if grep -q hello /root/hello.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
VERIFY_GREEDY = f"{GREEDY} && {VERIFY} || echo 0 > /logs/verifier/reward.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row: which harness, what is done to it."""

    harness: str
    name: str
    steps: Sequence[Step] = ()
    fault: str | None = None
    box: Sequence[str] = ()
    step_limit: int | None = None
    command: Sequence[str] = ()
    solve: str = "mkdir -p /root; echo hello > /root/hello.txt"
    verify: str = VERIFY


def _mini(name: str, steps: Sequence[Step] = MINI_GOOD, **more: object) -> Scenario:
    return Scenario(harness="mini-swe-agent", name=name, steps=steps, **more)  # type: ignore[arg-type]


def _claude(name: str, fault: str | None = None) -> Scenario:
    return Scenario(harness="claude-code", name=name, steps=CLAUDE_GOOD, fault=fault)


def _plain(name: str, *command: str, fault: str | None = None) -> Scenario:
    return Scenario(harness="exit-code", name=name, steps=CLAUDE_GOOD, command=command, fault=fault)


def _harbor(name: str, **more: str) -> Scenario:
    return Scenario(harness="harbor", name=name, **more)  # type: ignore[arg-type]


SCENARIOS: tuple[Scenario, ...] = (
    _mini("a good run"),
    _mini("a command is killed for memory, a leaner one follows", (shell(GREEDY), DONE), box=BOX),
    _mini(
        "the first command fills a box of 64 MiB; 4 steps allowed",
        MINI_FULL,
        box=(*BOX, "--tmpfs=/scratch:size=300m"),
        step_limit=4,
    ),
    _mini("the step limit, in a good box", (shell("ls /"), shell("ls /tmp")), step_limit=2),
    _mini("429 once, obeyed", fault="rate_limited_once"),
    _mini("529 for ever", fault="overloaded_for_ever"),
    _mini("400, the prompt is too long", fault="prompt_too_long"),
    _mini("each reply is cut", fault="cut_for_ever"),
    _claude("a good run"),
    _claude("429 once, obeyed", "rate_limited_once"),
    _claude("529 for ever, one retry allowed", "overloaded_for_ever"),
    _claude("400, the prompt is too long", "prompt_too_long"),
    _claude("each reply is cut", "cut_for_ever"),
    _claude("one reply is cut", "cut_once"),
    _plain("a good run of the Anthropic SDK", "messages_stream"),
    _plain("529 for ever", "messages_stream", fault="overloaded_for_ever"),
    _plain("one reply is cut (the SDK does not retry)", "messages_stream", fault="cut_once"),
    _plain("400, the prompt is too long", "messages_json", fault="prompt_too_long"),
    _harbor("oracle, a good run"),
    _harbor("oracle, a wrong solution", solve="mkdir -p /root; echo no > /root/hello.txt"),
    _harbor("oracle, over the agent's limit of 3 s", solve="sleep 60"),
    _harbor("oracle, killed for memory in the verifier", verify=VERIFY_GREEDY),
    _harbor("oracle, no reward file", verify="true"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the scenarios run on; None is not there, with the reason."""

    engine: Engine | None
    image: str
    harbor: Path | None
    no_engine: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the page."""

    scenario: Scenario
    status: str = "-"
    booked: str = "-"
    verdict: str = "-"
    ended_by: str = "-"
    ended_as: str = "-"
    joined: str = "-"
    not_run: str | None = None


def run(scenario: Scenario, bench: Bench, number: int) -> Row:
    """Run one scenario, import what its harness wrote, read the record."""
    runners: dict[str, Callable[[Scenario, Bench, Path], tuple[int, Trial]]] = {
        "mini-swe-agent": _run_mini,
        "claude-code": _run_claude,
        "exit-code": _run_plain,
        "harbor": _run_harbor,
    }
    folder = bench.folder / str(number)
    (folder / "home").mkdir(parents=True)
    (folder / "project").mkdir()
    try:
        status, trial = runners[scenario.harness](scenario, bench, folder)
    except (clients.ToolMissing, EngineUnavailable) as reason:
        return Row(scenario=scenario, not_run=str(reason))
    verdict = trial.verdict
    assert verdict is not None
    told = next((b for b in trial.booked if b.harness == scenario.harness), None)
    words: list[str] = []
    if told is not None:
        words = [w for w in (told.outcome.value, told.error or told.exit_status, _reward(told.reward)) if w]
    ended = verdict.terminated_by
    return Row(
        scenario=scenario,
        status=str(status),
        booked=", ".join(words) or "nothing",
        verdict=headline(verdict),
        ended_by="-" if ended is None else f"{ended.cause} ({ended.grade.value})",
        ended_as=verdict.ended_as.value,
        joined=(told.joined_by if told is not None else None) or "-",
    )


def _reward(reward: float | None) -> str:
    return "" if reward is None else f"reward {reward:g}"


def _faults(scenario: Scenario) -> tuple[Fault, ...]:
    return catalogue(1)[scenario.fault] if scenario.fault is not None else ()


def _engine(bench: Bench) -> Engine:
    if bench.engine is None:
        raise EngineUnavailable(bench.no_engine)
    return bench.engine


def _imported(harness: str, path: Path, store: Path, environment: dict[str, str]) -> Trial:
    done = fairtrial("import", harness, str(path), "--run", "table", "--store", str(store), environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(fairtrial("trials", "--json", "--store", str(store), environment=environment).stdout)
    observed = next(row["trial"] for row in rows if row["exit_code"] is not None or row["signal"])
    return shown(store, environment, observed)


def _run_mini(scenario: Scenario, bench: Bench, folder: Path) -> tuple[int, Trial]:
    engine = _engine(bench)
    trajectory = folder / "run.traj.json"
    with running_standin(scenario.steps, _faults(scenario)) as server:
        command = clients.mini_command(
            "Say hello.",
            image=bench.image,
            trajectory=trajectory,
            run_args=("--rm", *scenario.box),
            step_limit=scenario.step_limit,
        )
        environment = clients.mini_environment(
            folder / "home", engine.docker_host, server.url, MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1"
        )
        under = run_under(command, environment, folder / "project", kept=folder / "kept", options=("--run", "table"))
    return under.outcome.returncode, _imported("mini-swe-agent", trajectory, under.store, environment)


def _run_claude(scenario: Scenario, bench: Bench, folder: Path) -> tuple[int, Trial]:
    with running_standin(scenario.steps, _faults(scenario)) as server:
        environment = clients.claude_environment(folder / "home", server.url, CLAUDE_CODE_MAX_RETRIES="1", **NO_DOCKER)
        command = clients.claude_command("say hello using bash", output_format="stream-json")
        under = run_under(command, environment, folder / "project", kept=folder / "kept", options=("--run", "table"))
    output = folder / "stream.jsonl"
    output.write_text(under.outcome.stdout)
    return under.outcome.returncode, _imported("claude-code", output, under.store, environment)


def _run_plain(scenario: Scenario, bench: Bench, folder: Path) -> tuple[int, Trial]:
    with running_standin(scenario.steps, _faults(scenario)) as server:
        more = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "dummy", **NO_DOCKER}
        environment = clients.clean_environment(folder / "home", PYTHONPATH=str(clients.REPO_ROOT), **more)
        command = [sys.executable, "-m", "tests.e2e.one_sdk", *scenario.command]
        options = ("--run", "table", "--name", "plain")
        under = run_under(command, environment, folder / "project", kept=folder / "kept", options=options)
    status = folder / "plain.status"
    status.write_text(f"{under.outcome.returncode}\n")
    return under.outcome.returncode, _imported("exit-code", status, under.store, environment)


def _run_harbor(scenario: Scenario, bench: Bench, folder: Path) -> tuple[int, Trial]:
    engine = _engine(bench)
    if bench.harbor is None:
        raise clients.ToolMissing("Harbor was not named (--harbor)")
    task = folder / "tasks" / "hello"
    for name in ("environment", "solution", "tests"):
        (task / name).mkdir(parents=True)
    (task / "task.toml").write_text(
        'schema_version = "1.3"\n[task]\nname = "fairtrial/hello"\ndescription = "A task"\n[agent]\ntimeout_sec = 3.0\n'
        f'[verifier]\ntimeout_sec = 30.0\n[environment]\ndocker_image = "{bench.image}"\nmemory_mb = 128\n'
    )
    (task / "instruction.md").write_text("Write hello into /root/hello.txt.\n")
    for name, line in (("solution/solve.sh", scenario.solve), ("tests/test.sh", scenario.verify)):
        (task / name).write_text(f"#!/bin/bash\n{line}\n")
        (task / name).chmod(0o755)
    home = folder / "home"
    shutil.copytree(clients.docker_plugins(), home / ".docker")
    environment = clients.clean_environment(
        home, DOCKER_HOST=engine.docker_host, HARBOR_TELEMETRY="0", LITELLM_LOCAL_MODEL_COST_MAP="True"
    )
    command = [str(bench.harbor), "run", "-p", str(task), "-a", "oracle", "-e", "docker", "-o", str(folder / "jobs")]
    command += ["-n", "1", "-q", "--yes", "--job-name", "one"]
    options = ("--run", "table")
    under = run_under(command, environment, folder / "project", kept=folder / "kept", options=options, timeout_s=180)
    return under.outcome.returncode, _imported("harbor", folder / "jobs" / "one", under.store, environment)


# --- the page ---------------------------------------------------------------------------------------------------------

HEAD = """\
# What harnesses book, and what fairtrial says

Made by a run, not by hand: `python -m tests.e2e.harness_table` on {date} ({versions}). Each row is one run of the
real harness under `fairtrial run`, offline, against the stand-in model server; afterwards its own files came in with
`fairtrial import`. *exit* is the harness's exit status, *booked* its own word and reward, *joined* how its record was
tied to the observed trial.

*verdict* and *ended by* answer different questions: whose doing the failure was, and which outside event ended the
trial, whoever is to blame.
"""

FOOT = """
## What each harness does not tell

- **mini-swe-agent** has no verifier: `Submitted` is no score, and its exit status is 0 also at a limit. Calls that were
  tried again leave no trace in the trajectory.
- **Claude Code** shows an API error as an answer. Recovered retries stand in stream-json only (`api_retry`), never in a
  transcript. A stream without a `result` line was killed, or still runs.
- **A plain exit code** says that a command ended, and no more.
- **Harbor** counts a reward beside an exception by its own policy table (`reward_valid`). It deletes a failed attempt
  that it tries again with all its files, so `fairtrial run` keeps those (`store.keep_limit_bytes`).

An oracle asks no model: of such a trial nothing but the harness's word and the counters of its containers is known, and
its verdict is indeterminate unless an outside event says more.
"""


def page(rows: Sequence[Row], versions: str) -> str:
    """The page as Markdown."""
    lines = [HEAD.format(date=f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", versions=versions)]
    for harness in dict.fromkeys(row.scenario.harness for row in rows):
        lines += [f"## {harness}", ""]
        lines += [
            "| scenario | exit | booked | verdict | ended by | ended as | joined |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            if row.scenario.harness != harness:
                continue
            if row.not_run is not None:
                lines.append(f"| {row.scenario.name} | not run: {row.not_run} | | | | | |")
                continue
            cells = (row.scenario.name, row.status, row.booked, row.verdict, row.ended_by, row.ended_as, row.joined)
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n" + FOOT


@contextlib.contextmanager
def _bench(harbor: Path | None) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="ft-table-", dir="/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        engine, image, why = None, "ft-python", ""
        try:
            named = os.environ.get("FAIRTRIAL_TEST_DOCKER")
            engine = named_engine(named) if named else stack.enter_context(private_engine())
            image = ensure_image(image, engine.docker_host, clients.e2e_folder() / "images")
        except (EngineUnavailable, ImageUnavailable) as reason:
            engine, why = None, str(reason)
        yield Bench(engine=engine, image=image, harbor=harbor, no_engine=why, folder=folder)


def main() -> int:
    """Run what can be run; print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--harbor", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    assert FAIRTRIAL
    rows: list[Row] = []
    with _bench(asked.harbor) as bench:
        for number, scenario in enumerate(SCENARIOS):
            if asked.only not in f"{scenario.harness} {scenario.name}":
                continue
            row = run(scenario, bench, number)
            rows.append(row)
            print(f"{scenario.harness}: {scenario.name}: {row.not_run or row.verdict}", file=sys.stderr, flush=True)
    versions = "mini-swe-agent 2.4.6, Claude Code 2.1.197, Harbor 0.26.0, Docker 20.10"
    print(page(rows, versions), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
