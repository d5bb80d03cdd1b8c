"""Kills for memory in the verifier's time and in an oracle's trial: whom they suspect, and what decides it."""

from __future__ import annotations

import msgspec
import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.core.observations import Observation, ReplyFacts, RequestFacts, TrialStarted
from fairtrial.middleware.core.records import Blame, EndedAs, Grade, MemoryLimits, PhaseName, Trust, Verdict, Victim
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.scene import MIB, TRIAL, Scene
from tests.middleware.attribution.test_engine_imported import booked, verdict


def told_by_harbor(agent: str, trust: Trust = Trust.SAME_UID) -> Observation:
    return booked(ended_as=EndedAs.AGENT_FINISHED, agent=agent, trust=trust)


def in_the_verifier() -> Scene:
    scene = Scene().call().ran(0).call(tools=0)
    scene.oom(told=False)
    scene.observations[-1] = msgspec.structs.replace(scene.observations[-1], phase=PhaseName.VERIFY)
    return scene.end(0)


def test_a_kill_in_the_verifiers_time_says_that_an_oracle_decides_it_and_not_the_models_command() -> None:
    told = verdict(in_the_verifier(), told_by_harbor("terminus-2"))
    assert (told.blame, told.grade, told.phase) == (Blame.INFRA, Grade.SUSPECTED, "verify")
    assert "the agent's work or the verifier's own" in told.sentence
    assert "the task is at fault" in told.sentence
    assert "the model was" not in told.sentence
    assert told.flips_if is not None
    assert "an oracle's trial" in told.flips_if


@pytest.mark.parametrize("verifier", [False, True])
def test_the_tasks_own_solution_that_does_not_fit_suspects_the_task(verifier: bool) -> None:
    scene = Scene().waited().oom(told=False)
    if verifier:
        scene.observations[-1] = msgspec.structs.replace(scene.observations[-1], phase=PhaseName.VERIFY)
    told = verdict(scene.waited().end(0), told_by_harbor("oracle"))
    assert (told.blame, told.grade, told.cause) == (Blame.TASK, Grade.SUSPECTED, "container.oom_kill"), told.sentence
    assert "the model" not in told.sentence


def test_an_oracle_by_a_word_that_the_agent_could_have_written_is_none() -> None:
    scene = Scene().call().ran(137, oom=True).call(tools=0).end(1)
    assert verdict(scene, told_by_harbor("oracle", Trust.INSIDE)).blame is Blame.INFRA


def test_an_agent_of_that_name_that_asks_a_model_is_no_oracle() -> None:
    scene = Scene().call().ran(137, oom=True).end(1)
    assert verdict(scene, told_by_harbor("oracle")).blame is Blame.INFRA


def test_a_kill_in_the_verifiers_time_before_any_reply_proves_nothing_against_the_limit() -> None:
    """The agent was never answered, so what the verifier ran needed the memory: the task's tests may have."""
    scene = Scene().refused(529).waited().oom(told=False)
    scene.observations[-1] = msgspec.structs.replace(scene.observations[-1], phase=PhaseName.VERIFY)
    told = verdict(scene.end(1), told_by_harbor("terminus-2"))
    kill = [row for row in told.present if row.cause == "container.oom_kill"]
    assert not (told.cause == "container.oom_kill" and told.grade is Grade.PROVED), told.sentence
    assert "harness and services alone" not in told.sentence
    assert kill or told.cause == "container.oom_kill"


@pytest.mark.parametrize("oracle", [False, True])
def test_beyond_any_headroom_is_not_proved_the_models_where_no_command_of_its_own_was_struck(oracle: bool) -> None:
    if oracle:
        assembly = assemble(
            [*Scene().waited().oom(told=False).waited().end(0).observations, told_by_harbor("oracle")], TRIAL
        )
    else:
        assembly = assemble([*in_the_verifier().observations, told_by_harbor("terminus-2")], TRIAL)
    limits = msgspec.structs.replace(assembly.trial.limits, memory=MemoryLimits(declared=16 * MIB, ceiling=64 * MIB))
    trial = msgspec.structs.replace(assembly.trial, limits=limits)
    told = judge(Assembly(trial=trial, placed=assembly.placed, attempt_call=assembly.attempt_call))
    assert (told.blame, told.grade) == (Blame.TASK if oracle else Blame.INFRA, Grade.SUSPECTED), told.sentence
    assert "the model's" not in told.sentence


