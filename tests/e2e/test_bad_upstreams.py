"""Upstreams that are not there, proxies, certificates: clients see what it would without us, and whose fault it is."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.demo_agent import NOBODY, stored
from tests.e2e.test_run_sdks import sdk_command, sdk_environment, spoken
from tests.e2e.test_standin_clients import FINAL, SCRIPT
from tests.e2e.under import Due, ended_by, missed, passed, run_under, step_call


def never_ran(grade: Grade) -> Due:
    return Due(
        blame=Blame.OPERATOR,
        grade=grade,
        cause="operator.endpoint",
        step=1,
        terminated_by=("operator.endpoint", Grade.PROVED, 1),
        ended_as=EndedAs.NEVER_RAN,
    )


@pytest.mark.parametrize("kind", ["messages_stream", "chat_json"])
@pytest.mark.parametrize("url", ["http://no-such-host.invalid", NOBODY], ids=["name", "port"])
def test_an_upstream_that_is_not_there_raises_in_the_sdk_what_it_raises_without_us(
    kind: str, url: str, home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    environment = sdk_environment(home, url)
    alone = clients.run(sdk_command(kind), environment, project, prefix=loopback_only)
    under = run_under(sdk_command(kind), environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    assert json.loads(alone.stdout)["error"] == "APIConnectionError", alone.told()
    assert spoken(under).error == "APIConnectionError", under.told()
    assert under.outcome.returncode == alone.returncode == 1
    # A resolver that cannot be asked says nothing about the name; a refused port does.
    grades = {Grade.PROVED} if url == NOBODY else {Grade.PROVED, Grade.SUSPECTED}
    assert under.verdict.grade in grades, under.told()
    assert not (told := missed(under, never_ran(under.verdict.grade or Grade.SUSPECTED))), told
    assert under.verdict.answers.reward_valid == "no"


@pytest.fixture
def company(tmp_path: Path) -> tuple[Path, tuple[Path, Path]]:
    """A CA that only the company knows, and (chain, key) of a server that it certified as api.fair.test."""
    authority = trustme.CA()
    issued = authority.issue_cert("api.fair.test")
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return ca, (chain, key)


def test_a_corporate_proxy_and_its_ca_are_used_towards_the_upstream(
    home: Path, project: Path, tmp_path: Path, company: tuple[Path, tuple[Path, Path]]
) -> None:
    ca, tls = company
    with running_standin(SCRIPT, tls=tls) as server, running_proxy(server.port, tmp_path, login="me:secret") as proxy:
        url = proxy.url.replace("://", "://me:secret@")
        environment = sdk_environment(home, "https://api.fair.test") | {"HTTPS_PROXY": url, "SSL_CERT_FILE": str(ca)}
        alone = clients.run(sdk_command("messages_stream"), environment, project)
        under = run_under(sdk_command("messages_stream"), environment, project, kept=tmp_path / "kept")
        asked = proxy.requests
    assert json.loads(alone.stdout)["text"] == FINAL, alone.told()
    assert spoken(under).text == FINAL, under.told()
    assert set(asked) == {"CONNECT api.fair.test:443 HTTP/1.1"}
    assert not (told := missed(under, passed())), told
    attempt = step_call(under.trial, 1).attempts[0]
    assert attempt.via_proxy is not None, under.told()
    assert attempt.tls is not None
    everything = under.outcome.stderr + (tmp_path / "kept" / "trial.json").read_text() + str(stored(under.store))
    assert "secret" not in everything


def test_a_proxy_that_wants_a_login_is_the_operators(
    home: Path, project: Path, tmp_path: Path, company: tuple[Path, tuple[Path, Path]]
) -> None:
    ca, tls = company
    with running_standin(SCRIPT, tls=tls) as server, running_proxy(server.port, tmp_path, login="me:secret") as proxy:
        environment = sdk_environment(home, "https://api.fair.test")
        environment |= {"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(ca)}
        alone = clients.run(sdk_command("messages_json"), environment, project)
        under = run_under(sdk_command("messages_json"), environment, project, kept=tmp_path / "kept")
    assert json.loads(alone.stdout)["error"] == spoken(under).error == "APIConnectionError", under.told()
    assert not (told := missed(under, ended_by(Blame.OPERATOR, "operator.auth", 1, ended_as=EndedAs.NEVER_RAN))), told


def test_a_certificate_that_nobody_vouches_for_is_the_trust_stores_fault(
    home: Path, project: Path, tmp_path: Path, company: tuple[Path, tuple[Path, Path]]
) -> None:
    _, tls = company
    with running_standin(SCRIPT, tls=tls) as server, running_proxy(server.port, tmp_path) as proxy:
        environment = sdk_environment(home, "https://api.fair.test") | {"HTTPS_PROXY": proxy.url}
        alone = clients.run(sdk_command("messages_json"), environment, project)
        under = run_under(sdk_command("messages_json"), environment, project, kept=tmp_path / "kept")
    assert json.loads(alone.stdout)["error"] == spoken(under).error == "APIConnectionError", under.told()
    verdict = under.verdict
    got = (verdict.blame, verdict.cause, verdict.step, verdict.ended_as)
    assert got == (Blame.OPERATOR, "network.tls", 1, EndedAs.NEVER_RAN), under.told()
