"""A Docker engine for tests: the one that was named, else a private one that is started and wholly removed again.

In: $FAIRTRIAL_TEST_DOCKER or an installed dockerd and uid 0. Out: `Engine`. A private engine has its own data, socket,
pid file and bridge (its own subnet, no packet filter rules), so that it touches no other engine of the host: a second
dockerd that shares or disables the default bridge deletes it for the first one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
_SUBNETS = tuple(ipaddress.IPv4Network(f"10.201.{third}.0/24") for third in range(100, 240))

_NUMBERS = itertools.count()


class EngineUnavailable(Exception):
    """No engine can be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A Docker engine that answered. `gateway` is the host's address on the default bridge, None when it has none.

    `folder` (log, data) and `pid` are None unless the engine is private; then `again` starts it anew when it was killed
    (which also ends its containers: nobody else would).
    """

    docker_host: str
    gateway: str | None
    folder: Path | None = None
    pid: int | None = None
    again: Callable[[], None] = lambda: None

    def docker(self, *arguments: str, check: bool = True, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run the docker client against this engine.

        Raises CalledProcessError (noted with its stderr), TimeoutExpired.
        """
        command = ["docker", "--host", self.docker_host, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
        if check and done.returncode != 0:
            failed = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            failed.add_note(done.stderr)
            raise failed
        return done

    def now(self) -> str:
        """The engine's time, for `docker events --since` and `--until`."""
        return self.docker("info", "--format", "{{.SystemTime}}").stdout.strip()

    def containers(self, *filters: str) -> list[str]:
        """Ids of all containers, stopped ones included, that match the filters."""
        options = [part for value in filters for part in ("--filter", value)]
        return self.docker("ps", "-aq", "--no-trunc", *options).stdout.split()


def named_engine(docker_host: str) -> Engine:
    """The engine at this address. Raises EngineUnavailable when it does not answer."""
    try:
        found = Engine(docker_host=docker_host, gateway=None).docker("network", "inspect", "bridge", timeout_s=15)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnavailable(f"the Docker engine at {docker_host} does not answer: {error}") from error
    configured = json.loads(found.stdout)[0]["IPAM"]["Config"] or [{}]
    return Engine(docker_host=docker_host, gateway=configured[0].get("Gateway"))


def why_no_private_engine(daemon: str = "dockerd") -> str | None:
    """None when a private engine can be started here, else the reason."""
    if os.geteuid() != 0:
        return "a private Docker engine needs uid 0; set FAIRTRIAL_TEST_DOCKER to a running engine"
    missing = [name for name in (daemon, "docker", "ip") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install docker.io iproute2)"
    return None


def _free_subnet() -> ipaddress.IPv4Network:
    """A subnet that no interface of this host uses. Raises EngineUnavailable."""
    listed = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    used = [
        ipaddress.IPv4Network(f"{address['local']}/{address['prefixlen']}", strict=False)
        for link in json.loads(listed)
        for address in link.get("addr_info", [])
    ]
    for number in range(len(_SUBNETS)):
        subnet = _SUBNETS[(os.getpid() + number) % len(_SUBNETS)]
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    raise EngineUnavailable("no free subnet among 10.201.100.0/24 … 10.201.239.0/24 for the private engine's bridge")


@contextlib.contextmanager
def private_engine(*options: str, daemon: str = "dockerd") -> Generator[Engine, None, None]:
    """Start a private engine, `options` are dockerd's; containers, daemon, bridge and data are gone afterwards.
    `daemon`: which dockerd.

    Raises EngineUnavailable, with the end of the daemon's log, when it does not come up (tried twice: the daemon's own
    containerd sometimes misses its start).
    """
    reason = why_no_private_engine(daemon)
    if reason is not None:
        raise EngineUnavailable(reason)
    subnet = _free_subnet()
    gateway = str(subnet.network_address + 1)
    bridge = f"ftbr{os.getpid() % 0xFFFFFF:x}{next(_NUMBERS) or ''}"
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))  # a unix socket's path stops at 107 bytes
        stack.callback(_remove_tree, folder)
        subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True, capture_output=True)
        stack.callback(subprocess.run, ["ip", "link", "del", bridge], check=False, capture_output=True)
        address = f"{gateway}/{subnet.prefixlen}"
        subprocess.run(["ip", "addr", "add", address, "dev", bridge], check=True, capture_output=True)
        subprocess.run(["ip", "link", "set", bridge, "up"], check=True, capture_output=True)

        def start() -> subprocess.Popen[bytes]:
            command = (daemon, "-b", bridge, *options)
            started = _start_daemon(folder, command) or _start_daemon(folder, command)
            if started is None:
                raise EngineUnavailable(f"dockerd did not start:\n{_log_end(folder)}")
            stack.callback(_stop_daemon, started)
            stack.callback(_remove_containers, Engine(docker_host=f"unix://{folder}/s", gateway=None))
            return started

        running = start()

        def again() -> None:
            running.wait(STOP_TIMEOUT_S)
            for stale in (*folder.glob("exec/containerd/*.pid"), *folder.glob("exec/containerd/*.sock*")):
                stale.unlink()  # else the new one waits 15 s for a containerd that died with the old one
            start()

        engine = Engine(docker_host=f"unix://{folder}/s", gateway=gateway, folder=folder, pid=running.pid, again=again)
        yield engine


def _start_daemon(folder: Path, asked: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """A daemon that answers, or None when it ended or stayed silent."""
    (folder / "pid").unlink(missing_ok=True)
    daemon_program, *options = asked
    command = [daemon_program, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    command += ["--pidfile", f"{folder}/pid", "-H", f"unix://{folder}/s", "--iptables=false", "--ip6tables=false"]
    command += options  # last, so that they win: another data root must not become a full disk of the machine
    with (folder / "log").open("ab") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    engine = Engine(docker_host=f"unix://{folder}/s", gateway=None)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and daemon.poll() is None:
        if engine.docker("version", check=False).returncode == 0:
            return daemon
        time.sleep(0.05)
    _stop_daemon(daemon)
    return None


def _remove_containers(engine: Engine) -> None:
    """Containers go first: a daemon that is stopped waits ten seconds for each that ignores SIGTERM."""
    if engine.docker("version", check=False).returncode == 0 and (containers := engine.containers()):
        engine.docker("rm", "-f", "-v", *containers, check=False)


def _stop_daemon(daemon: subprocess.Popen[bytes]) -> None:
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def _remove_tree(folder: Path) -> None:
    """Unmount what a killed daemon left mounted, then remove all."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def _log_end(folder: Path) -> str:
    return "\n".join((folder / "log").read_text(errors="replace").splitlines()[-15:])
