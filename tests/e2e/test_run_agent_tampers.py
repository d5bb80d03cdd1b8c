"""An agent that works against fairtrial: `indeterminate` or an unchanged verdict, never infra.

What the model's tools do here is what any model may do: they run with the agent's uid, see its environment and reach
the door, the store and our processes. The agent is the demo's; its check fails, so an honest verdict is the model's.
"""

import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, Grade, Outcome
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, Under, fairtrial, run_under, shown, unclouded

DONE = say("Done.")
OVERLOAD = (Fault(kind="http", step=1, status=529, attempts=FOREVER),)

KILL_THE_OBSERVER = """
import os, signal, sys, time
from pathlib import Path

def line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
    except OSError:
        return []

def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0

run = os.getpid()
while run > 1 and not (b"fairtrial" in line(run) and b"run" in line(run)):
    run = parent(run)
assert run > 1
for _ in range(int(sys.argv[1])):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()
                 and b"fairtrial.middleware.app" in line(int(p.name)) and parent(int(p.name)) == run]
        if found:
            os.kill(found[0], signal.SIGKILL)
            while line(found[0]) and time.monotonic() < end:
                time.sleep(0.01)
            break
        time.sleep(0.02)
    else:
        sys.exit("no observer found")
print("killed")
"""

EDIT_THE_STORE = """
import os, sqlite3, sys, time
store, statement = sys.argv[1:]
end = time.monotonic() + 10
while time.monotonic() < end:
    database = sqlite3.connect(store, timeout=10)
    try:
        if database.execute("SELECT count(*) FROM observations").fetchone()[0] > 12:
            with database:
                print(database.execute(statement).rowcount, "rows")
            break
    except sqlite3.OperationalError:
        pass
    finally:
        database.close()
    time.sleep(0.05)
else:
    sys.exit("no rows came")
"""

JUNK_AT_THE_DOOR = """
import os, socket, urllib.error, urllib.request
from urllib.parse import urlsplit

base = os.environ["ANTHROPIC_BASE_URL"]
at = urlsplit(base)

def raw(data):
    with socket.create_connection((at.hostname, at.port), timeout=5) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        except OSError:
            pass

def ask(url, data=None, **headers):
    try:
        urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=5).read()
    except (OSError, urllib.error.URLError):
        pass

raw(b"\\x00\\x01\\x02 nothing like HTTP\\r\\n\\r\\n")
raw(b"GET / HTTP/1.1\\r\\nHost: a\\r\\nHost: b\\r\\n\\r\\n")
raw(b"POST /t/0123456789abcdef/v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 5\\r\\n\\r\\nhello")
raw(b"HTTP/1.1 529 Overloaded\\r\\nContent-Type: application/json\\r\\nContent-Length: 0\\r\\n\\r\\n")
raw(f"POST {at.path}/v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 500\\r\\n\\r\\nhalf".encode())
ask(f"http://{at.netloc}/")
ask(base + "/no/such/path")
ask(base + "/v1/messages", b"no json at all", **{"content-type": "application/json"})
ask(base + "/v1/messages", b'{"error": {"type": "overloaded_error"}}', **{"x-api-key": "dummy"})
print("junk sent")
"""


