"""Trials for the tests of reports: one that the infrastructure ended, with texts that try to be more than text."""

from __future__ import annotations

from fairtrial.middleware.core.records import (
    Answer,
    Answers,
    Blame,
    Call,
    Coverage,
    EndedAs,
    Evidence,
    FamilyCoverage,
    Grade,
    Mutation,
    Outcome,
    Present,
    Step,
    TerminatedBy,
    Tool,
    Trial,
    Trust,
    Verdict,
)

EVIL = "<img src=x onerror=1> @all [x](http://e.vil) `code` ::error::boo\n::error::line\x1b[2J # | ]]> 50%"


def trial(
    number: int = 1,
    *,
    outcome: Outcome = Outcome.FAILED,
    blame: Blame = Blame.INFRA,
    task: str | None = None,
    evidence: int = 1,
    text: str = EVIL,
) -> Trial:
    """A trial whose every free text is `text`."""
    infra = blame in (Blame.INFRA, Blame.INDETERMINATE)
    return Trial(
        trial=f"01930000-0000-7000-8000-{number:012d}",
        task=task or f"task {number} {text}",
        run="nightly",
        command=["agent"],
        started="2026-11-29T10:00:00.000000Z",
        ended="2026-11-29T10:00:05.500000Z",
        outcome=outcome,
        exit_code=0 if outcome is Outcome.PASSED else 1,
        steps=[Step(index=1, calls=[Call(id="1", duration=2.5)], tools=[Tool(name=text, exit_code=1)])],
        mutations=[Mutation(what=text, why=text)],
        coverage=Coverage(
            families={
                "model_api": FamilyCoverage(level="full"),
                "memory": FamilyCoverage(level="full"),
                "network": FamilyCoverage(level="none", why="nobody looked"),
                "node": FamilyCoverage(level="none", why="nobody looked"),
                "verifier": FamilyCoverage(level="none", why="no source watched"),
            }
        ),
        verdict=Verdict(
            blame=blame,
            grade=Grade.PROVED if blame is Blame.INFRA else None,
            cause="model_api.overloaded" if blame is Blame.INFRA else None,
            step=1,
            sentence=f"The API was overloaded. {text}",
            terminated_by=TerminatedBy(cause="model_api.overloaded", grade=Grade.PROVED, step=1) if infra else None,
            ended_as=EndedAs.AGENT_GAVE_UP,
            evidence=[
                Evidence(id=f"e{n}", at="2026-11-29T10:00:04.000000Z", source="door", trust=Trust.HOST, claim=text)
                for n in range(evidence)
            ],
            present=[Present(cause="container.cpu_throttled", step=1, why=text)],
            answers=Answers(retry=Answer.YES, grade=Answer.NO, reward_valid=Answer.NO),
        ),
    )
