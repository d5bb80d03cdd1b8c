"""Which container engine the command would talk to, found as the docker CLI finds it.

In: the environment, and files through two small callables (so that tests need no engine).  Out: a `DockerUpstream`
for the observer, which watches that engine's events, and for the Docker door.  Nothing is connected to and nothing is
changed here.  Where `DOCKER_HOST` is the Docker door of a run around this one, the engine is the one behind that door.

Order: `DOCKER_HOST`, `DOCKER_CONTEXT`, `currentContext` of the CLI's configuration, the default socket, the rootless
socket.  `ssh://` is left alone and said.

**Source:** docker CLI reference, "Environment variables" and "docker context"; the folder of a context is the SHA-256
of its name.  Rootless: dockerd-rootless documentation, `$XDG_RUNTIME_DIR/docker.sock`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.core.places import home_folder
from fairtrial.middleware.relay.runtime_dir import DOCKER_SOCKET, DOORS

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_WATCHABLE: Final = ("unix", "tcp", "http", "https")

ReadText = Callable[[str], str | None]
IsSocket = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerUpstream:
    """`url` None: there is no engine to watch, and `skipped` says why.  `say`: worth a line before the start."""

    url: str | None = None
    source: str | None = None
    tls_verify: bool = False
    tls_dir: str | None = None
    skipped: str | None = None
    say: bool = False
    outer_door: str | None = None
    """The outer run's door by which the command reaches the engine: it is joined, not relayed twice."""

    def record(self) -> dict[str, object]:
        """As HELLO carries it."""
        return {
            "url": self.url,
            "source": self.source,
            "tls_verify": self.tls_verify,
            "tls_dir": self.tls_dir,
            "skipped": self.skipped,
        }


def read_text(path: str) -> str | None:
    """The file's text, or None when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def is_socket(path: str) -> bool:
    """Whether there is a unix socket at `path`."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def resolve(
    environ: Mapping[str, str], *, reader: ReadText = read_text, socket_at: IsSocket = is_socket
) -> DockerUpstream:
    """The engine of this environment.  Reads at most two small files and looks at two sockets."""
    folder = environ.get("DOCKER_CONFIG") or os.path.join(home_folder(environ), ".docker")
    if host := environ.get("DOCKER_HOST", "").strip():
        return _behind_outer_door(_checked(host, "DOCKER_HOST", environ, folder), reader)
    name, source = environ.get("DOCKER_CONTEXT", "").strip(), "DOCKER_CONTEXT"
    if not name:
        name, source = _current_context(reader(os.path.join(folder, "config.json"))), "currentContext"
    if name and name != "default":
        return _from_context(name, source, folder, environ, reader)
    if socket_at(DEFAULT_SOCKET):
        return DockerUpstream(url=f"unix://{DEFAULT_SOCKET}", source="default socket")
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        rootless = os.path.join(runtime, "docker.sock")
        if socket_at(rootless):
            return DockerUpstream(url=f"unix://{rootless}", source="rootless socket")
    return DockerUpstream(skipped="no engine is named and no default socket exists")


def _current_context(text: str | None) -> str:
    value = _json_object(text).get("currentContext")
    return value if isinstance(value, str) else ""


def _from_context(name: str, source: str, folder: str, environ: Mapping[str, str], reader: ReadText) -> DockerUpstream:
    import hashlib  # late: most runs have no context, and every import delays the command

    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = _json_object(reader(os.path.join(folder, "contexts", "meta", digest, "meta.json")))
    endpoints = meta.get("Endpoints")
    docker = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = docker.get("Host") if isinstance(docker, dict) else None
    if not isinstance(host, str) or not host:
        return DockerUpstream(
            source=source, skipped=f"the docker context {name!r} ({source}) has no readable endpoint", say=True
        )
    found = _checked(host, f"{source} {name}", environ, folder)
    tls_dir = os.path.join(folder, "contexts", "tls", digest, "docker")
    if found.url is not None and reader(os.path.join(tls_dir, "ca.pem")) is not None:
        skip = isinstance(docker, dict) and docker.get("SkipTLSVerify") is True
        return DockerUpstream(url=found.url, source=found.source, tls_verify=not skip, tls_dir=tls_dir)
    return found


def _checked(host: str, source: str, environ: Mapping[str, str], folder: str) -> DockerUpstream:
    if "://" not in host:
        host = f"unix://{host}" if host.startswith("/") else f"tcp://{host}"
    scheme = host.partition("://")[0].lower()
    if scheme == "ssh":
        return DockerUpstream(
            source=source,
            skipped=f"{source} is {mask_url(host)}: an engine behind ssh is left alone and not watched",
            say=True,
        )
    if scheme not in _WATCHABLE:
        return DockerUpstream(source=source, skipped=f"{source} is {mask_url(host)}: {scheme} is not known", say=True)
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    tls = scheme != "unix" and (verify or environ.get("DOCKER_TLS", "") not in {"", "0"} or scheme == "https")
    return DockerUpstream(
        url=host,
        source=source,
        tls_verify=tls and verify,
        tls_dir=(environ.get("DOCKER_CERT_PATH") or folder) if tls else None,
    )


def _behind_outer_door(found: DockerUpstream, reader: ReadText) -> DockerUpstream:
    place, _, name = (found.url or "").removeprefix("unix://").rpartition("/")
    if name != DOCKER_SOCKET:
        return found
    engine = _json_object(reader(os.path.join(place, DOORS))).get("engine")
    url = engine.get("url") if isinstance(engine, dict) else None
    if not isinstance(engine, dict) or not isinstance(url, str):
        return found
    tls_dir = engine.get("tls_dir")
    return DockerUpstream(
        url=url,
        source=found.source,
        tls_verify=engine.get("tls_verify") is True,
        tls_dir=tls_dir if isinstance(tls_dir, str) else None,
        outer_door=found.url,
    )


def _json_object(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
