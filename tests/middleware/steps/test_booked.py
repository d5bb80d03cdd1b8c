"""Which of several booked outcomes counts, and when the harness's phases are believed."""

from __future__ import annotations

import random

import pytest

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import (
    BookedPhase,
    ContainerSeen,
    HarnessOutcome,
    Observation,
    OomKill,
    Subject,
    encode_value,
)
from fairtrial.middleware.core.records import Outcome, PhaseName, TimeLimits, Trust
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import BOX, EPOCH_NS, TRIAL, Story

S = 10**9
PHASES = ((PhaseName.BUILD, -2, 0), (PhaseName.SETUP, 0, 0.5), (PhaseName.AGENT, 0.5, 20), (PhaseName.VERIFY, 25, 30))


def told(
    harness: str = "harbor",
    outcome: Outcome = Outcome.FAILED,
    *,
    scored: bool = True,
    trust: Trust = Trust.SAME_UID,
    imported: int = 1,
    phases: tuple[tuple[PhaseName, float, float], ...] = (),
    **more: object,
) -> Observation:
    value = HarnessOutcome(
        harness=harness,
        identity=str(more.pop("identity", harness)),
        label="x",
        outcome=outcome,
        scored=scored,
        imported_ns=imported,
        phases=[
            BookedPhase(name=n, started_ns=EPOCH_NS + round(a * S), ended_ns=EPOCH_NS + round(b * S))
            for n, a, b in phases
        ],
        **more,  # type: ignore[arg-type]
    )
    return Observation(
        id=f"import-{harness}-{imported}",
        source=f"import.{harness}",
        source_id=f"import.{harness}/{imported}",
        seq=1,
        subject=Subject(trial=TRIAL),
        wall_ns=EPOCH_NS + 40 * S,
        mono_ns=0,
        trust=trust,
        kind=value.kind,
        value=encode_value(value),
    )


def story(exit_code: int = 0) -> Story:
    tale = Story().begin()
    tale.s = 1
    tale.attempt(turns=0)
    tale.s = 35
    tale.end(exit_code)
    return tale


def outcome(*imported: Observation, exit_code: int = 0) -> tuple[Outcome, str | None]:
    trial = assemble([*story(exit_code).observations, *imported], TRIAL).trial
    return trial.outcome, trial.outcome_source


def test_a_score_beats_the_exit_status_both_ways() -> None:
    assert outcome(told(outcome=Outcome.FAILED)) == (Outcome.FAILED, "harbor")
    assert outcome(told(outcome=Outcome.PASSED), exit_code=1) == (Outcome.PASSED, "harbor")


def test_a_word_that_is_no_score_only_makes_it_worse() -> None:
    assert outcome(told("mini-swe-agent", Outcome.FAILED, scored=False)) == (Outcome.FAILED, "mini-swe-agent")
    assert outcome(told("mini-swe-agent", Outcome.UNKNOWN, scored=False)) == (Outcome.PASSED, "exit_code")
    assert outcome(told("exit-code", Outcome.PASSED, scored=False), exit_code=1) == (Outcome.FAILED, "exit_code")


@pytest.mark.parametrize("word", [Outcome.PASSED, Outcome.ERRORED])
def test_the_agents_own_word_changes_no_outcome(word: Outcome) -> None:
    for scored in (False, True):
        inside = told("claude-code", word, scored=scored, trust=Trust.INSIDE)
        assert outcome(inside, exit_code=0) == (Outcome.PASSED, "exit_code")
        assert outcome(inside, exit_code=1) == (Outcome.FAILED, "exit_code")
        (shown,) = assemble([inside], TRIAL).trial.booked
        assert (shown.outcome, shown.inside) == (word, True)


def test_the_agents_own_word_is_kept_and_is_no_outcome_of_a_trial_that_was_watched() -> None:
    inside = told("claude-code", Outcome.ERRORED, scored=False, trust=Trust.INSIDE)
    watched = assemble([*Story().begin().observations, inside], TRIAL).trial
    assert (watched.outcome, [b.harness for b in watched.booked]) == (Outcome.UNKNOWN, ["claude-code"])
    alone = assemble([inside], TRIAL).trial
    assert (alone.outcome, alone.outcome_source, alone.closed) == (Outcome.ERRORED, "claude-code", "normal")


def test_a_scorer_beats_the_harness_that_ran_the_agent_in_any_order() -> None:
    both = [told("mini-swe-agent", Outcome.UNKNOWN, scored=False), told("swe-bench", Outcome.PASSED)]
    assert outcome(*both) == outcome(*reversed(both)) == (Outcome.PASSED, "swe-bench")


def test_a_whole_file_beats_the_same_one_cut_whenever_each_was_imported() -> None:
    cut = told(outcome=Outcome.UNKNOWN, scored=False, imported=2, complete=False)
    assert outcome(told(outcome=Outcome.FAILED, imported=1), cut) == (Outcome.FAILED, "harbor")


def test_an_attempt_that_was_tried_again_counts_only_where_it_is_all_there_is() -> None:
    again = told(outcome=Outcome.ERRORED, retried=True, identity="first", imported=9)
    assert outcome(again, told(outcome=Outcome.PASSED)) == (Outcome.PASSED, "harbor")
    assert assemble([again], TRIAL).trial.booked[0].retried


