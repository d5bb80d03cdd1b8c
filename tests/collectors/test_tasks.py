"""Work that nobody awaits: held, counted, and said when it failed."""

from __future__ import annotations

import asyncio

from fairtrial.collectors.tasks import Tasks
from fairtrial.middleware.core.observations import Note
from tests.collectors.keep import Kept, eventually


async def test_a_failure_is_a_note_and_the_others_go_on() -> None:
    kept, done = Kept(), asyncio.Event()
    tasks = Tasks(kept.source("collector.x"), "docker")

    async def fails() -> None:
        raise ValueError("no")

    async def works() -> None:
        done.set()

    tasks.spawn(fails(), "one")
    tasks.spawn(works(), "two")
    assert len(tasks) == 2
    await eventually(lambda: len(tasks) == 0)
    assert done.is_set()
    assert [v.text for v in kept.of(Note)] == ["docker-one: ValueError: no"]


async def test_a_cancelled_one_is_no_failure() -> None:
    kept = Kept()
    tasks = Tasks(kept.source("collector.x"), "docker")
    before = tasks.active_ns
    tasks.spawn(asyncio.sleep(60), "sleep")
    tasks.cancel()
    await eventually(lambda: len(tasks) == 0)
    assert kept.all == []
    assert tasks.active_ns > before
