"""A real `fairtrial run` for the benches to talk through, and the processes around it: upstream and collector.

In: what kind of upstream.  Out: a door, the two processes of ours to look at, and at the end what was recorded.
The command of the run only says where its door is, and waits until it is told to end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import urlsplit

import trustme

from tests.bench.processes import OTHER_CORES, PROXY_CORE, Process, on, until
from tests.bench.relay_load import Door
from tests.bench.relay_upstream import Api

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = ("sh", "-c", 'echo "$ANTHROPIC_BASE_URL $DOCKER_HOST"; exec cat >/dev/null')
OBSERVER: Final = "fairtrial.middleware.app"

Observing = Literal["real", "keeps-up", "saturated"]


class Asked:
    """A process of the benches that prints its port and then answers lines with JSON lines."""

    def __init__(self, module: str, *arguments: str) -> None:
        with on(OTHER_CORES):
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
        assert self.popen.stdout is not None
        self._out = self.popen.stdout
        first = self._out.readline()
        if not first:
            raise RuntimeError(f"{module} did not start")
        self.port = int(first)
        self.process = Process(self.popen.pid)

    def ask(self) -> dict[str, int]:
        """What it has counted until now."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(b"\n")
        self.popen.stdin.flush()
        facts: dict[str, int] = json.loads(self._out.readline())
        return facts

    def close(self) -> None:
        self.popen.kill()
        self.popen.communicate()


