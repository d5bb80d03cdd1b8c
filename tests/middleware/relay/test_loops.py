"""A run's relay without OpenSSL, until somebody calls an https upstream; and then with it, as always."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.middleware.relay.running import ROOT, Bench

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

CALL = """
import sys
from fairtrial.middleware.relay import loops
loops.load()
assert "_ssl" not in sys.modules and "ssl" not in sys.modules
import asyncio
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.relay import Relay, new_event_loop
from fairtrial.middleware.relay.settings import RelaySettings, Upstream

async def call():
    relay = Relay(RelaySettings(ca_files=(sys.argv[2],)), FeedSender(None, limit_bytes=1 << 20))
    relay.add_token("a" * 32, "t")
    door = await relay.open_model_door(Upstream.parse("x", sys.argv[1]))
    await asyncio.sleep(0.2)
    before = "_ssl" in sys.modules
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"GET /t/" + b"a" * 32 + b"/x HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    said = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    await relay.close(1)
    print(before, "_ssl" in sys.modules, said.split(b"\\r\\n")[0].decode(), said[-2:].decode())

loop = new_event_loop()
assert type(loop).__module__ == sys.argv[3], type(loop)
loop.run_until_complete(call())
"""


@pytest.fixture
def bench() -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    yield Bench(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def answering(authority: trustme.CA, listener: socket.socket, *, tls: bool) -> None:
    """One connection, one answer."""
    sock, _ = listener.accept()
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        sock = context.wrap_socket(sock, server_side=True)
    with sock:
        while b"\r\n\r\n" not in sock.recv(65536):
            pass
        sock.sendall(ANSWER)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio.unix_events"])
@pytest.mark.parametrize("tls", [True, False])
def test_openssl_comes_with_the_first_call_to_https_and_not_before(
    tmp_path: Path, authority: trustme.CA, loop: str, tls: bool
) -> None:
    hidden = "" if loop == "uvloop" else "import sys\nsys.modules['uvloop.loop'] = None\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answering, args=(authority, listener), kwargs={"tls": tls}, daemon=True).start()
        url = f"http{'s' if tls else ''}://localhost:{listener.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", hidden + CALL, url, str(tmp_path / "ca.pem"), loop],
            capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"False {tls} HTTP/1.1 200 OK hi\n"


@pytest.mark.parametrize("first", ["ssl", "asyncio", "uvloop"])
def test_who_was_there_first_finds_nothing_changed(first: str) -> None:
    code = (
        f"import {first}, sys\nbefore = dict(sys.modules)\nfrom fairtrial.middleware.relay import loops\nloops.load()"
    )
    code += "\nimport ssl, asyncio, uvloop\nassert asyncio.base_events.ssl is ssl"
    code += "\nassert all(sys.modules[name] is module for name, module in before.items())"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


@pytest.mark.parametrize("engine", [None, "unix:///nonexistent/docker.sock"])
def test_a_run_that_calls_nobody_has_no_openssl(bench: Bench, engine: str | None) -> None:
    if engine is not None:
        bench.environ["DOCKER_HOST"] = engine
    done = bench.run("--", "sh", "-c", "sleep 0.3; grep -c -e libssl -e libcrypto /proc/$PPID/maps; true")
    assert done.stdout == "0\n", done.stderr
