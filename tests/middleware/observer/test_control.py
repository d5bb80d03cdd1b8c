"""The control API: what is said is recorded as from inside, and nobody but the trial's own programs can say it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fairtrial.middleware.core.observations import HarnessOutcome, Note, Observation, decode
from fairtrial.middleware.core.records import Outcome, Trust
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.control import MAX_BODY_BYTES, MAX_SAID, SOURCE, ControlPage

TRIAL = "0197bbbb-0000-7000-8000-000000000001"
TOKEN = "t" * 22


class Page:
    def __init__(self) -> None:
        self.kept: list[Observation] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.page = ControlPage(TRIAL, TOKEN, Source(SOURCE, self.kept.append, host=this_host(), trial=TRIAL))

    async def post(
        self, path: str = "outcome", *, trial: str = TRIAL, token: str = TOKEN, **how: Any
    ) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}/t/{token}/trials/{trial}/{path}"
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            return await client.request(how.pop("method", "POST"), url, **how)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    made = Page()
    await made.page.open(made.listener)
    yield made
    await made.page.close()
    made.listener.close()


async def test_an_outcome_is_an_observation_of_trust_inside(page: Page) -> None:
    answer = await page.post(json={"outcome": "passed", "reward": 0.5, "name": "task-7", "exit_status": "done"})
    assert answer.status_code == 200 and answer.json() == {"recorded": page.kept[0].id, "trust": "inside"}
    (kept,) = page.kept
    value = decode(kept)
    assert isinstance(value, HarnessOutcome)
    assert (kept.trust, kept.source, kept.subject.trial) == (Trust.INSIDE, "control", TRIAL)
    assert (value.outcome, value.reward, value.label, value.scored) == (Outcome.PASSED, 0.5, "task-7", False)


async def test_a_mark_is_a_note_of_trust_inside(page: Page) -> None:
    assert (await page.post("mark", json={"name": "compacted", "text": "half of it"})).status_code == 200
    (kept,) = page.kept
    assert kept.trust is Trust.INSIDE
    assert decode(kept) == Note(event="control.mark", text="half of it", fields={"name": "compacted"})


@pytest.mark.parametrize(
    "how, status",
    [
        ({"headers": {"Host": "evil.example"}}, 403),
        ({"headers": {"Origin": "http://127.0.0.1"}}, 403),
        ({"headers": {"Origin": "null"}}, 403),
        ({"token": "u" * 22}, 404),
        ({"token": "\u00e9"}, 404),
        ({"trial": TRIAL[:-1] + "2"}, 404),
        ({"path": "verdict"}, 404),
        ({"method": "GET"}, 405),
        ({"json": {"outcome": "won"}}, 400),
        ({"json": {"outcome": "passed", "blame": "infra"}}, 400),
        ({"json": {"outcome": "passed", "name": "x" * 201}}, 400),
        ({"json": {"outcome": "passed", "name": ""}}, 400),
        ({"content": b'{"outcome": "passed", "reward": 1e999}'}, 400),
        ({"content": b"{" * 10}, 400),
        ({"content": b"[" * 9000}, 400),
        ({"content": b"\xff"}, 400),
        ({"content": b" " * (MAX_BODY_BYTES + 1)}, 413),
    ],
)
async def test_what_is_not_the_trials_own_word_leaves_nothing(page: Page, how: dict[str, Any], status: int) -> None:
    if not {"json", "content"} & how.keys():
        how = {**how, "json": {"outcome": "passed"}}
    answer = await page.post(**how)
    assert answer.status_code == status, answer.text
    assert not page.kept and TOKEN not in answer.text


async def test_who_asked_before_anybody_answered_is_answered() -> None:
    page = Page()
    asked = asyncio.get_running_loop().create_task(page.post(json={"outcome": "failed"}), name="asked")
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    await page.page.open(page.listener)
    assert (await asked).status_code == 200
    writer.close()
    await writer.wait_closed()
    del reader
    await page.page.close()


async def test_a_trial_that_is_over_takes_no_word(page: Page) -> None:
    page.page.shut()
    assert (await page.post(json={"outcome": "passed"})).status_code == 410
    assert not page.kept


async def test_nobody_fills_the_store(page: Page) -> None:
    page.page._said = MAX_SAID - 1
    assert (await page.post("mark", json={"name": "last"})).status_code == 200
    assert (await page.post("mark", json={"name": "more"})).status_code == 429
    assert (await page.post(json={"outcome": "passed"})).status_code == 429
    assert len(page.kept) == 1
