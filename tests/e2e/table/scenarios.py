"""Every harness × every kind of scenario: what is run, and what does not apply for which reason.

In: nothing.  Out: `SETUPS` and `SCENARIOS`, in the page's order.  A fault sits on the call after the first tool result,
so it hits step 2, before the work is done.  The boxes are small, and the commands ask for more than they hold: what a
task would do by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fairtrial.middleware.demo.script import Step, say, shell
from tests.e2e.harbor import typed
from tests.e2e.table.rows import Kind, Scenario, Setup

BOX = ("--memory=64m", "--memory-swap=64m")
GREEDY = 'python3 -c "x=bytearray(400<<20); print(len(x))"'
MIDDLING = 'python3 -c "x=bytearray({mb}<<20); import time; time.sleep(3)"'
HELLO = "echo hello > /work/hello.txt"
DONE = shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", text="That is all.")
VERIFY = "if grep -q hello /work/hello.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
VERIFY_GREEDY = f"python3 -c 'x=bytearray(2<<30)' && {{ {VERIFY}; }} || echo 0 > /logs/verifier/reward.txt"
FILL = "dd if=/dev/zero of=/scratch/x bs=1M count=300"

NAMES = {
    Kind.PASS: "a good run",
    Kind.WAIT: "429 once, obeyed",
    Kind.OVERLOADED: "529 for ever",
    Kind.CUT: "each reply is cut",
    Kind.LONG: "400, the prompt is too long",
}


def _setup(title: str, runs: str, adapter: str, **more: str) -> Setup:
    return Setup(title=title, runs=runs, adapter=adapter, **more)


MINI = tuple(
    _setup(f"mini-swe-agent, {name}, {where}", "mini", "mini-swe-agent", api=api, where=where.lower())
    for where in ("Docker", "local")
    for api, name in (("chat", "Chat Completions"), ("messages", "Messages"), ("responses", "Responses"))
)
CLAUDE = tuple(
    _setup(f"Claude Code {version}", "claude", "claude-code", api=stamp)
    for stamp, version in (("claude", "2.1.197"), ("claude-newer", "2.1.332"))
)
PLAIN = _setup("A plain exit code (the Anthropic SDK)", "plain", "exit-code")
ORACLE = _setup("Harbor, oracle", "harbor", "harbor", api="oracle")
TERMINUS = _setup("Harbor, terminus-2", "harbor", "harbor", api="terminus-2")
INSIDE = _setup("Harbor, Claude Code in the container", "harbor", "harbor", api="claude-code")
BESIDE = _setup("Harbor, terminus-2, four trials at once", "many", "harbor", api="terminus-2")
INSPECT = tuple(
    _setup(f"Inspect, {name}", "inspect", "inspect", where=where)
    for where, name in (("local", "local"), ("docker", "Docker"))
)
SETUPS = (*MINI, *CLAUDE, PLAIN, ORACLE, TERMINUS, INSIDE, BESIDE, *INSPECT)


def _row(setup: Setup, kind: Kind, name: str | None = None, **more: Any) -> Scenario:
    return Scenario(setup=setup, kind=kind, name=name or NAMES[kind], **more)


def _no(setup: Setup, kind: Kind, why: str) -> Scenario:
    name = NAMES.get(kind, kind.value)
    return Scenario(setup=setup, kind=kind, name=name, no=why)


def _api(setup: Setup, steps: Sequence[Step], **more: Any) -> Iterator[Scenario]:
    """The four that the model's API does."""
    yield _row(setup, Kind.WAIT, steps=steps, fault="rate_limited_once", **more)
    yield _row(setup, Kind.OVERLOADED, steps=steps, fault="overloaded_for_ever", **more)
    yield _row(setup, Kind.CUT, steps=steps, fault="cut_for_ever", **more)
    yield _row(setup, Kind.LONG, steps=steps, fault="prompt_too_long", **more)


