"""What looks like the infrastructure's doing and is the trial's own: each really done, none may come out as infra.

VERDICTS section 8, without a container (those with one are in `box_look_alikes.py`).  Here a kill for memory is ruled
out by the host's own counter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import Step, say, shell
from tests.e2e.test_run_agent_tampers import EDIT_THE_STORE, JUNK_AT_THE_DOOR, KILL_THE_OBSERVER
from tests.matrix.scenario import DONE, WORK, Kind, Right, Scenario, models, not_infra, of, passed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAMILY: Final = "look-alike"
SECTION: Final = "VERDICTS 8"
FAKE_OOM: Final = (
    "Out of memory: Killed process 4711 (python3) total-vm:9999kB, anon-rss:9999kB, file-rss:0kB, shmem-rss:0kB, "
    "UID:0 pgtables:44kB oom_score_adj:0"
)
NOBODYS: Final = of(Blame.INDETERMINATE)

FORGED: Final = """
import http.client, json, os, sys
from urllib.parse import urlsplit

# What the agent itself wrote down: its session, its messages, the ids of the tool calls that it has not answered yet.
known = json.load(open(sys.argv[1]))
uses = [block for block in known["messages"][-1]["content"] if block["type"] == "tool_use"]
results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "x", "is_error": False} for use in uses]
tool = {"name": "bash", "description": "Run a shell command.", "input_schema": {"type": "object", "properties":
        {"command": {"type": "string"}}, "required": ["command"]}}
body = json.dumps({"model": "stand-in", "max_tokens": 1024, "stream": True,
                   "messages": [*known["messages"], {"role": "user", "content": results}], "tools": [tool]}).encode()
at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
for _ in range(2):
    connection = http.client.HTTPConnection(at.hostname, at.port)
    connection.request("POST", at.path + "/v1/messages", body, {
        "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "dummy",
        "user-agent": "fairtrial-demo-agent", "x-session-id": known["session"]})
    print(connection.getresponse().status, flush=True)
    connection.close()
"""

OWN_CALL: Final = """
import http.client, json, os
from urllib.parse import urlsplit

