"""Doctor: each thing that is missing is said with a remedy, and nothing is changed."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core import presence
from fairtrial.middleware.core.errors import UsageError
from fairtrial.middleware.doctor import Finding, examine, print_findings
from tests.middleware.doctor.answering import answering_engine


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
        "sight",
        "clock",
        "serve's ports",
        "settings",
        "model door",
        "store",
        "own cgroup",
        "host oom counter",
        "kernel log",
        "docker",
        "traces",
    ):
        assert names.count(name) == 1
    assert names.count("run would set") == 2
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
    assert found(examine(environ | {"OTEL_SDK_DISABLED": "true"}, []), "traces").state == "no"


def test_an_endpoint_without_a_scheme_is_not_called_good(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        bare = f"127.0.0.1:{collector.getsockname()[1]}"
        told = found(examine(environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": bare}, []), "traces")
    assert (told.state, "http://" in (told.remedy or "")) == ("no", True)


def test_traces_over_grpc_without_grpcio_are_told_the_remedy(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    more = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert "[grpc]" in found(examine(environ | more, []), "traces").text


def test_proxies_are_shown_without_their_password_and_missing_certificates_named(environ: dict[str, str]) -> None:
    more = {"HTTPS_PROXY": "http://me:hunter2@proxy:3128", "SSL_CERT_FILE": "/nowhere/ca.pem"}
    findings = examine(environ | more, [])
    assert "hunter2" not in repr(findings)
    assert found(findings, "proxy").state == "no"
    certificates = found(findings, "certificates")
    assert certificates.state == "no"
    assert certificates.remedy == "correct or unset SSL_CERT_FILE"


def test_a_settings_file_that_beats_the_environment_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://other"}}))
    (tmp_path / "claude").touch(mode=0o755)
    finding = found(examine(environ | {"PATH": str(tmp_path)}, ["claude", "-p", "x"]), "settings file")
    assert "ANTHROPIC_BASE_URL" in finding.text
    assert "--adapt" in finding.text
    assert all(f.name != "settings file" for f in examine(environ, ["true"]))


def test_a_store_that_cannot_be_made_is_said(environ: dict[str, str]) -> None:
    store = found(examine(environ | {"FAIRTRIAL_STORE": "/proc/none/store.db"}, []), "store")
    assert store.state == "no"
    assert store.remedy is not None
    assert "--store" in store.remedy


def test_every_variable_that_run_changes_is_named(environ: dict[str, str]) -> None:
    said = " ".join(f.text for f in examine(environ, []) if f.name == "run would set")
    names = ("ANTHROPIC_BASE_URL", "OPENAI_API_BASE", "NO_PROXY", "no_proxy", "TRACEPARENT", "FAIRTRIAL_TRIAL")
    assert [name for name in names if name not in said] == []
    assert "TRACEPARENT" in said.replace("CLAUDE_CODE_PROPAGATE_TRACEPARENT", "")


def test_a_command_that_is_not_there_is_said(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for words, said in (
        (["nosuchcommand", "-p"], "it is no command on PATH, no file and no folder. Check its spelling"),
        ([str(tmp_path / "none"), "-p"], "none was not found: there is no such file."),
        ([str(tmp_path / "plain"), "-p"], "is a file that cannot be executed, and -p is no file and no folder."),
        ([str(tmp_path), "nosuch"], "is a folder, and nosuch is no file and no folder. To have files and folders read"),
    ):
        with pytest.raises(UsageError) as refused:
            examine(environ, words)
        assert said in str(refused.value)
    assert found(examine(environ, ["sh"]), "command").state == "ok"


def test_wrong_settings_and_misspelt_variables_are_findings_like_others(
    environ: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[store]\npaht = '/x'\n")
    findings = examine(environ | {"FAIRTRIAL_CONFIG": str(file), "FAIRTRIAL_STOR": "/x"}, [])
    misspelt, wrong = (f for f in findings if f.name == "settings")
    assert (misspelt.state, wrong.state) == ("partial", "no")
    assert "FAIRTRIAL_STORE?" in misspelt.text
    assert "store.path" in (wrong.remedy or "")
    assert found(findings, "store").state == "ok"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[None]:
    """An engine on the socket of `environ`."""
    told = {
        "Version": "99.1",
        "ApiVersion": "1.51",
        "SecurityOptions": ["name=seccomp", "name=rootless"],
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
    }
    with answering_engine(tmp_path / "docker.sock", lambda: told):
        yield


@pytest.mark.usefixtures("engine")
def test_another_trial_on_the_same_engine_is_said_with_the_mark_that_helps(environ: dict[str, str]) -> None:
    alone = found(examine(environ, []), "docker")
    assert alone.state == "ok"
    assert "engine 99.1" in alone.text
    assert "rootless, cgroup v2 by systemd" in alone.text
    other = presence.announce(environ["DOCKER_HOST"], "another")
    assert other is not None
    try:
        shared = found(examine(environ, []), "docker")
    finally:
        other.close()
    assert shared.state == "partial"
    assert "1 other trial uses it now" in shared.text
    assert "-e FAIRTRIAL_TRIAL" in (shared.remedy or "")


def test_the_screen_is_one_row_a_finding(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    print_findings([Finding("one", "ok", "fine"), Finding("two", "no", "bad\x1b[2J", "mend it")])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.splitlines() == ["ok       one  fine", "no       two  bad [2J → mend it", "look at: two"]
    print_findings([Finding("one", "ok", "fine"), Finding("two", "no", "not there", "see more", mend=False)])
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is wrong"
    print_findings([Finding("one", "ok", "word " * 60)])
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert len(first) <= 140
    assert first == first.rstrip()
    assert second.startswith(" " * 14 + "word")
