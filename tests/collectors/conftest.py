"""Fixtures of the collectors' tests: a watching trial on a real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairtrial.middleware.core.observations import CoverageChanged
from tests.collectors.keep import eventually
from tests.collectors.live import Bench
from tests.e2e.clients import e2e_folder
from tests.e2e.image import ImageUnavailable, ensure_image


@pytest.fixture(scope="module")
def image(docker_host: str) -> None:
    """What the containers run; made from this host's own files where the engine has it not."""
    try:
        ensure_image("ft-busybox", docker_host, e2e_folder() / "images")
    except ImageUnavailable as why:
        pytest.skip(str(why))


@pytest.fixture
async def bench(docker_host: str, image: None) -> AsyncIterator[Bench]:
    it = Bench(docker_host)
    await it.collectors.start()
    await eventually(
        lambda: any(v.source == "collector.docker_events" and v.state == "on" for v in it.kept.of(CoverageChanged))
    )
    try:
        yield it
    finally:
        await it.collectors.close()
        if it.names:
            await it.docker("rm", "-f", *it.names)
