"""The Docker engine that `run` would use: whether it answers, of what kind it is, who else uses it, its clock.

In: an environment.  Out: one finding, and what a summary needs (`Engine`).  Two requests, none that changes anything.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import httpx

from fairtrial.collectors import engine_api
from fairtrial.collectors.parse.docker import TRIAL_LABEL, TRIAL_VARIABLE
from fairtrial.middleware.core import presence
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.relay import docker_upstream
from fairtrial.middleware.report.words import plural

_TIMEOUT_S: Final = 3.0
_BAD_CLOCK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What an engine said of itself."""

    version: str
    spoken: str | None = None
    """Why no version of its API is one that we know; None: one is."""
    rootless: bool = False
    cgroups: str | None = None
    ahead_s: float | None = None
    """Its clock before ours."""


def docker(environ: Mapping[str, str]) -> Finding:
    """Whether containers would be watched."""
    upstream = docker_upstream.resolve(environ)
    if upstream.url is None:
        return Finding(
            "docker",
            "no",
            upstream.skipped or "no engine",
            "containers are not watched; nothing else changes",
            mend=False,
        )
    where = f"{mask_url(upstream.url)} ({upstream.source})"
    try:
        engine = ask(upstream)
    except (httpx.HTTPError, OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return Finding("docker", "no", f"{where} does not answer: {why}", "start the engine or correct DOCKER_HOST")
    if engine.spoken is not None:
        return Finding("docker", "no", f"{where}: {engine.spoken}", "until then containers are not watched")
    answers = f"engine {engine.version} at {where}{_kind(engine)}"
    others = presence.others(upstream.url, "doctor")
    if others:
        return Finding(
            "docker",
            "partial",
            f"{answers}; {plural(others, 'other trial')} {'uses' if others == 1 else 'use'} it now, so a container is "
            f"watched only if it carries the mark of its trial",
            f"start it with -e {TRIAL_VARIABLE}, or with --label {TRIAL_LABEL}=${TRIAL_VARIABLE}",
        )
    if engine.ahead_s is not None and abs(engine.ahead_s) > _BAD_CLOCK_S:
        off = f"its clock is {abs(engine.ahead_s):.1f} s {'before' if engine.ahead_s > 0 else 'behind'} ours"
        text = f"{answers}; {off}, so its events are laid to wrong steps"
        return Finding("docker", "partial", text, "set the engine's host by a time server")
    return Finding("docker", "ok", f"{answers}; the containers that a trial starts are watched")


def _kind(engine: Engine) -> str:
    kinds = [*(["rootless"] if engine.rootless else []), *([engine.cgroups] if engine.cgroups else [])]
    return f", {', '.join(kinds)}" if kinds else ""


def ask(upstream: docker_upstream.DockerUpstream) -> Engine:
    """What the engine is; raises `OSError`, `ValueError` or what httpx raises."""
    scheme, _, rest = (upstream.url or "").partition("://")
    if scheme == "unix":
        # Asked first by hand: the client library leaves its socket open when nobody listens.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_TIMEOUT_S)
            probe.connect(rest)
        transport, base = httpx.HTTPTransport(uds=rest), "http://docker"
    elif upstream.tls_dir is not None:
        context = ssl.create_default_context(cafile=os.path.join(upstream.tls_dir, "ca.pem"))
        context.load_cert_chain(os.path.join(upstream.tls_dir, "cert.pem"), os.path.join(upstream.tls_dir, "key.pem"))
        transport, base = httpx.HTTPTransport(verify=context), f"https://{rest}"
    else:
        transport, base = httpx.HTTPTransport(), f"http://{rest}"
    with httpx.Client(transport=transport, timeout=_TIMEOUT_S) as client:
        told_version: Any = client.get(f"{base}/version").raise_for_status().json()
        before = time.time_ns()
        answer = client.get(f"{base}/info")
        middle_s = (before + time.time_ns()) / 2e9
    # A proxy before the engine may allow the one and not the other.
    told: Any = answer.json() if answer.is_success else {}
    known = engine_api.ApiRange.of(told_version)
    version, spoken = known.release or "of no version", _not_spoken(known)
    return _read(version, spoken, told, middle_s) if isinstance(told, dict) else Engine(version=version, spoken=spoken)


def _not_spoken(known: engine_api.ApiRange) -> str | None:
    try:
        engine_api.choose(known)
    except engine_api.NotSpoken as reason:
        return str(reason)
    return None


def _read(version: str, spoken: str | None, told: Mapping[str, Any], middle_s: float) -> Engine:
    options = told.get("SecurityOptions") or []
    driver, generation = told.get("CgroupDriver"), told.get("CgroupVersion")
    ahead_s: float | None = None
    if isinstance(told.get("SystemTime"), str):
        ahead_s = datetime.fromisoformat(str(told["SystemTime"])).timestamp() - middle_s
    return Engine(
        version=version,
        spoken=spoken,
        rootless=any("name=rootless" in str(option) for option in options),
        cgroups=f"cgroup v{generation} by {driver}" if driver and generation else None,
        ahead_s=ahead_s,
    )
