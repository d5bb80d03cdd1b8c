"""What is wrong with the machine, the settings or the command: a sentence with a remedy, and the agent's run goes on.

Its exit status is kept, and nothing that was recorded is lost.
"""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Trial
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.test_run_sdks import sdk_command, sdk_environment, spoken
from tests.e2e.test_standin_clients import FINAL, SCRIPT
from tests.e2e.under import (
    FAIRTRIAL,
    NO_DOCKER,
    Due,
    Under,
    ended_by,
    fairtrial,
    missed,
    passed,
    read_record,
    run_command,
    run_under,
    shown,
    step_call,
)

GOOD = (shell("touch answer"), say("Done."))
OVERLOAD = (Fault(kind="http", step=1, status=529, attempts=FOREVER),)
STORM = ended_by(Blame.INFRA, "model_api.overloaded", 2)
NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


def agent_command(*options: str) -> list[str]:
    """The demo's agent: the Messages API, one shell tool, and a check of its work at the end."""
    return [sys.executable, "-m", "fairtrial.middleware.demo.agent", *options]


def agent_environment(home: Path, url: str, **more: str) -> dict[str, str]:
    return clients.clean_environment(home, ANTHROPIC_BASE_URL=url, **{**NO_DOCKER, **more})


def until(claim: Callable[[], object], what: str, *, deadline_s: float = 30.0) -> None:
    """Poll until `claim` is true."""
    end = time.monotonic() + deadline_s
    while not claim():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


def says(under: Under | subprocess.CompletedProcess[str], *parts: str) -> None:
    """The parts stand in one line of fairtrial's own on standard error."""
    stderr = under.outcome.stderr if isinstance(under, Under) else under.stderr
    lines = [line for line in stderr.splitlines() if all(part in line for part in parts)]
    assert lines, f"no line holds {parts}:\n{stderr}"


# --- the store -------------------------------------------------------------------------------------------------------


def below_a_file(folder: Path) -> Path:
    """A path that not even root can write."""
    (folder / "file").write_text("no folder")
    return folder / "file" / "store.db"


def corrupt(folder: Path) -> Path:
    path = folder / "corrupt.db"
    path.write_bytes(b"this is no database, " * 1000)
    return path


