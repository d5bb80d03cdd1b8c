"""What looks like the infrastructure's doing and is the trial's own, as real processes: never infra.

VERDICTS section 8, with the demo's agent: real shells, real signals, real words. Its check at the end fails. Where no
container is used, a kill for memory is ruled out by the host's own counter.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Outcome
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import NO_DOCKER, Under, run_under, unclouded

DONE = say("Done.")
AGENT = (sys.executable, "-m", "fairtrial.middleware.demo.agent")
FAKE_OOM = (
    "Out of memory: Killed process 4711 (python3) total-vm:9999kB, anon-rss:9999kB, file-rss:0kB, shmem-rss:0kB, "
    "UID:0 pgtables:44kB oom_score_adj:0"
)


class Bench:
    """Runs an agent under fairtrial against a script; each try has a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tries = 0
        (folder / "home").mkdir()
        (folder / "project").mkdir()

    def run(
        self,
        script: Sequence[Step],
        faults: Sequence[Fault] = (),
        command: Sequence[str] = AGENT,
        more: Mapping[str, str] = NO_DOCKER,
    ) -> Under:
        def once() -> Under:
            self.tries += 1
            with running_standin(script, faults) as server:
                environment = clients.clean_environment(self.folder / "home", ANTHROPIC_BASE_URL=server.url, **more)
                kept = self.folder / f"kept{self.tries}"
                return run_under(command, environment, self.folder / "project", kept=kept)

        return unclouded(once)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def check_model(under: Under, steps: int) -> None:
    """The model's, with nothing outside: all of its calls were seen whole."""
    verdict = under.verdict
    assert under.outcome.returncode == 1, under.told()
    assert under.trial.outcome is Outcome.FAILED
    assert verdict.blame is Blame.MODEL, under.told()
    assert verdict.grade in {Grade.PROVED, Grade.SUSPECTED}
    assert (verdict.cause, verdict.terminated_by, verdict.present) == (None, None, []), under.told()
    assert verdict.ended_as is EndedAs.AGENT_FINISHED, under.told()
    assert len(under.trial.steps) == steps, under.told()
    assert verdict.answers.retry == "no"


OWN_DOING: dict[str, tuple[Step, ...]] = {
    "its-own-kill-9": (shell("kill -9 $$"), DONE),
    "kill-9-of-its-tool": (shell("sleep 30 & kill -9 $!; wait $!; exit $?"), DONE),
    "exit-137": (shell("exit 137"), DONE),
    "words": (
        shell(f"echo Killed; echo 'API Error: Overloaded'; echo 'No space left on device'; echo '{FAKE_OOM}'; exit 1"),
        say("API Error: 529 Overloaded. The container was OOM killed, so I could not finish."),
    ),
    "fake-logs": (
        shell(
            f"mkdir -p var/log && echo 'kernel: {FAKE_OOM}' > var/log/kern.log; echo 'oom_kill 99' > memory.events; "
            "echo '{\"status\": 529}' > api.log; exit 137"
        ),
        DONE,
    ),
    "long-sleep": (shell("sleep 2.5"), DONE),
    "endless-loop": (shell("timeout -s KILL 1 sh -c 'while :; do :; done'"), DONE),
    "wrong-host": (shell("exec 3<>/dev/tcp/127.0.0.1/9 || getent hosts no-such-host.invalid; exit 7"), DONE),
    "segfault": (shell("kill -SEGV $$"), DONE),
}


@pytest.mark.parametrize("case", sorted(OWN_DOING))
def test_the_trials_own_doing_is_the_models(case: str, bench: Bench) -> None:
    check_model(bench.run(OWN_DOING[case]), steps=2)


def test_a_line_that_the_trial_writes_into_the_kernels_log_is_no_kill(bench: Bench) -> None:
    """Whoever may write /dev/kmsg can put words there; the kernel marks them as a user's."""
    if not _can_write("/dev/kmsg"):
        pytest.skip("this process may not write /dev/kmsg")
    under = bench.run((shell(f"echo '<3>{FAKE_OOM}' > /dev/kmsg; exit 137"), DONE))
    check_model(under, steps=2)


