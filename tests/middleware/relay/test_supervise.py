"""`fairtrial run` as its parent and its command see it: status, streams, signals, descriptors, environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.middleware.relay.running import Bench, kill_quietly, python, until


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A home with a short path: sockets live below it."""
    folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    yield Bench(folder)
    shutil.rmtree(folder, ignore_errors=True)


# --- exit status ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(bench: Bench, code: int) -> None:
    done = bench.run("--", "sh", "-c", f"exit {code}")
    assert done.returncode == code
    assert bench.of_kind("BYE")[0]["exit_code"] == code
    assert done.stderr == "fairtrial: stand-in verdict\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE])
def test_a_death_by_a_signal_is_repeated(bench: Bench, number: signal.Signals) -> None:
    done = bench.run("--", "sh", "-c", f"kill -{int(number)} $$")
    assert done.returncode == -number
    assert bench.of_kind("BYE")[0]["signal"] == number
    assert not list(bench.home.glob("core*"))


def test_a_command_that_does_not_exist_is_127_with_a_sentence(bench: Bench) -> None:
    done = bench.run("--", "no-such-program", "x")
    assert done.returncode == 127
    assert "'no-such-program' was not found on PATH" in done.stderr
    assert bench.of_kind("BYE")[0]["exit_code"] == 127


def test_a_file_that_is_no_program_is_126_with_a_remedy(bench: Bench) -> None:
    (bench.home / "plain").write_text("text")
    done = bench.run("--", "./plain")
    assert done.returncode == 126
    assert "chmod +x" in done.stderr


def test_a_script_whose_interpreter_is_missing_is_127_and_named(bench: Bench) -> None:
    script = bench.home / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = bench.run("--", "./script")
    assert done.returncode == 127
    assert "interpreter" in done.stderr


def test_a_script_without_a_first_line_runs_as_in_a_shell(bench: Bench) -> None:
    script = bench.home / "script"
    script.write_text('echo "$1"; exit 5\n')
    script.chmod(0o755)
    done = bench.run("--", "./script", "word")
    assert (done.returncode, done.stdout) == (5, "word\n")


def test_a_grandchild_that_keeps_the_pipe_open_does_not_hold_us(bench: Bench) -> None:
    process = bench.start("--", "sh", "-c", "sleep 60 & echo $!; exit 4")
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    try:
        assert process.wait(timeout=20) == 4
        os.kill(grandchild, 0)  # it still runs
    finally:
        kill_quietly(grandchild)
        process.communicate()


# --- streams, descriptors, what the command inherits ----------------------------------------------------------------


def test_stdin_and_stdout_are_the_commands_own(bench: Bench) -> None:
    text = "".join(f"line {number}\n" for number in range(5000))
    done = bench.run("--", "cat", stdin=text)
    assert done.stdout == text


def test_no_descriptor_of_ours_reaches_the_command_and_inherited_ones_do(bench: Bench) -> None:
    show = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    reader, writer = os.pipe()
    try:
        direct = subprocess.run(
            [sys.executable, "-S", "-c", show], capture_output=True, text=True, pass_fds=[writer], check=True
        )
        through = bench.run(*python(show), pass_fds=[writer])
    finally:
        os.close(reader)
        os.close(writer)
    assert through.stdout == direct.stdout
    assert str(writer) in through.stdout


def test_the_observer_holds_nothing_but_its_log_and_its_feed_in_a_session_of_its_own(bench: Bench) -> None:
    reader, writer = os.pipe()
    try:
        bench.run("--", "true", pass_fds=[writer])
    finally:
        os.close(reader)
        os.close(writer)
    start = bench.records()[0]
    held = start["fds"]
    assert isinstance(held, list)
    assert set(held) == {0, 1, 2, start["feed"], start["log"]}
    assert start["sid"] == start["pid"] == start["pgid"]


