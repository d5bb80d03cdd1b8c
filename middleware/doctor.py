"""`fairtrial doctor`: on one screen, what can be seen on this machine and what `run` would change.

In: an environment and, if given, the command that somebody wants to run.  Out: findings, each `ok`, `partial` or
`no`, with the reason and, where something can be done, what to do.  It changes nothing: no door stays open, no
variable is set, nothing is written but a probe file in the state folder, removed at once.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import httpx

from fairtrial import __version__
from fairtrial.collectors.cgroup_paths import locate
from fairtrial.collectors.parse.docker import TRIAL_LABEL, TRIAL_VARIABLE
from fairtrial.exporters.settings import NO_GRPC, asked_for, settings_of
from fairtrial.middleware.core import config, presence
from fairtrial.middleware.core.errors import ConfigError
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.relay import docker_upstream, settings_files
from fairtrial.middleware.relay.environment import TraceContext, Wishes, child_environment, plan_doors
from fairtrial.middleware.report.words import plural, size, wrapped

State = Literal["ok", "partial", "no"]
PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
CA_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the screen; `remedy` is what to type or change, where there is something."""

    name: str
    state: State
    text: str
    remedy: str | None = None


def examine(environ: Mapping[str, str], command: Sequence[str]) -> list[Finding]:
    """Look at everything, in the order of the screen."""
    settings, findings = _settings(environ)
    return [
        *_program(),
        *findings,
        _ports(),
        _store(Path(config.store_path(settings, environ, os.getcwd()))),
        _own_cgroup(Path("/proc")),
        _host_kills(Path("/proc/vmstat")),
        _kernel_log(),
        _docker(environ),
        _otlp(environ),
        *_network(environ),
        *_command(environ, command),
        *_agent(environ, settings, command),
    ]


def print_findings(findings: Sequence[Finding]) -> None:
    """One row each, what does not fit on it indented below."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 140
    names = max(len(finding.name) for finding in findings)
    for finding in findings:
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        row = f"{finding.state:<7}  {finding.name:<{names}}  {finding.text}{remedy}"
        print("\n".join(wrapped(row, max(60, width), indent="", hang=" " * (names + 11))))


def _program() -> Iterator[Finding]:
    from importlib.util import find_spec

    loop = "uvloop" if find_spec("uvloop") else "asyncio"
    python = f"Python {platform.python_version()}"
    yield Finding("fairtrial", "ok", f"{__version__}, {python}, event loop {loop}, kernel {platform.release()}")


def _settings(environ: Mapping[str, str]) -> tuple[config.Config, list[Finding]]:
    path = config.config_path(environ)
    findings = [Finding("settings", "partial", sentence) for sentence in config.mistyped(environ)]
    try:
        effective = config.read_sources(environ, {})
    except ConfigError as error:
        findings.append(Finding("settings", "no", f"{error.what} `run` would use the defaults", error.remedy))
        return config.load({}, {}, {}), findings
    there = path if os.path.exists(path) else f"{path} (not there)"
    given = plural(len(effective.sources), "setting") if effective.sources else "none"
    findings.insert(0, Finding("settings", "ok", f"{there}; {given} given (`fairtrial config show` lists all)"))
    return effective.config, findings


def _ports() -> Finding:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            probe.listen()
    except OSError as error:
        return Finding(
            "model door", "no", f"no loopback port can be bound: {error.strerror}", "allow binding 127.0.0.1"
        )
    return Finding("model door", "ok", "a loopback port can be bound")


def _store(path: Path) -> Finding:
    folder = next(parent for parent in path.parents if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".fairtrial-probe-"):
            pass
    except OSError as error:
        return Finding("store", "no", f"{path}: {error.strerror}", "name another one: --store PATH or $FAIRTRIAL_STORE")
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < 100 << 20:
        return Finding("store", "partial", f"{path}: only {size(free)} free", "free some space or name another disk")
    return Finding("store", "ok", f"{path} ({size(free)} free)")


def _own_cgroup(proc: Path) -> Finding:
    try:
        places = locate("self", proc=proc)
    except OSError as error:
        return Finding("own cgroup", "no", f"{proc} cannot be read: {error.strerror}")
    memory = places.places.get("memory")
    if memory is None:
        return Finding(
            "own cgroup", "no", f"cgroup {places.version}: {places.missing.get('memory', 'no memory controller')}"
        )
    name = "memory.max" if memory.v2 else "memory.limit_in_bytes"
    peak = memory.path / ("memory.peak" if memory.v2 else "memory.max_usage_in_bytes")
    ceiling = _ceiling(memory.path / name)
    resettable = "resettable" if os.access(peak, os.W_OK) else "not resettable (peaks per step are bounds)"
    seen = f"cgroup {places.version}, {ceiling}, high-water mark {resettable if peak.exists() else 'absent'}"
    return Finding("own cgroup", "ok" if peak.exists() else "partial", seen)


def _ceiling(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError:
        return "no ceiling of its own"
    if text == "max" or int(text) >= 1 << 60:
        return "no memory ceiling"
    return f"memory ceiling {size(int(text))}"


def _host_kills(path: Path) -> Finding:
    try:
        known = any(line.startswith("oom_kill ") for line in path.read_text().splitlines())
    except OSError:
        known = False
    if known:
        return Finding("host oom counter", "ok", f"{path} counts every OOM kill of this node")
    return Finding("host oom counter", "no", f"{path} has no oom_kill line; a zero cannot clear the memory")


def _kernel_log() -> Finding:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        why = f"/dev/kmsg: {error.strerror}"
        return Finding("kernel log", "no", f"{why}; that a kill happened is still seen, who died is not")
    return Finding("kernel log", "ok", "victims of OOM kills can be named")


def _docker(environ: Mapping[str, str]) -> Finding:
    upstream = docker_upstream.resolve(environ)
    if upstream.url is None:
        return Finding(
            "docker", "no", upstream.skipped or "no engine", "containers are not watched; nothing else changes"
        )
    where = f"{mask_url(upstream.url)} ({upstream.source})"
    try:
        version = _engine_version(upstream)
    except (httpx.HTTPError, OSError, ValueError) as error:
        return Finding("docker", "no", f"{where} does not answer: {error}", "start the engine or correct DOCKER_HOST")
    answers = f"engine {version} at {where}"
    others = presence.others(upstream.url, "doctor")
    if others:
        return Finding(
            "docker",
            "partial",
            f"{answers}; {plural(others, 'other trial')} {'uses' if others == 1 else 'use'} it now, so a container is "
            f"watched only if it carries the mark of its trial",
            f"start it with -e {TRIAL_VARIABLE}, or with --label {TRIAL_LABEL}=${TRIAL_VARIABLE}",
        )
    return Finding("docker", "ok", f"{answers}; the containers that a trial starts are watched")


def _engine_version(upstream: docker_upstream.DockerUpstream) -> str:
    """The engine's version; raises `OSError` or what httpx raises."""
    scheme, _, rest = (upstream.url or "").partition("://")
    if scheme == "unix":
        # Asked first by hand: the client library leaves its socket open when nobody listens.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(3.0)
            probe.connect(rest)
        transport, base = httpx.HTTPTransport(uds=rest), "http://docker"
    elif upstream.tls_dir is not None:
        context = ssl.create_default_context(cafile=os.path.join(upstream.tls_dir, "ca.pem"))
        context.load_cert_chain(os.path.join(upstream.tls_dir, "cert.pem"), os.path.join(upstream.tls_dir, "key.pem"))
        transport, base = httpx.HTTPTransport(verify=context), f"https://{rest}"
    else:
        transport, base = httpx.HTTPTransport(), f"http://{rest}"
    with httpx.Client(transport=transport, timeout=3.0) as client:
        return str(client.get(f"{base}/version").raise_for_status().json().get("Version"))