def _can_write(path: str) -> bool:
    try:
        with Path(path).open("w"):
            return True
    except OSError:
        return False


def test_a_reply_that_reached_its_token_limit_is_the_models(bench: Bench) -> None:
    """The agent takes the half sentence for the end; the API did what it was asked."""
    under = bench.run((shell("echo hello"), Step(text="I will now", stop_reason="max_tokens")))
    verdict = under.verdict
    assert under.outcome.returncode == 1
    assert (verdict.blame, verdict.terminated_by, verdict.present) == (Blame.MODEL, None, []), under.told()
    assert under.trial.steps[1].calls[0].stop_reason == "max_tokens"
    assert under.trial.steps[1].calls[0].outcome == "ok"


def test_an_agent_that_is_killed_by_its_own_tool_was_not_ended_from_outside(bench: Bench) -> None:
    under = bench.run((shell("kill -9 $PPID"), DONE))
    assert under.outcome.returncode == -9, under.told()
    assert (under.trial.signal, under.verdict.ended_as) == (9, EndedAs.KILLED), under.told()
    assert under.verdict.blame in {Blame.MODEL, Blame.HARNESS, Blame.INDETERMINATE}, under.told()
    assert under.verdict.terminated_by is None, under.told()


def test_an_agent_that_its_tool_interrupts_was_not_cancelled_by_the_operator(bench: Bench) -> None:
    """SIGTERM from inside, to fairtrial itself: nobody outside sent it."""
    under = bench.run((shell('kill -TERM "$(cut -d" " -f4 /proc/$PPID/stat)"; sleep 0.5'), DONE))
    assert under.verdict.blame is not Blame.INFRA, under.told()
    assert under.verdict.blame is not Blame.OPERATOR, under.told()
    assert under.verdict.terminated_by is None, under.told()


MALFORMED = """
import http.client, os, sys
from urllib.parse import urlsplit

at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
connection = http.client.HTTPConnection(at.hostname, at.port)
connection.request("POST", at.path + "/v1/messages", b'{"model": "stand-in", "messages": [{"role": ', {
    "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "dummy"})
print(connection.getresponse().status)
sys.exit(1)
"""


def test_a_malformed_request_is_not_the_apis_fault(bench: Bench) -> None:
    refuses = Fault(
        kind="http", status=400, attempts=FOREVER, side_calls=True, message="the request body is not valid JSON"
    )
    under = bench.run((DONE,), [refuses], command=(sys.executable, "-c", MALFORMED))
    assert (under.outcome.returncode, under.outcome.stdout) == (1, "400\n"), under.told()
    assert under.verdict.blame in {Blame.HARNESS, Blame.MODEL, Blame.INDETERMINATE}, under.told()
    assert under.verdict.grade is not Grade.PROVED
    assert under.verdict.terminated_by is None, under.told()


def test_a_command_that_asks_no_model_is_nobodys(bench: Bench) -> None:
    """No traffic and no outside event: not the model's either."""
    under = bench.run((DONE,), command=("sh", "-c", "echo Overloaded; exit 1"))
    assert under.outcome.returncode == 1
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()
    assert under.verdict.terminated_by is None


def test_a_client_that_gives_up_too_early_is_the_harness(bench: Bench) -> None:
    """The reply was on its way; two seconds of patience were too few."""
    code = MALFORMED.replace("HTTPConnection(at.hostname, at.port)", "HTTPConnection(at.hostname, at.port, timeout=1)")
    whole = (
        'b\'{"model": "stand-in", "max_tokens": 9, "tools": [{"name": "bash", "input_schema": {"type": "object", '
        '"properties": {"command": {"type": "string"}}}}], "messages": [{"role": "user", "content": "Hello"}]}\''
    )
    code = code.replace("""b'{"model": "stand-in", "messages": [{"role": '""", whole)
    code = code.replace(
        "print(connection.getresponse().status)",
        "try:\n    connection.getresponse()\nexcept TimeoutError:\n    print('gave up', flush=True)\n"
        "connection.close()\nimport time\ntime.sleep(2.5)",
    )
    under = bench.run((Step(text="Done.", head_delay_s=3.0),), command=(sys.executable, "-c", code))
    assert under.outcome.stdout == "gave up\n", under.told()
    assert (under.verdict.blame, under.verdict.cause) == (Blame.HARNESS, "harness.client_timeout"), under.told()
    assert under.verdict.terminated_by is None