@contextmanager
def full_disk(folder: Path) -> Generator[Path, None, None]:
    """A store on a file system that holds 64 KiB, too few for one trial."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a full file system needs uid 0 and mount")
    place = folder / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place / "store.db"
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def check_without_store(
    store: Path, home: Path, project: Path, kept: Path, *, mend: Callable[[], Path] | None = None
) -> None:
    """A trial that fails, on a store that cannot be written: the same verdict, a sentence, and no row lost.

    `mend` makes room and says which store the rows are then brought into; without it that is a new one.
    """
    with running_standin((shell("echo hello"), say("Done.")), OVERLOAD) as server:
        environment = agent_environment(home, server.url)
        under = run_under(agent_command(), environment, project, kept=kept, store=store)
    assert under.outcome.returncode == 1, under.told()
    assert "model API: 529" in under.outcome.stdout
    assert not (told := missed(under, STORM)), told
    says(under, "fairtrial:", str(store))
    spills = re.findall(r"fairtrial import store (\S+)", under.outcome.stderr)
    assert spills, under.outcome.stderr
    saved = home / "saved.db" if mend is None else mend()
    told = ""
    for spill in spills:
        done = fairtrial("import", "store", spill, "--store", str(saved), environment=environment)
        assert done.returncode == 0, done.stderr
        told += done.stdout
        Path(spill).unlink()
    assert "damaged" not in told
    again = shown(saved, environment, under.trial.trial)
    assert again.verdict is not None
    assert (again.verdict.blame, again.verdict.cause) == (Blame.INFRA, "model_api.overloaded"), told
    replayed = shown(saved, environment, under.trial.trial, "--replay")
    assert replayed.steps == under.trial.steps


def test_a_store_that_cannot_be_written_costs_neither_the_run_nor_a_row(
    home: Path, project: Path, tmp_path: Path
) -> None:
    check_without_store(below_a_file(tmp_path), home, project, tmp_path / "kept")


def test_a_corrupt_store_costs_neither_the_run_nor_a_row_and_is_left_as_it_is(
    home: Path, project: Path, tmp_path: Path
) -> None:
    store = corrupt(tmp_path)
    before = store.read_bytes()
    check_without_store(store, home, project, tmp_path / "kept")
    assert store.read_bytes() == before


def test_a_full_store_costs_neither_the_run_nor_a_row(home: Path, project: Path, tmp_path: Path) -> None:
    with full_disk(tmp_path) as store:

        def more_room() -> Path:
            subprocess.run(["mount", "-o", "remount,size=16m", str(store.parent)], check=True)
            return store

        check_without_store(store, home, project, tmp_path / "kept", mend=more_room)


def test_commands_that_read_a_bad_store_say_so_in_a_sentence(home: Path, tmp_path: Path) -> None:
    environment = clients.clean_environment(home)
    for store in (corrupt(tmp_path), below_a_file(tmp_path), tmp_path / "nowhere.db"):
        for command in (("trials",), ("show", "last")):
            done = fairtrial(*command, "--store", str(store), environment=environment)
            assert done.returncode == 1, (done.stdout, done.stderr)
            assert str(store) in done.stderr
            assert "Traceback" not in done.stderr


def test_a_record_that_cannot_be_written_is_said_and_the_trial_is_stored(
    home: Path, project: Path, tmp_path: Path
) -> None:
    target, store = tmp_path / "no" / "such" / "folder.json", tmp_path / "store.db"
    with running_standin(GOOD) as server:
        environment = agent_environment(home, server.url)
        command = run_command(agent_command(), store, target)
        outcome = clients.run(command, environment, project)
    assert outcome.returncode == 0, outcome.told()
    assert str(target) in outcome.stderr
    assert shown(store, environment).verdict is not None


# --- settings and command lines --------------------------------------------------------------------------------------


@contextmanager
def settings(home: Path, text: str) -> Generator[None, None, None]:
    folder = home / ".config" / "fairtrial"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    yield


def test_an_unknown_setting_names_the_nearest_one_and_the_command_runs(
    home: Path, project: Path, tmp_path: Path
) -> None:
    with settings(home, '[store]\npth = "x.db"\n'), running_standin(GOOD) as server:
        environment = agent_environment(home, server.url)
        outcome = clients.run(run_command(agent_command(), tmp_path / "s.db", None), environment, project)
        required = clients.run(
            run_command(["touch", "started"], tmp_path / "s.db", None, ["--require"]), environment, project
        )
    assert outcome.returncode == 0, outcome.told()
    assert "check passed" in outcome.stdout
    assert "store.pth" in outcome.stderr
    assert "store.path" in outcome.stderr
    assert (required.returncode, (project / "started").exists()) == (78, False), required.told()
    assert "store.path" in required.stderr


@pytest.mark.parametrize(
    "options, told",
    [
        (["--upstream", "antropic=http://x"], "anthropic"),
        (["--upstream", "anthropic=nonsense"], "http"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_a_line_that_cannot_be_understood_ends_with_2_before_anything_runs(
    options: Sequence[str], told: str, home: Path, project: Path
) -> None:
    command = [*FAIRTRIAL, "run", *options, "--", "touch", "started"]
    outcome = clients.run(command, clients.clean_environment(home), project)
    assert outcome.returncode == 2, outcome.told()
    assert told in outcome.stderr
    assert not (project / "started").exists()


@pytest.mark.parametrize(
    "command, status, said", [("no-such-agent", 127, "no-such-agent"), ("./plain-file", 126, "plain-file")]
)
def test_a_command_that_cannot_start_has_the_shells_status_and_is_nobody_elses_fault(
    command: str, status: int, said: str, home: Path, project: Path, tmp_path: Path
) -> None:
    (project / "plain-file").write_text("not a program")
    under = run_under([command], agent_environment(home, NOBODY), project, kept=tmp_path / "kept")
    assert under.outcome.returncode == status, under.told()
    says(under, "fairtrial:", said)
    assert under.trial.exit_code == status
    assert under.verdict.blame not in {Blame.INFRA, Blame.MODEL, Blame.NONE}, under.told()
    assert under.verdict.terminated_by is None or under.verdict.terminated_by.cause.startswith("operator.")


@pytest.mark.parametrize("where", ["argument", "folder", "variable"])
def test_bytes_that_are_no_utf_8_cost_no_record(where: str, home: Path, project: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"odd\xff")
    folder = project / odd if where == "folder" else project
    folder.mkdir(exist_ok=True)
    more = {"NO_PROXY": odd} if where == "variable" else {}
    command = ["sh", "-c", "exit 3", *([odd] if where == "argument" else [])]
    under = run_under(command, agent_environment(home, NOBODY, **more), folder, kept=tmp_path)
    assert under.outcome.returncode == 3, under.told()
    assert under.record is not None, under.told()
    assert shown(under.store, agent_environment(home, NOBODY)).exit_code == 3


def test_a_store_that_no_text_can_name_is_refused_in_a_sentence(home: Path, project: Path, tmp_path: Path) -> None:
    store = tmp_path / os.fsdecode(b"odd\xff.db")
    under = run_under(["sh", "-c", "exit 3"], agent_environment(home, NOBODY), project, kept=tmp_path, store=store)
    assert under.outcome.returncode == 3
    says(under, "no UTF-8", "--store PATH")


def test_without_loopback_the_command_runs_unobserved_and_is_told_why(home: Path, project: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a network without loopback needs uid 0 and unshare")
    prefix = ("unshare", "-n")
    environment = agent_environment(home, NOBODY)
    command = [*FAIRTRIAL, "run", "--", "sh", "-c", "echo ran; exit 5"]
    outcome = clients.run(command, environment, project, prefix=prefix)
    assert outcome.returncode == 5, outcome.told()
    assert outcome.stdout == "ran\n"
    # Linux lets a socket be bound to 127.0.0.1 while lo is down: then the run is observed, and nobody calls.
    if "unobserved" in outcome.stderr:
        assert "loopback" in outcome.stderr, outcome.told()


# --- upstreams -------------------------------------------------------------------------------------------------------


def never_ran(grade: Grade) -> Due:
    return Due(
        blame=Blame.OPERATOR,
        grade=grade,
        cause="operator.endpoint",
        step=1,
        terminated_by=("operator.endpoint", Grade.PROVED, 1),
        ended_as=EndedAs.NEVER_RAN,
    )


@pytest.mark.parametrize("kind", ["messages_stream", "chat_json"])
@pytest.mark.parametrize("url", ["http://no-such-host.invalid", NOBODY], ids=["name", "port"])
def test_an_upstream_that_is_not_there_raises_in_the_sdk_what_it_raises_without_us(
    kind: str, url: str, home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    environment = sdk_environment(home, url)
    alone = clients.run(sdk_command(kind), environment, project, prefix=loopback_only)
    under = run_under(sdk_command(kind), environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    assert json.loads(alone.stdout)["error"] == "APIConnectionError", alone.told()
    assert spoken(under).error == "APIConnectionError", under.told()
    assert under.outcome.returncode == alone.returncode == 1
    # A resolver that cannot be asked says nothing about the name; a refused port does.
    grades = {Grade.PROVED} if url == NOBODY else {Grade.PROVED, Grade.SUSPECTED}
    assert under.verdict.grade in grades, under.told()
    assert not (told := missed(under, never_ran(under.verdict.grade or Grade.SUSPECTED))), told
    assert under.verdict.answers.reward_valid == "no"


@pytest.fixture
def company(tmp_path: Path) -> tuple[Path, tuple[Path, Path]]:
    """A CA that only the company knows, and (chain, key) of a server that it certified as api.fair.test."""
    authority = trustme.CA()
    issued = authority.issue_cert("api.fair.test")
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return ca, (chain, key)


def test_a_corporate_proxy_and_its_ca_are_used_towards_the_upstream(
    home: Path, project: Path, tmp_path: Path, company: tuple[Path, tuple[Path, Path]]
) -> None:
    ca, tls = company
    with running_standin(SCRIPT, tls=tls) as server, running_proxy(server.port, tmp_path, login="me:secret") as proxy:
        url = proxy.url.replace("://", "://me:secret@")
        environment = sdk_environment(home, "https://api.fair.test") | {"HTTPS_PROXY": url, "SSL_CERT_FILE": str(ca)}
        alone = clients.run(sdk_command("messages_stream"), environment, project)
        under = run_under(sdk_command("messages_stream"), environment, project, kept=tmp_path / "kept")
        asked = proxy.requests
    assert json.loads(alone.stdout)["text"] == FINAL, alone.told()
    assert spoken(under).text == FINAL, under.told()
    assert set(asked) == {"CONNECT api.fair.test:443 HTTP/1.1"}
    assert not (told := missed(under, passed())), told
    attempt = step_call(under.trial, 1).attempts[0]
    assert attempt.via_proxy is not None, under.told()
    assert attempt.tls is not None
    everything = under.outcome.stderr + (tmp_path / "kept" / "trial.json").read_text() + str(stored(under.store))
    assert "secret" not in everything


def test_a_proxy_that_wants_a_login_is_the_operators(
    home: Path, project: Path, tmp_path: Path, company: tuple[Path, tuple[Path, Path]]
) -> None:
    ca, tls = company
    with running_standin(SCRIPT, tls=tls) as server, running_proxy(server.port, tmp_path, login="me:secret") as proxy:
        environment = sdk_environment(home, "https://api.fair.test")
        environment |= {"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(ca)}
        alone = clients.run(sdk_command("messages_json"), environment, project)
        under = run_under(sdk_command("messages_json"), environment, project, kept=tmp_path / "kept")
    assert json.loads(alone.stdout)["error"] == spoken(under).error == "APIConnectionError", under.told()
    assert not (told := missed(under, ended_by(Blame.OPERATOR, "operator.auth", 1, ended_as=EndedAs.NEVER_RAN))), told


def test_a_certificate_that_nobody_vouches_for_is_the_trust_stores_fault(
    home: Path, project: Path, tmp_path: Path, company: tuple[Path, tuple[Path, Path]]
) -> None:
    _, tls = company
    with running_standin(SCRIPT, tls=tls) as server, running_proxy(server.port, tmp_path) as proxy:
        environment = sdk_environment(home, "https://api.fair.test") | {"HTTPS_PROXY": proxy.url}
        alone = clients.run(sdk_command("messages_json"), environment, project)
        under = run_under(sdk_command("messages_json"), environment, project, kept=tmp_path / "kept")
    assert json.loads(alone.stdout)["error"] == spoken(under).error == "APIConnectionError", under.told()
    verdict = under.verdict
    got = (verdict.blame, verdict.cause, verdict.step, verdict.ended_as)
    assert got == (Blame.OPERATOR, "network.tls", 1, EndedAs.NEVER_RAN), under.told()


# --- Docker ----------------------------------------------------------------------------------------------------------


@contextmanager
def silent_socket(path: Path) -> Generator[None, None, None]:
    """Takes connections and never answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


