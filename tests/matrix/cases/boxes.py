"""Containers: memory, ends from outside, limits, full disks, a dead engine, on a real engine with real cgroups.

Right by VERDICTS sections 3 to 5 and 8 and the container rows of taxonomy.md section 5.  `/shared` in each box is the
scenario's folder, so that its commands and somebody outside can wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.script import Step, say, shell
from tests.matrix.scenario import DONE, Kind, Right, Scenario, models, not_infra, of, passed, suspected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.matrix.rig import Stage

OOM: Final = "container.oom_kill"
SMALL: Final = "--memory 64m --memory-swap 64m"
ANOTHER: Final = "FAIRTRIAL_TRIAL=0197aaaa-0000-7000-8000-00000000000a"
"""The mark of somebody else's trial: an engine with several users and no marks clears nobody."""
GIVES_UP: Final = say("The command died; I can not go on.")
V1: Final = Path("/sys/fs/cgroup/memory")


def box(options: str = SMALL, *more: str) -> tuple[str, ...]:
    """The agent's options for a box with these of docker run."""
    return ("--box", f"--network none -v %folder%:/shared {options}", *more)


def oom(name: str, what: str, *steps: Step, right: Right, why: str, kind: Kind = Kind.INFRA,
        agent: Sequence[str] = (), **more: object) -> Scenario:
    """A scenario in which the kernel kills for memory in the box."""
    return Scenario(
        name=name, family="memory", kind=kind, what=what, why=why, right=right, steps=steps, engine="shared", kills=True,
        agent=agent or box(), **more,  # type: ignore[arg-type]
    )


def boxed(name: str, family: str, kind: Kind, what: str, *steps: Step, right: Right, why: str,
          agent: Sequence[str] = (), **more: object) -> Scenario:
    """Any other scenario with a box."""
    return Scenario(
        name=name, family=family, kind=kind, what=what, why=why, right=right, steps=steps, agent=agent or box(),
        **({"engine": "shared"} | more),  # type: ignore[arg-type]
    )


def struck(cause: str, step: int, *, blame: Blame = Blame.INFRA, ended_as: EndedAs | None = None) -> Right:
    """It ended the trial, for sure; whose doing or demand it was is open."""
    return suspected(cause, step, blame=blame, ended=(cause, Grade.PROVED, step), ended_as=ended_as)


def either(cause: str, step: int, *blames: Blame, ended_as: EndedAs | None = None) -> Right:
    """This cause, whatever grade the evidence of a later version reaches."""
    return Right(
        blame=of(*(blames or (Blame.INFRA,))), grade="open", cause=cause, step=step, ended=(cause, None, step),
        ended_as=ended_as,
    )


# --- somebody outside -------------------------------------------------------------------------------------------------


def kill_the_box(stage: Stage) -> None:
    """Past fairtrial's door."""
    stage.until("working")
    stage.docker("kill", stage.box)


def restart_the_box(stage: Stage) -> None:
    """As a node agent does."""
    stage.until("working")
    stage.docker("restart", "-t", "0", stage.box)
    stage.note("restarted")


def replace_the_box(stage: Stage) -> None:
    """A fresh container under the old name: what was written is gone."""
    stage.until("working")
    image = stage.docker("inspect", "-f", "{{.Config.Image}}", stage.box)
    known = stage.docker("inspect", "-f", "{{range .Config.Env}}{{println .}}{{end}}", stage.box).splitlines()
    mark = next(each for each in known if each.startswith("FAIRTRIAL_TRIAL="))
    stage.docker("rm", "-f", stage.box)
    stage.docker("run", "-d", "-e", mark, "--name", stage.box, "--network", "none", "-w", "/work", "-v", f"{stage.folder}:/shared",
                 image, "sleep", "600")
    stage.note("replaced")


def kill_the_service(stage: Stage) -> None:
    """The database of the task dies under it."""
    stage.until("working")
    stage.docker("kill", f"{stage.box}-service")
    stage.note("died")


def kill_the_engine(stage: Stage) -> None:
    """The daemon dies without a word."""
    stage.until("working")
    assert stage.engine is not None and stage.engine.pid is not None
    os.kill(stage.engine.pid, signal.SIGKILL)


def kill_the_engine_later(stage: Stage) -> None:
    """The same, once the command is over and before the next."""
    stage.until("working")
    time.sleep(1.5)
    kill_the_engine(stage)


HOGS: Final = "for i in 1 2 3; do (head -c 45000000 /dev/zero | tail -c 45000000 > /dev/null) & done; wait; true"
"""Three of them, each smaller than what the trial's process counts for by its score."""


