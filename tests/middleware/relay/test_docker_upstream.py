"""The engine is found as the docker CLI finds it."""

from __future__ import annotations

import hashlib
import json

import pytest

from fairtrial.middleware.relay.docker_upstream import DockerUpstream, resolve

HOME = {"HOME": "/h"}
DIGEST = hashlib.sha256(b"remote").hexdigest()


def found(
    environ: dict[str, str], files: dict[str, str] | None = None, sockets: set[str] | None = None
) -> DockerUpstream:
    return resolve({**HOME, **environ}, reader=(files or {}).get, socket_at=lambda path: path in (sockets or set()))


def _context(host: str) -> dict[str, str]:
    meta = {"Name": "remote", "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    return {f"/h/.docker/contexts/meta/{DIGEST}/meta.json": json.dumps(meta)}


def test_the_variable_beats_the_context_and_the_default() -> None:
    engine = found({"DOCKER_HOST": "unix:///x.sock", "DOCKER_CONTEXT": "remote"}, _context("unix:///y.sock"))
    assert (engine.url, engine.source) == ("unix:///x.sock", "DOCKER_HOST")


def test_the_docker_door_of_an_outer_run_leads_to_the_engine_behind_it() -> None:
    engine = {"url": "tcp://h:2376", "tls_verify": True, "tls_dir": "/certs"}
    files = {"/run/ft/1/doors.json": json.dumps({"trial": "t", "doors": [], "engine": engine})}
    inner = found({"DOCKER_HOST": "unix:///run/ft/1/docker.sock"}, files)
    assert (inner.url, inner.tls_verify, inner.tls_dir) == ("tcp://h:2376", True, "/certs")
    assert inner.outer_door == "unix:///run/ft/1/docker.sock"
    for text in ("{", '{"engine": 3}', '{"engine": {"url": null}}'):
        junk = found({"DOCKER_HOST": "unix:///run/ft/1/docker.sock"}, {"/run/ft/1/doors.json": text})
        assert (junk.url, junk.outer_door) == ("unix:///run/ft/1/docker.sock", None)


@pytest.mark.parametrize("environ", [{"DOCKER_CONTEXT": "remote"}, {}])
def test_a_context_is_named_by_the_variable_or_the_configuration(environ: dict[str, str]) -> None:
    files = {"/h/.docker/config.json": json.dumps({"currentContext": "remote"}), **_context("unix:///y.sock")}
    assert found(environ, files).url == "unix:///y.sock"


def test_another_configuration_folder_is_honoured() -> None:
    files = {path.replace("/h/.docker", "/d"): text for path, text in _context("unix:///y.sock").items()}
    assert found({"DOCKER_CONFIG": "/d", "DOCKER_CONTEXT": "remote"}, files).url == "unix:///y.sock"


def test_the_default_context_means_the_default_socket() -> None:
    files = {"/h/.docker/config.json": json.dumps({"currentContext": "default"})}
    assert found({}, files, {"/var/run/docker.sock"}).url == "unix:///var/run/docker.sock"


def test_the_rootless_socket_is_the_last_resort() -> None:
    engine = found({"XDG_RUNTIME_DIR": "/run/user/1"}, {}, {"/run/user/1/docker.sock"})
    assert (engine.url, engine.source) == ("unix:///run/user/1/docker.sock", "rootless socket")


def test_no_engine_is_no_trouble() -> None:
    engine = found({})
    assert engine.url is None
    assert engine.skipped
    assert not engine.say


@pytest.mark.parametrize("environ", [{"DOCKER_HOST": "ssh://me@host"}, {"DOCKER_CONTEXT": "remote"}])
def test_an_engine_behind_ssh_is_left_alone_and_said(environ: dict[str, str]) -> None:
    engine = found(environ, _context("ssh://me@host"))
    assert engine.url is None
    assert engine.say
    assert "ssh" in str(engine.skipped)
    assert "me@" not in str(engine.skipped)


def test_a_context_that_cannot_be_read_is_said() -> None:
    engine = found({"DOCKER_CONTEXT": "gone"})
    assert engine.url is None
    assert engine.say
    assert "'gone'" in str(engine.skipped)


def test_tls_settings_are_kept() -> None:
    verified = found({"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"})
    assert (verified.tls_verify, verified.tls_dir) == (True, "/certs")
    assert found({"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1"}).tls_dir == "/h/.docker"
    plain = found({"DOCKER_HOST": "tcp://h:2375"})
    assert (plain.tls_verify, plain.tls_dir) == (False, None)
    in_context = {**_context("tcp://h:2376"), f"/h/.docker/contexts/tls/{DIGEST}/docker/ca.pem": "x"}
    engine = found({"DOCKER_CONTEXT": "remote"}, in_context)
    assert (engine.tls_verify, engine.tls_dir) == (True, f"/h/.docker/contexts/tls/{DIGEST}/docker")


@pytest.mark.parametrize("text", ["{", "[]", '{"currentContext": 3}'])
def test_a_broken_configuration_counts_as_none(text: str) -> None:
    assert found({}, {"/h/.docker/config.json": text}, {"/var/run/docker.sock"}).url == "unix:///var/run/docker.sock"
