"""The operator's rule: keys, quotas, addresses, and runs that somebody stopped."""

import pytest

from fairtrial.middleware.core.observations import TrialEnded
from tests.middleware.attribution.scene import Scene, ended, summary


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_were_refused_for_ever_are_the_operators_and_the_trial_never_ran(status: int) -> None:
    verdict = Scene().refused(status, times=8, error_type="authentication_error").end(1).verdict()
    assert summary(verdict) == ("operator", "proved", "operator.auth", 1)
    assert ended(verdict) == ("operator.auth", "proved", 1)
    assert verdict.ended_as == "never_ran"
    assert verdict.answers.reward_valid == "no"
    assert "never ran" in verdict.sentence
    assert "valid key" in verdict.sentence


def test_a_proxy_that_asks_for_credentials_is_the_operators() -> None:
    told = Scene().undialled("proxy", "the proxy answered CONNECT with 407", proxy_status=407)
    assert summary(told.end(1).verdict()) == ("operator", "proved", "operator.auth", 1)


def test_a_proxy_that_fails_otherwise_is_not_a_matter_of_credentials() -> None:
    told = Scene().undialled("proxy", "the proxy answered CONNECT with 503", proxy_status=503)
    assert summary(told.end(1).verdict()) == ("infra", "suspected", "network.proxy", 1)


@pytest.mark.parametrize(
    "status, names, cause",
    [
        (402, [], "operator.quota"),
        (429, ["quota"], "operator.quota"),
        (429, ["credit"], "operator.quota"),
        (400, ["credit"], "operator.quota"),
        (400, ["spend"], "operator.budget"),
        (429, ["spend"], "operator.budget"),
    ],
)
def test_a_quota_credit_or_spending_limit_is_the_operators(status: int, names: list[str], cause: str) -> None:
    verdict = Scene().call().ran(0).refused(status, times=2, error_names=names).end(1).verdict()
    assert summary(verdict) == ("operator", "proved", cause, 2)


def test_a_plain_429_is_not_the_operators() -> None:
    assert Scene().call().ran(0).refused(429).end(1).verdict().blame == "infra"


@pytest.mark.parametrize(
    "stage, error, words, grade",
    [
        ("dns", "gaierror: Name or service not known", "name not known", "proved"),
        ("dns", "gaierror: Temporary failure in name resolution", "Temporary failure", "suspected"),
        (
            "connect",
            "ConnectionRefusedError: Connect call failed; refused",
            "(no connection: connection refused)",
            "proved",
        ),
        ("connect", "no answer in 10 s", "no answer in 10 s", "suspected"),
    ],
)
def test_an_upstream_that_never_sent_a_head_is_the_endpoints_fault(
    stage: str, error: str, words: str, grade: str
) -> None:
    verdict = Scene().undialled(stage, error).undialled(stage, error).end(1).verdict()
    assert summary(verdict) == ("operator", grade, "operator.endpoint", 1)
    assert "api.test" in verdict.sentence
    assert words in verdict.sentence
    assert "base URL" in verdict.sentence


def test_a_path_that_does_not_exist_is_the_endpoints_fault() -> None:
    assert summary(Scene().refused(404, html=True, provider_id=False).end(1).verdict()) == (
        "operator",
        "proved",
        "operator.endpoint",
        1,
    )


def test_an_upstream_that_answered_before_is_not_a_wrong_address() -> None:
    assert Scene().call().ran(0).undialled().end(1).verdict().cause == "model_api.unreachable"


def test_a_run_that_somebody_stopped_is_not_the_models_failure() -> None:
    verdict = Scene().call().ran(0).call().waited().end(130, forwarded=[2]).verdict()
    assert summary(verdict) == ("operator", "suspected", "operator.cancelled", 2)
    assert ended(verdict) == ("operator.cancelled", "suspected", 2)
    assert verdict.ended_as == "killed"
    assert "SIGINT" in verdict.sentence


def test_a_window_change_passed_on_is_not_a_stop() -> None:
    assert Scene().call().ran(1).call(tools=0).end(1, forwarded=[28]).verdict().blame == "model"


def test_a_signal_that_the_command_outlived_is_not_a_stop() -> None:
    assert Scene().call().ran(0).call(tools=0).end(0, forwarded=[15]).verdict().blame == "none"


def test_a_client_that_was_stopped_while_it_still_retried_had_not_given_up() -> None:
    verdict = Scene().call().ran(0).refused(529, times=3).end(130, forwarded=[2]).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.overloaded", 2)
    assert ended(verdict) == ("operator.cancelled", "suspected", 2)
    assert "SIGINT" in verdict.sentence


def test_ctrl_c_at_the_terminal_is_the_operators_and_says_so() -> None:
    told = Scene().call().ran(0).call().waited()
    told.read("end").tell(TrialEnded(signal=2, keyboard_signals=[2]), told.runner)
    verdict = told.verdict()
    assert summary(verdict) == ("operator", "suspected", "operator.cancelled", 2)
    assert "Ctrl-C" in verdict.sentence
    assert "The command ended by it." in verdict.sentence
    assert verdict.ended_as == "killed"


def test_a_command_that_went_on_after_the_signal_is_not_said_to_have_ended_by_it() -> None:
    verdict = Scene().call().ran(0).call().waited().end(1, forwarded=[2]).verdict()
    assert verdict.cause == "operator.cancelled"
    assert "The command ended by it." not in verdict.sentence
    assert "ended with exit code 1" in verdict.sentence
    assert verdict.ended_as != "killed"


@pytest.mark.parametrize("stage", ["dns", "connect", "proxy"])
def test_a_proxy_that_does_not_answer_is_no_wrong_base_url(stage: str) -> None:
    told = Scene().undialled(stage, "ConnectionRefusedError: refused", via_proxy="127.0.0.1:5")
    verdict = told.end(1).verdict()
    assert (verdict.cause, verdict.grade) == ("network.proxy", "suspected")
    assert "HTTPS_PROXY" in verdict.sentence


def test_a_model_that_the_api_does_not_know_is_no_wrong_address() -> None:
    verdict = Scene().refused(404, times=3, error_type="not_found_error").end(1).verdict()
    assert (verdict.blame, verdict.grade, verdict.cause) == ("operator", "suspected", "model_api.client_error")
    assert "knows no such model or path (HTTP 404 x 3)" in verdict.sentence


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_after_others_worked_may_be_somebody_elses(status: int) -> None:
    assert summary(Scene().refused(status).end(1).verdict()) == ("operator", "proved", "operator.auth", 1)
    later = Scene().call().ran(0).refused(status).end(1).verdict()
    assert summary(later) == ("operator", "suspected", "operator.auth", 2)