at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
body = json.dumps({"model": "stand-in", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]})
for _ in range(3):
    connection = http.client.HTTPConnection(at.hostname, at.port)
    connection.request("POST", at.path + "/v1/messages", body, {
        "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "dummy"})
    print(connection.getresponse().status, flush=True)
    connection.close()
"""

MALFORMED: Final = """
import http.client, os, sys
from urllib.parse import urlsplit

at = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
connection = http.client.HTTPConnection(at.hostname, at.port)
connection.request("POST", at.path + "/v1/messages", b'{"model": "stand-in", "messages": [{"role": ', {
    "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "dummy"})
print(connection.getresponse().status)
sys.exit(1)
"""

KILL_FAIRTRIAL: Final = KILL_THE_OBSERVER.replace(
    "for _ in range", "os.kill(run, signal.SIGKILL)\nsys.exit()\nfor _ in range"
)


def own(
    name: str,
    what: str,
    *steps: Step,
    right: Right | None = None,
    faults: Sequence[Fault] = (),
    agent: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    dear: bool = False,
    inside_only: bool = True,
    shows: str | None = None,
    awaits: str | None = None,
) -> Scenario:
    """A look-alike with the agent on the host; the model's unless told otherwise."""
    return Scenario(
        name=name,
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what=what,
        why=SECTION,
        right=right or models(),
        steps=(*steps, DONE) if steps else (DONE,),
        faults=faults,
        agent=agent,
        files=files or {},
        dear=dear,
        inside_only=inside_only,
        shows=shows,
        awaits=awaits,
    )


def forged(
    name: str,
    what: str,
    command: str,
    *agent: str,
    answers_after_s: float = 0.4,
    right: Right | None = None,
    awaits: str | None = None,
) -> Scenario:
    """A tool that knows what the agent wrote down sends the agent's own next request, and gets 500 twice.

    Real APIs take a while for an answer, errors included.
    """
    return Scenario(
        name=name,
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what=what,
        why="VERDICTS 8: junk sent to the door; 2: what the agent wrote never changes the blame",
        right=right or not_infra(),
        steps=(
            Step(commands=(command,), head_delay_s=2 * answers_after_s),
            Step(commands=("echo more",), head_delay_s=answers_after_s),
            DONE,
        ),
        faults=(Fault(kind="http", step=1, status=500, attempts=2),),
        agent=("--session", "s-1", "--transcript", "%folder%/transcript", *agent),
        files={"forged.py": FORGED},
        inside_only=True,
        awaits=awaits,
    )


def python(file: str, *arguments: str) -> Step:
    """A turn in which the model runs a file of the scenario."""
    return shell(" ".join(["%python%", f"%folder%/{file}", *arguments]))


SCENARIOS: Final = (
    own("own-kill-9", "a command kills itself with SIGKILL", shell("kill -9 $$"), shows="[exit 137]"),
    own(
        "own-kill-of-a-child",
        "a command kills its child with SIGKILL",
        shell("sleep 30 & kill -9 $!; wait $!"),
        shows="[exit 137]",
    ),
    own("own-exit-137", "a command exits 137 by itself", shell("exit 137"), shows="[exit 137]"),
    own(
        "own-timeout",
        "timeout -k of the model's own cuts its command",
        shell("timeout -s KILL 1 sleep 30"),
        shows="[exit 137]",
    ),
    own(
        "own-loop",
        "an endless loop that the model's own timeout ends",
        shell("timeout -s KILL 2 sh -c 'while :; do :; done'"),
        shows="[exit 137]",
    ),
    own("own-sleep", "a long sleep", shell("sleep 4")),
    own("own-segfault", "a command dies of SIGSEGV", shell("kill -SEGV $$"), shows="[exit 139]"),
    own(
        "own-ulimit",
        "MemoryError under a ulimit that the model set itself",
        shell("ulimit -v 60000; %python% -c 'x = bytearray(1 << 30)'"),
        shows="MemoryError",
    ),
    own(
        "own-open-files",
        "too many open files under a ulimit that the model set itself",
        shell("ulimit -n 12; %python% -c 'import os; [os.dup(1) for _ in range(99)]'"),
        shows="Too many open files",
    ),
    own(
        "wrong-host",
        "a host that does not exist, and one that refuses",
        shell(
            "getent hosts no-such-host.invalid || "
            "%python% -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'"
        ),
        shows="Connection refused",
    ),
    own(
        "wrong-url",
        "404 for a path that the model made up, at the model API's own host",
        shell(
            "%python% -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' $ANTHROPIC_BASE_URL/no/file"
        ),
        shows="HTTP Error 404",
    ),
    own(
        "printed-words",
        "the words of every infra error on stdout and in the last reply",
        shell(f"echo Killed; echo 'API Error: Overloaded'; echo 'No space left on device'; echo '{FAKE_OOM}'; exit 1"),
        shows="No space left",
    ),
    own(
        "fake-logs",
        "log files that tell of kills and 529",
        shell(
            f"mkdir -p var/log; echo 'kernel: {FAKE_OOM}' > var/log/kern.log; echo 'oom_kill 99' > memory.events; "
            "echo '{\"status\": 529}' > api.log; exit 137"
        ),
    ),
    Scenario(
        name="last-word-claims-529",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="the model says that the API was overloaded and its container killed",
        why=SECTION,
        right=models(),
        steps=(shell("echo hello"), say("API Error: 529 Overloaded. The container was OOM killed.")),
        inside_only=True,
    ),
    Scenario(
        name="kernel-log-forged",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="a line like the OOM killer's, written into /dev/kmsg by the trial",
        why="VERDICTS 8, fake logs: the kernel marks such a line as a user's",
        right=models(),
        steps=(shell(f"echo '<3>{FAKE_OOM}' > /dev/kmsg; exit 137"), DONE),
        root=True,
        inside_only=True,
    ),
    Scenario(
        name="finish-length",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="the last reply stops at the token limit that the client asked for",
        why="VERDICTS 8: finish_reason length; taxonomy: truly sent by the API",
        right=models(),
        steps=(shell("echo hello"), Step(text="I will now", stop_reason="max_tokens")),
    ),
    Scenario(
        name="malformed-request",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="a body that is no JSON, refused with 400",
        why="VERDICTS 8; taxonomy: a 400 is agent or harness",
        right=not_infra(),
        faults=(Fault(kind="http", status=400, attempts=FOREVER, side_calls=True, message="not valid JSON"),),
        command=("%python%", "%folder%/malformed.py"),
        files={"malformed.py": MALFORMED},
    ),
    Scenario(
        name="prompt-too-long",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="the conversation grew past the model's window: 400",
        why="taxonomy: a 400 is agent or harness, never infra",
        right=Right(
            blame=of(Blame.HARNESS, Blame.MODEL, Blame.OPERATOR),
            grade="open",
            cause="model_api.client_error",
            step=2,
            ended="open",
        ),
        faults=(Fault(kind="http", step=1, status=400, attempts=FOREVER, message="prompt is too long"),),
    ),
    Scenario(
        name="no-model-asked",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="a command that prints Overloaded and asks no model",
        why="VERDICTS 2: a door without traffic and no outside event is indeterminate",
        right=Right(blame=NOBODYS, ended=None),
        command=("sh", "-c", "echo Overloaded; exit 1"),
        inside_only=True,
    ),
    Scenario(
        name="agent-killed-by-its-tool",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="the model's command kills the agent with SIGKILL",
        why=SECTION,
        right=not_infra(),
        steps=(shell("kill -9 $PPID"), DONE),
        inside_only=True,
    ),
    Scenario(
        name="fairtrial-interrupted-by-a-tool",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="the model's command sends SIGTERM to fairtrial",
        why="VERDICTS 8, a killed fairtrial: nobody outside cancelled it",
        right=not_infra(),
        steps=(shell('kill -TERM "$(cut -d" " -f4 /proc/$PPID/stat)"; sleep 0.5'), DONE),
        inside_only=True,
    ),
    own(
        "junk-at-the-door",
        "what is no HTTP, wrong tokens, half requests and a 529 of its own at the door",
        python("junk.py"),
        shows="junk sent",
        files={"junk.py": JUNK_AT_THE_DOOR},
        right=not_infra(Blame.MODEL, Blame.INDETERMINATE),
    ),
    own(
        "own-model-calls-refused",
        "the model's command asks the model API itself and gets 529 three times",
        python("ask.py"),
        shows="529\n529",
        files={"ask.py": OWN_CALL},
        faults=(
            Fault(kind="slow", step=0, attempts=1, interval_s=0.0),
            Fault(kind="http", step=0, status=529, attempts=FOREVER, side_calls=True),
        ),
        right=models(),
    ),
    forged(
        "forged-calls-recovered",
        "a tool sends the agent's own next request twice and gets 500; the agent then goes on",
        "%python% %folder%/forged.py %folder%/transcript",
        right=models(),
    ),
    forged(
        "forged-calls-then-kill",
        "the same, and the tool then kills the agent",
        "%python% %folder%/forged.py %folder%/transcript; kill -9 $PPID",
    ),
    forged(
        "forged-calls-then-done",
        "the same, and the agent ends after that command without asking again",
        "%python% %folder%/forged.py %folder%/transcript",
        "--done-after",
        "1",
    ),
    forged(
        "forged-calls-at-once",
        "the same, with an API that answers within a millisecond, before anybody can look who asked",
        "%python% %folder%/forged.py %folder%/transcript",
        "--done-after",
        "1",
        answers_after_s=0.0,
    ),
    own(
        "observer-killed",
        "the model's command kills fairtrial's observer",
        python("kill.py", "1"),
        shows="killed",
        files={"kill.py": KILL_THE_OBSERVER},
        right=Right(blame=NOBODYS, ended=None),
    ),
    Scenario(
        name="fairtrial-killed",
        family=FAMILY,
        kind=Kind.LOOK_ALIKE,
        what="the model's command kills fairtrial itself with SIGKILL",
        why="VERDICTS 8: a killed fairtrial; DESIGN 8: indeterminate",
        right=Right(blame=NOBODYS, ended=None),
        steps=(python("kill.py", "1"), DONE),
        files={"kill.py": KILL_FAIRTRIAL},
        inside_only=True,
    ),
    *(
        own(
            f"store-{how}",
            f"the model's command edits fairtrial's store ({how}) and the API then is overloaded",
            python("edit.py", "%store%", f"'{statement}'"),
            files={"edit.py": EDIT_THE_STORE},
            shows="rows",
            faults=(Fault(kind="http", step=1, status=529, attempts=FOREVER),),
            right=Right(blame=NOBODYS, ended="open"),
            inside_only=False,
        )
        for how, statement in (
            ("rows-removed", "DELETE FROM observations WHERE seq % 2 = 0"),
            ("rows-overwritten", "UPDATE observations SET body = zeroblob(10) WHERE seq % 3 = 0"),
        )
    ),
    # --- clean controls ---------------------------------------------------------------------------------------------
    Scenario(
        name="passes",
        family="control",
        kind=Kind.CLEAN,
        what="the task done in three steps",
        why="a control",
        right=passed(),
        steps=WORK,
    ),
    Scenario(
        name="fails-by-itself",
        family="control",
        kind=Kind.CLEAN,
        what="the model does not do the task",
        why="a control",
        right=models(),
    ),
    Scenario(
        name="parallel-tools",
        family="control",
        kind=Kind.CLEAN,
        what="three tool calls in one reply, one of them fails",
        why="a control",
        right=passed(),
        steps=(shell("echo a", "exit 3", "touch answer"), DONE),
    ),
    Scenario(
        name="slow-but-whole",
        family="control",
        kind=Kind.CLEAN,
        what="replies that take a second and a half each; the model then fails",
        why="VERDICTS 4: no reference, uncharged",
        right=models(),
        steps=(Step(commands=("echo hello",), head_delay_s=1.5), Step(text="Done.", head_delay_s=1.5)),
    ),
)