def test_group_session_mask_and_dispositions_are_those_of_a_direct_run(bench: Bench) -> None:
    show = (
        "import os,re;s=open('/proc/self/status').read();"
        # 32 and 33 are glibc's own: its posix_spawn ignores them in every new process.
        "ign, blk = (int(re.search(w + r':\\t(\\w+)', s)[1], 16) & ~0x180000000 for w in ('SigIgn', 'SigBlk'));"
        "print(os.getpgrp(), os.getsid(0), os.getcwd(), os.umask(0), hex(ign), hex(blk))"
    )

    def parent() -> None:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

    def fields(text: str) -> list[str]:
        return text.split(maxsplit=2)[2:]

    direct = subprocess.run(
        [sys.executable, "-S", "-c", show],
        capture_output=True,
        text=True,
        preexec_fn=parent,
        check=True,
        cwd=bench.home,
    )
    process = bench.start(*python(show), preexec_fn=parent)
    out, _ = process.communicate(timeout=60)
    assert fields(out) == fields(direct.stdout)
    assert out.split()[:2] == [str(process.pid), str(process.pid)]


# --- signals --------------------------------------------------------------------------------------------------------

_COUNTER = """
import os, signal, sys
seen = []
def note(number, frame):
    seen.append(number); os.write(1, b"got %d\\n" % number)
for name in "SIGTERM SIGHUP SIGINT SIGQUIT SIGUSR1 SIGUSR2 SIGWINCH".split():
    signal.signal(getattr(signal, name), note)
os.write(1, b"ready %d\\n" % os.getpid())
while sys.stdin.readline().strip() != "end": pass
os.write(1, b"count %d\\n" % len(seen))
sys.exit(7)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"])
def test_a_signal_that_was_sent_to_us_is_passed_on_once_and_does_not_end_us(bench: Bench, name: str) -> None:
    number = signal.Signals[name]
    process = bench.start(*python(_COUNTER))
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline().startswith("ready")
    process.send_signal(number)
    assert process.stdout.readline() == f"got {int(number)}\n"
    out, _ = process.communicate("end\n", timeout=30)
    assert out == "count 1\n"
    assert process.returncode == 7
    assert bench.of_kind("BYE")[0]["forwarded_signals"] == [number]


def test_a_command_without_a_handler_dies_of_the_forwarded_signal_and_so_do_we(bench: Bench) -> None:
    process = bench.start("--", "sh", "-c", "echo ready; exec sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM


def test_a_command_that_kills_its_parent_hits_neither_itself_nor_us(bench: Bench) -> None:
    process = bench.start("--", "sh", "-c", "kill -TERM $PPID; read line; exit 6")
    until(lambda: bench.notes("signal.from_inside"))
    process.communicate("go on\n", timeout=30)
    assert process.returncode == 6
    assert bench.notes("signal.from_inside")[0]["signal"] == signal.SIGTERM
    assert bench.of_kind("BYE")[0]["forwarded_signals"] == []


# --- the environment and the doors ----------------------------------------------------------------------------------


class _Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"path": self.path, "host": self.headers["host"], "body": body.decode()}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Quiet."""


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    thread = threading.Thread(target=server.serve_forever, name="provider")
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


_CALL = """
import os, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true"
print(urllib.request.urlopen(urllib.request.Request(url, data=b"hello")).read().decode())
"""


def test_a_call_goes_through_the_door_and_is_seen(bench: Bench, provider: str) -> None:
    done = bench.run("--upstream", f"anthropic=http://{provider}/api/anthropic", *python(_CALL))
    answer = json.loads(done.stdout)
    assert answer == {"path": "/api/anthropic/v1/messages?beta=true", "host": provider, "body": "hello"}
    heads = [record["text"] for record in bench.records() if record["kind"] == "REQUEST_HEAD"]
    assert len(heads) == 1
    token, trial = next(iter(dict_of(bench.hello()["tokens"]).items()))
    assert f"/t/{token}/" in str(heads[0])
    assert trial == bench.hello()["trial"]


