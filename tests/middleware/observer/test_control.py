"""The control API: what is said is recorded as from inside, and nobody but the trial's own programs can say it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from fairtrial.middleware.core.observations import HarnessOutcome, Note, Observation, decode
from fairtrial.middleware.core.records import Outcome, Trust
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.control import MAX_BODY_BYTES, MAX_SAID, MAX_SAID_OF_ALL, SOURCE, ControlPage
from fairtrial.middleware.steps.words import word_about

TRIAL = "0197bbbb-0000-7000-8000-000000000001"
TOKEN = "t" * 22
BEGUN_NS = time.time_ns()


class Page:
    def __init__(self) -> None:
        self.kept: list[Observation] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.page = ControlPage(
            TRIAL, TOKEN, Source(SOURCE, self.kept.append, host=this_host(), trial=TRIAL), begun_ns=BEGUN_NS
        )

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
        ({"trial": "%0a"}, 400),
        ({"trial": "%20"}, 400),
        ({"trial": "x" * 201}, 400),
        ({"trial": "a/b"}, 404),
        ({"trial": ""}, 404),
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


@pytest.mark.parametrize(
    "how, said",
    [
        ({"path": "verdict"}, "there is no such page; POST $FAIRTRIAL_CONTROL_URL/trials/TRIAL/outcome and …/mark"),
        ({"trial": "a/b"}, "percent-encoded (`/` is %2F)"),
        ({"token": "u" * 22}, "there is no such page; use FAIRTRIAL_CONTROL_URL as it is"),
        ({"method": "GET"}, "GET is not answered here; POST $FAIRTRIAL_CONTROL_URL/trials/TRIAL/outcome"),
        ({"content": b" " * (MAX_BODY_BYTES + 1)}, 'a body may have 16 KiB; send what is needed, such as {"outcome"'),
        ({"path": "mark", "content": b" " * (MAX_BODY_BYTES + 1)}, '16 KiB; send what is needed, such as {"name"'),
        ({"json": {"outcome": "won"}}, "(passed, failed, errored or unknown)"),
        ({"path": "mark", "content": b"x"}, 'send such as {"name": "compacted"'),
        ({"headers": {"Origin": "null"}}, "use FAIRTRIAL_CONTROL_URL as it is, without Origin"),
    ],
)
async def test_a_refusal_is_a_sentence_that_says_what_to_do(page: Page, how: dict[str, Any], said: str) -> None:
    if not {"json", "content"} & how.keys():
        how = {**how, "json": {"outcome": "passed"}}
    answer = await page.post(**how)
    assert said in answer.text
    assert answer.headers["Content-Type"].startswith("text/plain") and answer.text.endswith("\n")
    assert (answer.headers.get("Allow") == "POST") is (answer.status_code == 405)


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
    page.page._said[""] = MAX_SAID - 1
    assert (await page.post("mark", json={"name": "last"})).status_code == 200
    assert (await page.post("mark", json={"name": "more"})).status_code == 429
    assert (await page.post(json={"outcome": "passed"})).status_code == 429
    assert len(page.kept) == 1
    assert (await page.post("mark", trial="other", json={"name": "more"})).status_code == 200
    page.page._said["others"] = MAX_SAID_OF_ALL
    assert (await page.post("mark", trial="other", json={"name": "more"})).status_code == 429
    assert len(page.kept) == 2


@pytest.mark.parametrize(
    "name", ["hello-world__AbC12xY", "swe/django__django-123/2", "100 %", "Zürich 試", "a.b:c@d", "%2F", "x" * 200]
)
async def test_a_word_bears_the_name_that_the_path_says(page: Page, name: str) -> None:
    escaped = quote(name, safe="")
    assert (await page.post(trial=escaped, json={"outcome": "failed"})).status_code == 200
    assert (await page.post("mark", trial=escaped, json={"name": "ended"})).status_code == 200
    booked, mark = (decode(kept) for kept in page.kept)
    assert isinstance(booked, HarnessOutcome) and isinstance(mark, Note)
    assert (booked.about, booked.label, booked.joined_by) == (name, name, "name")
    assert mark.fields == {"name": "ended", "trial": name}
    assert {word_about(kept, decode(kept)) for kept in page.kept} == {name}
    assert {kept.subject.trial for kept in page.kept} == {TRIAL}


async def test_a_name_in_the_body_is_whom_it_is_of_unless_the_path_says(page: Page) -> None:
    for trial in (TRIAL, "box-1", "box-2"):
        assert (await page.post(trial=trial, json={"outcome": "passed", "name": "task-7"})).status_code == 200
    values = [value for kept in page.kept if isinstance(value := decode(kept), HarnessOutcome)]
    assert [(value.about, value.label) for value in values] == [(of, "task-7") for of in ("task-7", "box-1", "box-2")]
    assert len({value.identity for value in values}) == 3, "none replaces another's"


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    "at",
    [
        (NOW + timedelta(seconds=1)).isoformat(),
        (NOW + timedelta(seconds=1)).isoformat().replace("+00:00", "Z"),
        (NOW + timedelta(seconds=1)).astimezone(timezone(timedelta(hours=5))).isoformat(),
        BEGUN_NS - 10**9,
        BEGUN_NS,
    ],
)
async def test_a_mark_may_say_when_it_was(page: Page, at: str | int) -> None:
    answer = await page.post("mark", json={"name": "sample.end", "at": at})
    assert answer.status_code == 200, answer.text
    value = decode(page.kept[0])
    assert isinstance(value, Note)
    said = value.fields["at_ns"]
    assert isinstance(said, int) and BEGUN_NS <= said <= page.kept[0].wall_ns
    assert page.kept[0].wall_ns >= BEGUN_NS, "when it was told stays our own clock's"


@pytest.mark.parametrize(
    "at",
    [
        "yesterday",
        "2026-11-30",
        "2026-11-30T12:00:00",
        "1999-01-01T00:00:00Z",
        "2999-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        1790000000.5,
        1790000000,
        -1,
        10**30,
        True,
        "x" * 201,
        "",
    ],
)
async def test_a_moment_that_makes_no_sense_is_refused(page: Page, at: object) -> None:
    answer = await page.post("mark", json={"name": "sample.end", "at": at})
    assert answer.status_code == 400, answer.text
    assert not page.kept
