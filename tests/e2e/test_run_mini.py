"""mini-swe-agent with its Docker environment on a real engine, under `fairtrial run`.

It books what its trajectory shows; that a container ran out of memory is in no word of it. Expected verdicts are
VERDICTS.md's: that a kill happened and ended the trial is proved, whose demand it was stays open without a replay.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Tool
from fairtrial.middleware.demo.script import Step, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.test_standin_clients import MINI_SCRIPT
from tests.e2e.under import Due, Under, missed, passed, run_under

pytestmark = [pytest.mark.usefixtures("mini"), pytest.mark.slow]

LIMIT = 64 << 20
BOX = ("--memory=64m", "--memory-swap=64m")
SUBMIT = shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
GREEDY = 'python3 -c "x=bytearray(400<<20); print(len(x))"'
MASKED = '(python3 -c "x=bytearray(400<<20)"; true) 2>/dev/null; echo tests failed; exit 1'


def oom_that_ended_it(step: int, ended_as: EndedAs | None) -> Due:
    return Due(
        blame=Blame.INFRA,
        grade=Grade.SUSPECTED,
        cause="container.oom_kill",
        step=step,
        terminated_by=("container.oom_kill", Grade.PROVED, step),
        ended_as=ended_as,
    )


@pytest.fixture
def label(docker_engine: Engine, tmp_path: Path) -> Iterator[str]:
    """A label for the containers of one test; mini stops them in the background after its end, here they go at once."""
    name = f"fairtrial.test={tmp_path.name}"
    yield name
    if left := docker_engine.containers(f"label={name}"):
        docker_engine.docker("rm", "-f", *left, check=False)


class Mini:
    """One run of mini-swe-agent under fairtrial and its trajectory."""

    def __init__(self, engine: Engine, image: str, label: str, folder: Path, prefix: Sequence[str]) -> None:
        self._engine, self._image, self._label, self._folder, self._prefix = engine, image, label, folder, prefix
        self.trajectory = folder / "run.traj.json"

    def run(
        self,
        script: Sequence[Step],
        *box: str,
        step_limit: int | None = None,
        after: str | None = None,
    ) -> Under:
        """`after` is a shell line that runs when mini has ended; then its status is the command's."""
        home, project = self._folder / "home", self._folder / "project"
        home.mkdir(exist_ok=True)
        project.mkdir(exist_ok=True)
        with running_standin(script, command_prefix=self._prefix) as server:
            command = clients.mini_command(
                "Say hello.",
                image=self._image,
                trajectory=self.trajectory,
                run_args=("--rm", f"--label={self._label}", *box),
                step_limit=step_limit,
            )
            if after is not None:
                command = ["/bin/sh", "-c", f'"$@"; {after}', "sh", *command]
            environment = clients.mini_environment(home, self._engine.docker_host, server.url)
            return run_under(command, environment, project, kept=self._folder / "kept", prefix=self._prefix)

    @property
    def booked(self) -> str:
        return str(json.loads(self.trajectory.read_text())["info"]["exit_status"])


@pytest.fixture
def mini_run(
    docker_engine: Engine, python_image: str, label: str, tmp_path: Path, loopback_only: Sequence[str]
) -> Mini:
    return Mini(docker_engine, python_image, label, tmp_path, loopback_only)


def tools_of(under: Under) -> list[Tool]:
    return [tool for step in under.trial.steps for tool in step.tools]


def test_a_good_run_of_mini_swe_agent_is_recorded_with_its_container_and_commands(mini_run: Mini) -> None:
    under = mini_run.run(MINI_SCRIPT, *BOX)
    assert (under.outcome.returncode, mini_run.booked) == (0, "Submitted"), under.told()
    assert not (told := missed(under, passed())), told
    trial = under.trial
    assert [step.index for step in trial.steps] == [1, 2], under.told()
    tools = tools_of(under)
    assert [(tool.name, tool.exit_code, tool.exec_via) for tool in tools] == [("bash", 0, "docker")] * 2, under.told()
    assert len({tool.exec_id for tool in tools}) == 2
    assert None not in {tool.exec_id for tool in tools}
    assert [(tool.join, tool.ended_by) for tool in tools] == [("text", "process")] * 2, under.told()
    assert all(tool.bytes_out and tool.bytes_in == 0 and tool.dispatch_delay for tool in tools), tools
    assert all(tool.call_id and tool.started and tool.ended for tool in tools), under.told()
    assert len(trial.environment.container_ids) == 1
    for step in trial.steps:
        assert [(use.id, use.memory_limit, use.oom_kills) for use in step.containers if use.role == "main"] == [
            (trial.environment.container_ids[0], LIMIT, 0)
        ], under.told()
    assert trial.limits.memory.ceiling == LIMIT
    assert trial.coverage.families["memory"].level == "full", under.told()


