"""A real engine: killed and restarted under load, with a crowd of containers, with services of a compose project."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from fairtrial.middleware.core.observations import (
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    ExecEnded,
    ExecStarted,
    GapSeen,
    Note,
    RuntimeState,
)
from tests.collectors.keep import eventually
from tests.collectors.live import Bench
from tests.e2e.clients import e2e_folder
from tests.e2e.engine import Engine, EngineUnavailable, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image

pytestmark = [pytest.mark.root]

LONG_S = 60.0
QUICK_STOP = ("--stop-signal", "KILL", "--network", "none")
"""A restarted engine waits ten seconds for each container that ignores its signal."""


@contextlib.contextmanager
def engine_with_image(*options: str) -> Iterator[Engine]:
    """A private engine that has the image; skips where there can be none."""
    try:
        with private_engine(*options) as engine:
            ensure_image("ft-busybox", engine.docker_host, e2e_folder() / "images")
            yield engine
    except (EngineUnavailable, ImageUnavailable) as why:
        pytest.skip(str(why))


@contextlib.asynccontextmanager
async def watching(engine: Engine) -> AsyncIterator[Bench]:
    """A trial that watches this engine."""
    it = Bench(engine.docker_host)
    await it.collectors.start()
    await eventually(lambda: it.kept.of(RuntimeState), within_s=LONG_S)
    try:
        yield it
    finally:
        await it.collectors.close()
        if it.names:
            await it.docker("rm", "-f", *it.names)


async def load(bench: Bench, cid: str) -> None:
    """Commands without end, until the engine refuses them."""
    while (await bench.docker("exec", cid, "true"))[0] == 0:
        pass


@pytest.mark.parametrize("survives", [True, False], ids=["live-restore", "plain"])
async def test_an_engine_killed_under_load_ends_what_ran_as_unknown_and_its_hole_is_marked(survives: bool) -> None:
    with engine_with_image(*(("--live-restore",) if survives else ())) as engine:
        async with watching(engine) as bench:
            cid = await bench.up("sleep", "300", options=QUICK_STOP)
            assert engine.pid is not None
            async with asyncio.TaskGroup() as clients:
                for n in range(3):
                    clients.create_task(bench.docker("exec", cid, "sleep", "200"), name=f"open-{n}")
                    clients.create_task(load(bench, cid), name=f"busy-{n}")
                await eventually(lambda: len(bench.exec_codes(cid)) >= 5, within_s=LONG_S)
                await eventually(lambda: len(_open(bench, cid)) >= 3, within_s=LONG_S)
                os.kill(engine.pid, signal.SIGKILL)
            await asyncio.to_thread(engine.again)
            await eventually(lambda: bench.kept.of(RuntimeState)[-1].state == "back", within_s=LONG_S)
            assert [(v.state, v.restarted) for v in bench.kept.of(RuntimeState)] == [
                ("up", None),
                ("lost", None),
                ("back", True),
            ]
            (hole,) = bench.kept.of(GapSeen)
            assert hole.families == ["memory", "node"]
            assert hole.since_ns is not None
            assert hole.until_ns is not None
            assert hole.since_ns < hole.until_ns
            await eventually(lambda: not _open(bench, cid), within_s=LONG_S)
            unknown = [v for v in bench.kept.of(ExecEnded) if v.container_id == cid and v.exit_code is None]
            assert len(unknown) >= 3
            ends = [o.wall_ns for o in bench.kept.when(ExecEnded) if o.value.get("exit_code") is None]
            # One of the load that had just begun may be known, and ended, only once the engine is back.
            in_time = sum(at <= hole.until_ns for at in ends)
            assert in_time >= 3, "what ran ended when the engine went, not when it came back"
            if survives:
                assert (await bench.docker("exec", cid, "true"))[0] == 0
                await eventually(lambda: bench.exec_codes(cid)[-1] == 0, within_s=LONG_S)
                assert not bench.is_gone(cid)
            else:
                await eventually(lambda: bench.is_gone(cid), within_s=LONG_S)
                assert bench.gone(cid).exit_code == 137
            assert bench.kept.of(Note) == []


def _open(bench: Bench, cid: str) -> set[str]:
    """Execs that were seen to start and not to end."""
    begun = {v.exec_id for v in bench.kept.of(ExecStarted) if v.container_id == cid}
    return begun - {v.exec_id for v in bench.kept.of(ExecEnded)}


@pytest.mark.docker
async def test_of_a_crowd_of_containers_none_is_missed_and_each_kill_is_counted(docker_host: str) -> None:
    """Made as fast as the engine can, each with a kill that its shell hides, and removed."""
    ensure_image("ft-busybox", docker_host, e2e_folder() / "images")
    engine = Engine(docker_host=docker_host, gateway=None)
    async with watching(engine) as bench:
        hides = ("sh", "-c", "tail /dev/zero; sleep 0.05; exit 0")

        async def one() -> str:
            cid = await bench.create(*hides, options=("--rm", "--network", "none"))
            status, text = await bench.docker("start", cid)
            assert status == 0, text
            return cid

        ids = await asyncio.gather(*(one() for _ in range(12)))
        await eventually(lambda: all(bench.is_gone(cid) for cid in ids), within_s=LONG_S)
        await bench.collectors.finish(5.0)
        assert [bench.gone(cid).exit_code for cid in ids] == [0] * 12
        counted = {cid: bench.kills(cid) or len(bench.victims(cid)) for cid in ids}
        assert set(counted.values()) == {1}, counted
        assert bench.kept.of(GapSeen) == []
        bench.names.clear()  # they removed themselves


@pytest.mark.docker
async def test_services_of_a_compose_project_have_their_role_and_a_dead_one_its_end(docker_host: str) -> None:
    ensure_image("ft-busybox", docker_host, e2e_folder() / "images")
    async with watching(Engine(docker_host=docker_host, gateway=None)) as bench:
        project = f"p{uuid.uuid4().hex[:8]}"

        def labels(service: str) -> tuple[str, ...]:
            told = {"com.docker.compose.project": project, "com.docker.compose.service": service}
            return ("--network", "none", *(x for k, v in told.items() for x in ("--label", f"{k}={v}")))

        box = await bench.up("sleep", "300", options=labels("app"))
        db = await bench.up("sleep", "300", options=labels("db"))
        await bench.docker("exec", box, "true")
        await eventually(lambda: _role(bench, box) == "main", within_s=LONG_S)
        assert _role(bench, db) == "service"
        await bench.docker("kill", db)
        await eventually(lambda: bench.is_gone(db), within_s=LONG_S)
        gone = bench.gone(db)
        assert (gone.exit_code, gone.ended_by) == (137, "runtime_kill:9")
        assert gone.init_signal in (9, None)


def _role(bench: Bench, cid: str) -> str | None:
    seen = [v for v in bench.kept.of(ContainerSeen) if v.container_id == cid]
    return seen[-1].role if seen else None


@pytest.mark.docker
async def test_a_first_process_killed_from_the_host_is_a_signal_and_an_exit_with_137_is_none(docker_host: str) -> None:
    ensure_image("ft-busybox", docker_host, e2e_folder() / "images")
    async with watching(Engine(docker_host=docker_host, gateway=None)) as bench:
        struck = await bench.up("sleep", "300", options=("--network", "none"))
        exits = await bench.up("sh", "-c", "sleep 0.5; exit 137", options=("--network", "none"))
        init = [v.init_pid for v in bench.kept.of(ContainerSeen) if v.container_id == struck][-1]
        assert init is not None
        os.kill(init, signal.SIGKILL)
        await eventually(lambda: bench.is_gone(struck) and bench.is_gone(exits), within_s=LONG_S)
        told = [bench.gone(cid) for cid in (struck, exits)]
        assert [(v.exit_code, v.ended_by) for v in told] == [(137, "unknown")] * 2
        assert [v.init_signal for v in told] in ([9, 0], [None, None])
        assert not any(v.action == "kill" for v in bench.kept.of(ContainerEvent))


@pytest.mark.docker
async def test_a_paused_container_is_told_and_lives_on(docker_host: str) -> None:
    ensure_image("ft-busybox", docker_host, e2e_folder() / "images")
    async with watching(Engine(docker_host=docker_host, gateway=None)) as bench:
        cid = await bench.up("sleep", "300", options=("--network", "none"))
        await bench.docker("pause", cid)
        assert (await bench.docker("exec", cid, "true"))[0] == 1, "the engine refuses it at once"
        bench.collectors.edge("call_started")
        await bench.docker("unpause", cid)
        assert (await bench.docker("exec", cid, "true"))[0] == 0
        await eventually(lambda: bench.exec_codes(cid) == [0], within_s=LONG_S)
        actions = [v.action for v in bench.kept.of(ContainerEvent) if v.container_id == cid]
        assert [a for a in actions if "pause" in a] == ["pause", "unpause"]
        assert not bench.is_gone(cid)
        assert not any(v.containers_missed for v in bench.kept.of(CoverageChanged))
        assert bench.kept.of(ContainerGone) == []