def _mini(setup: Setup) -> Iterator[Scenario]:
    good = (shell("echo hello > hello.txt; cat hello.txt", text="I will write it."), DONE)
    yield _row(setup, Kind.PASS, steps=good)
    yield _row(setup, Kind.MODEL, "the step limit", steps=(shell("ls /"), shell("ls /tmp")), step_limit=2)
    greedy = (shell(GREEDY), DONE)
    if setup.where == "docker":
        yield _row(setup, Kind.MORE, "a command is killed for memory, a leaner one follows", steps=greedy, box=BOX)
        yield _row(
            setup,
            Kind.CHILD,
            "the first command fills a box of 64 MiB; 4 steps allowed",
            steps=(shell("dd if=/dev/zero of=/scratch/x bs=1M count=200"), *(shell(f"ls /{n}") for n in "ab")),
            box=(*BOX, "--tmpfs=/scratch:size=300m"),
            step_limit=4,
        )
        yield _no(setup, Kind.HARNESS, "mini runs on the host, outside of the box")
    else:
        more = {"step_limit": 1, "limit_mb": 500}
        yield _row(setup, Kind.MORE, "a command is killed, a leaner one follows", steps=greedy, limit_mb=500)
        command = shell(GREEDY.replace("400", "900"))
        yield _row(setup, Kind.CHILD, "a command is killed for memory; 1 step allowed", steps=(command,), **more)
        middling = (shell("ls /"), shell(MIDDLING.format(mb=140)), DONE)
        yield _row(setup, Kind.HARNESS, "mini itself is killed for memory", steps=middling, limit_mb=300)
    yield _no(setup, Kind.VERIFIER, "mini has no verifier")
    yield from _api(setup, good)


def _claude(setup: Setup) -> Iterator[Scenario]:
    good = (shell("echo hello > hello.txt", text="I will write it."), say("Done."))
    check = "grep -q hello hello.txt"
    yield _row(setup, Kind.PASS, steps=good, check=check)
    wrong = (shell("echo no > hello.txt"), say("Done."))
    yield _row(setup, Kind.MODEL, "a wrong file; a check after it fails", steps=wrong, check=check)
    greedy = shell(f"{GREEDY.replace('400', '2000')} && echo hello > hello.txt")
    name = "its command is killed for memory, it gives up; a check after it fails"
    yield _row(setup, Kind.CHILD, name, steps=(greedy, say("It died.")), check=check, limit_mb=900)
    name = "its command is killed for memory, a leaner one follows"
    yield _row(setup, Kind.MORE, name, steps=(greedy, *good), check=check, limit_mb=900)
    middling = (shell("ls /"), shell(MIDDLING.format(mb=130)), say("Done."))
    yield _row(setup, Kind.HARNESS, "it is killed itself for memory", steps=middling, limit_mb=220)
    yield _no(setup, Kind.VERIFIER, "Claude Code has no verifier")
    late = (shell("ls"), *good)
    yield from _api(setup, late, check=check)
    yield _row(setup, Kind.MORE, "one reply is cut", steps=late, check=check, fault="cut_once")


def _plain(setup: Setup) -> Iterator[Scenario]:
    good, stream = (shell("echo hello > hello.txt"), say("Done.")), ("messages_stream",)
    yield _row(setup, Kind.PASS, steps=good, command=stream)
    yield _row(setup, Kind.MODEL, "a check after it fails", steps=good, command=stream, check="exit 1")
    for kind in (Kind.CHILD, Kind.HARNESS):
        yield _no(setup, kind, "this client runs no commands")
    yield _no(setup, Kind.VERIFIER, "a status has no verifier")
    yield _row(setup, Kind.WAIT, steps=good, command=stream, fault="rate_limited_once")
    yield _row(setup, Kind.OVERLOADED, steps=good, command=stream, fault="overloaded_for_ever")
    name = "one reply is cut (the SDK does not retry)"
    yield _row(setup, Kind.CUT, name, steps=good, command=stream, fault="cut_once")
    yield _row(setup, Kind.LONG, steps=good, command=("messages_json",), fault="prompt_too_long")


def _oracle(setup: Setup) -> Iterator[Scenario]:
    yield _row(setup, Kind.PASS)
    yield _row(setup, Kind.MODEL, "a wrong solution", solve="mkdir -p /work; echo no > /work/hello.txt")
    greedy = f"{GREEDY} && {HELLO}"
    yield _row(setup, Kind.CHILD, "its command is killed for memory", solve=greedy, limit_mb=128)
    yield _no(setup, Kind.HARNESS, "an oracle is the command; nothing of Harbor's runs in the container")
    yield _row(setup, Kind.VERIFIER, "killed for memory in the verifier", verify=VERIFY_GREEDY, limit_mb=128)
    for kind in (Kind.WAIT, Kind.OVERLOADED, Kind.CUT, Kind.LONG):
        yield _no(setup, kind, "an oracle asks no model")
    yield _row(setup, Kind.MORE, "over the agent's limit of 3 s", solve="sleep 60", agent_s=3.0)
    yield _row(setup, Kind.MORE, "no reward file", verify="true")