def fill_the_node(stage: Stage) -> None:
    """A neighbour under the same parent cgroup takes all of it; the kernel picks the trial's process."""
    stage.until("working")
    image = stage.docker("inspect", "-f", "{{.Config.Image}}", stage.box)
    (V1 / f"ft-{stage.box}" / "memory.limit_in_bytes").write_text(str(96 << 20))
    stage.docker("run", "--rm", "-e", ANOTHER, "--network", "none", "--cgroup-parent", f"/ft-{stage.box}",
                 image, "sh", "-c", HOGS)
    remove_the_cgroup(stage)


def kill_next_door(stage: Stage) -> None:
    """A neighbour under the same parent cgroup is killed for memory; the box is not."""
    stage.until("working")
    image = stage.docker("inspect", "-f", "{{.Config.Image}}", stage.box)
    (V1 / f"ft-{stage.box}" / "memory.limit_in_bytes").write_text(str(96 << 20))
    stage.docker("run", "--rm", "-e", ANOTHER, "--network", "none", "--cgroup-parent", f"/ft-{stage.box}",
                 image, "sh", "-c", "tail /dev/zero || true")
    stage.note("over")
    remove_the_cgroup(stage)


def remove_the_cgroup(stage: Stage) -> None:
    """Once the trial is over."""
    assert stage.run is not None
    stage.run.wait()
    left = list(V1.parent.glob(f"*/ft-{stage.box}"))
    for _ in range(100):
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        left = [folder for folder in left if folder.exists()]
        if not left:
            return
        time.sleep(0.05)


# --- what stands around a trial ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[Mapping[str, str]]:
    """A disk of 16 MB."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    try:
        yield {"disk": str(disk)}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@contextlib.contextmanager
def full_disk(folder: Path) -> Generator[Mapping[str, str]]:
    """The same, and somebody else filled it before."""
    with small_disk(folder) as made:
        with contextlib.suppress(OSError):
            (Path(made["disk"]) / "theirs").write_bytes(bytes(16 << 20))
        yield made


class _Registry(BaseHTTPRequestHandler):
    status = 503

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("content-length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Tests print nothing."""


class _Empty(_Registry):
    status = 404


