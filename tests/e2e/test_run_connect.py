"""`--via connect`: a client keeps its provider's own address, and what can be known of its connections is.

The provider's name leads, by a company's proxy, to the stand-in with a certificate of the company's CA.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from fairtrial.middleware.core.records import Blame, Connection
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.claude_ways import LINES, ways_of
from tests.e2e.corporate import running_proxy
from tests.e2e.test_run_claude import PROMPT
from tests.e2e.test_standin_clients import FINAL, SCRIPT, claude_result
from tests.e2e.under import NO_DOCKER, Under, run_under

VIA = ("--via", "connect")
HOSTS = (
    "api.anthropic.com", "api.openai.com", "localhost", "generativelanguage.googleapis.com", "chatgpt.com",
    "auth.openai.com", "oauth2.googleapis.com", "us-east5-aiplatform.googleapis.com",
    "bedrock.eu-west-1.amazonaws.com", "bedrock-runtime.eu-west-1.amazonaws.com",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Company:
    """A CA file, and the files of a certificate for HOSTS."""

    ca: Path
    tls: tuple[Path, Path]


@pytest.fixture
def company(tmp_path: Path) -> Company:
    authority = trustme.CA()
    issued = authority.issue_cert(*HOSTS)
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return Company(ca, (chain, key))


def through(company: Company, proxy_url: str) -> dict[str, str]:
    """How a client is sent there: by the company's proxy and CA, as anybody in the company is."""
    ca = str(company.ca)
    return {"HTTPS_PROXY": proxy_url, "NODE_EXTRA_CA_CERTS": ca, "SSL_CERT_FILE": ca}


def api(under: Under) -> list[Connection]:
    return [one for one in under.trial.connections if one.provider == "anthropic"]


@pytest.mark.parametrize("proxy_by", ["http", "https"])
def test_claude_code_keeps_its_first_party_ways_and_its_connections_are_measured(
    home: Path,
    project: Path,
    tmp_path: Path,
    loopback_only: Sequence[str],
    company: Company,
    claude_line: str,
    proxy_by: str,
) -> None:
    with (
        running_standin(SCRIPT, tls=company.tls, command_prefix=loopback_only) as server,
        running_proxy(
            server.port, tmp_path, tls=company.tls if proxy_by == "https" else None, command_prefix=loopback_only
        ) as proxy,
    ):
        environment = clients.claude_environment(home, None, **NO_DOCKER, **through(company, proxy.url))
        command = clients.claude_command(PROMPT)
        ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=VIA)
        call = next(call for call in server.model_calls if call.tools)
        asked = proxy.requests
    assert claude_result(ran.outcome)["result"] == FINAL, ran.told()
    # What a base URL changes (docs/differences.md) is as it is at the provider's own address.
    seen = ways_of(call, cast("dict[str, Any]", dict(call.json())))
    changed = LINES[claude_line].changed
    assert {name: seen[name] for name in changed} == {name: at_home for name, (at_home, _) in changed.items()}
    assert any("api.anthropic.com:443" in line for line in asked)
    assert api(ran), ran.told()
    for one in api(ran):
        assert (one.ok, one.host, one.port, one.via_proxy is not None) == (True, "api.anthropic.com", 443, True)
        assert one.connect is not None
        assert one.tls is not None
        assert (one.bytes_up or 0) > 500
    assert max(one.bytes_up or 0 for one in api(ran)) > 40_000  # a call of either line has 49 KB
    assert (ran.verdict.blame, ran.trial.steps) == (Blame.INDETERMINATE, [])
    assert "calls were not read (--via connect)" in ran.outcome.stderr
    assert {m.what for m in ran.trial.mutations} == {
        "environment HTTPS_PROXY", "environment https_proxy", "environment NO_PROXY", "environment no_proxy",
        "environment TRACEPARENT", "environment FAIRTRIAL_TRIAL",
    }  # fmt: skip


SDK = """
import anthropic
client = anthropic.Anthropic(api_key="dummy", max_retries=0)
with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
    print(stream.get_final_text())
"""


@pytest.mark.parametrize(
    "fault, told",
    [
        (Fault(kind="cut", step=0, attempts=9, side_calls=True, after_events=2, ending="ragged"), "cut"),
        (Fault(kind="stall", step=0, attempts=9, side_calls=True, after_events=2, duration_s=2.0), "stall"),
    ],
)
def test_a_cut_and_a_stall_are_seen_without_reading_a_byte_and_blamed_on_nobody(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, fault: Fault, told: str
) -> None:
    with (
        running_standin(SCRIPT, [fault], tls=company.tls, command_prefix=loopback_only) as server,
        running_proxy(server.port, tmp_path, command_prefix=loopback_only) as proxy,
    ):
        environment = clients.clean_environment(home, **NO_DOCKER, **through(company, proxy.url))
        command = [sys.executable, "-c", f"{SDK}\nraise SystemExit(3)"]
        ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=VIA)
    (one,) = api(ran)
    assert ran.verdict.blame is Blame.INDETERMINATE, ran.told()
    if told == "cut":
        assert (one.closed_by, one.cut) == ("upstream", True), one
        assert "1 ended by the upstream without TLS's close_notify" in ran.verdict.sentence
    else:
        assert max(one.max_wait or 0, one.max_gap or 0) >= 1.9
        assert "the longest silence" in ran.verdict.sentence
    assert "1 connection to api.anthropic.com" in ran.verdict.sentence


def test_a_name_that_does_not_resolve_is_told_with_its_stage(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    environment = clients.clean_environment(home, **NO_DOCKER)
    command = [sys.executable, "-c", SDK]
    ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=VIA)
    (one,) = api(ran)
    assert (one.ok, one.stage) == (False, "dns"), one
    assert "1 never stood (dns:" in ran.verdict.sentence