@contextmanager
def babbling_socket(path: Path) -> Generator[None, None, None]:
    """Answers each connection with what is no HTTP."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return  # the listener was closed: the test is over
            with peer, suppress(OSError):
                peer.sendall(b"\x00\xffnonsense\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@contextmanager
def no_socket(path: Path) -> Generator[None, None, None]:
    yield


@pytest.mark.parametrize("kind", [no_socket, silent_socket, babbling_socket], ids=["absent", "silent", "babbling"])
def test_a_broken_docker_socket_is_said_and_costs_neither_the_run_nor_its_verdict(
    kind: Callable[[Path], AbstractContextManager[None]], home: Path, project: Path, tmp_path: Path
) -> None:
    path = Path(f"/tmp/ft-e2e-{os.getpid()}.sock")
    address = f"unix://{path}"
    code = "import os; print(os.environ['DOCKER_HOST'])"
    try:
        with kind(path), running_standin((shell("echo hello"), say("Done.")), OVERLOAD) as server:
            environment = agent_environment(home, server.url, DOCKER_HOST=address)
            del environment["FAIRTRIAL_RUN__DOCKER"]
            command = ["sh", "-c", '"$1" -c "$2"; shift 2; exec "$@"', "sh", sys.executable, code, *agent_command()]
            under = run_under(command, environment, project, kept=tmp_path / "kept")
    finally:
        path.unlink(missing_ok=True)
    assert under.outcome.returncode == 1, under.told()
    seen = under.outcome.stdout.partition("\n")[0]
    # An engine that was reached and is slow keeps its door: the command waits there as it would at the engine itself.
    assert seen.endswith("/docker.sock") if kind is silent_socket else seen == address, seen
    assert not (told := missed(under, STORM)), told
    told_of = under.trial.coverage.collectors.get("docker_events", "")
    assert not told_of.startswith("on"), under.told()
    assert under.outcome.duration_s < 20


# --- signals ---------------------------------------------------------------------------------------------------------

COUNTS_SIGNALS = """
import os, signal, sys, time
seen = []
def note(number, frame):
    seen.append(number)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
