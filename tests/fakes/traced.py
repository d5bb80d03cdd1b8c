"""A trial as the exporters get it: two attempts, a tool in a container, an OOM kill, a verdict; and long ones."""

from __future__ import annotations

import msgspec

from fairtrial.middleware.core import clock, ids
from fairtrial.middleware.core.records import (
    Attempt,
    Blame,
    Call,
    ContainerUse,
    Grade,
    Outcome,
    Phase,
    PhaseName,
    Step,
    TerminatedBy,
    Tool,
    Trial,
    Verdict,
    Victim,
)

BEGUN_NS = 1_795_946_400_000_000_000
T0, T1, T2, T3, T4 = (clock.rfc3339(BEGUN_NS + n * 1_000_000_000) for n in range(5))


def a_step(index: int = 1, *, oom_kills: int | None = 1) -> Step:
    """One call with a retry, one command in a container, 64 MiB of ceiling."""
    call = Call(
        id=f"c{index}",
        model="claude",
        provider="anthropic",
        outcome="ok",
        input_tokens=5,
        cache_write_tokens=7,
        attempts=[
            Attempt(status=529, outcome="error", started=T0, duration=0.5, error_type="overloaded_error"),
            Attempt(status=200, outcome="ok", started=T1, duration=0.5, wait_before=0.5),
        ],
    )
    use = ContainerUse(
        id="abc",
        oom_kills=oom_kills,
        memory_peak=64 << 20,
        memory_limit=64 << 20,
        oom_victims=[Victim(comm="tail", pid=7)] if oom_kills else [],
        cpu_throttled=0.25,
    )
    tool = Tool(name="bash", started=T2, ended=T3, exec_id=f"exec{index}", exec_via="docker", exit_code=137)
    return Step(index=index, started=T0, ended=T3, calls=[call], tools=[tool], containers=[use])


def a_verdict(cause: str | None = "container.oom_kill", *, revision: int = 1) -> Verdict:
    """Infra is suspected, or nobody."""
    if cause is None:
        return Verdict(blame=Blame.NONE, sentence="It passed.", revision=revision)
    return Verdict(
        blame=Blame.INFRA,
        grade=Grade.SUSPECTED,
        cause=cause,
        step=1,
        sentence="x" * 1000,
        terminated_by=TerminatedBy(cause=cause, grade=Grade.PROVED, step=1),
        revision=revision,
    )


def a_trial(*, steps: int = 1, cause: str | None = "container.oom_kill", **changes: object) -> Trial:
    """A failed trial with ids of its own."""
    trial = Trial(
        trial=ids.new_id(),
        trace_id=ids.new_trace_id(),
        task="t",
        run="r",
        started=T0,
        ended=T3,
        closed="normal",
        outcome=Outcome.FAILED,
        exit_code=1,
        phases=[Phase(name=PhaseName.AGENT, started=T0, ended=T3)],
        steps=[a_step(n) for n in range(1, steps + 1)],
        verdict=a_verdict(cause),
    )
    return msgspec.structs.replace(trial, **changes)


SPANS_OF_A_STEP = 7
"""step, chat, two attempts, execute_tool, exec, oom_kill."""


def span_count(steps: int) -> int:
    """How many spans `a_trial(steps=…)` makes: also the trial and its phase."""
    return 2 + SPANS_OF_A_STEP * steps