def _otlp(environ: Mapping[str, str]) -> Finding:
    if not asked_for(environ):
        return Finding(
            "traces",
            "no",
            "OTEL_EXPORTER_OTLP_ENDPOINT is not set",
            "set it to http://HOST:4318, where Jaeger or another OTLP/HTTP receiver listens (docs/telemetry.md)",
        )
    settings = settings_of(environ)
    if settings.protocol == "grpc" and importlib.util.find_spec("grpc") is None:
        return Finding("traces", "no", NO_GRPC)
    if settings.protocol != "grpc" and not settings.endpoint.lower().startswith(("http://", "https://")):
        remedy = "write it with http:// or https:// in front; until then the traces wait in the store"
        return Finding("traces", "no", f"{settings.shown} is no URL that anything can be sent to", remedy)
    try:
        socket.create_connection(settings.address, timeout=2).close()
    except (OSError, ValueError) as error:
        return Finding(
            "traces", "no", f"{settings.shown} does not answer ({error})", "runs go on; the traces wait in the store"
        )
    complaints = "; ".join(settings.complaints) or None
    return Finding("traces", "ok", f"{settings.shown} accepts connections ({settings.protocol})", complaints)


def _network(environ: Mapping[str, str]) -> Iterator[Finding]:
    proxies = [f"{name}={mask_url(environ[name])}" for name in PROXIES if environ.get(name)]
    if proxies:
        yield Finding("proxy", "ok", f"{', '.join(proxies)}: used towards the model API, doors are excepted")
    for name in CA_VARIABLES:
        path = environ.get(name)
        if path and Path(path).is_file():
            yield Finding("certificates", "ok", f"{name}={path}: trusted in addition to the system's")
        elif path:
            yield Finding("certificates", "no", f"{name}={path} is no file", f"correct or unset {name}")


def _command(environ: Mapping[str, str], command: Sequence[str]) -> Iterator[Finding]:
    if not command:
        return
    found = shutil.which(command[0], path=environ.get("PATH"))
    if found is None:
        there = os.path.exists(command[0]) and os.sep in command[0]
        what = "cannot be executed" if there else "was not found"
        yield Finding("command", "no", f"{command[0]} {what}", "check its spelling and PATH")
    else:
        yield Finding("command", "ok", found)


def _agent(environ: Mapping[str, str], settings: config.Config, command: Sequence[str]) -> Iterator[Finding]:
    found = settings_files.inspect(command, environ, os.getcwd(), reader=docker_upstream.read_text)
    for note in found.sentences(adapt=False):
        yield Finding("settings file", "partial", note.text)
    plan = plan_doors(environ, Wishes(upstreams=settings.upstreams, routes=settings.routes, leave=found.leave))
    for door in plan.doors:
        variables = ", ".join(pointer.variable for pointer in door.pointers)
        yield Finding("run would set", "ok", f"{variables} → a door to {mask_url(door.origin)}")
    beside = child_environment(
        environ,
        plan,
        # Any address: only the names of what differs are read.
        {door.name: "http://127.0.0.1:1/t/door" for door in plan.doors},
        trial="trial",
        run=None,
        trace=TraceContext("1" * 32, "1" * 16),
    )
    doors = {pointer.variable for door in plan.doors for pointer in door.pointers}
    names = [m.what.removeprefix("environment ") for m in beside.mutations]
    others = ", ".join(name for name in names if name not in doors)
    yield Finding("run would set", "ok", f"{others} (`fairtrial run --verbose` shows old and new)")
    for joined in plan.joined:
        yield Finding("run would keep", "ok", f"{joined.variable}: it points to a door of the run around this one")
    for note in (*plan.notes, *beside.notes):
        yield Finding("note", "partial", note.text)
