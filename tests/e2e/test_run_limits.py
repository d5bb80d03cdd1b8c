"""Limits that are not of memory, on real containers under `fairtrial run`: whose doing, and what is left open.

The demo's agent, whose tools run on the host and use docker; its check fails each time.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, Grade
from fairtrial.middleware.demo.script import say, shell
from tests.e2e.engine import Engine, EngineUnavailable, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.test_run_containers import run_agent
from tests.e2e.under import Under

DONE = say("Done.")
DISK_MIB = 96


def worked(engine: Engine, image: str, folder: Path, command: str, *options: str, before: str = "true") -> Under:
    """A task container that the first command starts, and one command in it."""
    name = f"box-{folder.name[-24:]}".replace("[", "-").replace("]", "")
    start = f"docker run -d --name {name} --network none {' '.join(options)} {image} sleep 300 >/dev/null && sleep 1.2"
    script = (shell(start), shell(f"{before}; docker exec {name} {command}"), DONE)
    try:
        return run_agent("run", script, engine, folder)
    finally:
        engine.docker("rm", "-f", name, check=False)


def test_a_fork_bomb_is_the_models_and_the_limit_is_told(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    bomb = "sh -c 'n=0; while [ $n -lt 60 ]; do sleep 3 & n=$((n+1)); done; wait'"
    under = worked(docker_engine, busybox_image, tmp_path, bomb, "--pids-limit 24")
    verdict = under.verdict
    told = [verdict.cause, *(row.cause for row in verdict.present)]
    assert "container.pids_limit" in told, under.told()
    assert verdict.blame is Blame.MODEL, under.told()


def test_an_endless_loop_at_its_quota_blames_nobody_and_names_the_throttling(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    loop = "timeout 3 sh -c 'while :; do :; done'"
    verdict = (under := worked(docker_engine, busybox_image, tmp_path, loop, "--cpus 0.1")).verdict
    assert verdict.terminated_by is not None, under.told()
    assert (verdict.blame, verdict.terminated_by.cause) == (Blame.INDETERMINATE, "container.cpu_throttled"), (
        under.told()
    )
    assert verdict.flips_if is not None


def test_a_tmpfs_that_the_command_filled_is_the_models(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    fill = "dd if=/dev/zero of=/t/f bs=64k"
    verdict = (under := worked(docker_engine, busybox_image, tmp_path, fill, "--tmpfs /t:size=1m")).verdict
    assert (verdict.blame, verdict.grade, verdict.cause) == (Blame.MODEL, Grade.SUSPECTED, "container.disk_full"), (
        under.told()
    )


@pytest.fixture(scope="module")
def small_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Path]]:
    """An engine whose data folder is a file system of 96 MiB, and that folder."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed (Debian: apt-get install e2fsprogs)")
    folder = tmp_path_factory.mktemp("small")
    disk, mount = folder / "disk", folder / "data"
    with disk.open("wb") as file:
        file.truncate(DISK_MIB << 20)
    mount.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(disk)], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", disk, mount], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no loop mount here: {mounted.stderr.strip()[:80]}")
    try:
        with private_engine("--data-root", str(mount)) as engine:
            yield engine, mount
    except EngineUnavailable as why:
        pytest.skip(str(why))
    finally:
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("by", ["a tool on the host", "the command"])
def test_a_full_data_folder_of_the_engine_is_told_and_is_never_infra_when_the_agent_filled_it(
    small_engine: tuple[Engine, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, by: str
) -> None:
    engine, mount = small_engine
    try:
        ensure_image("ft-busybox", engine.docker_host, tmp_path_factory.mktemp("images"))
    except ImageUnavailable as why:
        pytest.skip(str(why))
    filler = mount / "from-the-host"
    before = f"dd if=/dev/zero of={filler} bs=1M 2>/dev/null; sync" if by == "a tool on the host" else "true"
    try:
        under = worked(engine, "ft-busybox", tmp_path, "dd if=/dev/zero of=/f bs=1M", before=before)
    finally:
        filler.unlink(missing_ok=True)
    verdict = under.verdict
    assert verdict.blame is (Blame.MODEL if by == "the command" else Blame.INDETERMINATE), under.told()
    assert verdict.terminated_by is not None, under.told()
    assert verdict.terminated_by.cause == "container.disk_full", under.told()
