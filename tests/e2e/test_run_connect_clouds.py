"""`--via connect` where requests are signed, or the address is a cloud's: Bedrock, Vertex, Gemini.

What a client signs covers its host, so it must arrive at the provider's own name with not a byte changed: it does here,
through a company's proxy with the company's CA.  What no base URL can serve (SigV4) is measured so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fairtrial.middleware.core.records import Blame
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.formats import FINAL, TOKEN, Running, running_formats
from tests.e2e.test_run_connect import VIA, Company, company, through
from tests.e2e.under import NO_DOCKER, Under, missed, passed, run_under, step_call

__all__ = ("company",)

FOREIGN = str(Path(__file__).with_name("foreign.py"))
PROMPT = "say hello using bash"
BEDROCK = "bedrock-runtime.eu-west-1.amazonaws.com"
VERTEX = "us-east5-aiplatform.googleapis.com"
GEMINI = "generativelanguage.googleapis.com"
AWS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "eu-west-1"}
MODELS = {
    "ANTHROPIC_MODEL": "anthropic.claude-opus-4-8",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "anthropic.claude-haiku-4-5",
}


def seen_as_bytes(ran: Under, host: str, provider: str) -> None:
    """The calls' connections are measured, nobody is blamed, and nothing says that they are not seen."""
    found = [one for one in ran.trial.connections if one.host == host]
    assert found, ran.told()
    for one in found:
        assert (one.ok, one.port, one.provider, one.via_proxy is not None) == (True, 443, provider, True), one
        assert one.tls is not None
    assert max(one.bytes_up or 0 for one in found) > 1_000, ran.told()
    assert (ran.verdict.blame, ran.trial.steps) == (Blame.INDETERMINATE, [])
    assert f"to {host}" in ran.verdict.sentence
    assert "are not seen" not in ran.outcome.stderr


def connect(
    command: Sequence[str],
    environment: dict[str, str],
    project: Path,
    tmp_path: Path,
    prefix: Sequence[str],
    company: Company,
) -> tuple[Under, Running]:
    """Run it with the provider's names led to the stand-in, which is given too."""
    socket = tmp_path / "far.sock"
    with (
        running_formats(tls=company.tls, socket=socket) as server,
        running_proxy(socket, tmp_path, command_prefix=prefix) as proxy,
    ):
        environment = {**environment, **NO_DOCKER, **through(company, proxy.url), "AWS_CA_BUNDLE": str(company.ca)}
        ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=prefix, options=VIA)
        return ran, server


def test_claude_code_on_bedrock_signs_for_its_host_and_is_measured(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, claude_line: str
) -> None:
    del claude_line
    environment = clients.claude_environment(home, None, CLAUDE_CODE_USE_BEDROCK="1", **AWS, **MODELS)
    command = clients.claude_command(PROMPT)
    ran, server = connect(command, environment, project, tmp_path, loopback_only, company)
    assert ran.outcome.json()["result"] == FINAL, ran.told()
    signed_for_bedrock(server)
    seen_as_bytes(ran, BEDROCK, "bedrock")


def signed_for_bedrock(server: Running) -> None:
    assert server.seen
    for _, headers, _ in server.seen:
        sent = {name.lower(): value for name, value in headers}
        assert sent["host"] == BEDROCK
        assert sent["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), sent
        assert "host" in sent["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")


def test_boto3_signs_for_its_host_and_is_measured(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, sdks_python: Path
) -> None:
    command = [str(sdks_python), FOREIGN, "converse_signed"]
    environment = clients.clean_environment(home, **AWS)
    ran, server = connect(command, environment, project, tmp_path, loopback_only, company)
    assert (ran.outcome.returncode, ran.outcome.stdout) == (0, f"{FINAL}\n"), ran.told()
    signed_for_bedrock(server)
    seen_as_bytes(ran, BEDROCK, "bedrock")


@pytest.mark.parametrize("cloud", ["bedrock", "vertex"])
def test_claude_code_at_a_gateway_for_a_cloud_is_read_by_route(
    home: Path, project: Path, tmp_path: Path, cloud: str, claude_line: str
) -> None:
    """Without a signature: Bedrock by a key of its own, Vertex behind a gateway that logs in by itself."""
    del claude_line
    more = {
        "bedrock": {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_BEARER_TOKEN_BEDROCK": "dummy", "AWS_REGION": "eu-west-1"},
        "vertex": {
            "CLAUDE_CODE_USE_VERTEX": "1",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
            "ANTHROPIC_VERTEX_PROJECT_ID": "p",
            "CLOUD_ML_REGION": "us-east5",
        },
    }[cloud]
    if cloud == "bedrock":
        more |= MODELS
    with running_formats() as server:
        url = server.url if cloud == "bedrock" else f"{server.url}/v1"
        options = ("--route", f"ANTHROPIC_{cloud.upper()}_BASE_URL={url}")
        environment = clients.claude_environment(home, None, **more, **NO_DOCKER)
        command = clients.claude_command(PROMPT)
        ran = run_under(command, environment, project, kept=tmp_path / "kept", options=options)
    assert ran.outcome.json()["result"] == FINAL, ran.told()
    assert not (told := missed(ran, passed())), told
    calls = [step_call(ran.trial, step.index) for step in ran.trial.steps]
    dialect = {"bedrock": "bedrock", "vertex": "vertex_claude"}[cloud]
    assert [(call.dialect, call.stream, call.outcome) for call in calls] == [(dialect, True, "ok")] * 2, ran.told()
    assert [[tool.name for tool in step.tools] for step in ran.trial.steps] == [["Bash"], []]


def test_claude_code_on_vertex_logs_in_with_google_and_is_measured(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, claude_line: str
) -> None:
    del claude_line
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "k",
        "private_key": key.decode(),
        "client_email": "agent@p.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    environment = clients.claude_environment(
        home,
        None,
        CLAUDE_CODE_USE_VERTEX="1",
        ANTHROPIC_VERTEX_PROJECT_ID="p",
        CLOUD_ML_REGION="us-east5",
        GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "account.json"),
    )
    command = clients.claude_command(PROMPT)
    ran, server = connect(command, environment, project, tmp_path, loopback_only, company)
    assert ran.outcome.json()["result"] == FINAL, ran.told()
    assert ("oauth2.googleapis.com", "POST /token") in server.asked
    for path, headers, _ in server.seen:
        sent = {name.lower(): value for name, value in headers}
        assert (sent["host"], sent["authorization"]) == (VERTEX, f"Bearer {TOKEN}")
        assert path.startswith("/v1/projects/p/locations/us-east5/publishers/anthropic/models/")
    seen_as_bytes(ran, VERTEX, "vertex")


@pytest.mark.usefixtures("gemini")
def test_gemini_cli_goes_through_the_door(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company
) -> None:
    environment = clients.gemini_environment(home, None)
    command = clients.gemini_command(PROMPT)
    ran, server = connect(command, environment, project, tmp_path, loopback_only, company)
    assert (ran.outcome.returncode, ran.outcome.stdout) == (0, f"{FINAL}\n"), ran.told()
    assert {dict(headers)["host"] for _, headers, _ in server.seen} == {GEMINI}
    seen_as_bytes(ran, GEMINI, "gemini")
