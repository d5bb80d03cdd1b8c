"""Look-alikes and controls in a box: bombs, kills, loops and words of the model's own.

VERDICTS section 8; those without a box are in `look_alikes.py`.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.script import shell
from tests.matrix.cases.boxes import SMALL, box, boxed, small_disk
from tests.matrix.scenario import DONE, Kind, Right, Scenario, models, not_infra, of, passed


def reached(cause: str) -> Right:
    """A limit that the model's own doing reached: VERDICTS 1, whoever's demand it was, it is what ended the trial."""
    return Right(blame=of(Blame.MODEL, Blame.INDETERMINATE), grade="open", cause="open", ended=(cause, None, 1))


SCENARIOS: Final = (
    *(
        boxed(
            f"box-{name}",
            "look-alike",
            Kind.LOOK_ALIKE,
            what,
            *steps,
            DONE,
            why="VERDICTS 8",
            right=right,
            agent=agent,
            inside_only=True,
            **more,
        )
        for name, what, steps, right, agent, more in (
            ("own-kill-9", "a command kills itself", (shell("kill -9 $$"),), models(), (), {"shows": "[exit 137]"}),
            ("kill-all", "a command kills all that it can", (shell("kill -9 -1; exit 137"),), models(), (), {}),
            (
                "printed-killed",
                "much output, the word Killed, exit 137",
                (shell("head -c 200000000 /dev/zero > /dev/null; echo Killed; exit 137"),),
                models(),
                (),
                {"dear": True, "shows": "Killed"},
            ),
            (
                "ulimit",
                "out of memory under a ulimit of its own",
                (shell("ulimit -v 20000; tail /dev/zero; exit 1"),),
                models(),
                (),
                {},
            ),
            (
                "kill-pid-1",
                "the model ends the box's main process, which then exits 137",
                (shell("kill -TERM 1; sleep 5"),),
                not_infra(),
                box(SMALL, "--main", "sh -c 'trap \"exit 137\" TERM; while :; do sleep 0.1; done'"),
                {},
            ),
            (
                "fork-bomb",
                "processes that fork until the limit of processes",
                (shell("b() { b | b & }; b; sleep 1; exit 1"),),
                reached("container.pids_limit"),
                box(f"{SMALL} --pids-limit 48"),
                {},
            ),
            (
                "disk-bomb",
                "the model fills a disk of 16 MB by itself",
                (shell("dd if=/dev/zero of=/data/x bs=1M || (sleep 2.5; exit 1)"),),
                reached("container.disk_full"),
                box(f"{SMALL} -v %disk%:/data"),
                {"stands": small_disk, "root": True, "shows": "No space left"},
            ),
            (
                "loop-at-quota",
                "an endless loop of the model's at a twentieth of a processor, given up after 2 s",
                (shell("while :; do :; done"),),
                reached("container.cpu_throttled"),
                box(f"{SMALL} --cpus 0.05", "--tool-limit-s", "2"),
                {"dear": True},
            ),
            (
                "sleep-under-a-limit",
                "a long sleep of the model's, given up after 2 s",
                (shell("sleep 60"),),
                not_infra(Blame.MODEL, Blame.INDETERMINATE, Blame.HARNESS),
                box(SMALL, "--tool-limit-s", "2"),
                {"dear": True},
            ),
            (
                "wrong-host",
                "a host that does not exist, in a box without a network",
                (shell("nslookup no-such-host.invalid; wget -T 2 http://no-such-host.invalid/; exit 1"),),
                not_infra(Blame.MODEL, Blame.INDETERMINATE),
                (),
                {},
            ),
        )
    ),
    Scenario(
        name="own-docker-kill",
        family="look-alike",
        kind=Kind.LOOK_ALIKE,
        what="the model's command starts a container, kills it through its Docker door and then needs it",
        why="VERDICTS 8: its own kill -9, by another way",
        right=not_infra(),
        engine="shared",
        steps=(
            shell("docker run -d --name %box% --network none %image% sleep 600"),
            shell("docker exec %box% sleep 20 & sleep 1; docker kill %box%; wait; docker exec %box% true; exit 1"),
            DONE,
        ),
        command=("%python%", "%agent%"),
        inside_only=True,
    ),  # --- controls ---
    boxed(
        "box-passes",
        "control",
        Kind.CLEAN,
        "the task done in a box",
        shell("echo hello"),
        shell("touch answer"),
        DONE,
        why="a control",
        right=passed(),
    ),
    boxed(
        "box-fails-by-itself",
        "control",
        Kind.CLEAN,
        "the model does not do the task",
        shell("echo hello"),
        DONE,
        why="a control",
        right=models(),
        dear=True,
    ),
    boxed(
        "file-cache-at-the-limit",
        "control",
        Kind.CLEAN,
        "files of more than the limit are written and read; nothing is killed; the model fails",
        shell("head -c 90000000 /dev/zero > /tmp/f; cat /tmp/f > /dev/null; rm /tmp/f; exit 1"),
        DONE,
        why="container.md 2.1: usage at the limit with file work is normal",
        right=models(),
        dear=True,
    ),
)
