"""A limit that fired: charged to what took the time, and to nobody when nothing did."""

import random
from collections.abc import Mapping

import msgspec
import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, load
from fairtrial.middleware.core.observations import ReplyFacts, TrialStarted
from fairtrial.middleware.core.records import Limits, Outcome, Phase, PhaseName, TimeLimits, Verdict
from fairtrial.middleware.core.yardsticks import NO_YARDSTICKS, Reference, Yardsticks
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.delays import IDLE, dispatched, pulled, throttled
from tests.middleware.attribution.scene import Scene, ended, summary

MODEL = "claude-test"


def under(limit: str = "100", **scene: object) -> Scene:
    told = Scene(**scene)  # type: ignore[arg-type]
    next(o for o in told.observations if o.kind == TrialStarted.kind).value["command"] = ["timeout", limit, "agent"]
    return told


def until(told: Scene, s: float = 100.05) -> Scene:
    return told.waited(max(0.0, s - told.s)).end(124)


def reference(first_s: float = 2.0, rate: float = 20.0) -> Reference:
    return Reference(
        source="a test", first_token_p95_s={(MODEL, b): first_s for b in range(6)}, token_rate_p5={MODEL: rate}
    )


def yardsticks(*, need: float | None = None, known: bool = True) -> Yardsticks:
    return Yardsticks(reference=reference() if known else None, need_s=need, need_trials=12)


def judged(told: Scene, yard: Yardsticks = NO_YARDSTICKS) -> Verdict:
    return judge(told.assembly(), DEFAULT_THRESHOLDS, yardsticks=yard)


# --- nobody took the time -------------------------------------------------------------------------------------------


def test_a_limit_that_fired_over_the_models_own_work_is_the_models() -> None:
    """Innocent: an endless loop of its own."""
    verdict = judged(until(under().call().ran(0).call()))
    assert summary(verdict) == ("model", "proved", None, None)
    assert verdict.ended_as == "harness.timeout"
    assert ended(verdict) is None
    assert "The time limit of 100 s fired (timeout(1) in the command); nothing outside" in verdict.sentence
    assert verdict.ledger.limit == 100.0


def test_a_few_seconds_of_errors_out_of_a_limit_are_not_infra() -> None:
    """Near-miss: 529 twice, half a second, at the very end."""
    told = under().call().ran(0).waited(95 - 2)
    verdict = judged(until(told.refused(529, times=2, wait=0.2)))
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["model_api.overloaded"]
    assert "less than the part (0.1)" in verdict.present[0].why
    assert ended(verdict) == ("model_api.overloaded", "proved", 2)


# --- something did --------------------------------------------------------------------------------------------------


def overloaded_for(length: float, told: Scene | None = None) -> Scene:
    """529 for so long, then a whole reply, and the limit fires over a tool."""
    told = told or under().call().ran(0)
    told.refused(529, times=2, wait=length - 0.4, error_type="overloaded_error")
    return until(told.call())


def test_time_that_was_lost_and_would_have_sufficed_is_suspected() -> None:
    verdict = judged(overloaded_for(50), yardsticks(need=80))
    assert summary(verdict)[:3] == ("infra", "suspected", "model_api.overloaded")
    assert "passed needed 80 s" in verdict.sentence
    assert "needed less than" in (verdict.flips_if or "")
    assert verdict.ended_as == "harness.timeout"
    assert verdict.ledger.infra_seconds == pytest.approx(50, abs=1)


def test_time_that_was_lost_of_more_than_enough_is_not_infra() -> None:
    """Near-miss: what was left is more than what passed trials needed."""
    verdict = judged(overloaded_for(50), yardsticks(need=30))
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["model_api.overloaded"]
    assert verdict.present[0].why == "enough of the limit was left to the trial itself"


def test_time_that_was_lost_of_a_task_whose_need_nobody_knows_is_indeterminate() -> None:
    verdict = judged(overloaded_for(50), yardsticks())
    assert verdict.blame == "indeterminate"
    assert "need when they pass is not known" in verdict.sentence
    assert "run the trial again with a limit of" in verdict.sentence
    assert "turns to infra, suspected" in (verdict.flips_if or "")


