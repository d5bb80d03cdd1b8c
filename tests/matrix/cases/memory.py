"""The kernel kills for memory in a box, or in the command's own cgroup: whose demand it was, and whether it mattered.

Right by VERDICTS sections 3 and 5.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.script import Step, shell
from tests.matrix.cases.boxes import (
    GIVES_UP,
    OOM,
    SMALL,
    V1,
    box,
    fill_the_node,
    kill_next_door,
    oom,
    remove_the_cgroup,
    struck,
)
from tests.matrix.scenario import DONE, Kind, Right, Scenario, models, of, passed, suspected

SCENARIOS: Final = (
    oom(
        "oom",
        "a command is killed at the box's limit and the agent gives up",
        shell("tail /dev/zero"),
        GIVES_UP,
        why="VERDICTS 3: an OOM that was the agent's last tool step: infra/suspected, terminated_by proved",
        right=struck(OOM, 1, ended_as=EndedAs.AGENT_FINISHED),
        shows="[exit 137]",
    ),
    oom(
        "oom-behind-exit-0",
        "the same, hidden behind exit status 0",
        shell("(tail /dev/zero; true) 2>/dev/null; exit 0"),
        GIVES_UP,
        why="VERDICTS 3: the counter tells of the kill, not the status",
        right=struck(OOM, 1),
        shows="[exit 0]",
        dear=True,
    ),
    oom(
        "oom-of-the-main-process",
        "the box's own main process is killed, and the box dies with it",
        shell("touch /tmp/go; sleep 20"),
        GIVES_UP,
        why="taxonomy: container OOM, PID 1",
        right=struck(OOM, 1),
        agent=box(SMALL, "--main", "sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; tail /dev/zero'"),
        dear=True,
    ),
    Scenario(
        name="oom-in-own-cgroup",
        family="memory",
        kind=Kind.INFRA,
        what="no container: the agent runs in a cgroup of 100 MB and its command is killed there",
        why="VERDICTS 3: as in a container",
        right=struck(OOM, 1),
        steps=(Step(commands=("tail /dev/zero",), head_delay_s=1.5), GIVES_UP),
        kills=True,
        root=True,
        command=(
            "sh",
            "-c",
            (
                f"d={V1}/ft-%box%; mkdir $d; echo 100000000 > $d/memory.limit_in_bytes; echo $$ > $d/cgroup.procs; "
                "exec %python% %agent%"
            ),
        ),
        outside=remove_the_cgroup,
        shows="[exit 137]",
    ),
    oom(
        "oom-before-any-reply",
        "the harness's own setup is killed in the box while the first reply is awaited",
        Step(text="Done.", head_delay_s=12.0),
        why="VERDICTS 3d: harness support alone exceeds the ceiling: proved",
        right=Right(
            blame=of(Blame.INFRA),
            grade=Grade.PROVED,
            cause=OOM,
            ended=(OOM, Grade.PROVED, None),
            ended_as=EndedAs.NEVER_RAN,
        ),
        agent=box(SMALL, "--setup", "tail /dev/zero"),
    ),
    oom(
        "oom-residual",
        "step 1 fills a tmpfs to 86 % of the limit; step 2, which needs 20 MB, is killed",
        shell("head -c 58000000 /dev/zero > /scratch/x; wc -c /scratch/x"),
        shell("head -c 20000000 /dev/zero | tail -c 20000000 | wc -c"),
        GIVES_UP,
        why="VERDICTS 3: a box left without memory by what the trial wrote is container.oom_residual",
        right=struck("container.oom_residual", 2),
        agent=box(f"{SMALL} --tmpfs /scratch"),
    ),
    oom(
        "oom-from-above",
        "a neighbour fills the parent cgroup; the trial's command is killed, far within its floor",
        shell("touch /shared/working; until [ -e /shared/over ]; do sleep 0.1; done"),
        GIVES_UP,
        why="VERDICTS 3c: a host-side kill while the trial was within its floor: proved",
        right=Right(blame=of(Blame.INFRA), grade=Grade.PROVED, cause=OOM, step=1, ended=(OOM, Grade.PROVED, 1)),
        agent=box("--memory-reservation 64m --cgroup-parent /ft-%box% --oom-score-adj 1000"),
        outside=fill_the_node,
        root=True,
        dear=True,
    ),
    oom(
        "oom-next-door",
        "a neighbour under the same parent cgroup is killed; the runtime tells of an OOM in the box too",
        shell("touch /shared/working; until [ -e /shared/over ]; do sleep 0.1; done; exit 1"),
        DONE,
        kind=Kind.CLEAN,
        why="VERDICTS 3: only a delta of the box's own counter proves a kill",
        right=models(),
        agent=box("--cgroup-parent /ft-%box%"),
        outside=kill_next_door,
        root=True,
        dear=True,
    ),
    oom(
        "memory-bomb-at-4x",
        "a command that takes whatever there is, killed at four times what its box is guaranteed",
        shell("tail /dev/zero"),
        GIVES_UP,
        kind=Kind.LOOK_ALIKE,
        why="VERDICTS 3 and 8: demand over k times the declared (k = 3) is the model's; 1: it ended it",
        right=Right(blame=of(Blame.MODEL), grade="open", cause=OOM, step=1, ended=(OOM, Grade.PROVED, 1)),
        agent=box(f"{SMALL} --memory-reservation 16m"),
    ),
    oom(
        "memory-bomb-named-tmux",
        "the same, by a command that calls itself tmux, as a terminal that the harness types into would be called",
        shell("sh -c 'printf tmux-hog > /proc/$$/comm; x=$(head -c 99000000 /dev/zero | tr \"\\0\" a)'; true"),
        GIVES_UP,
        kind=Kind.LOOK_ALIKE,
        why="VERDICTS 3 and 8: as memory-bomb-at-4x; a name that a process gives itself proves nothing",
        right=Right(blame=of(Blame.MODEL), grade="open", cause=OOM, step=1, ended=(OOM, Grade.PROVED, 1)),
        agent=box(f"{SMALL} --memory-reservation 16m"),
        dear=True,
    ),
    oom(
        "oom-recovered",
        "a command is killed, a leaner one does the job",
        shell("tail /dev/zero"),
        shell("touch answer"),
        DONE,
        kind=Kind.CLEAN,
        why="VERDICTS 3: a later tool step ended normally: present",
        right=passed(OOM),
    ),
    oom(
        "oom-recovered-then-fails",
        "a command is killed, the next ones work, the task fails all the same",
        shell("tail /dev/zero"),
        shell("echo lean"),
        DONE,
        kind=Kind.CLEAN,
        why="VERDICTS 3: a later tool step ended normally: present, and the model's",
        right=models(OOM),
        dear=True,
    ),
    oom(
        "oom-in-the-check",
        "the check after the agent's last word is killed",
        shell("echo hello"),
        DONE,
        why="VERDICTS 5: it explains what the verifier reported, not what the agent did: suspected",
        right=suspected(OOM, None, ended=None),
        agent=box(SMALL, "--check", "tail /dev/zero"),
        dear=True,
    ),
)
