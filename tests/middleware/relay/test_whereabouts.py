"""The run process looks where the command runs: each change is told once, and it stops."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fairtrial.middleware.relay.whereabouts import EVERY_S, Whereabouts


async def until(done: asyncio.Event) -> None:
    await asyncio.wait_for(done.wait(), 10)


async def test_each_change_is_told_once_and_the_root_of_an_exiting_process_is_not(tmp_path: Path) -> None:
    file = tmp_path / "7" / "cgroup"
    file.parent.mkdir()
    file.write_text("2:memory:/a\n0::/\n")
    told: list[str] = []
    changed, looks = asyncio.Event(), 0

    def tell(text: str) -> None:
        told.append(text)
        changed.set()

    def enough() -> bool:
        nonlocal looks
        looks += 1
        return len(told) == 2 and looks > 6

    Whereabouts(7, asyncio.get_running_loop(), enough=enough, tell=tell, proc=str(tmp_path)).look()
    assert told == ["2:memory:/a\n0::/\n"]
    file.write_text("2:memory:/\n0::/\n")
    await asyncio.sleep(2 * EVERY_S)
    changed.clear()
    file.write_text("2:memory:/b\n0::/\n")
    await until(changed)
    assert told == ["2:memory:/a\n0::/\n", "2:memory:/b\n0::/\n"]


async def test_it_ends_with_the_process_and_with_a_ready_observer(tmp_path: Path) -> None:
    told: list[str] = []
    loop = asyncio.get_running_loop()
    Whereabouts(7, loop, enough=lambda: False, tell=told.append, proc=str(tmp_path)).look()
    assert told == []
    looked: list[bool] = []

    def enough() -> bool:
        looked.append(True)
        return True

    Whereabouts(os.getpid(), loop, enough=enough, tell=told.append).look()
    await asyncio.sleep(3 * EVERY_S)
    assert looked == [True]
    assert len(told) <= 1