def test_an_outage_that_was_still_open_as_the_limit_fired_is_proved() -> None:
    told = under().call().ran(0).waited(60).refused(529, times=9, wait=3.0, error_type="overloaded_error")
    verdict = judged(until(told))
    assert summary(verdict) == ("infra", "proved", "model_api.overloaded", 2)
    assert "was still open as the limit fired" in verdict.sentence
    assert ended(verdict) == ("model_api.overloaded", "proved", 2)


def test_an_outage_that_was_open_and_short_is_not_proved() -> None:
    """Near-miss: 5 s of 100."""
    told = under().call().ran(0).waited(92).refused(529, times=5, wait=1.0, error_type="overloaded_error")
    assert judged(until(told)).blame == "model"


def test_an_outage_that_followed_others_did_not_begin_in_normal_progress() -> None:
    told = under().call().refused(529, times=2, wait=30.0).call()
    told.refused(529, times=9, wait=3.0, error_type="overloaded_error")
    verdict = judged(until(told))
    assert verdict.blame == "indeterminate"


@pytest.mark.parametrize("spent", [False, True])
def test_a_rate_limit_that_was_open_is_proved_unless_a_tool_may_have_spent_of_it(spent: bool) -> None:
    told = under(user_agent="my-agent/1").call().ran(0)
    if spent:
        alone = {"session": None, "first_user_digest": "hello", "message_digests": ["hello"], "body_digest": "hello"}
        junk = told.request(**alone, history_len=1, assistant_turns=0)  # type: ignore[arg-type]
        told.attempt(ReplyFacts(status=200, terminator=True, stop_reason="end_turn"), request=junk)
    verdict = judged(until(told.waited(60).refused(429, times=9, wait=3.0)))
    assert (verdict.grade == "proved") is not spent
    assert ended(verdict) == ("model_api.rate_limited", "proved", 2)


def test_a_rate_limit_that_its_client_did_not_keep_to_is_not_proved_by_a_limit_of_time() -> None:
    told = under().call().ran(0).waited(40).refused(429, times=30, wait=1.5, retry_after=30.0)
    assert summary(judged(until(told)))[:2] != ("infra", "proved")


def test_a_request_that_fails_while_others_pass_is_not_proved_by_a_limit_of_time() -> None:
    told = under().call().ran(0).waited(2).refused(500, times=22, wait=4.0)
    verdict = judged(until(told))
    assert summary(verdict)[:2] != ("infra", "proved")
    assert verdict.terminated_by is not None


def silent_to_the_end(**facts: object) -> Scene:
    """A stream that fell silent and was still open as timeout(1) struck."""
    told = under("300").call().ran(0)
    length = 300.05 - told.s
    told.aborted(silence=length - 1, seconds=length, **facts)
    return told.end(124)


def test_a_silence_that_was_open_as_the_limit_fired_is_proved() -> None:
    verdict = judged(silent_to_the_end())
    assert summary(verdict)[:3] == ("infra", "proved", "model_api.stalled")
    assert verdict.ended_as == "harness.timeout"


@pytest.mark.parametrize(
    "facts", [{"our_lag": 5.0}, {"downstream_blocked": 290.0}, {"ttfb": None}, {"request_whole": False}]
)
def test_a_silence_that_may_be_another_sides_is_not_proved(facts: dict[str, object]) -> None:
    """Near-miss: our lag, a client that did not read, a way that was never open, an unfinished request."""
    verdict = judged(silent_to_the_end(**facts))
    assert (verdict.blame, verdict.grade) != ("infra", "proved")


# --- the engine and the box -----------------------------------------------------------------------------------------


def boxed() -> Scene:
    told = under()
    told.also |= IDLE
    return told.read("baseline")


def test_commands_that_an_engine_was_slow_to_start_are_suspected_when_the_time_would_have_sufficed() -> None:
    told = boxed().call()
    for _ in range(3):
        dispatched(told, 16.0).call()
    verdict = judged(until(told), yardsticks(need=80))
    assert summary(verdict)[:3] == ("infra", "suspected", "runtime.daemon_fault")
    assert "a container engine that was slow to answer (45 s)" in verdict.sentence
    assert (verdict.ended_as, ended(verdict)) == ("harness.timeout", None)
    assert verdict.ledger.by_cause == {"runtime.daemon_fault": pytest.approx(45)}
    assert verdict.ledger.undecided_seconds is None
    assert verdict.evidence