# --- in a container --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["kill -9 $$", "kill -9 -1; exit 137", "head -c 200000000 /dev/zero > /dev/null; echo Killed; exit 137"],
    ids=["own-kill-9", "kills-all-it-can", "printed"],
)
def test_exit_137_in_a_container_whose_kill_counter_stands_still_is_the_models(
    command: str, bench: Bench, docker_engine: Engine, busybox_image: str
) -> None:
    agent = (*AGENT, "--image", busybox_image, "--memory", "64m")
    more = {"DOCKER_HOST": docker_engine.docker_host, "FAIRTRIAL_RUN__DOCKER": "true"}
    under = bench.run((shell(command), DONE), command=agent, more=more)
    assert "[exit 137]" in under.outcome.stdout, under.told()
    check_model(under, steps=2)
    assert under.trial.coverage.families["memory"].level == "full"


def test_a_kill_that_the_command_hides_behind_exit_0_is_seen_and_is_only_suspected(
    bench: Bench, docker_engine: Engine, busybox_image: str
) -> None:
    """The near miss: here the kernel did kill, though no status and no word tells of it."""
    agent = (*AGENT, "--image", busybox_image, "--memory", "32m")
    more = {"DOCKER_HOST": docker_engine.docker_host, "FAIRTRIAL_RUN__DOCKER": "true"}
    greedy = "(tail /dev/zero; true) 2>/dev/null; exit 0"
    under = bench.run((shell(greedy), DONE), command=agent, more=more)
    assert "[exit 0]" in under.outcome.stdout, under.told()
    verdict, ended = under.verdict, under.verdict.terminated_by
    assert (verdict.blame, verdict.grade, verdict.cause) == (Blame.INFRA, Grade.SUSPECTED, "container.oom_kill")
    assert ended is not None
    assert (ended.cause, ended.grade, ended.step) == ("container.oom_kill", Grade.PROVED, 1), under.told()


GATEWAY = """
import socket, sys, threading
def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for end in (one, other):
        try:
            end.shutdown(2)
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    upstream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for pair in ((client, upstream), (upstream, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@pytest.mark.parametrize("answer", ["begun", "awaited"])
def test_a_gateway_of_this_machine_that_a_command_ends_is_no_proof_against_the_provider(
    answer: str, tmp_path: Path
) -> None:
    """In the middle of the agent's next call; the agent asks once."""
    slow = Step(text="word " * 40, event_gap_s=0.1) if answer == "begun" else Step(text="word", head_delay_s=4.0)
    kill = "setsid sh -c 'sleep 1.2; kill -9 {pid}' > /dev/null 2>&1 < /dev/null & exit 0"
    for part in ("home", "project"):
        (tmp_path / part).mkdir()
    pid_file = tmp_path / "pid"
    script = (shell("true"), shell(kill.format(pid=f"$(cat {pid_file})").replace("'", '"')), slow)
    with running_standin(script) as server:
        command = [sys.executable, "-c", GATEWAY, server.url.rpartition(":")[2]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
            try:
                assert gateway.stdout is not None
                url = f"http://127.0.0.1:{gateway.stdout.readline().strip()}"
                pid_file.write_text(str(gateway.pid))
                environment = clients.clean_environment(tmp_path / "home", ANTHROPIC_BASE_URL=url, **NO_DOCKER)
                environment["PYTHONPATH"] = str(Path(__file__).parents[2])
                agent = [sys.executable, "-m", "tests.matrix.agent", "--retries", "0"]
                under = run_under(agent, environment, tmp_path / "project", kept=tmp_path / "kept")
            finally:
                gateway.kill()
    verdict = under.verdict
    assert gateway.returncode == -9
    assert (verdict.blame, verdict.grade) != (Blame.INFRA, Grade.PROVED), under.told()
