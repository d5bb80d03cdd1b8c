"""Inspect under `fairtrial run`, samples side by side: in the local sandbox, and in containers of an engine that it
takes; with the hooks that tell fairtrial of each sample, and without a change to it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, Outcome, Run, Trial
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients, inspect_evals
from tests.e2e.engine import Engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.inspect_evals import Eval
from tests.e2e.test_run_many import after_import, ended_by, run_many
from tests.e2e.under import NO_DOCKER, fairtrial

pytestmark = pytest.mark.dear

ANSWER = (shell("echo {task} > answer.txt; sleep 0.3"), shell("cat answer.txt"), say("Done."))
HUNGRY = shell('[ {task} != task-1 ] || python3 -c "x=bytearray(300<<20)" && echo {task} > answer.txt')
HOSTILE = '../b?x=1#\r\n"\u00e9 $(id)'


def ready(folder: Path, url: str, names: Sequence[str], engine: Engine | None = None, *options: str) -> Eval:
    try:
        return inspect_evals.ready(folder, url, names, engine=engine, options=options)
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


def image(engine: Engine) -> None:
    try:
        ensure_image(inspect_evals.IMAGE, engine.docker_host, clients.e2e_folder() / "images")
    except ImageUnavailable as reason:
        pytest.skip(str(reason))


def judged(run: Run, one: Eval) -> dict[str, Trial]:
    """The run's trials after the import of Inspect's logs, by Inspect's name."""
    trials = after_import("inspect", one.logs, run, one.folder / "kept.db")
    assert [trial.booked[0].harness for trial in trials] == ["inspect"] * len(run.trials)
    return {trial.booked[0].label: trial for trial in trials}


def told(trial: Trial) -> list[str]:
    """Its marks, in a line each."""
    return [f"{mark.name}: {mark.text}" if mark.text else mark.name for mark in trial.marks]


def test_samples_with_hooks_are_named_told_of_and_judged_each_by_itself(tmp_path: Path, hooks_path: str) -> None:
    """One passes, one has 529 for ever and is tried twice, one has an id that no path or header takes."""
    fault = Fault(kind="http", status=529, step=1, attempts=None, task="task-1")
    with running_standin(ANSWER, [fault]) as server:
        options = ("--max-retries", "0", "--retry-on-error", "1", "--no-fail-on-error")
        one = ready(tmp_path, server.url, ["a", "b", HOSTILE], None, *options)
        environment = {**one.environment, **NO_DOCKER, "PYTHONPATH": hooks_path}
        outcome, run = run_many(one.command, environment, one.folder, "--run", "ev", "--control")
    assert (outcome.returncode, len(run.trials)) == (0, 3), outcome.told()
    assert "tells fairtrial how each sample goes" in outcome.stdout
    uuids = {str(sample["id"]): sample["uuid"] for sample in one.samples()}
    named = {trial.name or "": trial for trial in run.trials}
    assert set(named) == {
        f"hello.a.1.{uuids['a']}",
        f"hello.b.1.{uuids['b']}",
        f"hello...-b-x-1-id.1.{uuids[HOSTILE]}",
    }
    assert told(named[f"hello.a.1.{uuids['a']}"]) == [
        "sample-init: sample a, epoch 1",
        "attempt-start",
        "scoring",
        "attempt-end",
        "sample-end: answered C",
    ]
    b = named[f"hello.b.1.{uuids['b']}"]
    assert told(b) == [
        "sample-init: sample b, epoch 1",
        "attempt-start",
        "scoring",  # Inspect says so of an attempt that failed as well
        "attempt-end: RetryError, will be tried again",
        "attempt-start: attempt 2",
        "scoring",
        "attempt-end: RetryError",
        "sample-end: tried 2 times, RetryError",
    ]
    (said,) = b.booked
    assert (said.harness, said.inside, said.outcome, said.exit_status) == ("control", True, "errored", "RetryError")
    assert run.unassigned == {}, outcome.told()
    after = judged(run, one)
    assert {name: (trial.outcome, ended_by(trial)) for name, trial in after.items()} == {
        "hello/a": (Outcome.PASSED, None),
        "hello/b": (Outcome.ERRORED, "model_api.overloaded"),
        f"hello/{HOSTILE}": (Outcome.PASSED, None),
    }
    store = one.folder / "kept.db"
    done = fairtrial("export", "--into", str(one.logs), "--store", str(store), environment=one.environment)
    assert done.returncode == 0, done.stderr
    beside = {sample["id"]: sample["metadata"]["fairtrial"]["blame"] for sample in one.samples()}
    assert beside == {"a": "none", "b": after["hello/b"].verdict.blame, HOSTILE: "none"}  # type: ignore[union-attr]