def test_an_engine_that_was_slow_in_passing_is_not_infra() -> None:
    """Near-miss: 8 s of 100 s."""
    verdict = judged(until(dispatched(boxed().call(), 9.0).call()), yardsticks(need=80))
    assert verdict.blame == "model"


def test_an_engine_that_was_slow_about_a_box_that_the_model_fills_blames_nobody() -> None:
    told = boxed().call()
    dispatched(told, 50.0)
    told.also["cpu_used"] = 48.0
    verdict = judged(until(told.call()), yardsticks(need=80))
    assert (verdict.blame, verdict.cause) == ("indeterminate", None)
    assert verdict.ledger.undecided_seconds == pytest.approx(49)


def test_a_pull_inside_the_limit_whose_need_nobody_knows_is_indeterminate() -> None:
    verdict = judged(until(pulled(boxed(), 40.0).call().ran(0).call()))
    assert verdict.blame == "indeterminate"
    assert "pulling an image (40 s)" in verdict.sentence


@pytest.mark.parametrize("need, blame", [(80, "indeterminate"), (None, "indeterminate"), (30, "model")])
def test_throttling_is_nobodys_whatever_it_took_and_nothing_when_enough_was_left(
    need: float | None, blame: str
) -> None:
    """Look-alike: an endless loop of the model's at its quota loses as much as an honest build."""
    told = throttled(boxed().call(), 60.0, counted=50.0, psi_cpu=50.0, cpu_used=11.0)
    verdict = judged(until(told.ran(0).call()), yardsticks(need=need))
    assert verdict.blame == blame
    assert verdict.ledger.by_cause == {"container.cpu_throttled": pytest.approx(50)}
    assert verdict.ledger.infra_seconds == pytest.approx(50)
    assert verdict.ledger.undecided_seconds == pytest.approx(50)


def test_throttling_below_a_tenth_of_the_limit_is_the_models() -> None:
    told = throttled(boxed().call(), 60.0, counted=9.0, psi_cpu=9.0, cpu_used=50.0)
    assert judged(until(told.call()), yardsticks(need=95)).blame == "model"


def test_throttling_does_not_add_to_a_delay_that_it_overlaps() -> None:
    told = dispatched(boxed().call(), 41.0, then=0.0)
    told.also |= {"cpu_throttled": 41.0, "psi_cpu": 41.0}
    book = judged(until(told.call()), yardsticks(need=80)).ledger
    assert sum(book.by_cause.values()) == pytest.approx(81)
    assert book.infra_seconds == pytest.approx(41)


def test_what_is_infras_under_either_reading_of_the_throttling_stays_suspected() -> None:
    told = throttled(boxed().call(), 30.0, counted=25.0, psi_cpu=25.0)
    told.call().refused(529, times=2, wait=29.6, error_type="overloaded_error")
    verdict = judged(until(told.call()), yardsticks(need=80))
    assert summary(verdict)[:3] == ("infra", "suspected", "model_api.overloaded")


# --- slow calls -----------------------------------------------------------------------------------------------------


def slow(calls: int = 4, seconds: float = 20.0) -> Scene:
    told = under()
    for _ in range(calls):
        told.call(seconds=seconds, input_tokens=2_000, output_tokens=40).ran(0)
    return until(told)


def test_calls_far_above_their_p95_are_charged_against_a_frozen_reference() -> None:
    """Each of four took 20 s where 2 s + 40 / 20 s were expected."""
    verdict = judged(slow(), yardsticks(need=60))
    assert summary(verdict)[:3] == ("infra", "suspected", "model_api.slow")
    assert verdict.ledger.by_cause["model_api.slow"] == pytest.approx(64, abs=0.1)
    assert verdict.ledger.reference == "a test"
    assert ended(verdict) is None


def test_without_a_reference_nothing_is_charged_and_that_is_said() -> None:
    verdict = judged(slow(), yardsticks(need=60, known=False))
    assert verdict.blame == "indeterminate"
    assert "no trial of the same hour of the week says how long" in verdict.sentence
    assert (verdict.ledger.reference, verdict.ledger.infra_seconds) == (None, 0.0)
    assert verdict.ledger.calls_without_reference == 4


