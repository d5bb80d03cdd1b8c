"""The run's short-lived folder: sockets that need a short path, and the list of doors that a nested run reads.

In: the environment and the trial's id.  Out: a folder of mode 0700 that is ours, with `doors.json` in it; removed at
the end.  Places, in order: `relay.runtime_dir` (then no other), `$XDG_RUNTIME_DIR/fairtrial`, `/tmp/fairtrial-UID`.
A folder that belongs to somebody else or that others may write is refused: under /tmp anybody could have made it.

**Source:** unix(7): a socket's path ends at 107 bytes; XDG base directory specification for `$XDG_RUNTIME_DIR`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.errors import HostError

MAX_SOCKET_PATH_BYTES: Final = 107
DOCKER_SOCKET: Final = "docker.sock"
MODEL_SOCKET: Final = "model.sock"
_LONGEST_NAME: Final = f"/{DOCKER_SOCKET}"
DOORS: Final = "doors.json"
_ID_TAIL: Final = 12
"""The last digits of a UUIDv7 are random; with them alone the path stays short."""


@dataclass(frozen=True, slots=True)
class RuntimeDir:
    """The folder of one run."""

    path: str

    def write_doors(self, trial: str, doors: Mapping[int, str], engine: Mapping[str, object] | None = None) -> None:
        """Publish our ports (port -> door name), and the engine behind the Docker door, to nested runs.

        Raises `HostError`.
        """
        body = {
            "trial": trial,
            "pid": os.getpid(),
            "doors": [{"port": port, "name": doors[port]} for port in doors],
            "engine": engine,
        }
        target = os.path.join(self.path, DOORS)
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(body, file)
        except OSError as error:
            raise _refused(target, error) from error

    def remove(self) -> None:
        """Take the folder away; what cannot be removed is left for the next boot."""
        try:
            for name in os.listdir(self.path):
                os.unlink(os.path.join(self.path, name))
            os.rmdir(self.path)
        except OSError:
            return


def create(environ: Mapping[str, str], trial: str, *, chosen: str | None = None) -> RuntimeDir:
    """Make the folder for `trial`.  Raises `HostError` when no place will do; the remedy names the setting."""
    failure: HostError | None = None
    for base in _places(environ, chosen):
        path = os.path.join(base, trial[-_ID_TAIL:])
        try:
            if len(os.fsencode(path + _LONGEST_NAME)) > MAX_SOCKET_PATH_BYTES:
                raise HostError(
                    f"The runtime folder {path} is too long for a unix socket.",
                    remedy=f"Name a shorter one by FAIRTRIAL_RUNTIME_DIR (at most {MAX_SOCKET_PATH_BYTES} bytes).",
                    path=path,
                )
            os.makedirs(base, mode=0o700, exist_ok=True)
            _check_ours(base, strict=chosen is None)
            os.mkdir(path, 0o700)
        except HostError as error:
            failure = failure or error
        except OSError as error:
            failure = failure or _refused(path, error)
        else:
            return RuntimeDir(path)
    assert failure is not None
    raise failure


def outer_doors(environ: Mapping[str, str], *, chosen: str | None = None) -> dict[int, str]:
    """Ports -> names of the doors of the run around this one, as its folder lists them; empty when there is none."""
    trial = environ.get("FAIRTRIAL_TRIAL", "")
    if not trial or "/" in trial:
        return {}
    for base in _places(environ, chosen):
        try:
            with open(os.path.join(base, trial[-_ID_TAIL:], DOORS), encoding="utf-8") as file:
                body = json.load(file)
            if body["trial"] == trial:
                return {int(door["port"]): str(door["name"]) for door in body["doors"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


def _places(environ: Mapping[str, str], chosen: str | None) -> Iterable[str]:
    if chosen is not None:
        yield os.path.abspath(chosen)
        return
    if (runtime := environ.get("XDG_RUNTIME_DIR", "")).startswith("/"):
        yield os.path.join(runtime, "fairtrial")
    yield f"/tmp/fairtrial-{os.getuid()}"  # noqa: S108 - owner and mode are checked before it is used


def _check_ours(base: str, *, strict: bool) -> None:
    found = os.lstat(base)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    if strict and not ours:
        raise HostError(
            f"The runtime folder {base} is not ours alone (uid {found.st_uid}, mode {found.st_mode & 0o777:o}).",
            remedy="Remove it, or name another by FAIRTRIAL_RUNTIME_DIR.",
            path=base,
        )


def _refused(path: str, error: OSError) -> HostError:
    return HostError(
        f"The runtime folder {path} cannot be used: {error.strerror or error}.",
        remedy="Name a writable folder by FAIRTRIAL_RUNTIME_DIR.",
        errno=error.errno,
        path=path,
    )
