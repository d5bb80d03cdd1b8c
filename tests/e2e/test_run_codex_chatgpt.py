"""Codex that is logged in with ChatGPT: `--via connect`, a base URL with `--adapt`, and what is said without either.

Its calls go to chatgpt.com/backend-api/codex with the login's tokens, and chatgpt.com is asked beside them which
workspace they belong to.  The login is made by hand (no token of it is real), the server is of this bench.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.formats import FINAL, Running, running_formats
from tests.e2e.test_run_connect import VIA, Company, company, through
from tests.e2e.under import NO_DOCKER, Under, missed, passed, run_under, step_call

pytestmark = pytest.mark.usefixtures("codex")
__all__ = ("company",)

HOST = "chatgpt.com"
ROUTING = "x-openai-account-routing-override"
SETTINGS = """\
model = "gpt-5"
check_for_update_on_startup = false

[analytics]
enabled = false

[otel]
exporter = "none"
"""


def log_in(home: Path) -> str:
    """Write the login's files; returns the token that its calls bear."""
    account = {"chatgpt_plan_type": "pro", "chatgpt_account_id": "acc-1", "chatgpt_user_id": "user-1"}
    claims = {
        "exp": int(datetime.now(UTC).timestamp()) + 86_400,
        "email": "me@example.com",
        "https://api.openai.com/auth": account,
    }
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"no signature"))
    tokens = {"id_token": token, "access_token": token, "refresh_token": "r", "account_id": "acc-1"}
    login = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens}
    login["last_refresh"] = datetime.now(UTC).isoformat()
    (home / ".codex").mkdir()
    (home / ".codex" / "auth.json").write_text(json.dumps(login))
    (home / ".codex" / "config.toml").write_text(SETTINGS)
    return token


def run_codex(
    home: Path, project: Path, tmp_path: Path, prefix: Sequence[str], company: Company, options: Sequence[str]
) -> tuple[Under, Running]:
    token = log_in(home)
    socket = tmp_path / "far.sock"
    with (
        running_formats(tls=company.tls, socket=socket) as server,
        running_proxy(socket, tmp_path, command_prefix=prefix) as proxy,
    ):
        # A key in the environment changes nothing: the login counts.
        environment = clients.clean_environment(home, OPENAI_API_KEY="unused", **NO_DOCKER)
        environment |= through(company, proxy.url)
        command = clients.codex_command("say hello")
        ran = run_under(command, environment, project, kept=tmp_path / "kept", prefix=prefix, options=options)
    assert (ran.outcome.returncode, FINAL in ran.outcome.stdout) == (0, True), ran.told()
    assert [path for path, _, _ in server.seen] == ["/backend-api/codex/responses"] * 2, ran.told()
    for _, headers, _ in server.seen:
        sent = {name.lower(): value for name, value in headers}
        assert (sent["host"], sent["authorization"], sent["chatgpt-account-id"]) == (HOST, f"Bearer {token}", "acc-1")
    assert token.encode() not in ran.store.read_bytes()
    return ran, server


def routed(server: Running) -> list[bool]:
    return [any(name.lower() == ROUTING for name, _ in headers) for _, headers, _ in server.seen]


def test_its_connections_are_measured_by_connect(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company
) -> None:
    ran, server = run_codex(home, project, tmp_path, loopback_only, company, VIA)
    assert routed(server) == [True, True]
    assert len([one for one in ran.trial.connections if one.host == HOST and (one.bytes_up or 0) > 10_000]) == 2
    assert {one.provider for one in ran.trial.connections} == {"openai"}
    assert (ran.verdict.blame, ran.trial.steps) == (Blame.INDETERMINATE, [])


def test_without_an_option_its_calls_are_unseen_and_both_ways_to_see_them_are_said(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company
) -> None:
    ran, server = run_codex(home, project, tmp_path, loopback_only, company, ())
    assert routed(server) == [True, True]
    assert (
        "Codex is logged in with ChatGPT: its calls go to https://chatgpt.com/backend-api/codex" in ran.outcome.stderr
    )
    assert "--adapt" in ran.outcome.stderr
    assert "--via connect" in ran.outcome.stderr
    assert (ran.verdict.blame, ran.trial.steps) == (Blame.INDETERMINATE, [])


def test_adapt_leads_its_calls_through_a_door_with_their_login_and_compressed_as_they_are(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company
) -> None:
    ran, server = run_codex(home, project, tmp_path, loopback_only, company, ("--adapt",))
    assert not (told := missed(ran, passed())), told
    assert {dict(headers)["content-encoding"] for _, headers, _ in server.seen} == {"zstd"}
    calls = [step_call(ran.trial, step.index) for step in ran.trial.steps]
    assert [(call.dialect, call.model, call.outcome) for call in calls] == [("openai_responses", "gpt-5", "ok")] * 2
    assert [len(step.tools) for step in ran.trial.steps] == [1, 0], ran.told()
    # What it costs is in the record.
    assert routed(server) == [False, False]
    (changed,) = [m for m in ran.trial.mutations if m.what.startswith("openai_base_url")]
    assert ROUTING in (changed.side_effects or "")
    assert "are not seen" not in ran.outcome.stderr
