"""A company's network for containers: no way out but a proxy, a CA that nobody else knows, a mirror of packages.

In: an engine, a folder.  Out: `Network`: an internal bridge (no route, no names), the host's address on it, where
proxies listen; the CA and (chain, key) for the names that are reached; and a mirror by https on loopback, behind the
proxies.  The packages are those of the locked lists, fetched once from the registry that pip is set up for.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.e2e import clients
from tests.e2e.engine import Engine

MODELS, PACKAGES = "api.anthropic.com", "packages.fair.test"
LISTS = ("requirements/runtime.txt", "requirements/build.txt")


class NoPackages(Exception):
    """The packages cannot be fetched here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where a container of the company lives. `ca`: a file of the company's certificate; `tls`: (chain, key)."""

    name: str
    gateway: str
    ca: Path
    tls: tuple[Path, Path]
    mirror_port: int


@contextlib.contextmanager
def company_network(engine: Engine, folder: Path) -> Generator[Network, None, None]:
    """Make it; it is gone afterwards. Raises NoPackages."""
    authority = trustme.CA()
    issued = authority.issue_cert(MODELS, PACKAGES)
    ca, chain, key = folder / "ca.pem", folder / "chain.pem", folder / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    ca.chmod(0o644)
    issued.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    name = f"ft-company-{os.getpid()}"
    with _mirror(_packages(), folder, (chain, key)) as port:
        engine.docker("network", "create", "--internal", "--subnet", "10.203.77.0/24", name)
        try:
            found = json.loads(engine.docker("network", "inspect", name).stdout)[0]["IPAM"]["Config"][0]
            gateway = str(found.get("Gateway") or "10.203.77.1").partition("/")[0]
            yield Network(name=name, gateway=gateway, ca=ca, tls=(chain, key), mirror_port=port)
        finally:
            engine.docker("network", "rm", name, check=False)


def _packages() -> Path:
    """A folder with the files of the locked lists. Raises NoPackages."""
    texts = b"".join((clients.REPO_ROOT / name).read_bytes() for name in LISTS)
    folder = clients.e2e_folder() / f"packages-{hashlib.sha256(texts + sys.version.encode()).hexdigest()[:12]}"
    if not folder.exists():
        unfinished = folder.with_suffix(f".{os.getpid()}")
        lists = [part for name in LISTS for part in ("-r", str(clients.REPO_ROOT / name))]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", *lists]
        done = subprocess.run([*command, "-d", str(unfinished)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoPackages(f"the packages of the locked lists cannot be fetched: {done.stderr.strip()[-200:]}")
        unfinished.rename(folder)
    return folder


@contextlib.contextmanager
def _mirror(files: Path, folder: Path, tls: tuple[Path, Path]) -> Generator[int, None, None]:
    """A simple index of these files, as pip reads one; the port on loopback."""
    simple = folder / "simple"
    for file in files.iterdir():
        package = simple / re.sub(r"[-_.]+", "-", re.split(r"-\d", file.name)[0]).lower()
        package.mkdir(parents=True, exist_ok=True)
        (package / file.name).symlink_to(file)
        with (package / "index.html").open("a") as page:
            page.write(f'<a href="{file.name}">{file.name}</a><br>\n')

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
            """Tests print nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
