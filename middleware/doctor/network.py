"""Where traces go and how the upstreams are reached: collector, proxy, certificates.

In: an environment.  Out: findings.  A connection is opened and closed; nothing is sent.
"""

from __future__ import annotations

import importlib.util
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fairtrial.exporters.settings import NO_GRPC, asked_for, settings_of
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.report.words import plural

PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
CA_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_TIMEOUT_S: Final = 2.0


def otlp(environ: Mapping[str, str]) -> Finding:
    """Whether a collector is named and can be reached."""
    if not asked_for(environ):
        return Finding(
            "traces",
            "no",
            "OTEL_EXPORTER_OTLP_ENDPOINT is not set",
            "set it to http://HOST:4318, where Jaeger or another OTLP/HTTP receiver listens (docs/telemetry.md)",
            mend=False,
        )
    settings = settings_of(environ)
    if settings.protocol == "grpc" and importlib.util.find_spec("grpc") is None:
        return Finding("traces", "no", NO_GRPC)
    if settings.protocol != "grpc" and not settings.endpoint.lower().startswith(("http://", "https://")):
        remedy = "write it with http:// or https:// in front; until then the traces wait in the store"
        return Finding("traces", "no", f"{settings.shown} is no URL that anything can be sent to", remedy)
    try:
        socket.create_connection(settings.address, timeout=_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        return Finding(
            "traces",
            "no",
            f"{settings.shown} does not answer ({_why(error)})",
            "runs go on; the traces wait in the store",
        )
    complaints = "; ".join(settings.complaints) or None
    return Finding("traces", "ok", f"{settings.shown} accepts connections ({settings.protocol})", complaints)


def proxies(environ: Mapping[str, str]) -> Iterator[Finding]:
    """One line for all variables, or one for each that leads nowhere."""
    given = {name: environ[name] for name in PROXIES if environ.get(name)}
    if not given:
        return
    why_dead = {url: why for url in dict.fromkeys(given.values()) if (why := _unreachable(url)) is not None}
    for url, why in why_dead.items():
        text = f"{_equal(given, url)}: {why}"
        yield Finding("proxy", "no", text, "correct or unset it: calls to the model API go through it")
    alive = ", ".join(_equal(given, url) for url in dict.fromkeys(given.values()) if url not in why_dead)
    if alive:
        yield Finding(
            "proxy", "ok", f"{alive}: listens, used towards the model API, doors are excepted (a login is not tried)"
        )


def _equal(given: Mapping[str, str], url: str) -> str:
    """`HTTPS_PROXY = https_proxy = URL`: all variables that hold it."""
    return " = ".join([*(name for name, value in given.items() if value == url), mask_url(url)])


def _unreachable(url: str) -> str | None:
    """Why nobody listens there."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)
        socket.create_connection((parts.hostname or "", port), timeout=_TIMEOUT_S).close()
    except ValueError as error:
        return f"is no address ({error})"
    except OSError as error:
        return f"does not answer ({error.strerror or error})"
    return None


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def certificates(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Each file that variables name: whether it is there and holds certificates."""
    files: dict[str, list[str]] = {}
    for name in CA_VARIABLES:
        if path := environ.get(name):
            files.setdefault(path, []).append(name)
    for path, names in files.items():
        said = f"{' = '.join(names)} = {path}"
        if not Path(path).is_file():
            yield Finding("certificates", "no", f"{said} is no file", f"correct or unset {', '.join(names)}")
            continue
        try:
            held = ssl.create_default_context(cafile=path).cert_store_stats()["x509"]
        except (OSError, ssl.SSLError) as error:
            why = f"{said} cannot be read as certificates ({error.strerror or error})"
            yield Finding("certificates", "no", why, f"correct or unset {', '.join(names)}")
            continue
        yield Finding("certificates", "ok", f"{said}: {plural(held, 'certificate')}")
