"""Runs of several trials, told as their closed records, for the rules across trials."""

from __future__ import annotations

from msgspec import structs

from fairtrial.middleware.attribution.sentences import capital
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.records import (
    Attempt,
    Blame,
    Call,
    ContainerUse,
    Environment,
    Grade,
    Outcome,
    Step,
    TerminatedBy,
    Trial,
    Verdict,
)

EPOCH_NS = 1_790_000_000_000_000_000
S = 1_000_000_000
MIB = 1 << 20


def trial(
    name: str,
    *,
    at_s: float = 0.0,
    lasted_s: float = 600.0,
    node: str = "node-1",
    task: str | None = None,
    outcome: Outcome = Outcome.FAILED,
    blame: Blame = Blame.MODEL,
    grade: Grade | None = Grade.PROVED,
    cause: str | None = None,
    attempts: list[Attempt] | None = None,
    body: str | None = None,
    host: str = "api.test",
    harness: str | None = None,
    peak: int | None = None,
    limit: int | None = None,
) -> Trial:
    """One closed trial with one step; a `cause` is what ended it, in that step."""
    if outcome is Outcome.PASSED:
        blame, grade, cause = Blame.NONE, None, None
    call = Call(id=f"{name}-call", upstream_host=host, model="m", body_digest=body, attempts=attempts or [])
    use = ContainerUse(id="c", memory_peak=peak, memory_limit=limit, oom_kills=1 if cause else None)
    began = EPOCH_NS + round(at_s * S)
    ended_by = TerminatedBy(cause=cause, grade=Grade.PROVED, step=1) if cause is not None else None
    return Trial(
        trial=name,
        task=task if task is not None else f"task-{name}",
        harness=harness,
        started=rfc3339(began),
        ended=rfc3339(began + round(lasted_s * S)),
        closed="normal",
        outcome=outcome,
        environment=Environment(node=node),
        steps=[
            Step(
                index=1,
                started=rfc3339(began),
                ended=rfc3339(began + round(lasted_s * S)),
                calls=[call],
                containers=[use] if peak is not None else [],
            )
        ],
        verdict=Verdict(
            blame=blame,
            grade=grade,
            cause=cause if blame not in {Blame.INDETERMINATE, Blame.MODEL} else None,
            step=1 if cause is not None else None,
            sentence=capital(f"{blame.value}."),
            terminated_by=ended_by,
        ),
    )


def failed_at(s: float, *, status: int | None = None, key: str | None = None, per_key: bool | None = None) -> Attempt:
    return Attempt(
        status=status,
        outcome="error",
        started=rfc3339(EPOCH_NS + round(s * S)),
        duration=1.0,
        key=key,
        per_key=per_key,
    )


def whole_at(s: float, *, key: str | None = None) -> Attempt:
    return structs.replace(failed_at(s, status=200, key=key), outcome="ok")
