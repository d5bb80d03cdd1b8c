"""Doctor: each thing that is missing is said with a remedy, and nothing is changed."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from fairtrial.middleware.doctor import Finding, examine, print_findings


def found(findings: list[Finding], name: str) -> Finding:
    return next(f for f in findings if f.name == name)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/docker.sock", "PATH": "/usr/bin:/bin"}


def test_a_plain_machine_has_one_line_for_each_thing(environ: dict[str, str], tmp_path: Path) -> None:
    findings = examine(environ, [])
    names = [f.name for f in findings]
    for name in (
        "fairtrial",
        "model door",
        "store",
        "own cgroup",
        "host oom counter",
        "kernel log",
        "docker",
        "traces",
    ):
        assert names.count(name) == 1
    assert names.count("run would set") == 3
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_does_not_answer_is_said(environ: dict[str, str]) -> None:
    engine = found(examine(environ, []), "docker")
    assert engine.state == "no"
    assert engine.remedy is not None
    assert "DOCKER_HOST" in engine.remedy


def test_a_trace_endpoint_is_tried(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert found(examine(environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": url}, []), "traces").state == "ok"
    refused = found(examine(environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": url}, []), "traces")
    assert refused.state == "no"
    assert "does not answer" in refused.text


def test_proxies_are_shown_without_their_password_and_missing_certificates_named(environ: dict[str, str]) -> None:
    more = {"HTTPS_PROXY": "http://me:hunter2@proxy:3128", "SSL_CERT_FILE": "/nowhere/ca.pem"}
    findings = examine(environ | more, [])
    assert "hunter2" not in repr(findings)
    assert found(findings, "proxy").state == "ok"
    certificates = found(findings, "certificates")
    assert certificates.state == "no"
    assert certificates.remedy == "correct or unset SSL_CERT_FILE"


def test_a_settings_file_that_beats_the_environment_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://other"}}))
    finding = found(examine(environ, ["claude", "-p", "x"]), "settings file")
    assert "ANTHROPIC_BASE_URL" in finding.text
    assert "--adapt" in finding.text
    assert all(f.name != "settings file" for f in examine(environ, ["true"]))


def test_a_store_that_cannot_be_made_is_said(environ: dict[str, str]) -> None:
    store = found(examine(environ | {"FAIRTRIAL_STORE": "/proc/none/store.db"}, []), "store")
    assert store.state == "no"
    assert store.remedy is not None
    assert "--store" in store.remedy


def test_the_screen_is_one_row_a_finding(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    print_findings([Finding("one", "ok", "fine"), Finding("two", "no", "bad\x1b[2J", "mend it")])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "→ mend it" in shown
