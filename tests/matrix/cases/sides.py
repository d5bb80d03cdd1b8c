"""Harness, operator, network and fairtrial itself fail: not the model's doing, and not infra's to be proved.

Right by VERDICTS sections 6 and 7 and by the table of causes in RECORDS.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import Step, shell
from tests.matrix.cases.model_api import ever, http
from tests.matrix.scenario import DONE, WORK, Kind, Right, Scenario, of, proved, suspected

if TYPE_CHECKING:
    from tests.matrix.rig import Stage

OPERATOR, HARNESS, FAIRTRIAL = of(Blame.OPERATOR), of(Blame.HARNESS), of(Blame.FAIRTRIAL)
SLOW_HEAD: Final = Step(text="Done.", head_delay_s=30.0)


def cancel(stage: Stage) -> None:
    """Somebody presses the button of the CI job."""
    stage.until("working")
    os.kill(stage.pid, signal.SIGINT)


def kill_the_agent(stage: Stage) -> None:
    """Somebody outside kills the agent while its second call is open."""
    stage.until("working")
    time.sleep(1.5)  # the second call is then open for longer than two things are taken for one
    agent = int((stage.folder / "working").read_text())
    os.kill(agent, signal.SIGKILL)


def stop_fairtrial(stage: Stage) -> None:
    """The machine gives the relay no processor for longer than the client waits."""
    stage.until("working")
    time.sleep(0.5)
    os.kill(stage.pid, signal.SIGSTOP)
    time.sleep(4.5)
    os.kill(stage.pid, signal.SIGCONT)


def take_descriptors(stage: Stage) -> None:
    """Leave the relay one more descriptor than it has open: it can accept, and cannot dial."""
    stage.until("working")
    time.sleep(0.5)  # the first call's connections are closed by then
    numbers = {int(each.name) for each in Path(f"/proc/{stage.pid}/fd").iterdir()}
    free = next(n for n in range(1 << 16) if n not in numbers)
    most = next(n for n in range(free + 1, 1 << 16) if n not in numbers)
    resource.prlimit(stage.pid, resource.RLIMIT_NOFILE, (most, most))
    stage.note("taken")


SCENARIOS: Final = (
    # --- the operator's ---------------------------------------------------------------------------------------------
    Scenario(
        name="bad-key",
        family="operator",
        kind=Kind.OTHER,
        what="401 from the first call on",
        why="taxonomy: budget, key, auth: operator always; VERDICTS 5: never ran",
        right=proved("operator.auth", 1, blame=Blame.OPERATOR, ended_as=EndedAs.NEVER_RAN),
        faults=(Fault(kind="http", step=0, attempts=FOREVER, status=401),),
    ),
    Scenario(
        name="key-revoked",
        family="operator",
        kind=Kind.OTHER,
        what="401 from the second call on",
        why="taxonomy: operator always; whether the agent's own key was used is not decided",
        right=Right(blame=OPERATOR, grade="open", cause="operator.auth", step=2, ended=("operator.auth", None, 2)),
        faults=http(401),
    ),
    Scenario(
        name="quota",
        family="operator",
        kind=Kind.OTHER,
        what="429 whose words name the credit balance",
        why="VERDICTS 6: 429 is the operator's when the reply names a quota or credit",
        right=proved("operator.quota", 2, blame=Blame.OPERATOR),
        faults=http(429, message="Your credit balance is too low to access the API."),
    ),
    Scenario(
        name="no-credit",
        family="operator",
        kind=Kind.OTHER,
        what="402 billing_error",
        why="RECORDS: operator.quota, 402",
        right=proved("operator.quota", 2, blame=Blame.OPERATOR),
        faults=http(402),
    ),
    Scenario(
        name="budget",
        family="operator",
        kind=Kind.OTHER,
        what="429 whose words name the spending limit",
        why="taxonomy: budget is the operator's always",
        right=proved("operator.budget", 2, blame=Blame.OPERATOR),
        faults=http(429, message="You have reached your specified monthly spend limit."),
    ),
    Scenario(
        name="nobody-listens",
        family="operator",
        kind=Kind.OTHER,
        what="the base URL's port is closed",
        why="VERDICTS 6: an upstream that never sent a response head in this run",
        right=proved("operator.endpoint", 1, blame=Blame.OPERATOR, ended_as=EndedAs.NEVER_RAN),
        environment={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"},
    ),
    Scenario(
        name="wrong-path",
        family="operator",
        kind=Kind.OTHER,
        what="a page with 404 for the path, from the first call on",
        why="RECORDS: operator.endpoint, 404 for the path",
        right=proved("operator.endpoint", 1, blame=Blame.OPERATOR, ended_as=EndedAs.NEVER_RAN),
        faults=(Fault(kind="garbage", step=0, attempts=FOREVER, status=404),),
    ),
    Scenario(
        name="unknown-model",
        family="operator",
        kind=Kind.OTHER,
        what="404 not_found_error for the model's name",
        why="RECORDS: model_api.client_error (400 ...), the operator's who named the model: suspected",
        right=Right(blame=OPERATOR, grade=Grade.SUSPECTED, cause="model_api.client_error", step=1, ended="open"),
        faults=(Fault(kind="http", step=0, attempts=FOREVER, status=404),),
    ),
    Scenario(
        name="cancelled",
        family="operator",
        kind=Kind.OTHER,
        what="SIGINT to fairtrial from outside while a tool runs",
        why="RECORDS: operator.cancelled; a process of the same user could have sent it: suspected",
        right=suspected("operator.cancelled", None, blame=Blame.OPERATOR, ended=("operator.cancelled", None, None)),
        steps=(shell("touch %folder%/working; sleep 30"), DONE),
        outside=cancel,
    ),
    Scenario(
        name="untrusted-certificate",
        family="network",
        kind=Kind.OTHER,
        what="the upstream speaks no TLS on the port that the base URL says https for",
        why="VERDICTS 6: a failed handshake is network.tls; no head ever came, no control vantage: suspected at best",
        right=Right(
            blame=of(Blame.OPERATOR, Blame.INFRA),
            grade=Grade.SUSPECTED,
            cause="network.tls",
            step=1,
            ended="open",
            ended_as=EndedAs.NEVER_RAN,
        ),
        environment={"ANTHROPIC_BASE_URL": "https://127.0.0.1:%port%"},
        dear=True,
    ),
    Scenario(
        name="host-not-found",
        family="network",
        kind=Kind.OTHER,
        what="the base URL's host does not exist",
        why="VERDICTS 6: never a response head: operator.endpoint; a resolver that may be down keeps it open how sure",
        right=Right(
            blame=OPERATOR, grade="open", cause="operator.endpoint", step=1, ended="open", ended_as=EndedAs.NEVER_RAN
        ),
        environment={"ANTHROPIC_BASE_URL": "http://no-such-host.invalid"},
        dear=True,
    ),
    Scenario(
        name="proxy-refuses",
        family="network",
        kind=Kind.OTHER,
        what="HTTPS_PROXY points at a port where nobody listens",
        why="RECORDS: network.proxy, proved only with a control vantage",
        right=Right(
            blame=of(Blame.OPERATOR, Blame.INFRA),
            grade=Grade.SUSPECTED,
            cause="network.proxy",
            step=1,
            ended="open",
            ended_as=EndedAs.NEVER_RAN,
        ),
        environment={"ANTHROPIC_BASE_URL": "https://api.test", "HTTPS_PROXY": "http://127.0.0.1:9"},
        dear=True,
    ),
    # --- the harness's ----------------------------------------------------------------------------------------------
    Scenario(
        name="client-timeout",
        family="harness",
        kind=Kind.OTHER,
        what="a reply that takes three seconds, a client that waits one",
        why="VERDICTS 6: a client abort before our longest silence reached its watchdog: harness",
        right=Right(blame=HARNESS, grade="open", cause="harness.client_timeout", step=1, ended=None),
        steps=(Step(text="Done.", head_delay_s=3.0),),
        agent=("--patience-s", "1", "--retries", "1"),
    ),
    Scenario(
        name="watchdog-while-pings-flow",
        family="harness",
        kind=Kind.OTHER,
        what="the API pings every 0.2 s while the model thinks; the harness's watchdog kills the call after 3 s",
        why="taxonomy: long reasoning with pings flowing is a false kill by the harness; bytes decide, not tokens",
        right=Right(blame=HARNESS, grade=Grade.PROVED, cause="harness.watchdog", step=2, ended=None),
        steps=WORK,
        faults=ever("pings", after_events=2, duration_s=30.0, interval_s=0.2),
        agent=("--deadline-s", "3"),
    ),
    Scenario(
        name="agent-killed",
        family="harness",
        kind=Kind.OTHER,
        what="SIGKILL to the agent from an unknown sender while its call is open",
        why="RECORDS: harness.killed, suspected while the sender is unknown",
        right=Right(
            blame=HARNESS, grade=Grade.SUSPECTED, cause="harness.killed", step=2, ended=None, ended_as=EndedAs.KILLED
        ),
        steps=(shell("echo $PPID > %folder%/pid; mv %folder%/pid %folder%/working"), SLOW_HEAD),
        outside=kill_the_agent,
    ),
    Scenario(
        name="agent-crashed",
        family="harness",
        kind=Kind.OTHER,
        what="the agent dies of SIGSEGV while its call is open",
        why="RECORDS: harness.crashed; a process of the trial could have sent the signal: suspected",
        right=Right(
            blame=HARNESS,
            grade=Grade.SUSPECTED,
            cause="harness.crashed",
            step=2,
            ended=None,
            ended_as=EndedAs.AGENT_CRASHED,
        ),
        steps=(shell("(sleep 2; kill -SEGV $PPID) > /dev/null 2>&1 &"), SLOW_HEAD),
    ),
    Scenario(
        name="retry-storm",
        family="harness",
        kind=Kind.OTHER,
        what="one request that is refused with 400, sent sixty times without a pause",
        why="issue 6, item 4: a retry storm is the harness's",
        right=Right(blame=HARNESS, grade="open", cause="harness.retry_storm", step=2, ended="open"),
        faults=http(400),
        agent=("--retries", "59", "--wait-s", "0"),
    ),
    Scenario(
        name="compaction-storm",
        family="harness",
        kind=Kind.OTHER,
        what="the agent sums up its conversation after every turn and so never gets anywhere",
        why="issue 6, item 4: a compaction storm is the harness's",
        right=Right(blame=HARNESS, grade="open", cause="harness.compaction_storm", ended="open"),
        steps=(shell("echo hello"), shell("echo hello")),
        agent=("--compact-every", "1"),
    ),
    Scenario(
        name="inner-timeout",
        family="harness",
        kind=Kind.OTHER,
        what="the harness closes four calls at the same length of 2.2 s, although the reply flows",
        why="taxonomy: inner limit fires, uniform durations: harness",
        right=Right(blame=HARNESS, grade="open", cause="harness.inner_timeout", step=2, ended=None),
        steps=(shell("echo hello"), Step(text="a long thought about the file " * 20), DONE),
        faults=ever("slow", interval_s=0.2),
        agent=("--deadline-s", "2.2", "--retries", "3"),
    ),
    # --- fairtrial's own --------------------------------------------------------------------------------------------
    Scenario(
        name="relay-lags",
        family="observer",
        kind=Kind.OTHER,
        what="the relay gets no processor for 4.5 s (SIGSTOP) and the client gives up after 2.5 s",
        why="VERDICTS 7: what a direct connection would not have had is fairtrial's; its own lag: suspected",
        right=Right(blame=FAIRTRIAL, grade=Grade.SUSPECTED, cause="observer.lag", step=2, ended="open"),
        steps=(shell("touch %folder%/working"), Step(text="Done.", head_delay_s=1.0)),
        agent=("--patience-s", "2.5", "--retries", "0"),
        outside=stop_fairtrial,
    ),
    Scenario(
        name="relay-without-descriptors",
        family="observer",
        kind=Kind.OTHER,
        what="fairtrial may open so few files that it cannot dial for the agent's second call",
        why="VERDICTS 7: a direct connection would have had a descriptor: observer.limit",
        right=Right(blame=FAIRTRIAL, grade="open", cause="observer.limit", step=2, ended="open"),
        steps=(shell("touch %folder%/working; until [ -e %folder%/taken ]; do sleep 0.05; done"), DONE),
        agent=("--retries", "0"),
        outside=take_descriptors,
        dear=True,
    ),
)
