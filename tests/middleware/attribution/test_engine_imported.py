"""What a harness booked changes the outcome that is judged, and never whose doing it was by words alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.core.observations import BookedError, BookedPhase, HarnessOutcome, Observation, Subject
from fairtrial.middleware.core.observations import encode_value as encoded
from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Outcome, PhaseName, Trust, Verdict
from fairtrial.middleware.harnesses import exit_code, swebench
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.attribution.scene import EPOCH_NS, TRIAL, Scene, full_tmpfs, model_failed, storm

S = 10**9
WORDS = ("OutOfMemoryError", "ApiOverloadedError", "NetworkConnectionError", "Killed", "SandboxLikelyOutOfMemoryError")


def booked(
    outcome: Outcome = Outcome.FAILED,
    *,
    trust: Trust = Trust.SAME_UID,
    error: str | None = None,
    scored: bool = True,
    ended_as: EndedAs | None = None,
    phases: tuple[tuple[PhaseName, float, float], ...] = (),
    agent: str | None = None,
    harness: str = "harbor",
    identity: str = "x",
    retried: bool = False,
) -> Observation:
    value = HarnessOutcome(
        harness=harness,
        identity=identity,
        retried=retried,
        label="x",
        outcome=outcome,
        scored=scored,
        ended_as=ended_as,
        agent=agent,
        errors=[] if error is None else [BookedError(type=error)],
        phases=[
            BookedPhase(name=name, started_ns=EPOCH_NS + round(a * S), ended_ns=EPOCH_NS + round(b * S))
            for name, a, b in phases
        ],
    )
    return Observation(
        id=f"imported-{harness}-{identity}",
        source=f"import.{harness}",
        source_id=f"import.{harness}/{identity}/y",
        seq=1,
        subject=Subject(trial=TRIAL),
        wall_ns=EPOCH_NS + 9999 * S,
        mono_ns=0,
        trust=trust,
        kind=value.kind,
        value=encoded(value),
    )


def verdict(scene: Scene, *more: Observation) -> Verdict:
    return judge(assemble([*scene.observations, *more], TRIAL))


def core(verdict: Verdict) -> tuple[Blame, Grade | None, str | None, int | None]:
    return verdict.blame, verdict.grade, verdict.cause, verdict.step


SCENES: tuple[Callable[[], Scene], ...] = (model_failed, full_tmpfs, storm, lambda: Scene().call().ran().call().end(0))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_agents_own_file_changes_no_verdict(scene: Callable[[], Scene], word: str, outcome: Outcome) -> None:
    plain = verdict(scene())
    inside = verdict(scene(), booked(outcome, trust=Trust.INSIDE, error=word, ended_as=EndedAs.KILLED))
    assert core(inside) == core(plain)
    assert (inside.sentence, inside.terminated_by, inside.ended_as) == (
        plain.sentence,
        plain.terminated_by,
        plain.ended_as,
    )


@pytest.mark.parametrize("word", WORDS)
def test_a_harness_s_name_for_a_failure_proves_nothing(word: str) -> None:
    scene = model_failed()
    assert core(verdict(scene, booked(Outcome.ERRORED, error=word, scored=False))) == core(verdict(scene))


def test_a_score_of_zero_behind_exit_0_is_judged_as_a_failure() -> None:
    scene = Scene().call(tools=1).ran().call(tools=0).end(0)
    assert verdict(scene).blame is Blame.NONE
    assert verdict(scene, booked(Outcome.FAILED)).blame is Blame.MODEL


def test_a_limit_that_only_the_harness_knows_is_how_it_ended() -> None:
    scene = Scene().call(tools=1).ran().call(tools=0).end(0)
    assert verdict(scene, booked(ended_as=EndedAs.HARNESS_TIMEOUT)).ended_as is EndedAs.HARNESS_TIMEOUT


def test_an_agent_that_was_killed_is_told_so_though_its_harness_exited_0() -> None:
    scene = Scene(box=False).call().waited().call().waited().oom().waited().end(0)
    told = verdict(scene, booked(Outcome.PASSED, ended_as=EndedAs.KILLED))
    assert (told.ended_as, told.terminated_by and told.terminated_by.cause) == (EndedAs.KILLED, "container.oom_kill")


def test_a_step_limit_that_the_harness_tells_is_no_riddle() -> None:
    """mini ends at its limit behind a command whose result goes nowhere."""
    scene = Scene().call().waited().call().waited().end(0)
    told = booked(scored=False, ended_as=EndedAs.STEP_LIMIT)
    assert verdict(scene, booked(scored=False)).blame is Blame.INDETERMINATE
    assert (verdict(scene, told).blame, verdict(scene, told).ended_as) == (Blame.MODEL, EndedAs.STEP_LIMIT)
    inside = booked(scored=False, ended_as=EndedAs.STEP_LIMIT, trust=Trust.INSIDE)
    assert core(verdict(scene, inside)) == core(verdict(scene))


def test_a_tool_that_hands_in_the_answer_needs_no_result() -> None:
    """Inspect's `submit` ends its loop; its scorer says what the answer was worth."""
    scene = Scene().call().waited().call().waited().end(0)
    told = verdict(scene, booked(ended_as=EndedAs.AGENT_FINISHED))
    assert (told.blame, told.ended_as) == (Blame.MODEL, EndedAs.AGENT_FINISHED), told.sentence