class Tamperer:
    """Runs the demo's agent with scripts of the test in its reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder / "kept"
        self.store = self.kept / "store.db"
        for name in ("home", "project"):
            (folder / name).mkdir()
        self.runs = 0

    def tool(self, code: str, *arguments: str) -> Step:
        """A turn in which the model runs this Python text."""
        path = self.folder / f"tool{len(list(self.folder.glob('tool*')))}.py"
        path.write_text(code)
        return shell(" ".join([sys.executable, str(path), *(f"'{each}'" for each in arguments)]))

    def run(self, script: Sequence[Step], faults: Sequence[Fault] = ()) -> Under:
        self.runs += 1
        with running_standin(script, faults) as server:
            environment = clients.clean_environment(self.folder / "home", ANTHROPIC_BASE_URL=server.url, **NO_DOCKER)
            command = [sys.executable, "-m", "fairtrial.middleware.demo.agent"]
            kept = self.kept / str(self.runs)
            return run_under(command, environment, self.folder / "project", kept=kept, store=self.store)


@pytest.fixture
def tamperer(tmp_path: Path) -> Tamperer:
    return Tamperer(tmp_path)


def quiet_environment(tamperer: Tamperer) -> dict[str, str]:
    return clients.clean_environment(tamperer.folder / "home")


# --- the observer is killed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults, status", [((), 1), (OVERLOAD, 1)], ids=["then-the-check-fails", "then-the-api-is-overloaded"]
)
def test_an_observer_that_the_agent_kills_leaves_an_indeterminate_verdict_and_a_gap(
    faults: Sequence[Fault], status: int, tamperer: Tamperer
) -> None:
    under = tamperer.run((tamperer.tool(KILL_THE_OBSERVER, "1"), DONE), faults)
    assert "killed [exit 0]" in under.outcome.stdout, under.told()
    assert under.outcome.returncode == status, under.told()
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()
    assert "observer" in {gap.source for gap in under.trial.coverage.gaps}, under.told()
    assert under.trial.outcome is Outcome.FAILED


def test_a_passed_run_keeps_its_status_when_the_agent_killed_the_observer(tamperer: Tamperer) -> None:
    under = tamperer.run((tamperer.tool(KILL_THE_OBSERVER, "1"), shell("touch answer"), DONE))
    assert "killed [exit 0]" in under.outcome.stdout, under.told()
    assert under.outcome.returncode == 0, under.told()
    assert under.verdict.blame in {Blame.NONE, Blame.INDETERMINATE}, under.told()
    assert "observer" in {gap.source for gap in under.trial.coverage.gaps}, under.told()


def test_an_observer_killed_again_and_again_costs_the_run_nothing_and_the_trial_is_closed(tamperer: Tamperer) -> None:
    """It is started again once; the second death is final until the end, when one more only closes the books."""
    under = tamperer.run((tamperer.tool(KILL_THE_OBSERVER, "2"), shell("echo hello"), DONE))
    assert "killed [exit 0]" in under.outcome.stdout, under.told()
    assert under.outcome.returncode == 1, under.told()
    assert "fairtrial:" in under.outcome.stderr
    trial = shown(tamperer.store, quiet_environment(tamperer))
    assert trial.verdict is not None
    assert trial.verdict.blame is Blame.INDETERMINATE, trial.verdict
    listed = fairtrial("trials", "--store", str(tamperer.store), environment=quiet_environment(tamperer))
    assert listed.returncode == 0, listed.stderr
    assert "indeterminate" in listed.stdout


def test_a_run_whose_fairtrial_the_agent_kills_is_closed_and_never_infra(tamperer: Tamperer) -> None:
    """The tool's great-grandparent: tool, shell, agent, fairtrial."""
    code = KILL_THE_OBSERVER.replace("for _ in range", "os.kill(run, signal.SIGKILL)\nsys.exit()\nfor _ in range")
    under = tamperer.run((tamperer.tool(code, "1"), DONE))
    assert under.outcome.returncode == -signal.SIGKILL
    assert under.record is None or (under.record.verdict or under.verdict).blame is Blame.INDETERMINATE
    listed = fairtrial("trials", "--json", "--store", str(tamperer.store), environment=quiet_environment(tamperer))
    assert listed.returncode == 0, listed.stderr
    trial = shown(tamperer.store, quiet_environment(tamperer))
    assert trial.closed in {"incomplete", "recovered"}
    assert trial.verdict is not None
    assert trial.verdict.blame is Blame.INDETERMINATE, trial.verdict


# --- the store is edited ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM observations WHERE seq % 2 = 0",
        "UPDATE observations SET body = zeroblob(10) WHERE seq % 3 = 0",
        "UPDATE observations SET trial = trial + 1000",
    ],
    ids=["rows-removed", "rows-overwritten", "rows-moved"],
)
@pytest.mark.parametrize("faults", [(), OVERLOAD], ids=["check-fails", "overloaded"])
def test_a_store_that_the_agent_edits_leaves_an_indeterminate_verdict(
    statement: str, faults: Sequence[Fault], tamperer: Tamperer
) -> None:
    under = tamperer.run((tamperer.tool(EDIT_THE_STORE, str(tamperer.store), statement), DONE), faults)
    assert "rows" in under.outcome.stdout, under.told()
    assert under.outcome.returncode == 1
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()


def test_a_store_that_the_agent_removes_leaves_an_indeterminate_verdict(tamperer: Tamperer) -> None:
    under = tamperer.run((shell(f"sleep 0.5; rm -f {tamperer.store}*"), DONE))
    assert under.outcome.returncode == 1
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()


