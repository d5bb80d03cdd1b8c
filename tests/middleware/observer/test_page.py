"""The metrics page: refreshed for each scrape, in the format that the scraper asks for, for nobody's web site."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from fairtrial.exporters.prometheus import Metrics
from fairtrial.middleware.observer.page import MetricsPage


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Page:
    """An open page, and how often it was refreshed."""

    def __init__(self, port: int) -> None:
        self.refreshed = 0
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.metrics = Metrics(version="1.2.3")
        self.page = MetricsPage(self.metrics, self._refresh, hosts={"sidecar.internal"})

    def _refresh(self) -> None:
        self.refreshed += 1
        self.metrics.own(dropped={"records": 7}, errors={}, spans={})

    async def get(self, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.get(self.url, headers=headers)


@pytest.fixture
async def page(port: int) -> AsyncIterator[Page]:
    made = Page(port)
    await made.page.open("127.0.0.1", port)
    yield made
    await made.page.close()


async def test_a_scrape_sees_our_own_counters_of_this_moment(page: Page) -> None:
    answer = await page.get()
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    assert 'fairtrial_own_dropped_total{what="records"} 7.0' in answer.text
    assert page.refreshed == 1
    exemplars = await page.get(Accept="application/openmetrics-text; version=1.0.0")
    assert exemplars.headers["content-type"].startswith("application/openmetrics-text")


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
async def test_a_web_site_gets_nothing(page: Page, headers: dict[str, str]) -> None:
    answer = await page.get(**headers)
    assert answer.status_code == 403 and "fairtrial_" not in answer.text
    assert page.refreshed == 0


async def test_a_configured_name_is_a_host(page: Page) -> None:
    assert (await page.get(Host="sidecar.internal:9464")).status_code == 200


async def test_a_port_that_is_taken_is_trouble_and_no_exception(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        made = Page(port)
        await made.page.open("127.0.0.1", port)
        assert made.page.trouble is not None and str(port) in made.page.trouble
        await made.page.close()


@pytest.mark.parametrize(
    "method, path, status, text", [("GET", "/", 404, "there is /metrics\n"), ("POST", "/metrics", 405, "GET it\n")]
)
async def test_what_is_not_there_says_what_is(page: Page, method: str, path: str, status: int, text: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, httpx.URL(page.url).join(path))
    assert (answer.status_code, answer.text) == (status, text)
    assert page.refreshed == 0