def test_a_kill_behind_which_the_agent_handed_in_its_work_did_not_end_it() -> None:
    """The command that hands it in has no result that would show its end."""
    scene = Scene(box=False).call().waited().oom().waited().call().waited().end(0)
    finished = booked(Outcome.UNKNOWN, scored=False, ended_as=EndedAs.AGENT_FINISHED)
    told = verdict(scene, finished)
    assert (told.blame, told.terminated_by) == (Blame.NONE, None), told.sentence
    assert [(p.cause, p.step) for p in told.present] == [("container.oom_kill", 1)]
    last = Scene(box=False).call().waited().call().waited().oom().waited().end(0)
    assert verdict(last, finished).terminated_by is not None, "the command that was killed was the last"
    assert verdict(scene, booked(ended_as=EndedAs.AGENT_FINISHED)).blame is Blame.INFRA, "a score of zero"
    inside = booked(Outcome.UNKNOWN, scored=False, ended_as=EndedAs.AGENT_FINISHED, trust=Trust.INSIDE)
    assert core(verdict(scene, inside)) == core(verdict(scene))


def test_an_agent_that_asks_no_model_ran_if_its_harness_says_so() -> None:
    scene = Scene().waited().oom().waited().end(0)
    phases = ((PhaseName.AGENT, 0.0, 100.0),)
    told = verdict(scene, booked(ended_as=EndedAs.AGENT_FINISHED, phases=phases))
    assert told.ended_as is not EndedAs.NEVER_RAN
    assert verdict(scene, booked(phases=phases)).ended_as is EndedAs.NEVER_RAN


@pytest.mark.parametrize("word", [None, *WORDS])
@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("trust", [Trust.SAME_UID, Trust.INSIDE])
def test_a_trial_that_was_only_imported_is_indeterminate(word: str | None, outcome: Outcome, trust: Trust) -> None:
    judged = judge(assemble([booked(outcome, error=word, trust=trust)], TRIAL))
    assert core(judged) == (Blame.INDETERMINATE, None, None, None)
    assert (judged.terminated_by, judged.answers.reward_valid) == (None, "unknown")


def test_phases_of_a_harness_never_prove_infra_where_it_was_not() -> None:
    for make in SCENES:
        plain = verdict(make())
        for cut in (0.5, 2, 4, 8, 16):
            phases = ((PhaseName.AGENT, 0.0, cut), (PhaseName.VERIFY, cut, 1000.0))
            told = verdict(make(), booked(Outcome.FAILED, phases=phases))
            if (plain.blame, plain.grade) != (Blame.INFRA, Grade.PROVED):
                assert (told.blame, told.grade) != (Blame.INFRA, Grade.PROVED), (make, cut, told.sentence)


FINISHED, LIMIT = EndedAs.AGENT_FINISHED, EndedAs.STEP_LIMIT


@pytest.mark.parametrize(
    "told",
    [
        (booked(ended_as=FINISHED, harness=exit_code.HARNESS),),
        (booked(ended_as=FINISHED, harness=swebench.HARNESS),),
        (booked(ended_as=FINISHED, retried=True), booked(identity="y", ended_as=EndedAs.AGENT_CRASHED)),
        (booked(ended_as=LIMIT), booked(identity="y", ended_as=EndedAs.HARNESS_CRASHED)),
        (booked(ended_as=FINISHED), booked(identity="y")),
    ],
    ids=["an exit code", "a score", "a try given up", "two that differ", "one of two"],
)
def test_an_end_that_was_told_of_something_else_does_not_say_that_the_agent_finished(
    told: tuple[Observation, ...],
) -> None:
    """Its client was gone while the model waited for a tool's result: nobody knows why, whatever else was booked."""
    scene = Scene().call().ran(0).call().end(0)
    assert verdict(scene, booked(ended_as=LIMIT)).blame is Blame.MODEL, "its own harness ended it"
    assert verdict(scene, *told).blame is Blame.INDETERMINATE