@contextlib.contextmanager
def registry(_: Path, handler: type[_Registry] = _Registry) -> Generator[Mapping[str, str]]:
    """A registry that answers 503 to everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"registry": f"127.0.0.1:{server.server_address[1]}"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def empty_registry(folder: Path) -> contextlib.AbstractContextManager[Mapping[str, str]]:
    """A registry that knows no image."""
    return registry(folder, _Empty)


SCENARIOS: Final = (
    # --- memory -----------------------------------------------------------------------------------------------------
    oom(
        "oom", "a command is killed at the box's limit and the agent gives up", shell("tail /dev/zero"), GIVES_UP,
        why="VERDICTS 3: an OOM that was the agent's last tool step: infra/suspected, terminated_by proved",
        right=struck(OOM, 1, ended_as=EndedAs.AGENT_FINISHED), shows="[exit 137]",
    ),
    oom(
        "oom-behind-exit-0", "the same, hidden behind exit status 0",
        shell("(tail /dev/zero; true) 2>/dev/null; exit 0"), GIVES_UP,
        why="VERDICTS 3: the counter tells of the kill, not the status", right=struck(OOM, 1), shows="[exit 0]",
    ),
    oom(
        "oom-of-the-main-process", "the box's own main process is killed, and the box dies with it",
        shell("touch /tmp/go; sleep 20"), GIVES_UP,
        why="taxonomy: container OOM, PID 1", right=struck(OOM, 1),
        agent=box(SMALL, "--main", "sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; tail /dev/zero'"),
    ),
    Scenario(
        name="oom-in-own-cgroup", family="memory", kind=Kind.INFRA,
        what="no container: the agent runs in a cgroup of 100 MB and its command is killed there",
        why="VERDICTS 3: as in a container",
        right=struck(OOM, 1), steps=(shell("tail /dev/zero"), GIVES_UP), kills=True, root=True,
        command=(
            "sh", "-c",
            f"d={V1}/ft-%box%; mkdir $d; echo 100000000 > $d/memory.limit_in_bytes; echo $$ > $d/cgroup.procs; "
            "exec %python% %agent%",
        ),
        outside=remove_the_cgroup, shows="[exit 137]",
    ),
    oom(
        "oom-before-any-reply", "the harness's own setup is killed in the box while the first reply is awaited",
        Step(text="Done.", head_delay_s=5.0),
        why="VERDICTS 3d: harness support alone exceeds the ceiling: proved",
        right=Right(
            blame=of(Blame.INFRA), grade=Grade.PROVED, cause=OOM, ended=(OOM, Grade.PROVED, None),
            ended_as=EndedAs.NEVER_RAN,
        ),
        agent=box(SMALL, "--setup", "tail /dev/zero"),
    ),
    oom(
        "oom-residual", "step 1 fills a tmpfs to 86 % of the limit; step 2, which needs 20 MB, is killed",
        shell("head -c 58000000 /dev/zero > /scratch/x; wc -c /scratch/x"),
        shell("head -c 20000000 /dev/zero | tail -c 20000000 | wc -c"), GIVES_UP,
        why="VERDICTS 3: a box left without memory by what the trial wrote is container.oom_residual",
        right=struck("container.oom_residual", 2), agent=box(f"{SMALL} --tmpfs /scratch"),
    ),
    oom(
        "oom-from-above", "a neighbour fills the parent cgroup; the trial's command is killed, far within its floor",
        shell("touch /shared/working; sleep 30"), GIVES_UP,
        why="VERDICTS 3c: a host-side kill while the trial was within its floor: proved",
        right=Right(blame=of(Blame.INFRA), grade=Grade.PROVED, cause=OOM, step=1, ended=(OOM, Grade.PROVED, 1)),
        agent=box("--memory-reservation 64m --cgroup-parent /ft-%box% --oom-score-adj 1000"),
        outside=fill_the_node, root=True, dear=True,
    ),
    oom(
        "oom-next-door", "a neighbour under the same parent cgroup is killed; the runtime tells of an OOM in the box too",
        shell("touch /shared/working; until [ -e /shared/over ]; do sleep 0.1; done; exit 1"), DONE, kind=Kind.CLEAN,
        why="VERDICTS 3: only a delta of the box's own counter proves a kill", right=models(),
        agent=box("--cgroup-parent /ft-%box%"), outside=kill_next_door, root=True, dear=True,
    ),
    oom(
        "memory-bomb-at-4x", "a command that takes whatever there is, killed at four times what the task declares",
        shell("tail /dev/zero"), GIVES_UP, kind=Kind.LOOK_ALIKE,
        why="VERDICTS 3 and 8: demand over k times the declared (k = 3) is the model's",
        right=Right(blame=of(Blame.MODEL), grade="open", ended=(OOM, Grade.PROVED, 1)),
        options=("--headroom", "4"), awaits="--headroom is recorded and not applied yet, so no demand over 3 x shows",
    ),
    oom(
        "oom-recovered", "a command is killed, a leaner one does the job", shell("tail /dev/zero"), shell("touch answer"),
        DONE, kind=Kind.CLEAN, why="VERDICTS 3: a later tool step ended normally: present", right=passed(OOM),
    ),
    oom(
        "oom-recovered-then-fails", "a command is killed, the next ones work, the task fails all the same",
        shell("tail /dev/zero"), shell("echo lean"), DONE, kind=Kind.CLEAN,
        why="VERDICTS 3: a later tool step ended normally: present, and the model's", right=models(OOM),
    ),
    oom(
        "oom-in-the-check", "the check after the agent's last word is killed", shell("echo hello"), DONE,
        why="VERDICTS 5: it explains what the verifier reported, not what the agent did: suspected, nothing ended early",
        right=suspected(OOM, None, ended=None), agent=box(SMALL, "--check", "tail /dev/zero"),
    ),
    # --- ends and states --------------------------------------------------------------------------------------------
    boxed(
        "killed-from-outside", "container", Kind.INFRA, "docker kill by somebody else while a command runs",
        shell("touch /shared/working; sleep 30"), GIVES_UP,
        why="RECORDS: container.killed, proved only when the killer is known", right=struck("container.killed", 1),
        outside=kill_the_box, shows="[exit 137]",
        awaits="engine: the harness's own removal, up to a second after the kill, is taken for the asking of it",
    ),
    boxed(
        "restarted-from-outside", "container", Kind.INFRA, "docker restart by somebody else while a command runs",
        shell("touch /shared/working; sleep 30"), shell("test -e /tmp/state"), GIVES_UP,
        why="RECORDS: container.restarted, infra, harness or operator", right=either("container.restarted", 1),
        outside=restart_the_box, awaits="engine: container.restarted",
    ),
    boxed(
        "state-lost", "container", Kind.INFRA, "the box is replaced by a fresh one of the same name; its files are gone",
        shell("echo 1 > /work/state; touch /shared/working; until [ -e /shared/replaced ]; do sleep 0.1; done"),
        shell("cat /work/state"), GIVES_UP,
        why="taxonomy: state wiped, new container id: infra from that step on",
        right=either("container.state_lost", 1), outside=replace_the_box, awaits="engine: container.state_lost",
    ),
    boxed(
        "service-died", "container", Kind.INFRA, "a service that the harness had started is killed by somebody else",
        shell("touch /shared/working; until [ -e /shared/died ]; do sleep 0.1; done; exit 1"), GIVES_UP,
        why="RECORDS: container.service_died", right=either("container.service_died", 1),
        agent=box(SMALL, "--service", "%box%-service"), outside=kill_the_service,
        awaits="engine: container.service_died",
    ),
    boxed(
        "start-failed", "container", Kind.OTHER, "the box's main program does not exist", DONE,
        why="RECORDS: container.start_failed: never ran; a wrong command is the task's or the operator's",
        right=Right(
            blame=of(Blame.TASK, Blame.OPERATOR), grade="open", cause="container.start_failed", ended="open",
            ended_as=EndedAs.NEVER_RAN,
        ),
        agent=box(SMALL, "--main", "/no/such/program"), awaits="engine: container.start_failed",
    ),
    boxed(
        "image-pull-503", "container", Kind.INFRA, "the registry answers 503 to the pull of the box's image", DONE,
        why="taxonomy: registry 5xx before the agent starts, zero tokens: never ran",
        right=Right(
            blame=of(Blame.INFRA), grade="open", cause="container.image_pull", ended="open", ended_as=EndedAs.NEVER_RAN
        ),
        agent=box(SMALL, "--image", "%registry%/missing:1"), stands=registry, awaits="engine: container.image_pull",
    ),
    boxed(
        "image-unknown", "container", Kind.OTHER, "the registry knows no such image", DONE,
        why="taxonomy: a wrong name, 404 at the registry, is not infra's",
        right=Right(
            blame=of(Blame.OPERATOR, Blame.TASK), grade="open", cause="container.image_pull", ended="open",
            ended_as=EndedAs.NEVER_RAN,
        ),
        agent=box(SMALL, "--image", "%registry%/missing:1"), stands=empty_registry,
        awaits="engine: container.image_pull",
    ),
    boxed(
        "engine-killed-under-a-command", "container", Kind.INFRA, "dockerd is killed while a command runs",
        shell("touch /shared/working; sleep 600"), GIVES_UP,
        why="RECORDS: runtime.exec_lost; an agent with access to the engine can end it: suspected",
        right=suspected("runtime.exec_lost", 1, ended=("runtime.exec_lost", None, 1)),
        outside=kill_the_engine, engine="own", dear=True,
    ),
    boxed(
        "engine-killed-between-commands", "container", Kind.INFRA, "dockerd is killed while the model thinks",
        shell("touch /shared/working"), Step(commands=("touch answer",), head_delay_s=3.0), GIVES_UP,
        why="RECORDS: runtime.daemon_fault: the daemon no longer answers", right=either("runtime.daemon_fault", 2),
        outside=kill_the_engine_later, engine="own", dear=True, awaits="engine: runtime.daemon_fault",
    ),
    # --- counters ---------------------------------------------------------------------------------------------------
    boxed(
        "pids-limit-below-need", "counters", Kind.INFRA, "a limit of two processes: the exec's shell can not fork",
        shell("echo a | cat; (sleep 0.1); touch answer"), GIVES_UP,
        why="VERDICTS 3: a limit below what the harness needs at idle is infra", right=either("container.pids_limit", 1),
        agent=box(f"{SMALL} --pids-limit 2"), awaits="counters: container.pids_limit",
    ),
    boxed(
        "disk-filled-by-others", "counters", Kind.INFRA, "somebody else had filled the disk that the task writes to",
        shell("dd if=/dev/zero of=/data/x bs=1000 count=100 && touch answer"), GIVES_UP,
        why="VERDICTS 3: under 50 % of the bytes by this trial is infra", right=either("container.disk_full", 1),
        agent=box(f"{SMALL} -v %disk%:/data"), stands=full_disk, root=True, shows="No space left",
        awaits="counters: container.disk_full",
    ),
    boxed(
        "throttled-under-a-limit", "counters", Kind.INFRA,
        "a command that needs 0.4 s of processor gets a twentieth of one and is given up after 3 s",
        shell("i=0; while [ $i -lt 250000 ]; do i=$((i+1)); done; touch answer"), GIVES_UP,
        why="taxonomy: wall - throttled under the step's limit: infra; proved only by a rerun",
        right=either("container.cpu_throttled", 1),
        agent=box(f"{SMALL} --cpus 0.05", "--tool-limit-s", "3"), awaits="counters: container.cpu_throttled",
    ),
    # --- look-alikes in a box ---------------------------------------------------------------------------------------
    *(
        boxed(f"box-{name}", "look-alike", Kind.LOOK_ALIKE, what, *steps, DONE, why="VERDICTS 8", right=right,
              agent=agent, inside_only=True, **more)
        for name, what, steps, right, agent, more in (
            ("own-kill-9", "a command kills itself", (shell("kill -9 $$"),), models(), (), {"shows": "[exit 137]"}),
            ("kill-all", "a command kills all that it can", (shell("kill -9 -1; exit 137"),), models(), (), {}),
            ("printed-killed", "much output, the word Killed, exit 137",
             (shell("head -c 200000000 /dev/zero > /dev/null; echo Killed; exit 137"),), models(), (),
             {"shows": "Killed"}),
            ("ulimit", "out of memory under a ulimit of its own",
             (shell("ulimit -v 20000; tail /dev/zero; exit 1"),), models(), (), {}),
            ("kill-pid-1", "the model ends the box's main process, which then exits 137",
             (shell("kill -TERM 1; sleep 5"),), not_infra(),
             box(SMALL, "--main", "sh -c 'trap \"exit 137\" TERM; while :; do sleep 0.1; done'"), {}),
            ("fork-bomb", "processes that fork until the limit of processes",
             (shell("b() { b | b & }; b; sleep 1; exit 1"),), not_infra(Blame.MODEL, Blame.INDETERMINATE),
             box(f"{SMALL} --pids-limit 48"), {}),
            ("disk-bomb", "the model fills a disk of 16 MB by itself",
             (shell("dd if=/dev/zero of=/data/x bs=1M"),), not_infra(Blame.MODEL, Blame.INDETERMINATE),
             box(f"{SMALL} -v %disk%:/data"), {"stands": small_disk, "root": True, "shows": "No space left"}),
            ("loop-at-quota", "an endless loop of the model's at a twentieth of a processor, given up after 2 s",
             (shell("while :; do :; done"),), not_infra(Blame.MODEL, Blame.INDETERMINATE, Blame.HARNESS),
             box(f"{SMALL} --cpus 0.05", "--tool-limit-s", "2"), {}),
            ("sleep-under-a-limit", "a long sleep of the model's, given up after 2 s",
             (shell("sleep 60"),), not_infra(Blame.MODEL, Blame.INDETERMINATE, Blame.HARNESS),
             box(SMALL, "--tool-limit-s", "2"), {}),
            ("wrong-host", "a host that does not exist, in a box without a network",
             (shell("nslookup no-such-host.invalid; wget -T 2 http://no-such-host.invalid/; exit 1"),),
             not_infra(Blame.MODEL, Blame.INDETERMINATE), (), {}),
        )
    ),
    Scenario(
        name="own-docker-kill", family="look-alike", kind=Kind.LOOK_ALIKE,
        what="the model's command starts a container, kills it through its Docker door and then needs it",
        why="VERDICTS 8: its own kill -9, by another way", right=not_infra(), engine="shared",
        steps=(
            shell("docker run -d --name %box% --network none %image% sleep 600"),
            shell("docker exec %box% sleep 20 & sleep 1; docker kill %box%; wait; docker exec %box% true; exit 1"), DONE,
        ),
        command=("%python%", "%agent%"), inside_only=True,
    ),
    # --- controls ---------------------------------------------------------------------------------------------------
    boxed("box-passes", "control", Kind.CLEAN, "the task done in a box", shell("echo hello"), shell("touch answer"), DONE,
          why="a control", right=passed()),
    boxed("box-fails-by-itself", "control", Kind.CLEAN, "the model does not do the task", shell("echo hello"), DONE,
          why="a control", right=models()),
    boxed(
        "file-cache-at-the-limit", "control", Kind.CLEAN,
        "files of more than the limit are written and read; nothing is killed; the model fails",
        shell("head -c 90000000 /dev/zero > /tmp/f; cat /tmp/f > /dev/null; rm /tmp/f; exit 1"), DONE,
        why="container.md 2.1: usage at the limit with file work is normal", right=models(),
    ),
)
