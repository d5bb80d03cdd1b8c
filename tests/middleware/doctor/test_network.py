"""Proxies and certificates are tried, not only read."""

from __future__ import annotations

import socket
from pathlib import Path

import trustme

from fairtrial.middleware.doctor.network import certificates, proxies


def test_a_proxy_that_listens_and_one_that_does_not_are_two_lines() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        alive = f"http://me:hunter2@127.0.0.1:{listening.getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as gone:
            dead = f"http://127.0.0.1:{gone.getsockname()[1]}"
        first, second = proxies({"HTTPS_PROXY": alive, "HTTP_PROXY": dead})
    assert (first.state, "HTTP_PROXY" in first.text, "does not answer" in first.text) == ("no", True, True)
    assert (second.state, "HTTPS_PROXY" in second.text, "hunter2" in second.text) == ("ok", True, False)


def test_without_a_proxy_nothing_is_said_and_a_malformed_one_is_a_finding() -> None:
    assert list(proxies({})) == []
    (finding,) = proxies({"HTTPS_PROXY": "http://proxy:notaport"})
    assert "is no address" in finding.text


def test_one_file_behind_several_variables_is_one_line_with_what_it_holds(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    path = str(tmp_path / "ca.pem")
    (finding,) = certificates({"SSL_CERT_FILE": path, "CURL_CA_BUNDLE": path})
    assert finding.state == "ok"
    assert "SSL_CERT_FILE = CURL_CA_BUNDLE" in finding.text
    assert finding.text.endswith(": 1 certificate")


def test_a_file_without_certificates_is_not_called_good(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("hello\n")
    (finding,) = certificates({"SSL_CERT_FILE": str(tmp_path / "ca.pem")})
    assert (finding.state, "cannot be read as certificates" in finding.text) == ("no", True)
