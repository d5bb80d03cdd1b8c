"""The stand-in model server: answers real clients by script, offline, and fails where it is told to.

In: a `Scenario` (steps and faults). Out: a server on a loopback port, and a `Call` for each request that it saw.
Three ways to run it: `StandIn` inside a loop, `running_standin` in a process of its own (as tests and the demo do), and
`python -m fairtrial.middleware.demo.standin --script FILE`. The step is counted from each request's history, so retries
get the same answer; only spent faults are remembered, per path prefix. It opens no connection and writes no file but
its log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import BinaryIO

import fairtrial
from fairtrial.middleware.demo.calls import Call, from_log_line, to_log_line
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.link import HEAD_LIMIT_BYTES
from fairtrial.middleware.demo.script import Scenario, Step, dump_scenario, load_scenario
from fairtrial.middleware.demo.serving import Connection

_BEGUN = b'{"begun":'  # how a log line starts that says that a call runs; all others are ended calls


class StandIn:
    """A scripted model server inside the running event loop."""

    def __init__(
        self,
        script: Sequence[Step] | Scenario,
        faults: Sequence[Fault] = (),
        tls: ssl.SSLContext | None = None,
        *,
        log: BinaryIO | None = None,
    ) -> None:
        """`script` is the steps, or a whole scenario (then `faults` must be empty).

        `log` gets a line, `{"begun": index}`, per call that begins, and the whole call as another when it ended.
        """
        if isinstance(script, Scenario):
            if faults:
                raise ValueError("a scenario brings its own faults")
            self.scenario = script
        else:
            self.scenario = Scenario(steps=tuple(script), faults=tuple(faults))
        self.seed = os.urandom(8).hex()
        self.calls: list[Call] = []
        """Every request so far, in the order of their heads; the last ones may still be running."""
        self._tls = tls
        self._log = log
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._attempts: Counter[tuple[str, int | None]] = Counter()
        self._used: Counter[tuple[str, int]] = Counter()
        self.port = 0
        self.url = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `url` (no /v1 at its end) and `port` are set afterwards. Raises OSError when the port is taken."""
        self._server = await asyncio.start_server(
            self._accept, host, port, limit=HEAD_LIMIT_BYTES, ssl=self._tls, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http{'s' if self._tls else ''}://{shown}:{self.port}"

    async def stop(self) -> None:
        """Stop listening, end every connection, and wait for their ends."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._accepted += 1
        try:
            await Connection(self, self._accepted, reader, writer).serve()
        except asyncio.CancelledError:
            writer.transport.abort()  # only stop() cancels: the task ends here, nothing is above it
        finally:
            self._connections.discard(task)

    # ---- the connections' Host ----

    def begin(self, call: Call) -> None:
        """Number the call, keep it, and note in the log that it runs."""
        call.index = len(self.calls)
        self.calls.append(call)
        if self._log is not None:
            self._log.write(_BEGUN + b"%d}\n" % call.index)
            self._log.flush()

    def attempt(self, call: Call) -> int:
        """Count this call at its step, side calls apart."""
        key = (call.prefix, None if call.side else call.step)
        self._attempts[key] += 1
        return self._attempts[key]

    def take_fault(self, call: Call) -> Fault | None:
        """The first fault of the scenario that fits the call and is not spent for its prefix; counts its use."""
        for number, fault in enumerate(self.scenario.faults):
            fits = fault.step in (None, call.step) and (fault.side_calls or not call.side)
            fits = fits and (call.stream or not fault.stream_only)
            fits = fits and (fault.task is None or fault.task.encode() in call.body)
            used = self._used[call.prefix, number]
            if fits and (fault.attempts is None or used < fault.attempts):
                self._used[call.prefix, number] += 1
                return fault
        return None

    def finish(self, call: Call) -> None:
        """Write the call to the log."""
        if self._log is not None:
            self._log.write(to_log_line(call))
            self._log.flush()


class RunningStandIn:
    """A stand-in in another process. `calls` stays readable after its end."""

    def __init__(self, *, url: str, port: int, pid: int, log: Path) -> None:
        self.url = url
        """Without /v1 at its end."""
        self.port = port
        self.pid = pid
        self._log = log
        self._final: list[Call] | None = None

    def _read(self) -> tuple[list[Call], int]:
        """The ended calls in the order of their heads, and how many have begun."""
        lines = [line for line in self._log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        ended = [from_log_line(line) for line in lines if not line.startswith(_BEGUN)]
        return sorted(ended, key=lambda call: call.index), len(lines) - len(ended)

    def settle(self, timeout_s: float = 1.0) -> list[Call]:
        """The ended calls, as soon as none is running, at the latest after the timeout (then without those that run).

        A client has its answer a moment before the server has noted the end of the call: this waits for that note.
        """
        if self._final is not None:
            return self._final
        deadline = time.monotonic() + timeout_s
        while True:
            ended, begun = self._read()
            if len(ended) == begun or time.monotonic() > deadline:
                return ended
            time.sleep(0.005)

    @property
    def calls(self) -> list[Call]:
        """`settle()` with its usual timeout."""
        return self.settle()

    @property
    def model_calls(self) -> list[Call]:
        """The ended calls that asked a model, side calls included."""
        return [call for call in self.calls if call.is_model_call]

    def wait_for_calls(self, count: int, timeout_s: float = 5.0) -> list[Call]:
        """Poll until so many calls have ended. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while len(calls := self.settle(0)) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(calls)} calls ended at the stand-in within {timeout_s} s, wanted {count}")
            time.sleep(0.01)
        return calls

    def close(self) -> None:
        """Keep what the log says now; called when the process has ended and before the log is removed."""
        self._final, _ = self._read()


