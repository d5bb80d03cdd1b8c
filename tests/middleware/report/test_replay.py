"""A replay says what changed, and nothing when nothing did."""

from fairtrial.middleware.core.records import Blame, Evidence, Grade, Ledger, Present, TerminatedBy, Trust, Verdict
from fairtrial.middleware.report.replay import margin_lines, replay_lines

STORED = Verdict(
    blame=Blame.INFRA,
    grade=Grade.PROVED,
    cause="model_api.stalled",
    step=2,
    sentence="s",
    terminated_by=TerminatedBy(cause="model_api.stalled", grade=Grade.PROVED, step=2),
    evidence=[Evidence(id="0197aaaa-000001", source="door.model", trust=Trust.HOST, claim="c")],
    thresholds={"stall_s": 90.0},
    ledger=Ledger(infra_seconds=1.5),
)


def test_the_same_verdict_is_said_to_be_the_same() -> None:
    assert replay_lines(STORED, STORED, observations=7, width=100) == [
        "REPLAY  from 7 observations: the same as stored"
    ]


def test_every_difference_is_a_line() -> None:
    now = Verdict(
        blame=Blame.HARNESS,
        grade=Grade.SUSPECTED,
        cause="harness.client_timeout",
        step=2,
        sentence="other",
        present=[Present(cause="model_api.overloaded", step=1, why="w")],
        thresholds={"stall_s": 120.0},
        ledger=Ledger(infra_seconds=0.0),
    )
    said = "\n".join(replay_lines(STORED, now, observations=7, width=200))
    for line in (
        "infra, proved · model_api.stalled in step 2 → harness, suspected · harness.client_timeout in step 2",
        "ended by: model_api.stalled, proved in step 2 → nothing outside",
        "threshold stall_s: 90 → 120",
        "evidence: no longer door.model …000001",
        "present: new model_api.overloaded in step 1",
        "time taken from outside: 1.5 s → 0 ms",
    ):
        assert line in said


def test_the_edges_are_listed_with_the_value_in_force() -> None:
    verdict = Verdict(blame=Blame.MODEL, sentence="s", flips_if="turns to infra if a replay passes")
    said = "\n".join(margin_lines(verdict, [("stall_s", 90.0, 45.2, "infra, proved")], asked=9, known=9, width=120))
    assert "stall_s at 45.2 or less (now 90): infra, proved" in said
    assert "beside our numbers: it turns to infra if a replay passes" in said
    none = "\n".join(margin_lines(verdict, [], asked=9, known=9, width=120))
    assert "none turns it" in none