def test_calls_that_inspects_cache_may_answer_bear_no_name(
    tmp_path: Path, hooks_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_standin(ANSWER) as server:
        one = ready(tmp_path, server.url, ["a", "b"], None, "-T", "cached=true")
        environment = {**one.environment, **NO_DOCKER, "PYTHONPATH": hooks_path}
        outcome, run = run_many(one.command, environment, one.folder, "--run", "ev", "--control")
    assert [trial.name for trial in run.trials] == [None, None], outcome.told()
    assert {name: trial.outcome for name, trial in judged(run, one).items()} == {
        "hello/a": Outcome.PASSED,
        "hello/b": Outcome.PASSED,
    }


@pytest.mark.parametrize("hooked", [True, False])
def test_samples_in_containers_have_their_own_and_one_alone_runs_out_of_memory(
    newer_engine: Engine, tmp_path: Path, hooks_path: str, hooked: bool
) -> None:
    image(newer_engine)
    with running_standin((HUNGRY, shell("cat answer.txt"), say("Done."))) as server:
        one = ready(tmp_path, server.url, ["a", "b", "c"], newer_engine)
        environment = {**one.environment, "PYTHONPATH": hooks_path if hooked else ""}
        outcome, run = run_many(one.command, environment, one.folder, "--run", "ev", "--control")
    assert (outcome.returncode, len(run.trials)) == (0, 3), outcome.told()
    assert [len(trial.environment.container_ids) for trial in run.trials] == [1, 1, 1], outcome.told()
    assert [len(trial.steps) for trial in run.trials] == [3, 3, 3], outcome.told()
    assert [bool(trial.name and trial.name.startswith("hello.")) for trial in run.trials] == [hooked] * 3
    assert run.unassigned == {}, outcome.told()
    after = judged(run, one)
    assert {name: trial.outcome for name, trial in after.items()} == {
        "hello/a": Outcome.PASSED,
        "hello/b": Outcome.FAILED,
        "hello/c": Outcome.PASSED,
    }
    kills = {
        name: [step.index for step in trial.steps for box in step.containers if box.oom_kills]
        for name, trial in after.items()
    }
    assert kills == {"hello/a": [], "hello/b": [1], "hello/c": []}
    verdicts = {name: trial.verdict for name, trial in after.items()}
    assert [verdict.blame for name, verdict in verdicts.items() if verdict and name != "hello/b"] == [Blame.NONE] * 2


@pytest.mark.parametrize("page", ["gone", "silent"])
def test_an_eval_goes_on_as_ever_when_nobody_hears_its_hooks(tmp_path: Path, hooks_path: str, page: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, running_standin(ANSWER) as server:
        one = ready(tmp_path, server.url, ["a", "b"])
        if page == "gone":
            listener.close()
            port = 1
        else:
            port = listener.getsockname()[1]
        hooks = {"PYTHONPATH": hooks_path, "FAIRTRIAL_CONTROL_URL": f"http://127.0.0.1:{port}/t/x"}
        outcome = clients.run(one.command, {**one.environment, **hooks}, one.folder)
    assert outcome.returncode == 0, outcome.told()
    assert "hooks enabled: 1" in outcome.stdout and "Exception" not in outcome.stdout + outcome.stderr
    assert [sample["scores"]["answered"]["value"] for sample in one.samples()] == ["C", "C"]
