"""Containers that the agent starts itself through the docker CLI, and two trials on one engine at the same time.

What is joined to whom must not be guessed: a neighbour's kill is not this trial's, and a trial whose containers could
not be told from a neighbour's clears nobody.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import Due, Under, missed, run_under

DONE = say("Done.")
MARK = '--label fairtrial.trial="$FAIRTRIAL_TRIAL"'
OOM = Due(
    blame=Blame.INFRA,
    grade=Grade.SUSPECTED,
    cause="container.oom_kill",
    step=1,
    terminated_by=("container.oom_kill", Grade.PROVED, 1),
    ended_as=EndedAs.AGENT_FINISHED,
)


def run_agent(name: str, script: Sequence[Step], engine: Engine, folder: Path, **more: str) -> Under:
    """The demo's agent, whose tools run on the host and may use docker; its check fails."""
    place = folder / name
    for part in ("home", "project"):
        (place / part).mkdir(parents=True)
    with running_standin(script) as server:
        environment = clients.clean_environment(
            place / "home", ANTHROPIC_BASE_URL=server.url, DOCKER_HOST=engine.docker_host, **more
        )
        command = [sys.executable, "-m", "fairtrial.middleware.demo.agent"]
        return run_under(command, environment, place / "project", kept=place / "kept")


def box(image: str, command: str, *options: str) -> str:
    return f"docker run --rm --network none --memory 32m --memory-swap 32m {' '.join(options)} {image} {command}"


def test_a_container_whose_main_process_is_killed_dies_with_it_and_is_told(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    under = run_agent("one", (shell(box(busybox_image, "tail /dev/zero")), DONE), docker_engine, tmp_path)
    assert "[exit 137]" in under.outcome.stdout, under.told()
    assert not (told := missed(under, OOM)), told
    assert "died with it" in under.verdict.sentence, under.verdict.sentence


def together(
    first: Sequence[Step], second: Sequence[Step], engine: Engine, folder: Path, **more: str
) -> tuple[Under, Under]:
    """Two trials at once; their scripts wait for each other."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(run_agent, name, script, engine, folder, **more)
            for name, script in (("a", first), ("b", second))
        ]
        return runs[0].result(), runs[1].result()


def scripts(image: str, folder: Path, *options: str) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """A calm trial and a greedy one. The greedy one is killed while the calm one's container lives."""
    ready, struck = folder / "ready", folder / "struck"
    wait = "n=0; until [ -e {} ] || [ $n = 200 ]; do sleep 0.1; n=$((n+1)); done"
    inside = f"sh -c 'sleep 1; exit 3' & touch {ready}; {wait.format(struck)}; wait"
    calm = (shell(box(image, inside, *options)), DONE)
    greedy = (shell(f"{wait.format(ready)}; {box(image, 'tail /dev/zero', *options)}; touch {struck}; exit 1"), DONE)
    return calm, greedy


def test_of_two_trials_without_marks_and_doors_neither_is_charged_with_the_others_kill(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    calm, greedy = together(*scripts(busybox_image, tmp_path), docker_engine, tmp_path, FAIRTRIAL_RUN__DOCKER_DOOR="0")
    assert calm.verdict.blame is not Blame.INFRA, calm.told()
    assert calm.verdict.terminated_by is None, calm.told()
    assert greedy.verdict.blame is not Blame.MODEL, greedy.told()


@pytest.mark.slow
@pytest.mark.parametrize("told_by", ["door", "mark"])
def test_of_two_trials_with_a_door_or_marked_containers_each_has_its_own_verdict(
    docker_engine: Engine, busybox_image: str, tmp_path: Path, told_by: str
) -> None:
    marks = (MARK,) if told_by == "mark" else ()
    door = "0" if told_by == "mark" else "1"
    first, second = scripts(busybox_image, tmp_path, *marks)
    calm, greedy = together(first, second, docker_engine, tmp_path, FAIRTRIAL_RUN__DOCKER_DOOR=door)
    assert not (told := missed(greedy, OOM)), told
    assert calm.verdict.blame is Blame.MODEL, calm.told()
    assert calm.verdict.terminated_by is None
    ours, theirs = (set(each.trial.environment.container_ids) for each in (calm, greedy))
    assert len(ours) == len(theirs) == 1
    assert ours.isdisjoint(theirs)