def test_long_output_is_the_models() -> None:
    """Near-miss: the same lengths for 400 tokens each."""
    told = under()
    for _ in range(4):
        told.call(seconds=20.0, input_tokens=2_000, output_tokens=400).ran(0)
    assert judged(until(told), yardsticks(need=60)).blame == "model"


def test_slow_calls_without_a_limit_that_fired_are_present() -> None:
    told = Scene().call(seconds=60.0, input_tokens=2_000, output_tokens=40).ran(1).call(tools=0).end(1)
    verdict = judged(told, yardsticks())
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["model_api.slow"]


def test_at_most_one_healthy_trial_in_a_hundred_is_charged_over_the_line() -> None:
    """1 000 seeded trials whose calls are drawn from what the reference was made of (log-normal, as latencies are)."""
    chance = random.Random(20261130)

    def drawn() -> tuple[float, float]:
        return chance.lognormvariate(0.5, 0.4), chance.lognormvariate(4.0, 0.25)

    sample = [drawn() for _ in range(4_000)]
    first = sorted(s for s, _ in sample)[int(0.95 * len(sample))]
    rate = sorted(r for _, r in sample)[int(0.05 * len(sample))]
    yard = Yardsticks(reference=reference(first, rate), need_s=95.0, need_trials=9)
    over = 0
    for _ in range(1_000):
        told = under(families=(), counters=False, vmstat=False)
        while told.s < 100:
            ttft, speed = drawn()
            tokens = chance.randint(20, 1_500)
            told.call(seconds=ttft + tokens / speed, input_tokens=3_000, output_tokens=tokens).waited(3.0)
        begun = next(o for o in told.observations if o.kind == TrialStarted.kind)
        begun.value["command"] = ["timeout", f"{told.s:.3f}", "agent"]
        ledger = judged(told.end(124), yard).ledger
        assert ledger.limit is not None
        over += (ledger.infra_seconds or 0.0) >= DEFAULT_THRESHOLDS.ledger_share * ledger.limit
    assert over <= 10


def test_the_share_is_a_threshold_that_can_be_set() -> None:
    told = overloaded_for(50)
    verdict = judge(told.assembly(), load({"ledger_share": 0.9}), yardsticks=yardsticks(need=80))
    assert verdict.blame == "model"


# --- limits that the harness names ----------------------------------------------------------------------------------


def named(told: Scene, *, limit: float, outcome: str = "timeout") -> Assembly:
    """As an adapter hands it over: the harness's own agent phase, and the limit that it declared."""
    assembly = told.assembly()
    trial = assembly.trial
    phases: Mapping[PhaseName, Phase] = {p.name: p for p in trial.phases}
    agent = msgspec.structs.replace(phases[PhaseName.AGENT], started=trial.started, outcome=outcome, source="harbor")
    changed = msgspec.structs.replace(
        trial,
        phases=[agent],
        limits=Limits(time=TimeLimits(agent=limit, source="task.toml")),
        outcome=Outcome.FAILED,
        outcome_source="harbor",
    )
    return Assembly(trial=changed, placed=assembly.placed, attempt_call=assembly.attempt_call)


def test_a_limit_that_the_harness_names_and_our_clock_confirms_fired() -> None:
    verdict = judge(named(Scene().call().ran(0).call().waited(96).end(1), limit=98.0))
    assert (verdict.blame, verdict.ended_as) == ("model", "harness.timeout")
    assert "(as task.toml says)" in verdict.sentence


def test_a_time_out_that_is_booked_long_before_its_limit_is_an_inner_timers() -> None:
    verdict = judge(named(Scene().call().ran(0).call().waited(180).end(1), limit=1800.0))
    assert summary(verdict)[:3] == ("harness", "suspected", "harness.inner_timeout")
    assert verdict.ended_as == "harness.inner_timeout"
    assert "only 183 s had passed" in verdict.sentence


def test_a_limit_that_was_declared_and_did_not_fire_is_nothing() -> None:
    """Innocent."""
    verdict = judge(named(Scene().call().ran(0).call(tools=0).end(1), limit=1800.0, outcome="failed"))
    assert verdict.blame == "model"


def test_a_limit_below_what_passed_trials_needed_is_suspected_of_the_harness() -> None:
    verdict = judged(until(under().call().ran(0).call()), yardsticks(need=180))
    assert summary(verdict)[:3] == ("harness", "suspected", "harness.timeout")
    assert ended(verdict) is None
