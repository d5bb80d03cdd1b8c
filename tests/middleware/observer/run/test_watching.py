"""What is watched beside the traffic: the engine of the HELLO, and what a harness deletes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from fairtrial.middleware.core.hello import DockerInfo, Hello
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.observer.run.watching import docker_upstream, keeper_of


def test_the_engine_of_the_hello_becomes_one_to_watch() -> None:
    assert docker_upstream(DockerInfo(skipped="none")) is None
    plain = docker_upstream(DockerInfo(url="unix:///s"))
    assert plain is not None
    assert (plain.url, plain.tls_ca) == ("unix:///s", None)
    tls = docker_upstream(DockerInfo(url="tcp://h:1", tls_dir="/d", tls_verify=True))
    assert tls is not None
    assert (tls.tls_ca, tls.tls_cert, tls.tls_key, tls.tls_verify) == ("/d/ca.pem", "/d/cert.pem", "/d/key.pem", True)


@pytest.mark.parametrize(
    "command, limit, saves",
    [
        (["harbor", "run"], 1 << 20, True),
        (["hb", "run"], 1 << 20, True),
        (["agent"], 1 << 20, False),
        (["hb"], 0, False),
    ],
)
def test_only_a_harness_that_deletes_is_given_a_keeper(
    tmp_path: Path, command: list[str], limit: int, saves: bool
) -> None:
    hello = Hello(
        pid=os.getpid(),
        trial="t",
        command=[*command, "--jobs-dir", str(tmp_path / "jobs")],
        store=str(tmp_path / "store.db"),
        config={"store": {"keep_limit_bytes": limit}},
    )
    keeper = keeper_of(hello, Journal(io.StringIO()))
    assert (keeper is not None) is saves
    if keeper is not None:
        keeper.close()


def test_a_command_whose_folder_is_gone_has_no_keeper_and_that_is_noted(tmp_path: Path) -> None:
    log = io.StringIO()
    hello = Hello(pid=2**22 + 1, trial="t", command=["harbor", "run"], store=str(tmp_path / "store.db"))
    assert keeper_of(hello, Journal(log)) is None
    assert "keep" in log.getvalue()