def unasked(*, limit: int | None = 64 * MIB) -> Scene:
    """The harness's set-up is struck, and the command ends without a call."""
    return Scene(limit=limit).waited().oom(victim=Victim(comm="apt", pid=5)).waited().end(1)


def words_of(told: Verdict) -> str:
    return f"{told.sentence} {told.flips_if}"


@pytest.mark.parametrize("limit", [64 * MIB, None])
def test_a_trial_that_asked_no_model_is_not_told_that_the_model_was_at_fault(limit: int | None) -> None:
    told = unasked(limit=limit).verdict()
    assert (told.blame, told.grade, told.cause) == (Blame.INFRA, Grade.SUSPECTED, "container.oom_kill")
    assert "No reply of a model had been seen by then" in told.sentence
    assert "run the trial again" in told.sentence
    assert "the model was" not in words_of(told)
    assert "to the model" not in words_of(told)
    assert "to the harness or the task, or to a model that was asked past the door, if it is" in words_of(told)


def test_a_trial_whose_only_call_was_never_answered_is_told_so_as_well() -> None:
    scene = Scene().attempt(
        ReplyFacts(),
        outcome="client_disconnect",
        request=RequestFacts(operation="count_tokens"),
        first_failure="client",
    )
    told = scene.oom().gone(137, ended_by="oom").end(137).verdict()
    assert (told.blame, told.grade, told.cause) == (Blame.INFRA, Grade.SUSPECTED, "container.oom_kill")
    assert "No reply of a model had been seen by then" in told.sentence
    assert "to the model" not in words_of(told)


def test_a_kill_behind_a_reply_is_told_as_the_models_if_it_comes_again() -> None:
    """Near-miss."""
    told = Scene().call().ran(137, oom=True).call(tools=0).end(1).verdict()
    assert "if it is killed again, the model was" in told.sentence
    assert "to the model if it is killed there as well" in words_of(told)


@pytest.mark.parametrize("how", ["open", "gap"])
def test_a_kill_at_a_time_when_a_reply_may_have_been_missed_is_told_as_ever(how: str) -> None:
    """Near-miss: an attempt whose end nobody saw, or a stretch that the door did not see."""
    scene = Scene().attempt_begun() if how == "open" else Scene().waited().gap(since=0.2, until=0.8)
    told = scene.waited().oom().waited().end(1).verdict()
    assert "No reply of a model had been seen" not in told.sentence
    assert "to the model" in words_of(told)


@pytest.mark.parametrize(
    "options",
    [{"via": "connect"}, {"joined": {"ANTHROPIC_BASE_URL": "anthropic"}, "outer_trial": TRIAL}],
    ids=["via", "joined"],
)
def test_a_kill_beside_calls_that_this_trial_does_not_read_is_told_as_ever(options: dict[str, object]) -> None:
    """Near-miss: no reply is ever seen, or only by the run around this one, and the model's commands run all the
    same."""
    told = Scene()
    told.tell(TrialStarted(command=["agent"], options=options), told.runner)
    verdict = told.waited().ran(137, oom=True).end(1).verdict()
    assert (verdict.blame, verdict.cause) == (Blame.INFRA, "container.oom_kill")
    assert "No reply of a model had been seen" not in verdict.sentence
    assert "to the model" in words_of(verdict)


def test_a_node_that_ran_out_before_any_call_still_says_what_to_do_about_the_node() -> None:
    told = Scene().waited().oom(constraint="CONSTRAINT_NONE", victim=Victim(comm="apt", pid=5)).waited().end(1)
    verdict = told.verdict()
    assert verdict.cause == "node.oom"
    assert "fewer neighbours" in verdict.sentence
    assert "to the model" not in words_of(verdict)


def test_words_change_no_blame() -> None:
    """A limit of four times what is guaranteed is never infra's, called or not."""
    told = Scene(limit=256 * MIB, reservation=64 * MIB).waited().oom().waited().end(1).verdict()
    assert told.blame is Blame.INDETERMINATE
