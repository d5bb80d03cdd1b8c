"""The verifier's phase, as the harness tells it: it explains what was reported, and not what the agent did."""

import msgspec
import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.records import Outcome, Phase, PhaseName, Verdict
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.scene import Scene, ended, summary


def booked(
    told: Scene,
    *,
    verify_from: float | None = None,
    verifier: str | None = None,
    outcome: Outcome = Outcome.FAILED,
) -> Verdict:
    """As an adapter hands it over: the verifier's phase up to the end, and the outcome that the harness booked."""
    assembly = told.assembly()
    phases = list(assembly.trial.phases)
    if verify_from is not None:
        verify = Phase(
            name=PhaseName.VERIFY,
            started=rfc3339(told.wall(verify_from)),
            ended=rfc3339(told.wall()),
            outcome=verifier,
            source="harbor",
        )
        phases.append(verify)
    trial = msgspec.structs.replace(assembly.trial, phases=phases, outcome=outcome, outcome_source="harbor")
    return judge(Assembly(trial=trial, placed=assembly.placed, attempt_call=assembly.attempt_call))


def finished() -> Scene:
    return Scene().call().ran(0).call(tools=0)


@pytest.mark.parametrize("said", ["VerifierTimeoutError", "error: reward file missing"])
def test_a_verifier_that_failed_with_nothing_outside_is_suspected_of_the_task(said: str) -> None:
    told = finished().waited(5)
    verdict = booked(told.end(0), verify_from=2.0, verifier=said)
    assert summary(verdict) == ("task", "suspected", "task.verifier_fault", None)
    assert verdict.phase == "verify"
    assert ended(verdict) is None
    assert "Run the task's own solution" in verdict.sentence


def test_a_verifier_that_judged_is_no_fault() -> None:
    """Innocent."""
    assert booked(finished().waited(5).end(0), verify_from=2.0, verifier="failed").blame == "model"


def test_a_kill_in_the_verifiers_phase_is_its_own_causes_and_does_not_end_the_agent() -> None:
    """Near-miss: something outside was seen there."""
    told = finished().waited(1)
    since = told.s
    verdict = booked(told.ran(137, oom=True).end(0), verify_from=since, verifier="error")
    assert summary(verdict)[:3] == ("infra", "suspected", "container.oom_kill")
    assert verdict.phase == "verify"
    assert ended(verdict) is None


def test_phases_that_fairtrial_saw_itself_move_nothing() -> None:
    told = finished().waited(1)
    assert booked(told.ran(137, oom=True).end(0)).cause == told.verdict().cause


# --- a passed trial by a dead harness -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [{"exit_code": None, "signal": 11}, {"exit_code": 137}])
def test_a_reward_of_one_by_a_dead_harness_is_said(end: dict[str, int | None]) -> None:
    verdict = booked(Scene().call().ran(0).end(**end), outcome=Outcome.PASSED)  # type: ignore[arg-type]
    assert (verdict.blame, verdict.cause) == ("none", None)
    assert "although its harness was ended by" in verdict.sentence
    assert verdict.answers.reward_valid == "unknown"


def test_a_pass_without_one_whole_reply_is_said() -> None:
    verdict = booked(Scene().aborted(silence=1).waited(9).end(0), outcome=Outcome.PASSED)
    assert verdict.blame == "none"
    assert verdict.answers.reward_valid == "unknown"


def test_a_pass_of_a_harness_that_lived_is_a_pass() -> None:
    """Innocent."""
    verdict = booked(finished().end(0), outcome=Outcome.PASSED)
    assert verdict.sentence == "The trial passed, and nothing outside stood in its way."
    assert verdict.answers.reward_valid == "yes"