def test_a_verdict_of_an_earlier_trial_that_is_edited_is_not_what_replay_says(tamperer: Tamperer) -> None:
    """The row in the table of trials is a copy; what counts is computed from the observations."""
    first = tamperer.run((shell("echo hello"), DONE), OVERLOAD)
    database = sqlite3.connect(tamperer.store)
    with database:
        database.execute("UPDATE trials SET blame = 'model', cause = NULL")
    database.close()
    again = shown(tamperer.store, quiet_environment(tamperer), first.trial.trial, "--replay")
    assert again.verdict is not None
    assert (again.verdict.blame, again.verdict.cause) == (Blame.INFRA, "model_api.overloaded")


# --- the door is fed junk --------------------------------------------------------------------------------------------


def check_untouched(under: Under, blame: Blame) -> None:
    """The verdict is what it would be without the junk, or indeterminate; and nobody is accused of a changed store."""
    assert under.verdict.blame in {blame, Blame.INDETERMINATE}, under.told()
    assert under.verdict.terminated_by is None, under.told()
    assert under.verdict.grade is not Grade.PROVED or blame is under.verdict.blame
    assert {gap.source for gap in under.trial.coverage.gaps}.isdisjoint({"store", "observer"}), under.told()


def test_junk_at_the_door_leaves_the_verdict_on_a_failed_run_unchanged(tamperer: Tamperer) -> None:
    plain = unclouded(lambda: tamperer.run((shell("echo hello"), DONE)))
    junk = unclouded(lambda: tamperer.run((tamperer.tool(JUNK_AT_THE_DOOR), DONE)))
    assert "junk sent [exit 0]" in junk.outcome.stdout, junk.told()
    assert plain.verdict.blame is Blame.MODEL, plain.told()
    check_untouched(junk, Blame.MODEL)
    assert len(junk.trial.steps) == len(plain.trial.steps) == 2, junk.told()


def test_junk_at_the_door_leaves_the_verdict_on_a_passed_run_unchanged(tamperer: Tamperer) -> None:
    under = tamperer.run((tamperer.tool(JUNK_AT_THE_DOOR), shell("touch answer"), DONE))
    assert under.outcome.returncode == 0, under.told()
    check_untouched(under, Blame.NONE)
    assert len(under.trial.steps) == 3, under.told()


def test_junk_as_the_agents_last_act_is_not_what_ended_it(tamperer: Tamperer) -> None:
    """The model's last tool leaves a process behind that goes on sending junk while the agent already fails."""
    late = JUNK_AT_THE_DOOR.replace("base = ", "import time\nfor _ in range(1):\n    time.sleep(0.2)\nbase = ", 1)
    path = tamperer.folder / "late.py"
    path.write_text(late)
    slow_end = Step(text="Done.", head_delay_s=0.8)
    under = unclouded(lambda: tamperer.run((shell(f"{sys.executable} {path} > /dev/null 2>&1 &"), slow_end)), tries=3)
    assert under.outcome.returncode == 1, under.told()
    assert under.verdict.blame in {Blame.MODEL, Blame.INDETERMINATE}, under.told()
    assert under.verdict.terminated_by is None, under.told()
    assert {gap.source for gap in under.trial.coverage.gaps}.isdisjoint({"store", "observer"}), under.told()


def test_a_call_of_the_models_own_that_it_breaks_off_is_not_the_apis_fault(tamperer: Tamperer) -> None:
    """A tool asks the API through the door and leaves in the middle of the reply."""
    code = """
import json, os, socket, struct
from urllib.parse import urlsplit

at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
tool = {"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
asked = {"model": "stand-in", "max_tokens": 9, "stream": True, "tools": [tool],
         "messages": [{"role": "user", "content": "Hello"}] * 1}
body = json.dumps(asked).encode()
head = f"POST {at.path}/v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
peer = socket.create_connection((at.hostname, at.port))
peer.sendall(head.encode() + body)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
peer.close()
print("left")
"""
    under = unclouded(lambda: tamperer.run((tamperer.tool(code), DONE)))
    assert "left [exit 0]" in under.outcome.stdout, under.told()
    assert under.verdict.blame is not Blame.INFRA, under.told()
    assert under.verdict.blame is not Blame.FAIRTRIAL, under.told()
    assert under.verdict.terminated_by is None, under.told()


def test_the_agent_finds_no_key_of_fairtrials_own_and_no_open_descriptor(tamperer: Tamperer) -> None:
    """What the command inherits: its environment by the table, and no file of ours."""
    under = tamperer.run((shell("ls -l /proc/$PPID/fd; env | grep FAIRTRIAL | sort"), shell("touch answer"), DONE))
    listing = under.outcome.stdout
    assert "FAIRTRIAL_TRIAL=" in listing, under.told()
    assert "FAIRTRIAL_CONTROL_URL" not in listing
    assert str(tamperer.store) not in listing