class Upstreams:
    """The stand-in model API, plain and TLS, on the running loop, and the collector, a process of its own."""

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ft-b-")))
        self.ca_file = self.folder / "ca.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        self._plain = await self._stack.enter_async_context(Api())
        self._tls = await self._stack.enter_async_context(Api(context))
        self.collector = Asked("tests.bench.otlp_collector")
        self._stack.callback(self.collector.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def behind(self, *, tls: bool) -> Api:
        """The upstream of that kind."""
        return self._tls if tls else self._plain

    def url(self, *, tls: bool) -> str:
        """Where it is."""
        return f"https://localhost:{self._tls.port}" if tls else f"http://127.0.0.1:{self._plain.port}"

    def run(self, *, tls: bool = False, **options: object) -> Run:
        """A run whose model door leads to the upstream of that kind, recorded, stored and exported."""
        where = self._collector_url
        return Run(self.url(tls=tls), ca_file=self.ca_file, collector=where, **options)  # type: ignore[arg-type]  # passed on

    def serve(self, environ: Mapping[str, str], *, tls: bool = True) -> Serve:
        """The same for many trials."""
        return Serve(self.url(tls=tls), ca_file=self.ca_file, collector=self._collector_url, environ=environ)

    @property
    def _collector_url(self) -> str:
        return f"http://127.0.0.1:{self.collector.port}"


def _environment(home: str, ca_file: Path, collector: str, more: Mapping[str, str]) -> dict[str, str]:
    """Ours, and nothing that the bench was started with."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "XDG_RUNTIME_DIR": home,
        "XDG_STATE_HOME": home,
        "LANG": "C.UTF-8",
        "SSL_CERT_FILE": str(ca_file),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "DOCKER_HOST": "unix:///nonexistent/docker.sock",
        "PYTHONPATH": str(ROOT),
    } | dict(more)


def probed(folder: Path) -> dict[str, str]:
    """Settings under which both processes of ours tell what lives in them (`probe/`), by sockets in that folder."""
    folder.mkdir()
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "bench" / "probe")))
    return {"FAIRTRIAL_BENCH_PROBE": str(folder), "PYTHONPATH": path}


class Serve:
    """One `fairtrial serve` with a door of its own, pinned as a `Run` is."""

    def __init__(self, upstream: str, *, ca_file: Path, collector: str, environ: Mapping[str, str]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="ft-s-")
        self.folder = Path(self._home.name)
        self.store = self.folder / "store.db"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        words = ["serve", "--upstream", f"anthropic={upstream}", "--listen", f"127.0.0.1:{self.port}"]
        words += ["--health", "off", "--store", str(self.store)]
        with on(PROXY_CORE), (self.folder / "said").open("wb") as said:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "fairtrial", *words],
                env=_environment(self._home.name, ca_file, collector, environ),
                stderr=said,
                cwd=ROOT,
            )
        self.relay = Process(self.popen.pid)
        until(lambda: self.store.exists() and _observers(self.relay), "serve does not start")
        time.sleep(0.5)
        self.observer = Process(_observers(self.relay)[0])
        self.observer.pin(OTHER_CORES)

    @property
    def processes(self) -> list[Process]:
        """Both of ours."""
        return [self.relay, self.observer]

    def drain(self, deadline_s: float = 60.0) -> None:
        """SIGTERM, and wait for both."""
        self.popen.terminate()
        self.popen.wait(deadline_s)
        until(lambda: not self.observer.alive(), "the observer does not end", deadline_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                if process.alive():
                    os.kill(process.pid, signal.SIGKILL)
        self.popen.wait()
        until(lambda: not self.observer.alive(), "the observer does not die")
        self._home.cleanup()


def _observers(relay: Process) -> list[int]:
    return [pid for pid in relay.children() if "--feed-fd" in Process(pid).command_line()]


class Run:
    """One `fairtrial run`, pinned: the relay to the proxy's core, the observer to the others."""

    def __init__(
        self,
        upstream: str,
        *,
        ca_file: Path,
        collector: str,
        observing: Observing = "real",
        environ: Mapping[str, str] | None = None,
        run: str | None = None,
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="ft-r-")
        self.folder = Path(self._home.name)
        self.store = self.folder / "store.db"
        program = ["-m", "fairtrial"]
        if observing != "real":
            program = ["-m", "tests.bench.standin_observer", "drive", observing]
        arguments = ["--upstream", f"anthropic={upstream}", "--store", str(self.store), "--json", str(self.record_file)]
        arguments += [] if run is None else ["--run", run]
        words = [sys.executable, *program, *([] if observing != "real" else ["run"]), *arguments, "--", *COMMAND]
        with on(PROXY_CORE):
            self.popen = subprocess.Popen(
                words,
                env=_environment(self._home.name, ca_file, collector, environ or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.folder / "said").open("wb"),
                cwd=ROOT,
            )
        assert self.popen.stdout is not None
        self.model_url, _, self.docker_host = self.popen.stdout.readline().decode().strip().partition(" ")
        url = urlsplit(self.model_url)
        if url.port is None:
            raise RuntimeError(f"fairtrial run did not start: {(self.folder / 'said').read_text()}")
        self.door = Door(url.port, url.path.rstrip("/"))
        self.relay = Process(self.popen.pid)
        until(lambda: _observers(self.relay) or self.popen.poll() is not None, "no observer process is there")
        self.observer = Process(_observers(self.relay)[0])
        self.observer.pin(OTHER_CORES)
        for pid in self.relay.children():
            Process(pid).pin(OTHER_CORES)

    @property
    def record_file(self) -> Path:
        """Where the trial's record is written."""
        return self.folder / "record.json"

    @property
    def processes(self) -> list[Process]:
        """Both of ours."""
        return [self.relay, self.observer]

    def ready(self) -> None:
        """Wait until the observer watches: its trial stands in the store."""
        try:
            until(lambda: self.store.exists() and self.store.stat().st_size > 0, "the observer has no store")
        except RuntimeError as error:
            logs = (self.folder / "said", self.folder / "fairtrial" / "observer.log")
            said = "\n".join(log.read_text()[-2000:] for log in logs if log.exists())
            raise RuntimeError(f"{error}: {said}") from error
        time.sleep(0.3)

    def cpu_s(self) -> float:
        """CPU seconds of both."""
        return sum(process.cpu_s() for process in self.processes)

    def finish(self, deadline_s: float = 60.0) -> dict[str, object]:
        """End the command, wait for both processes, and give the trial's record ({} when there was none in time)."""
        self.popen.communicate(timeout=deadline_s)
        until(lambda: not self.observer.alive(), "the observer does not end", deadline_s)
        try:
            record: dict[str, object] = json.loads(self.record_file.read_bytes())
        except FileNotFoundError:
            return {}
        return record

    def close(self) -> None:
        """End what still lives, at once."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                if process.alive():
                    os.kill(process.pid, signal.SIGKILL)
        if self.popen.returncode is None:
            self.popen.communicate()
        until(lambda: not self.observer.alive(), "the observer does not die")
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
