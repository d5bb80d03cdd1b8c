"""A time limit that fires, for real: timeout(1) around the demo's agent, and what took the time.

The model's own sleep under the limit is the model's; an API that falls silent to the end is infra.
Then who sent a request: a tool that asks in the agent's place is known by its process.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, Under, run_under, unclouded

AGENT = (sys.executable, "-m", "fairtrial.middleware.demo.agent")
DONE = say("Done.")


def under_limit(
    folder: Path, limit: str, script: Sequence[Step], faults: Sequence[Fault] = (), **settings: str
) -> Under:
    """As somebody types it: `fairtrial run -- timeout LIMIT agent`."""
    tries = 0

    def once() -> Under:
        nonlocal tries
        tries += 1
        place = folder / str(tries)
        for name in ("home", "project"):
            (place / name).mkdir(parents=True)
        with running_standin(script, faults) as server:
            environment = clients.clean_environment(
                place / "home", ANTHROPIC_BASE_URL=server.url, **NO_DOCKER, **settings
            )
            return run_under(("timeout", limit, *AGENT), environment, place / "project", kept=place / "kept")

    return unclouded(once)


def test_a_limit_that_fires_over_the_models_own_sleep_is_the_models(tmp_path: Path) -> None:
    under = under_limit(tmp_path, "6", (shell("echo hello"), shell("sleep 60"), DONE))
    assert under.verdict.ended_as is EndedAs.HARNESS_TIMEOUT, under.told()
    assert under.verdict.blame is Blame.MODEL, under.told()
    assert under.verdict.terminated_by is None
    assert "The time limit of 6.0 s fired (timeout(1) in the command)" in under.verdict.sentence
    assert under.verdict.ledger.limit == 6.0


def test_a_limit_that_fires_in_the_middle_of_a_silence_is_infra(tmp_path: Path) -> None:
    """The second reply falls silent for ever; two seconds of it are taken for a stall here."""
    silent = [Fault(kind="stall", step=1, attempts=FOREVER, after_events=3, duration_s=None)]
    script = (shell("echo hello"), shell("touch answer"), DONE)
    under = under_limit(tmp_path, "8", script, silent, FAIRTRIAL_VERDICT__STALL_S="2")
    assert under.verdict.ended_as is EndedAs.HARNESS_TIMEOUT, under.told()
    assert (under.verdict.blame, under.verdict.grade) == (Blame.INFRA, Grade.PROVED), under.told()
    assert under.verdict.cause == "model_api.stalled"
    assert "was still open as the limit fired" in under.verdict.sentence


def test_time_that_was_lost_before_a_call_that_was_under_way_is_weighed_and_cannot_be_told(tmp_path: Path) -> None:
    """Near-miss: four refusals, then a call whose end nobody waited for; how long the task needs is not known."""
    stalled = Fault(kind="stall_headers", step=1, attempts=FOREVER, duration_s=None)
    overloaded = [Fault(kind="http", step=1, attempts=5, status=529), stalled]
    under = under_limit(tmp_path, "8", (shell("echo hello"), shell("touch answer"), DONE), overloaded)
    assert under.verdict.ended_as is EndedAs.HARNESS_TIMEOUT, under.told()
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()
    assert "need when they pass is not known" in under.verdict.sentence
    assert "The time limit of 8.0 s fired" in under.verdict.sentence
    assert under.verdict.ledger.by_cause.get("model_api.overloaded", 0.0) > 0.4, under.told()


FORGED = """
import http.client, json, os
from urllib.parse import urlsplit
at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
for _ in range(2):
    to = http.client.HTTPConnection(at.hostname, at.port)
    body = {"model": "stand-in", "max_tokens": 9, "stream": True, "tools": [{"name": "bash", "input_schema": {}}],
            "messages": [{"role": "user", "content": "Make a file named answer."}]}
    to.request("POST", at.path + "/v1/messages", json.dumps(body), {"content-type": "application/json"})
    print(to.getresponse().status)
    to.close()
"""


@pytest.mark.parametrize("then", ["true", "kill -9 $PPID"])
def test_what_a_tool_asks_in_the_agents_place_is_known_by_its_process(tmp_path: Path, then: str) -> None:
    (tmp_path / "forged.py").write_text(FORGED)
    script = (shell(f"{sys.executable} {tmp_path / 'forged.py'}; {then}"), DONE)
    with running_standin(script, [Fault(kind="http", step=0, attempts=1, status=529)]) as server:
        (tmp_path / "home").mkdir()
        (tmp_path / "project").mkdir()
        environment = clients.clean_environment(tmp_path / "home", ANTHROPIC_BASE_URL=server.url, **NO_DOCKER)
        under = run_under(AGENT, environment, tmp_path / "project", kept=tmp_path / "kept")
    assert (under.verdict.blame, under.verdict.grade) != (Blame.INFRA, Grade.PROVED), under.told()
    assert under.verdict.blame is not Blame.INFRA, under.told()
