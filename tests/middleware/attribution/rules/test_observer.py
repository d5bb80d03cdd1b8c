"""fairtrial as a suspect: convicted where the relay says so, never cleared by guess."""

from fairtrial.middleware.core.observations import CoverageChanged, DoorState, Note, ReplyFacts
from tests.middleware.attribution.scene import Scene, ended, summary


def test_an_attempt_that_the_relay_broke_itself_is_fairtrials() -> None:
    told = Scene().call().ran(0).attempt(ReplyFacts(), outcome="error", first_failure="fairtrial", errno="EBUG")
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("fairtrial", "proved", "observer.relay_fault", 2)
    assert ended(verdict) == ("observer.relay_fault", "proved", 2)
    assert verdict.answers.reward_valid == "no"


def test_a_relay_fault_that_a_retry_mended_is_present() -> None:
    told = Scene().call().ran(0).attempt(ReplyFacts(), outcome="error", first_failure="fairtrial")
    verdict = told.call().ran(1).call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["observer.relay_fault"]


def test_no_file_descriptor_left_for_a_dial_is_our_limit() -> None:
    told = Scene().call().ran(0).undialled("connect", "OSError: Too many open files", errno="EMFILE")
    assert summary(told.end(1).verdict()) == ("fairtrial", "proved", "observer.limit", 2)


def test_a_client_that_gave_up_while_our_loop_lagged_is_ours() -> None:
    told = Scene().call().ran(0).aborted(silence=20, our_lag=19.0).waited(5)
    assert summary(told.end(1).verdict()) == ("fairtrial", "suspected", "observer.lag", 2)


def test_a_small_lag_beside_a_long_silence_is_not_the_reason() -> None:
    told = Scene().call().ran(0).aborted(silence=301, our_lag=2.0).waited(5)
    assert told.end(1).verdict().cause == "model_api.stalled"


def test_a_door_that_could_not_be_bound_and_no_call_is_suspected_of_fairtrial() -> None:
    told = Scene()
    told.tell(DoorState(door="model", name="anthropic", ok=False, why="address already in use"), told.door)
    verdict = told.waited().end(1).verdict()
    assert summary(verdict) == ("fairtrial", "suspected", "observer.door_unreachable", None)
    assert "address already in use" in verdict.sentence


def test_a_door_lost_before_any_call_is_suspected_of_fairtrial() -> None:
    told = Scene().waited()
    told.tell(CoverageChanged(source="door.model.anthropic", families=["model_api"], state="lost"), told.door)
    assert told.waited(9).end(1).verdict().blame == "fairtrial"


def test_another_door_that_failed_while_calls_came_is_no_matter() -> None:
    told = Scene().call().ran(1)
    told.tell(DoorState(door="model", name="openai", ok=False, why="in use"), told.door)
    assert told.call(tools=0).end(1).verdict().blame == "model"


def test_a_call_that_fairtrial_broke_is_never_without_weight_in_a_failed_trial() -> None:
    told = Scene().call()
    told.attempt(
        ReplyFacts(), outcome="error", first_failure="fairtrial", request=told.request(agent="sub", body_digest="sub")
    )
    verdict = told.call().ran(1).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.grade, verdict.cause) == ("fairtrial", "suspected", "observer.relay_fault")
    assert "a direct connection would not have had this" in verdict.sentence


def test_a_cut_while_our_own_loop_lagged_is_ours_and_not_the_upstreams() -> None:
    verdict = Scene().call().ran(0).cut(our_lag=6.0).end(1).verdict()
    assert (verdict.blame, verdict.grade, verdict.cause) == ("fairtrial", "suspected", "observer.lag")


def short_of_room(told: Scene, length: float) -> Scene:
    told.tell(Note(event="descriptors.short", fields={"connections": 500}), told.runner)
    told.waited(length)
    told.tell(Note(event="descriptors.enough", fields={"waited_s": length}), told.runner)
    return told


def test_doors_that_took_no_connection_before_an_agent_fell_silent_are_suspected_of_fairtrial() -> None:
    verdict = short_of_room(Scene().call().ran(0), 12).waited(3).end(1).verdict()
    assert summary(verdict) == ("fairtrial", "suspected", "observer.limit", 1)
    assert "no new connection for 12 s" in verdict.sentence
    assert verdict.answers.reward_valid == "no"


def test_a_want_of_descriptors_that_a_later_call_outlived_is_present() -> None:
    """Near-miss."""
    verdict = short_of_room(Scene().call().ran(0), 12).call().ran(1).call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["observer.limit"]


def test_a_want_of_a_moment_is_nothing() -> None:
    """Innocent."""
    verdict = short_of_room(Scene().call().ran(0), 0.2).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.present) == ("model", [])


def test_a_last_reply_that_our_lag_held_back_may_never_have_been_read() -> None:
    told = Scene().call().ran(0).call(tools=0, seconds=5.0, lag=4.4).end(1)
    verdict = told.verdict()
    assert summary(verdict) == ("fairtrial", "suspected", "observer.lag", 2)
    assert ended(verdict) is None


def test_a_held_back_reply_that_the_client_went_on_from_was_read() -> None:
    told = Scene().call(seconds=5.0, lag=4.4).ran(1).call(tools=0).end(1)
    assert summary(told.verdict())[0] == "model"


def test_a_small_part_of_a_long_last_reply_that_was_our_lag_is_no_matter() -> None:
    assert Scene().call().ran(0).call(tools=0, seconds=60.0, lag=2.0).end(1).verdict().blame == "model"


def test_a_held_back_reply_of_a_trial_that_passed_is_no_matter() -> None:
    assert Scene().call().ran(0).call(tools=0, seconds=5.0, lag=4.4).end(0).verdict().blame == "none"
