"""`--via connect` with Codex and opencode: at their provider's own address, through a company's proxy, with its CA.

Each does its work as without fairtrial, over SSE and over a WebSocket; of its connections is told what can be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.script import Scenario
from fairtrial.middleware.demo.standin import RunningStandIn, running_standin
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.test_run_connect import VIA, Company, company, through
from tests.e2e.test_standin_clients import SCRIPT
from tests.e2e.under import NO_DOCKER, Under, run_under

__all__ = ("company",)

PROMPT = "say hello"
HOST = "api.openai.com"


def of_host(under: Under) -> list[int]:
    """Bytes up of each connection to the provider's own address; each of them stood, by way of the proxy."""
    found = [one for one in under.trial.connections if one.host == HOST]
    for one in found:
        assert (one.ok, one.port, one.provider, one.via_proxy is not None) == (True, 443, "openai", True), one
        assert one.tls is not None
    return [one.bytes_up or 0 for one in found]


def done(under: Under, project: Path, server: RunningStandIn, route: str) -> None:
    assert under.outcome.returncode == 0, under.told()
    assert (project / "hello.txt").read_text() == "hello\n"
    assert {call.route for call in server.model_calls} == {route}, under.told()
    assert (under.verdict.blame, under.trial.steps) == (Blame.INDETERMINATE, [])
    assert f"to {HOST}" in under.verdict.sentence
    # No variable and no flag of theirs leads to a door.
    assert {mutation.what.removeprefix("environment ").lower() for mutation in under.trial.mutations} <= {
        "https_proxy", "no_proxy", "traceparent", "fairtrial_trial",
    }  # fmt: skip


@pytest.mark.usefixtures("codex")
@pytest.mark.parametrize("over", ["sse", "websocket"])
def test_codex_does_its_work_and_each_call_of_its_is_seen_as_bytes(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, over: str
) -> None:
    scenario = Scenario(steps=SCRIPT, websockets=over == "websocket")
    with (
        running_standin(scenario, tls=company.tls, command_prefix=loopback_only) as server,
        running_proxy(server.port, tmp_path, command_prefix=loopback_only) as proxy,
    ):
        make = clients.codex_environment if over == "sse" else clients.codex_builtin_environment
        environment = make(home, f"https://{HOST}", **NO_DOCKER, **through(company, proxy.url))
        command = clients.codex_command(PROMPT)
        ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=VIA)
        done(ran, project, server, "responses")
    # A connection for each call over SSE, one for all over a WebSocket.
    assert len([up for up in of_host(ran) if up > 5_000]) == (2 if over == "sse" else 1), ran.told()


@pytest.mark.usefixtures("opencode")
def test_opencode_does_its_work_over_one_connection(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company
) -> None:
    with (
        running_standin(SCRIPT, tls=company.tls, command_prefix=loopback_only) as server,
        running_proxy(server.port, tmp_path, command_prefix=loopback_only) as proxy,
    ):
        more = {**NO_DOCKER, **through(company, proxy.url)}
        environment = clients.opencode_environment(home, project, f"https://{HOST}", **more)
        command = clients.opencode_command(PROMPT)
        ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=VIA)
        done(ran, project, server, "chat")
    assert sum(of_host(ran)) > 50_000, ran.told()
