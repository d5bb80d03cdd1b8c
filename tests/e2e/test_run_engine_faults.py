"""What somebody outside does to a trial's container or its engine, on a real engine, and what fairtrial says of it.

Each fault is done past fairtrial's doors, by the test itself, while the model's commands run inside the container; the
look-alike beside it is done by the trial.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fairtrial.collectors.wait_status import ending_signal
from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.script import Step, say, shell
from tests.e2e.clients import e2e_folder
from tests.e2e.engine import Engine, EngineUnavailable, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.outside import Outside, run_boxed, run_on_host, wait_for, with_box
from tests.e2e.under import Under

DONE = say("Done.")
WORK = shell("echo one > /one")
LONG = shell("echo two > /two; sleep 60")


def summary(under: Under) -> tuple[str, str | None, str | None, int | None]:
    verdict = under.verdict
    return verdict.blame.value, None if verdict.grade is None else verdict.grade.value, verdict.cause, verdict.step


def tell_kernel() -> bool:
    """Whether this kernel tells how a process ended."""
    with subprocess.Popen(["true"]) as process:
        fd = os.pidfd_open(process.pid)
    try:
        return ending_signal(fd) is not None
    finally:
        os.close(fd)


# --- the container --------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_a_first_process_killed_from_the_host_is_suspected_of_infra_and_nobody_is_named(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    def kill(outside: Outside) -> None:
        outside.find()
        wait_for(lambda: outside.has("/two"))
        os.kill(outside.init_pid(), signal.SIGKILL)

    under = run_boxed((WORK, LONG, DONE), docker_engine, busybox_image, tmp_path, act=kill)
    assert under.trial.steps[0].tools[0].join == "text", under.told()
    if tell_kernel():
        assert summary(under) == ("infra", "suspected", "unknown.outside", 2), under.told()
    else:
        assert under.verdict.blame is Blame.INDETERMINATE, under.told()


def test_a_trial_that_kills_all_it_can_of_its_own_container_is_never_infra(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    under = run_boxed((WORK, shell("kill -9 1; kill -9 -1"), DONE), docker_engine, busybox_image, tmp_path)
    assert under.verdict.blame is Blame.MODEL, under.told()
    assert under.verdict.terminated_by is None


def test_a_container_that_somebody_outside_stopped_or_paused_is_suspected_of_infra(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    """Paused between two commands: the engine then refuses the next one."""
    slow = Step(commands=("echo three > /three",), head_delay_s=3.0)
    for what, script in (("kill", (WORK, LONG, DONE)), ("pause", (WORK, slow, DONE))):

        def strike(outside: Outside, what: str = what) -> None:
            outside.find()
            wait_for(lambda: outside.has("/two" if what == "kill" else "/one"))
            outside.engine.docker(what, outside.box)

        under = run_boxed(script, docker_engine, busybox_image, tmp_path / what, act=strike)
        assert summary(under)[:3] == ("infra", "suspected", "container.killed"), under.told()
        assert ("paused" if what == "pause" else "SIGKILL") in under.verdict.sentence


def test_a_restart_from_outside_in_the_middle_is_suspected_of_infra(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    def restart(outside: Outside) -> None:
        outside.find()
        wait_for(lambda: outside.has("/two"))
        outside.engine.docker("restart", "-t", "0", outside.box)

    slow = Step(commands=("cat /one",), head_delay_s=3.0)  # it is back by then
    under = run_boxed((WORK, LONG, slow, DONE), docker_engine, busybox_image, tmp_path, act=restart)
    assert summary(under) == ("infra", "suspected", "container.restarted", 2), under.told()
    assert under.trial.steps[2].tools[0].exit_code == 0, "its files survive a restart"


@pytest.fixture
def name(docker_engine: Engine) -> Iterator[str]:
    """Of a container that a harness starts."""
    made = f"ft-fault-{uuid.uuid4().hex[:8]}"
    yield made
    docker_engine.docker("rm", "-f", made, check=False)


def test_what_a_tmpfs_held_is_lost_with_a_restart_from_outside(
    docker_engine: Engine, busybox_image: str, name: str, tmp_path: Path
) -> None:
    outside = Outside(docker_engine, set())
    outside.box = name

    def restart() -> None:
        wait_for(lambda: outside.has("/ready"))
        docker_engine.docker("restart", "-t", "0", name)

    thread = threading.Thread(target=restart)
    thread.start()
    script = (
        shell(f"docker exec {name} sh -c 'echo kept > /work/state; touch /ready'"),
        Step(commands=(f"docker exec {name} cat /work/state",), head_delay_s=4.0),
        DONE,
    )
    harness = with_box("--name", name, "--network", "none", "--tmpfs", "/work", busybox_image, "sleep", "600")
    under = run_on_host(script, docker_engine.docker_host, tmp_path, harness)
    thread.join(60)
    assert "can't open '/work/state'" in under.outcome.stdout, under.told()
    assert summary(under)[:3] == ("infra", "suspected", "container.state_lost"), under.told()
    assert "lost what it held in /work" in under.verdict.sentence


@pytest.mark.parametrize("command", ["docker kill", "docker restart -t 0"])
def test_a_container_that_the_model_itself_ended_through_its_door_is_never_infra(
    docker_engine: Engine, busybox_image: str, name: str, tmp_path: Path, command: str
) -> None:
    script = (
        shell(f"docker exec {name} true"),
        shell(f"{command} {name}; docker exec {name} false; exit 1"),
        shell(f"docker exec {name} false"),
        DONE,
    )
    harness = with_box("--name", name, "--network", "none", busybox_image, "sleep", "600")
    under = run_on_host(script, docker_engine.docker_host, tmp_path, harness)
    assert under.verdict.blame in {Blame.HARNESS, Blame.MODEL}, under.told()
    assert under.verdict.terminated_by is None


# --- before the agent began -----------------------------------------------------------------------------------------


@contextmanager
def registry(status: int) -> Iterator[str]:
    """A registry on loopback that answers everything so; `host:port`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
            self.send_response(200 if self.path == "/v2/" and status == 404 else status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status, blame", [(503, "infra"), (404, "task")])
def test_an_image_that_the_registry_did_not_give_never_ran(
    docker_engine: Engine, tmp_path: Path, status: int, blame: str
) -> None:
    with registry(status) as where:
        under = run_boxed((DONE,), docker_engine, f"{where}/task:1", tmp_path)
    assert summary(under)[:3] == (blame, "suspected", "container.image_pull"), under.told()
    assert under.verdict.ended_as is EndedAs.NEVER_RAN
    assert f"{where}/task:1" in under.verdict.sentence


def test_a_container_whose_command_the_engine_cannot_start_never_ran(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    """An image that lacks what the harness starts in it: the task's."""
    made = f"ft-empty:{tmp_path.name.lower()}"
    empty = subprocess.run(["tar", "-cf", "-", "-T", "/dev/null"], capture_output=True, check=True).stdout
    subprocess.run(["docker", "--host", docker_engine.docker_host, "import", "-", made], input=empty, check=True)
    try:
        under = run_boxed((DONE,), docker_engine, made, tmp_path)
    finally:
        for left in docker_engine.containers(f"ancestor={made}"):
            docker_engine.docker("rm", "-f", left, check=False)
        docker_engine.docker("rmi", "-f", made, check=False)
    assert summary(under)[:3] == ("task", "suspected", "container.start_failed"), under.told()
    assert under.verdict.ended_as is EndedAs.NEVER_RAN


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own in a file."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("not installed: mkfs.ext4 (Debian: apt-get install e2fsprogs)")
    image, place = folder / "disk", folder / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False, capture_output=True).returncode:
        pytest.skip("a loop device cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def fill_up(path: Path) -> None:
    """To the last block."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1 << 10):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                os.fsync(file.fileno())


@pytest.mark.root
def test_a_full_disk_of_the_engine_keeps_the_trial_from_running_and_is_infras(tmp_path: Path) -> None:
    with small_disk(tmp_path, 48) as place:
        try:
            with private_engine("--data-root", str(place / "data")) as engine:
                image = ensure_image("ft-busybox", engine.docker_host, e2e_folder() / "images")
                fill_up(place / "fill")
                under = run_boxed((DONE,), engine, image, tmp_path)
                (place / "fill").unlink()
        except (EngineUnavailable, ImageUnavailable) as reason:
            pytest.skip(str(reason))
    assert summary(under)[:3] == ("infra", "suspected", "container.start_failed"), under.told()
    assert "the disk was full" in under.verdict.sentence
    assert under.verdict.ended_as is EndedAs.NEVER_RAN


# --- the engine -----------------------------------------------------------------------------------------------------


def test_an_engine_killed_between_two_commands_is_suspected_and_the_hole_is_in_the_coverage(tmp_path: Path) -> None:
    def kill(outside: Outside) -> None:
        outside.find()
        wait_for(lambda: outside.has("/one"))
        assert outside.engine.pid is not None
        os.kill(outside.engine.pid, signal.SIGKILL)

    slow = Step(commands=("echo three > /three",), head_delay_s=4.0)
    try:
        with private_engine("--live-restore") as engine:
            image = ensure_image("ft-busybox", engine.docker_host, e2e_folder() / "images")
            under = run_boxed((WORK, slow, DONE), engine, image, tmp_path, act=kill)
            engine.again()
    except (EngineUnavailable, ImageUnavailable) as reason:
        pytest.skip(str(reason))
    assert summary(under)[:3] == ("infra", "suspected", "runtime.daemon_fault"), under.told()
    coverage = under.trial.coverage
    assert coverage.families["memory"].level == "partial", coverage
    assert "gap" in (coverage.families["memory"].why or "")
    assert under.verdict.grade is Grade.SUSPECTED