open("ready", "w").close()
end = time.monotonic() + 20
while not seen and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.5)
with open("seen", "w") as file:
    file.write(" ".join(map(str, seen)))
sys.exit(7)
"""


@contextmanager
def started(
    command: Sequence[str], environment: dict[str, str], folder: Path
) -> Generator["subprocess.Popen[str]", None, None]:
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_once_and_its_status_is_kept(
    number: signal.Signals, home: Path, project: Path, tmp_path: Path
) -> None:
    record, store = tmp_path / "trial.json", tmp_path / "store.db"
    command = run_command([sys.executable, "-c", COUNTS_SIGNALS], store, record)
    with started(command, agent_environment(home, NOBODY), project) as process:
        until((project / "ready").exists, "the command is up")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 7, stderr
    assert (project / "seen").read_text() == str(int(number))
    trial = recorded(record, stderr)
    assert (trial.closed, trial.exit_code, trial.signal) == ("normal", 7, None)
    # It had not asked the model yet: zero steps and an outside event.
    check_cancelled(trial, EndedAs.NEVER_RAN)


def recorded(record: Path, stderr: str) -> Trial:
    trial = read_record(record)
    assert trial is not None, stderr
    return trial


def check_cancelled(trial: Trial, ended_as: EndedAs) -> None:
    assert trial.verdict is not None
    assert (trial.verdict.blame, trial.verdict.cause) == (Blame.OPERATOR, "operator.cancelled"), trial.verdict
    assert trial.verdict.ended_as is ended_as


def test_a_command_that_a_signal_ends_takes_fairtrial_with_it_by_the_same_signal(
    home: Path, project: Path, tmp_path: Path
) -> None:
    record, store = tmp_path / "trial.json", tmp_path / "store.db"
    reached = project / "reached"
    with running_standin((shell(f"touch {reached}; exec sleep 60"), say("Done."))) as server:
        command = run_command(agent_command(), store, record)
        with started(command, agent_environment(home, server.url), project) as process:
            until(reached.exists, "the first command runs")
            process.terminate()
            process.wait(timeout=30)
    assert process.returncode == -signal.SIGTERM
    trial = recorded(record, "")
    assert (trial.closed, trial.exit_code, trial.signal) == ("normal", None, signal.SIGTERM)
    assert len(trial.steps) == 1
    check_cancelled(trial, EndedAs.KILLED)


def test_ctrl_c_at_a_terminal_reaches_the_command_once(home: Path, project: Path, tmp_path: Path) -> None:
    record, store = tmp_path / "trial.json", tmp_path / "store.db"
    command = run_command([sys.executable, "-c", COUNTS_SIGNALS], store, record)
    # The program of our own beside it is the terminal: a session leader whose keys go to the foreground group.
    terminal = "import os, pty, sys; status = pty.spawn(sys.argv[1:]); sys.exit(os.waitstatus_to_exitcode(status))"
    process = subprocess.Popen(
        [sys.executable, "-c", terminal, *command],
        env=agent_environment(home, NOBODY),
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdin is not None
        until((project / "ready").exists, "the command is up")
        process.stdin.write(b"\x03")
        process.stdin.flush()
        until((project / "seen").exists, "the command has had its signal")
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 7, said
    assert (project / "seen").read_text() == str(int(signal.SIGINT))
    assert recorded(record, said.decode()).closed == "normal"


# --- fairtrial killed from outside -----------------------------------------------------------------------------------


def test_a_trial_whose_fairtrial_was_killed_is_closed_as_incomplete_with_what_was_seen(
    home: Path, project: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store.db"
    reached = project / "reached"
    script = (shell(f"touch {reached}; exec sleep 60"), say("Done."))
    with running_standin(script) as server:
        environment = agent_environment(home, server.url)
        with started(run_command(agent_command(), store, None), environment, project) as process:
            until(reached.exists, "the first command runs")
            until(lambda: "attempt.ended" in {each.kind for each in stored(store)}, "the first call is stored")
            process.kill()
            process.wait(timeout=30)
            until(lambda: not open_trials(store), "the observer closed the trial")
    trial = shown(store, environment)
    assert trial.closed in {"incomplete", "recovered"}
    assert len(trial.steps) == 1
    assert trial.steps[0].calls[0].outcome == "ok"
    assert trial.verdict is not None
    assert trial.verdict.blame is Blame.INDETERMINATE, trial.verdict
    assert trial.verdict.terminated_by is None
    listed = fairtrial("trials", "--json", "--store", str(store), environment=environment)
    assert [row["blame"] for row in json.loads(listed.stdout)] == ["indeterminate"]


def stored(store: Path) -> list[Observation]:
    """The observations that are stored so far, of all trials."""
    if not store.exists():
        return []
    try:
        database = open_database(store, read_only=True)
    except sqlite3.Error:
        return []
    try:
        trials = [str(row[0]) for row in database.execute("SELECT trial FROM trials")]
        return [each for trial in trials for each in observations_of(database, trial)]
    finally:
        database.close()


def open_trials(store: Path) -> int:
    database = open_database(store, read_only=True)
    try:
        return int(database.execute("SELECT count(*) FROM trials WHERE closed IS NULL").fetchone()[0])
    finally:
        database.close()


def test_a_run_inside_a_run_joins_the_outer_door_and_no_call_is_relayed_twice(
    home: Path, project: Path, tmp_path: Path
) -> None:
    inner_record, store = tmp_path / "inner.json", tmp_path / "store.db"
    inner = run_command(agent_command(), store, inner_record)
    with running_standin(GOOD) as server:
        environment = agent_environment(home, server.url)
        under = run_under(inner, environment, project, kept=tmp_path / "kept", store=store)
        calls = server.calls
    assert under.outcome.returncode == 0, under.told()
    assert [call.step for call in calls] == [0, 1]
    assert not (told := missed(under, passed())), told
    assert len(under.trial.steps) == 2
    within = recorded(inner_record, under.told())
    assert within.trial != under.trial.trial
    assert within.verdict is not None
    assert within.verdict.blame in {Blame.NONE, Blame.INDETERMINATE}, within.verdict
    assert "environment ANTHROPIC_BASE_URL" not in {each.what for each in within.mutations}


def test_a_nested_run_that_fails_is_judged_by_the_outer_one(home: Path, project: Path, tmp_path: Path) -> None:
    inner_record, store = tmp_path / "inner.json", tmp_path / "store.db"
    inner = run_command(agent_command(), store, inner_record)
    with running_standin(GOOD, OVERLOAD) as server:
        environment = agent_environment(home, server.url)
        under = run_under(inner, environment, project, kept=tmp_path / "kept", store=store)
    assert not (told := missed(under, STORM)), told
    within = recorded(inner_record, under.told())
    assert within.verdict is not None
    assert within.verdict.blame is Blame.INDETERMINATE, within.verdict