def _agent_in_harbor(setup: Setup) -> Iterator[Scenario]:
    terminus = setup is TERMINUS
    end = (typed(done=True), typed(done=True)) if terminus else (say("Done."),)

    def script(*commands: str) -> tuple[Step, ...]:
        return (*(typed(c) if terminus else shell(c) for c in commands), *end)

    good = script(HELLO, "cat /work/hello.txt")
    small, roomy = (64, 64) if terminus else (700, 220)
    yield _row(setup, Kind.PASS, steps=good)
    yield _row(setup, Kind.MODEL, "a wrong file", steps=script("echo no > /work/hello.txt"))
    greedy = script("ls /", f"{GREEDY.replace('400', '2000')} && {HELLO}")
    yield _row(setup, Kind.CHILD, "its command is killed for memory, it gives up", steps=greedy, limit_mb=small)
    name = "its command is killed for memory, a leaner one follows"
    yield _row(setup, Kind.MORE, name, steps=script(GREEDY.replace("400", "2000"), HELLO), limit_mb=small)
    if terminus:
        name = "a full tmpfs takes its tmux"
        yield _row(setup, Kind.HARNESS, name, steps=script("ls /", FILL, HELLO), limit_mb=64, tmpfs=True)
    else:
        name = "it is killed itself for memory, while its command goes on"
        middling = script("ls /", f"{MIDDLING.format(mb=130)}; {HELLO}")
        yield _row(setup, Kind.HARNESS, name, steps=middling, limit_mb=roomy)
    yield _row(
        setup, Kind.VERIFIER, "killed for memory in the verifier", steps=good, verify=VERIFY_GREEDY, limit_mb=small
    )
    for each in _api(setup, script("ls /", HELLO), agent_s=120.0):
        storm = terminus and each.kind is Kind.LONG  # it would summarise for as long as it is let
        yield each if not storm else replace(each, agent_s=20.0)


def _beside(setup: Setup) -> Iterator[Scenario]:
    """One run; the trials differ by the variable TASK of their containers, and the fourth's calls meet the 529."""
    greedy = f"test $TASK != task-3 || {GREEDY}; test $TASK = task-2 || test $TASK = task-3 || {HELLO}"
    lines = (typed("echo $TASK"), typed(greedy), *(typed(f"ls /{name}") for name in ("", "work", "logs")))
    script = (*lines, typed(done=True), typed(done=True))
    # A model takes its time; by the turns that lie apart the calls find their containers.
    steps = tuple(Step(text=step.text, head_delay_s=0.5) for step in script)
    trials = (
        "the first: a good one",
        "the second: a wrong file",
        "the third: its command is killed for memory",
        "the fourth: 529 for ever",
    )
    yield _row(setup, Kind.MORE, "four tasks", steps=steps, limit_mb=64, trials=trials, fault="overloaded_for_ever")


def _inspect(setup: Setup) -> Iterator[Scenario]:
    submit = Step(tool="submit", arguments={"answer": "hello"})
    good = (shell("echo hello > hello.txt; cat hello.txt"), submit)
    yield _row(setup, Kind.PASS, steps=good)
    yield _row(setup, Kind.MODEL, "a wrong answer", steps=(good[0], Step(tool="submit", arguments={"answer": "no"})))
    small = 64 if setup.where == "docker" else 900
    greedy = (shell(GREEDY.replace("400", "2000")), Step(tool="submit", arguments={"answer": "it died"}))
    yield _row(setup, Kind.CHILD, "its command is killed for memory, it gives up", steps=greedy, limit_mb=small)
    if setup.where == "docker":
        yield _no(setup, Kind.HARNESS, "Inspect runs on the host, outside of the box")
    else:
        middling = (shell(MIDDLING.format(mb=120)), submit)
        yield _row(setup, Kind.HARNESS, "Inspect itself is killed for memory", steps=middling, limit_mb=260)
    yield _row(
        setup,
        Kind.VERIFIER,
        "killed for memory in the scorer",
        steps=good,
        verify=GREEDY.replace("400", "2000"),
        limit_mb=small,
    )
    yield from _api(setup, good)


_OF = {"mini": _mini, "claude": _claude, "plain": _plain, "many": _beside, "inspect": _inspect}


def _of(setup: Setup) -> Iterator[Scenario]:
    if setup.runs == "harbor":
        return _oracle(setup) if setup is ORACLE else _agent_in_harbor(setup)
    return _OF[setup.runs](setup)


SCENARIOS: tuple[Scenario, ...] = tuple(scenario for setup in SETUPS for scenario in _of(setup))