def dict_of(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def test_each_change_of_the_environment_is_a_mutation_without_secrets(bench: Bench, provider: str) -> None:
    bench.environ["OPENAI_BASE_URL"] = f"http://me:hunter2@{provider}/v1"
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    before = json.loads(subprocess.run(
        [sys.executable, "-S", "-c", show], env=bench.environ, capture_output=True, text=True, check=True
    ).stdout)  # fmt: skip
    done = bench.run("--run", "nightly", "--verbose", *python(show))
    after = json.loads(done.stdout)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    mutations = bench.of_kind("MUTATION")
    assert {str(mutation["what"]).removeprefix("environment ") for mutation in mutations} == changed
    assert "hunter2" not in json.dumps(mutations)
    assert "hunter2" in after["OPENAI_BASE_URL"]
    token = next(iter(dict_of(bench.hello()["tokens"])))
    assert token not in json.dumps(mutations)
    assert token not in done.stderr
    for name in changed:
        assert f"environment {name}: " in done.stderr
    assert after["FAIRTRIAL_TRIAL"] == bench.hello()["trial"]
    assert after["FAIRTRIAL_RUN"] == "nightly"
    assert re.fullmatch(f"00-{bench.hello()['trace_id']}-{bench.hello()['root_span_id']}-01", after["TRACEPARENT"])


def test_a_nested_run_joins_the_doors_of_the_outer_one(bench: Bench, provider: str) -> None:
    inner = bench.argv(*python(_CALL))
    done = bench.run("--upstream", f"anthropic=http://{provider}", "--", *inner)
    assert json.loads(done.stdout)["path"] == "/v1/messages?beta=true", done.stderr
    by_trial = {str(bench.hello(number)["trial"]): number for number in (1, 2)}
    options = {number: dict_of(bench.hello(number)["options"]) for number in (1, 2)}
    inner_number = next(number for number in (1, 2) if options[number]["outer_trial"] is not None)
    outer_number = 3 - inner_number
    assert options[inner_number]["outer_trial"] == bench.hello(outer_number)["trial"]
    assert by_trial[str(options[inner_number]["outer_trial"])] == outer_number
    joined = dict_of(options[inner_number]["joined"])
    assert joined["ANTHROPIC_BASE_URL"] == "anthropic"
    assert not bench.hello(inner_number)["doors"]
    seen = {n: sum(record["kind"] == "REQUEST_HEAD" for record in bench.records(n)) for n in (1, 2)}
    assert seen == {outer_number: 1, inner_number: 0}
    assert bench.hello(inner_number)["trace_id"] == bench.hello(outer_number)["trace_id"]
    assert bench.hello(inner_number)["parent_span_id"] == bench.hello(outer_number)["root_span_id"]


def test_hello_names_the_trial_and_hides_the_prompt(bench: Bench) -> None:
    program = bench.home / "claude"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    bench.run("--name", "n", "--task", "t", "--try", "2", "--json", "out.json", "--", "./claude", "-p", "a secret plan")
    hello = bench.hello()
    assert (hello["name"], hello["task"], hello["try"]) == ("n", "t", 2)
    assert hello["command"] == ["./claude", "-p", "<13 characters>"]
    assert hello["json"] == str(bench.home / "out.json")
    assert hello["store"] == str(bench.home / "state/fairtrial/store.db")
    assert [door["name"] for door in hello["doors"]] == ["anthropic", "openai", "gemini"]  # type: ignore[attr-defined]
    assert (bench.home / "state/fairtrial").stat().st_mode & 0o777 == 0o700


def test_an_agents_settings_file_that_beats_the_environment_is_said_before_the_start(bench: Bench) -> None:
    (bench.home / ".claude").mkdir()
    (bench.home / ".claude/settings.json").write_text('{"env": {"ANTHROPIC_BASE_URL": "https://gw.example/x"}}')
    program = bench.home / "claude"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    plain = bench.run("--", "./claude", "-p", "hi")
    assert "settings.json sets env.ANTHROPIC_BASE_URL" in plain.stderr
    assert plain.stdout == "-p\nhi\n"
    adapted = bench.run("--adapt", "--", "./claude", "-p", "hi")
    words = adapted.stdout.splitlines()
    assert words[0] == "--settings"
    url = json.loads(words[1])["env"]["ANTHROPIC_BASE_URL"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/t/[0-9a-f]{32}/x", url)
    assert words[2:] == ["-p", "hi"]
    door = next(door for door in bench.hello(2)["doors"] if door["name"] == "anthropic")  # type: ignore[attr-defined]
    assert door["host"] == "gw.example"
    assert any("--settings" in str(mutation["what"]) for mutation in bench.of_kind("MUTATION", 2))


# --- the observer's life --------------------------------------------------------------------------------------------


def _waiting_run(bench: Bench) -> subprocess.Popen[str]:
    return bench.start("--", "sh", "-c", "echo $$; read line; exit 3")


def test_a_killed_observer_is_started_once_more_and_the_agent_goes_on(bench: Bench) -> None:
    process = _waiting_run(bench)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    os.kill(bench.observer_pid(1), signal.SIGKILL)
    until(lambda: bench.of_kind("CHILD", 2))
    assert process.poll() is None
    out, err = process.communicate("x\n", timeout=30)
    assert process.returncode == 3
    hello = bench.hello(2)
    assert hello["resumed"] is True
    assert hello["trial"] == bench.hello(1)["trial"]
    first = bench.of_kind("CHILD", 2)[0]
    assert (first["event"], first["pid"]) == ("started", pid)
    note = bench.notes("observer.restarted", 2)[0]
    assert note["how"] == "signal 9"
    assert note["since_ns"] == hello["gap_since_ns"]
    assert bench.of_kind("BYE", 2)[0]["exit_code"] == 3
    assert err == "fairtrial: stand-in verdict\n"
    assert out == ""


def test_after_a_second_death_the_run_goes_on_and_the_trial_is_closed_at_the_end(bench: Bench) -> None:
    process = _waiting_run(bench)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(bench.observer_pid(1), signal.SIGKILL)
    second = bench.observer_pid(2)
    os.kill(second, signal.SIGKILL)
    until(lambda: not _alive(second))
    _, err = process.communicate("x\n", timeout=30)
    assert process.returncode == 3
    assert bench.hello(3)["close_only"] is True
    assert bench.of_kind("BYE", 3)[0]["exit_code"] == 3
    assert err == "fairtrial: stand-in verdict\n"


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def test_an_observer_that_never_comes_up_is_said_and_changes_nothing(bench: Bench) -> None:
    bench.plan(crash=[1, 2, 3, 4])
    done = bench.run("--", "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "not observed to its end" in done.stderr
    assert "exit code 9" in done.stderr
    assert "crashes as told" in (bench.home / "state/fairtrial/observer.log").read_text()


def test_a_verdict_that_does_not_come_is_not_waited_for(bench: Bench) -> None:
    """T40: who does not take what is told holds nobody up."""
    bench.plan(silent=True)
    process = _waiting_run(bench)
    bench.observer_pid(1)
    _, err = process.communicate("x\n", timeout=10)
    assert process.returncode == 3
    assert "verdict was not ready in time" in err


def test_the_gates_answer_is_the_exit_status(bench: Bench) -> None:
    bench.plan(gate=75)
    assert bench.run("--gate", "--", "sh", "-c", "exit 1").returncode == 75
    assert bench.run("--", "sh", "-c", "exit 1").returncode == 1


def test_what_the_observer_sends_cannot_steer_the_terminal(bench: Bench) -> None:
    bench.plan(lines=["fairtrial: \x1b[2Jred\x07"])
    assert bench.run("--", "true").stderr == "fairtrial:  [2Jred \n"


# --- what cannot start ----------------------------------------------------------------------------------------------


def test_a_runtime_folder_that_cannot_be_used_makes_the_run_unobserved_and_keeps_its_status(bench: Bench) -> None:
    (bench.home / "file").write_text("")
    bench.environ["FAIRTRIAL_RUNTIME_DIR"] = str(bench.home / "file/below")
    done = bench.run("--", "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "FAIRTRIAL_RUNTIME_DIR" in done.stderr
    assert "runs unobserved" in done.stderr
    assert not bench.of_kind("HELLO")
    assert bench.run("--", "sh", "-c", "kill -9 $$").returncode == -9
    assert bench.run("--", "no-such-program").returncode == 127


def test_require_refuses_to_run_unobserved(bench: Bench) -> None:
    bench.environ["FAIRTRIAL_RUNTIME_DIR"] = "/dev/null/below"
    done = bench.run("--require", "--", "sh", "-c", "echo out")
    assert (done.returncode, done.stdout) == (69, "")
    assert "--require" in done.stderr


def test_an_observer_that_cannot_be_started_makes_the_run_unobserved(bench: Bench) -> None:
    bench.environ["FAKE_OBSERVER_PYTHON"] = "/no/such/python"
    done = bench.run("--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "observer process" in done.stderr
    assert bench.run("--require", "--", "true").returncode == 69


def test_a_command_for_which_no_process_is_left_takes_our_place(bench: Bench) -> None:
    """As under a RLIMIT_NPROC that our own threads have used up; the kernel's refusal is put in its mouth."""
    refusal = "import errno, os\ndef no(*a, **k): raise OSError(errno.EAGAIN, 'no')\nos.posix_spawnp = no\n"
    (bench.home / "sitecustomize.py").write_text(refusal)
    bench.environ["PYTHONPATH"] += f":{bench.home}"
    done = bench.run("--", "sh", "-c", "echo ${FAIRTRIAL_TRIAL:-unobserved}; exit 3")
    assert (done.returncode, done.stdout) == (3, "unobserved\n"), done.stderr
    assert "runs unobserved" in done.stderr
    assert bench.run("--require", "--", "sh", "-c", "exit 3").returncode == 126
    assert not list((bench.home / "fairtrial").glob("*/docker.sock"))


def test_an_unobserved_command_has_the_environment_and_signals_of_a_direct_one(bench: Bench) -> None:
    bench.environ["FAIRTRIAL_RUNTIME_DIR"] = "/dev/null/below"
    show = (
        "import os, json, re; s = open('/proc/self/status').read(); "
        "print(json.dumps([dict(os.environ), re.findall(r'Sig(?:Blk|Ign):\\t(\\w+)', s)]))"
    )
    direct = subprocess.run(
        [sys.executable, "-S", "-c", show], env=bench.environ, capture_output=True, text=True, check=True
    )
    assert json.loads(bench.run(*python(show)).stdout) == json.loads(direct.stdout)


def test_a_wrong_setting_is_said_and_the_run_goes_on_observed(bench: Bench) -> None:
    (bench.home / "c.toml").write_text("[store]\npth = '/x'\n")
    bench.environ["FAIRTRIAL_CONFIG"] = str(bench.home / "c.toml")
    done = bench.run("--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "Did you mean `store.path`?" in done.stderr
    assert bench.notes("config.rejected")
    assert bench.run("--require", "--", "true").returncode == 78


def test_nothing_is_left_in_the_runtime_folder(bench: Bench) -> None:
    bench.run("--", "true")
    assert list((bench.home / "fairtrial").iterdir()) == []


def test_the_relay_process_loads_no_heavy_library() -> None:
    code = (
        "import sys, fairtrial.middleware.relay.session, fairtrial.middleware.relay.supervise; "
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in (
        "msgspec",
        "typer",
        "rich",
        "aiohttp",
        "httpx",
        "docker",
        "opentelemetry",
        "structlog",
        "psutil",
        "sqlite3",
    ):
        assert f"'{heavy}'" not in out