def test_a_box_without_memory_is_told_step_by_step_where_the_harness_books_its_step_limit(mini_run: Mini) -> None:
    """The case that fairtrial is for. The harness: LimitsExceeded, exit 0, four times 137 and no word of memory."""
    script = (
        shell("dd if=/dev/zero of=/scratch/x bs=1M count=200"),
        shell("ls /scratch"),
        shell("ls /"),
        shell("ls /"),
    )
    under = mini_run.run(script, *BOX, "--tmpfs=/scratch:size=300m", step_limit=4)
    assert (under.outcome.returncode, mini_run.booked) == (0, "LimitsExceeded"), under.told()
    verdict = under.verdict
    assert verdict.terminated_by is not None, under.told()
    got = (verdict.blame, verdict.grade, verdict.cause, verdict.step)
    assert got == (Blame.INFRA, Grade.SUSPECTED, "container.oom_kill", 1), under.told()
    ended = verdict.terminated_by
    assert (ended.cause, ended.grade, ended.step) == ("container.oom_kill", Grade.PROVED, 1), under.told()
    assert verdict.ended_as in {EndedAs.STEP_LIMIT, EndedAs.UNKNOWN}
    assert re.search(r"step 1\b", verdict.sentence), verdict.sentence
    assert re.search(r"steps 2\s*(–|-|to)\s*4", verdict.sentence), verdict.sentence
    assert "without memory" in verdict.sentence or "no memory" in verdict.sentence, verdict.sentence
    assert re.search(r"\bopen\b", verdict.sentence), verdict.sentence
    assert verdict.flips_if
    assert len(under.trial.steps) == 4
    for step in under.trial.steps:
        use = next(use for use in step.containers if use.role == "main")
        assert (use.oom_kills or 0) >= 1, under.told()
        assert use.memory_limit == LIMIT
    assert [tool.exit_code for tool in tools_of(under)] == [137] * 4, under.told()


def test_a_killed_command_that_a_leaner_one_follows_is_present(mini_run: Mini) -> None:
    under = mini_run.run((shell(GREEDY), SUBMIT), *BOX)
    assert (under.outcome.returncode, mini_run.booked) == (0, "Submitted"), under.told()
    assert not (told := missed(under, passed(("container.oom_kill", 1)))), told
    assert [tool.exit_code for tool in tools_of(under)] == [137, 0], under.told()


def test_a_kill_behind_exit_1_and_printed_words_is_seen_by_the_counter_alone(mini_run: Mini) -> None:
    under = mini_run.run((shell(MASKED), SUBMIT), *BOX, step_limit=1)
    assert (under.outcome.returncode, mini_run.booked) == (0, "LimitsExceeded"), under.told()
    assert not (told := missed(under, oom_that_ended_it(1, None))), told
    assert [tool.exit_code for tool in tools_of(under)] == [1], under.told()


def test_a_kill_behind_exit_1_that_the_next_command_survives_is_present(mini_run: Mini) -> None:
    under = mini_run.run((shell(MASKED), SUBMIT), *BOX)
    assert (under.outcome.returncode, mini_run.booked) == (0, "Submitted"), under.told()
    assert not (told := missed(under, passed(("container.oom_kill", 1)))), told


def test_a_container_that_is_stopped_at_the_end_with_137_explains_nothing(
    mini_run: Mini, docker_engine: Engine, label: str
) -> None:
    stop = f"docker ps -q --filter label={label} | xargs -r docker stop -t 0"
    under = mini_run.run(MINI_SCRIPT, *BOX, after=f"rc=$?; {stop}; exit $rc")
    assert (under.outcome.returncode, mini_run.booked) == (0, "Submitted"), under.told()
    assert not docker_engine.docker("ps", "-q", "--filter", f"label={label}").stdout.split()
    assert not (told := missed(under, passed())), told


def test_a_failed_run_whose_container_was_stopped_at_the_end_is_the_models(mini_run: Mini, label: str) -> None:
    stop = f"docker ps -q --filter label={label} | xargs -r docker stop -t 0"
    under = mini_run.run((shell("echo wrong > answer"), SUBMIT), *BOX, after=f"{stop}; exit 3")
    assert under.outcome.returncode == 3, under.told()
    assert under.verdict.blame is Blame.MODEL, under.told()
    assert under.verdict.terminated_by is None
    assert under.verdict.present == []


def test_a_command_that_kills_itself_in_its_container_is_the_models(mini_run: Mini) -> None:
    """Exit code 137 beside a kill counter that did not move."""
    script = (shell("kill -9 $$"), shell("echo Killed; exit 137"), SUBMIT)
    under = mini_run.run(script, *BOX, after="exit 1")
    assert [tool.exit_code for tool in tools_of(under)][:2] == [137, 137], under.told()
    assert under.verdict.blame is Blame.MODEL, under.told()
    assert under.verdict.terminated_by is None
    assert under.verdict.present == []
