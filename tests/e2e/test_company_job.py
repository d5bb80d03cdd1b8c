"""A container job of a company: no engine, read-only cgroup files, no way out but a proxy, certificates of its own.

fairtrial is installed by `deploy/ci/install.sh` from the company's mirror, Claude Code runs by `run.sh`, `report.sh`
tells: as root and as nobody.  Each way in which such a place is wrong has its cause.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairtrial.middleware.core.records import Blame, Grade, Trial
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.company import PACKAGES, Network, NoPackages, company_network
from tests.e2e.corporate import running_proxy
from tests.e2e.engine import Engine

pytestmark = [pytest.mark.root, pytest.mark.dear]
LIMIT = 900 << 20
DIR = "/tmp/ci"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The network, and the addresses of its proxies: one leads to a model API that answers, one to one that is
    overloaded for ever, one wants a login; nobody listens at the last."""

    network: Network
    proxies: Mapping[str, str]


@pytest.fixture(scope="module")
def place(docker_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    steps = [shell("echo hello"), say("Done.")]
    with ExitStack() as stack:
        try:
            network = stack.enter_context(company_network(docker_engine, tmp_path_factory.mktemp("company")))
        except NoPackages as reason:
            pytest.skip(str(reason))
        overloaded = Fault(kind="http", step=1, attempts=99, status=529)
        well = stack.enter_context(running_standin(steps, tls=network.tls)).port
        busy = stack.enter_context(running_standin(steps, [overloaded], tls=network.tls)).port
        routes = {PACKAGES: network.mirror_port}
        proxies = {}
        for name, port, login in (("well", well, None), ("busy", busy, None), ("login", well, "me:secret")):
            folder = tmp_path_factory.mktemp(name)
            proxy = running_proxy(port, folder, login=login, listen=network.gateway, routes=routes)
            proxies[name] = stack.enter_context(proxy).url
        yield Place(network=network, proxies={**proxies, "down": f"http://{network.gateway}:9"})


class Job:
    """A container in which fairtrial was installed; each `run` is one job's steps in it."""

    def __init__(self, engine: Engine, box: str, repo_root: Path, place: Place) -> None:
        self._engine, self._box, self._root, self._place = engine, box, repo_root, place

    def shell(
        self, script: str, proxy: str, *, ca: bool = True, more: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and all that was said."""
        known = {"HTTPS_PROXY": self._place.proxies[proxy], "HOME": "/tmp/home", "FTCI_DIR": DIR, **(more or {})}
        if ca:
            known |= {"NODE_EXTRA_CA_CERTS": "/etc/company.pem"}
        options = [part for name, value in known.items() for part in ("--env", f"{name}={value}")]
        done = self._engine.docker("exec", *options, self._box, "bash", "-c", script, check=False, timeout_s=300)
        return done.returncode, done.stdout + done.stderr

    def host_of(self, proxy: str) -> str:
        """Its host:port."""
        return self._place.proxies[proxy].partition("://")[2]

    def run(self, proxy: str, *, ca: bool = True) -> tuple[int, str, Trial]:
        """Claude Code by run.sh: its status, what was said, the record; then report.sh."""
        quiet = {**clients.CLAUDE_QUIET, "ANTHROPIC_API_KEY": "dummy", "CLAUDE_CODE_MAX_RETRIES": "1"}
        command = 'claude -p "$PROMPT" --allowedTools Bash'
        given = {"FTCI_COMMAND": command, "PROMPT": "say hello using bash", **quiet}
        status, said = self.shell(f"cd /tmp/work && {self._root}/deploy/ci/run.sh", proxy, ca=ca, more=given)
        reported, told = self.shell(f"{self._root}/deploy/ci/report.sh", proxy, ca=ca)
        assert reported == 0, said + told
        record = self.shell(f"cat {DIR}/report/trial.json", proxy)[1]
        assert json.loads(record)["schema"] == "fairtrial.trial/1", said + told
        return status, said, msgspec.json.decode(record, type=Trial)

    def doctor(self, proxy: str, *, ca: bool = True) -> dict[str, dict[str, Any]]:
        """Its findings by name; of several, the first."""
        found: dict[str, dict[str, Any]] = {}
        for one in json.loads(self.shell(f"{DIR}/venv/bin/fairtrial doctor --json 2>/dev/null", proxy, ca=ca)[1]):
            found.setdefault(str(one["name"]), one)
        return found


@pytest.fixture(scope="module", params=[(), ("--user", "65534:65534")], ids=["root", "nobody"])
def job(
    request: pytest.FixtureRequest,
    place: Place,
    docker_engine: Engine,
    python_image: str,
    claude: Path,
    repo_root: Path,
) -> Iterator[Job]:
    """Installed through the proxy from the mirror, with pip's own settings."""
    assert claude.exists()
    box = f"ft-company-job-{'nobody' if request.param else 'root'}"
    mounts = [f"{repo_root}:{repo_root}", f"{sys.base_prefix}:{sys.base_prefix}", "/usr/bin/cksum:/usr/bin/cksum"]
    mounts += [f"{place.network.ca}:/etc/company.pem", f"{clients.claude_binary()}:/usr/local/bin/claude"]
    options = ["--network", place.network.name, "--memory", str(LIMIT), "--memory-swap", str(LIMIT), *request.param]
    options += [part for mount in mounts for part in ("--volume", f"{mount}:ro")]
    docker_engine.docker("rm", "-f", box, check=False)
    docker_engine.docker("run", "-d", "--init", "--name", box, *options, python_image, "sleep", "900")
    pid = docker_engine.docker("inspect", "--format", "{{.State.Pid}}", box).stdout.strip()
    # An engine without packet filter leaves an internal network its way out.
    subprocess.run(["nsenter", "-t", pid, "-n", "ip", "route", "del", "default"], check=False, capture_output=True)
    try:
        made = Job(docker_engine, box, repo_root, place)
        pip = {"PIP_INDEX_URL": f"https://{PACKAGES}/simple", "PIP_CERT": "/etc/company.pem"}
        script = f"mkdir -p /tmp/home /tmp/work && {repo_root}/deploy/ci/install.sh"
        status, said = made.shell(script, "well", more=pip)
        assert (status, said.split()[:1]) == (0, ["fairtrial"]), said
        yield made
    finally:
        docker_engine.docker("rm", "-f", box, check=False)


def test_there_is_no_way_out_but_the_proxy_and_doctor_says_what_such_a_place_sees(job: Job) -> None:
    ask = "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    status, said = job.shell(f'python3 -c "{ask}"', "well")
    assert (status, "Network is unreachable" in said) == (1, True), said
    found = job.doctor("well")
    assert found["proxy"]["state"] == found["certificates"]["state"] == "ok", found
    assert "listens, used towards the model API" in found["proxy"]["text"]
    assert found["certificates"]["text"].startswith("NODE_EXTRA_CA_CERTS = /etc/company.pem: 1 certificate")
    sight = found["sight"]["text"]
    assert sight.startswith("in a container, as ")
    assert "sees model calls, the job's own memory (ceiling 900 MiB, peak, kills)" in sight
    assert "cannot see who was killed for memory, containers that it starts" in sight
    dead = job.doctor("down", ca=False)
    assert (dead["proxy"]["state"], "certificates" in dead) == ("no", False)
    assert dead["proxy"]["text"].endswith("does not answer (Connection refused)")


def test_claude_code_works_through_it(job: Job) -> None:
    status, said, trial = job.run("well")
    assert (status, trial.verdict and trial.verdict.blame, len(trial.steps)) == (0, Blame.NONE, 2), said
    first = trial.steps[0].calls[0].attempts[0]
    assert (first.via_proxy, first.tls is not None) == (job.host_of("well"), True), said
    assert trial.limits.memory.ceiling == LIMIT


@pytest.mark.parametrize(
    "proxy, ca, status, verdict, told",
    [
        ("busy", True, 75, (Blame.INFRA, Grade.PROVED, "model_api.overloaded", 2), "The model API was overloaded: "),
        (
            "login",
            True,
            1,
            (Blame.OPERATOR, Grade.PROVED, "operator.auth", 1),
            "The proxy towards api.anthropic.com wants a valid login (it asked for credentials (407)): ",
        ),
        (
            "down",
            True,
            1,
            (Blame.INFRA, Grade.SUSPECTED, "network.proxy", 1),
            "The proxy towards api.anthropic.com refused or failed (no connection: connection refused): ",
        ),
        (
            "well",
            False,
            1,
            (Blame.OPERATOR, Grade.SUSPECTED, "network.tls", 1),
            "The TLS handshake with api.anthropic.com failed (certificate not accepted: ",
        ),
    ],
    ids=["overloaded", "407", "down", "no CA"],
)
def test_what_is_wrong_with_such_a_place_is_one_clear_line_with_its_remedy(
    job: Job, proxy: str, ca: bool, status: int, verdict: tuple[Blame, Grade, str, int], told: str
) -> None:
    got, said, trial = job.run(proxy, ca=ca)
    found = trial.verdict
    assert found is not None
    assert (got, (found.blame, found.grade, found.cause, found.step)) == (status, verdict), said
    assert found.sentence.startswith(told), found.sentence
    remedy = {
        "login": "Put user and password into the address that HTTPS_PROXY",
        "down": "Check the proxy that HTTPS_PROXY",
    }
    assert remedy.get(proxy, "NODE_EXTRA_CA_CERTS" if not ca else "Run the trial again") in found.sentence
    assert said.count(found.sentence) == 1, said
