"""Fixtures of the relay's tests: both loops, a CA file that the relay is told to trust, and `fairtrial serve`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.settings import RelaySettings
from tests.middleware.relay.rig import AUTHORITY, Rig, running
from tests.middleware.relay.serving import AnsweringUpstream, Serve, served


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Each test on uvloop and on asyncio's own loop."""
    return str(request.param)


@pytest.fixture
def rig(loop_kind: str) -> Iterator[Rig]:
    """A relay as `run` has it, in front of a plain upstream."""
    with running(loop_kind) as made:
        yield made


@pytest.fixture(scope="session")
def ca_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The certificate of the CA that signs the test upstreams."""
    path: Path = tmp_path_factory.mktemp("ca") / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def tls_rig(loop_kind: str, ca_file: str) -> Iterator[Rig]:
    """A relay in front of a TLS upstream whose CA it was given."""
    with running(loop_kind, tls=True, settings=RelaySettings(ca_files=(ca_file,))) as made:
        yield made


@pytest.fixture(params=["plain", "tls"])
def any_rig(request: pytest.FixtureRequest, loop_kind: str, ca_file: str) -> Iterator[Rig]:
    """Plain and TLS upstreams alike."""
    with running(loop_kind, tls=request.param == "tls", settings=RelaySettings(ca_files=(ca_file,))) as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A home in which `fairtrial serve` is started; what still runs at the end is ended."""
    with served(tmp_path) as home:
        yield home


@pytest.fixture
def upstream() -> Iterator[AnsweringUpstream]:
    """A model API that answers every call."""
    with contextlib.closing(AnsweringUpstream()) as answering:
        yield answering