def test_a_moment_belongs_to_the_phase_that_the_harness_timed() -> None:
    tale = story()
    for at in (0.2, 10, 22, 27, 33):
        tale.tell(OomKill(container_id=BOX, delta=1), s=at)
    tale.tell(ContainerSeen(container_id=BOX), s=0.1)
    placed = assemble([*tale.observations, told(phases=PHASES)], TRIAL).placed
    kills = [one.phase for one in placed if isinstance(one.value, OomKill)]
    assert kills == [PhaseName.SETUP, PhaseName.AGENT, PhaseName.VERIFY, PhaseName.VERIFY, PhaseName.TEARDOWN]
    steps = [one.step for one in placed if isinstance(one.value, OomKill)]
    assert steps == [None, 1, None, None, None]


def test_what_the_verifier_used_is_no_step_s() -> None:
    tale = Story().begin()
    tale.box()
    tale.read("baseline", oom_kill=0, memory_peak=1 << 20)
    tale.s = 1
    tale.attempt(turns=0)
    for at, kills in ((10, 0), (27, 1)):
        tale.s = at
        tale.read("change", oom_kill=kills, memory_peak=(8 + at) << 20, memory_peak_kind="exact")
    tale.s = 35
    tale.end(0)
    before = assemble(tale.observations, TRIAL).trial.steps[-1].containers[0]
    after = assemble([*tale.observations, told(phases=PHASES)], TRIAL).trial.steps[-1].containers[0]
    assert (before.oom_kills, after.oom_kills) == (1, 0)
    assert (after.memory_peak or 0) < (before.memory_peak or 0)


def test_the_last_step_ends_with_the_agent_s_phase_not_with_the_command() -> None:
    plain = assemble(story().observations, TRIAL).trial.steps[-1]
    booked = assemble([*story().observations, told(phases=PHASES)], TRIAL).trial.steps[-1]
    assert (plain.ended, booked.ended) == (rfc3339(EPOCH_NS + 35 * S), rfc3339(EPOCH_NS + 20 * S))


def test_phases_limits_and_concurrency_stand_in_the_record() -> None:
    seen = told(phases=PHASES, time=TimeLimits(agent=900, source="harbor"), concurrency=4, memory_declared=1 << 30)
    trial = assemble([*story().observations, seen], TRIAL).trial
    assert [(p.name, p.source) for p in trial.phases] == [(name, "harbor") for name, _, _ in PHASES]
    assert (trial.limits.time.agent, trial.limits.memory.declared) == (900, 1 << 30)
    assert trial.environment.concurrency_at_start == 4


def test_another_clock_s_phases_are_not_believed() -> None:
    hours = tuple((name, a + 7200, b + 7200) for name, a, b in PHASES)
    trial = assemble([*story().observations, told(phases=hours)], TRIAL).trial
    assert {phase.source for phase in trial.phases} == {"observed"}


def test_phases_and_limits_that_the_agent_wrote_move_nothing() -> None:
    """A transcript of its own, dated into the future, would make its harness's teardown a loss in its time."""
    tale = story()
    tale.tell(ContainerSeen(container_id=BOX), s=0.1)
    tale.tell(OomKill(container_id=BOX, delta=1), s=15)
    plain = assemble(tale.observations, TRIAL)
    for since, until in ((0.5, 9), (0.5, 9000)):
        written = told(
            "claude-code",
            trust=Trust.INSIDE,
            phases=((PhaseName.AGENT, since, until),),
            time=TimeLimits(agent=9, source="x"),
            memory_declared=1,
        )
        seen = assemble([*tale.observations, written], TRIAL)
        kills = [one.phase for one in seen.placed if isinstance(one.value, OomKill)]
        assert kills == [one.phase for one in plain.placed if isinstance(one.value, OomKill)]
        assert {phase.source for phase in seen.trial.phases} == {"observed"}
        assert seen.trial.limits == plain.trial.limits


def test_a_container_of_the_verifiers_time_or_name_is_the_verifiers() -> None:
    tale = story()
    project = {"com.docker.compose.project": "a__verifier__trial"}
    tale.tell(ContainerSeen(container_id="1" * 64, started_wall_ns=tale.wall(26)), s=26)
    tale.tell(ContainerSeen(container_id="2" * 64, labels=project), s=3)
    tale.tell(ContainerSeen(container_id="3" * 64, started_wall_ns=tale.wall(3)), s=26)
    placed = assemble([*tale.observations, told(phases=PHASES)], TRIAL).placed
    roles = {one.value.container_id[0]: one.value.role for one in placed if isinstance(one.value, ContainerSeen)}
    assert roles == {"1": "verifier", "2": "verifier", "3": "main"}


def test_order_and_repeats_do_not_matter() -> None:
    many = [*story().observations, told(phases=PHASES), told("mini-swe-agent", Outcome.FAILED, scored=False)]
    first = assemble(many, TRIAL).trial
    shuffled = many * 2
    random.Random(7).shuffle(shuffled)
    assert assemble(shuffled, TRIAL).trial == first
