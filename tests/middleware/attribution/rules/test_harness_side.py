"""The near side of the door: early aborts and wrong requests are the harness's, never infra."""

import pytest

from tests.middleware.attribution.scene import Scene, ended, summary


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_refused_as_wrong_is_never_infra(status: int) -> None:
    verdict = Scene().call().ran(0).refused(status, error_type="invalid_request_error").end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "model_api.client_error", 2)
    assert ended(verdict) is None
    assert verdict.ended_as == "agent.gave_up"


def test_a_request_refused_once_and_then_changed_is_present() -> None:
    verdict = Scene().call().ran(0).refused(400).call().ran(1).call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["model_api.client_error"]


def test_an_abort_before_the_silence_reached_the_clients_watchdog_is_the_harnesss() -> None:
    verdict = Scene().call().ran(0).aborted(silence=120).waited(10).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.client_timeout", 2)
    assert ended(verdict) is None
    assert verdict.flips_if is not None
    assert "120 s" in verdict.flips_if


def test_an_abort_while_bytes_were_coming_is_proved_to_be_the_clients() -> None:
    told = Scene().call().ran(0).aborted(silence=20, silence_at_end=0.1).waited(10)
    assert summary(told.end(1).verdict()) == ("harness", "proved", "harness.client_timeout", 2)


def test_the_same_silence_is_a_stall_for_a_client_that_nobody_knows() -> None:
    verdict = Scene(user_agent="curl-ish/1").call().ran(0).aborted(silence=120).waited(10).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.stalled", 2)


def test_pings_count_as_bytes() -> None:
    told = Scene(user_agent="unknown/1").call().ran(0)
    told.aborted(silence=10, seconds=400, max_gap=400.0).waited(10)
    assert told.end(1).verdict().cause == "harness.client_timeout"


def test_an_abort_that_a_retry_mended_is_present() -> None:
    verdict = Scene().call().ran(0).aborted(silence=10).waited(5).call().ran(1).call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["harness.client_timeout"]


def test_a_command_that_ended_with_a_call_open_is_suspected_of_the_harness() -> None:
    verdict = Scene().call().ran(0).aborted(silence=3).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.client_timeout", 2)
    assert "still open" in verdict.sentence
    assert "the API was not the reason" not in verdict.sentence


def test_a_command_killed_by_a_signal_with_a_call_open_names_the_kill() -> None:
    verdict = Scene().call().ran(0).aborted(silence=3).end(None, signal=9).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.killed", 2)
    assert verdict.ended_as == "killed"


def test_a_call_that_was_open_when_the_kernel_killed_its_client_is_a_consequence() -> None:
    told = Scene().call().ran(0).aborted(silence=3)
    told.oom().gone(137, ended_by="oom")
    verdict = told.end(137).verdict()
    assert verdict.cause == "container.oom_kill"


def test_a_trial_that_passed_with_a_call_open_passed() -> None:
    assert Scene().call().ran(0).call().ran(0).aborted(silence=1).end(0).verdict().blame == "none"


def test_a_client_that_gave_up_without_a_byte_is_told_what_it_could_have_waited() -> None:
    told = Scene().call().ran(0)
    for _ in range(3):
        told.aborted(silence=2.1, seconds=2.1, ttfb=None).waited(0.5)
    verdict = told.waited(9).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.client_timeout", 2)
    said = "The client gave up 3 times after 2.1 s without a byte (step 2's reply). That is shorter than the 5 min"
    assert said in verdict.sentence
    assert "Raise the client's own timeout" in verdict.sentence


@pytest.mark.parametrize("signal", [6, 11])
def test_a_command_that_crashed_with_a_call_open_crashed(signal: int) -> None:
    verdict = Scene().call().ran(0).aborted(silence=3).end(None, signal=signal).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.crashed", 2)
    assert verdict.ended_as == "agent.crashed"
    assert "SIG" in verdict.sentence