@contextlib.contextmanager
def running_standin(
    script: Sequence[Step] | Scenario,
    faults: Sequence[Fault] = (),
    *,
    tls: tuple[Path, Path] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    command_prefix: Sequence[str] = (),
    ready_timeout_s: float = 20.0,
) -> Generator[RunningStandIn, None, None]:
    """Run a stand-in in a process of its own; yields its address and its calls, stops it at the end.

    `tls` is (certificate chain, key) in PEM files. `command_prefix` goes before the command line, such as an
    `nsenter` into another network namespace. Raises RuntimeError, with what the process said, when it does not start.
    """
    scenario = script if isinstance(script, Scenario) else Scenario(steps=tuple(script), faults=tuple(faults))
    with tempfile.TemporaryDirectory(prefix="ft-standin-") as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        (place / "scenario.json").write_bytes(dump_scenario(scenario))
        log = place / "calls.jsonl"
        log.touch()
        ready_read, ready_write = os.pipe()
        stack.callback(os.close, ready_read)
        command = [*command_prefix, sys.executable, "-m", "fairtrial.middleware.demo.standin"]
        command += ["--script", str(place / "scenario.json"), "--host", host, "--port", str(port)]
        command += ["--ready-fd", str(ready_write), "--log", str(log)]
        if tls is not None:
            command += ["--tls-cert", str(tls[0]), "--tls-key", str(tls[1])]
        errors = stack.enter_context((place / "stderr").open("w+b"))
        root = Path(fairtrial.__path__[0]).parent  # the child may start in another folder than a checkout's top
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(ready_write,),
            env=dict(os.environ)
            | {"PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))},
        )
        os.close(ready_write)
        stack.callback(_end_process, child)
        said = _read_ready(ready_read, ready_timeout_s)
        if said is None:
            errors.seek(0)
            raise RuntimeError(f"the stand-in did not start: {errors.read().decode(errors='replace').strip()[-2000:]}")
        running = RunningStandIn(url=said["url"], port=int(said["port"]), pid=child.pid, log=log)
        stack.callback(running.close)
        stack.callback(_end_process, child)
        yield running


def _read_ready(descriptor: int, timeout_s: float) -> dict[str, str] | None:
    """The line that the process writes when it listens; None at its end or after the timeout."""
    deadline = time.monotonic() + timeout_s
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        got = os.read(descriptor, 4096) if readable else b""
        if not got:
            return None
        line += got
    ready: dict[str, str] = json.loads(line)
    return ready


def _end_process(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


async def _serve_until_signal(options: argparse.Namespace) -> None:
    tls = None
    if options.tls_cert is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.tls_cert, options.tls_key)
        tls.set_alpn_protocols(["http/1.1"])
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("ab")) if options.log is not None else None
        server = StandIn(load_scenario(options.script.read_bytes()), tls=tls, log=log)
        await server.start(options.host, options.port)
        ready = json.dumps({"url": server.url, "port": server.port}) + "\n"
        if options.ready_fd is None:
            sys.stdout.write(ready)
            sys.stdout.flush()
        else:
            os.write(options.ready_fd, ready.encode())
            os.close(options.ready_fd)
        await over.wait()
        await server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a scenario file until SIGTERM or SIGINT. The ready line is JSON with `url` and `port`."""
    parser = argparse.ArgumentParser(
        prog="standin", description="A scripted model server: Messages, Chat Completions, Responses."
    )
    parser.add_argument("--script", type=Path, required=True, help="scenario file (JSON): steps, faults")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--ready-fd", type=int, help="descriptor for the ready line; default standard output")
    parser.add_argument(
        "--log", type=Path, help="file that gets a JSON line when a call begins and one, bodies included, when it ended"
    )
    parser.add_argument("--tls-cert", type=Path, help="certificate chain (PEM): serve https")
    parser.add_argument("--tls-key", type=Path, help="its key (PEM)")
    asyncio.run(_serve_until_signal(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
