"""The rule of the model API: terminal, distorting, recovered; each with a near-miss and an innocent case."""

import msgspec
import pytest

from fairtrial.middleware.core.observations import ReplyFacts, RequestFacts
from fairtrial.middleware.core.records import Blame, Grade, Trust, Verdict
from tests.middleware.attribution.scene import Scene, ended, storm, summary


def started() -> Scene:
    """One good step with a tool."""
    return Scene().call().ran(0)


def test_529_without_end_is_proved_and_never_the_models() -> None:
    verdict = storm(9).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.overloaded", 2)
    assert ended(verdict) == ("model_api.overloaded", "proved", 2)
    assert verdict.ended_as == "agent.gave_up"
    assert "9 attempts" in verdict.sentence
    assert "HTTP 529 x 9" in verdict.sentence
    assert "9.8 s" in verdict.sentence
    assert verdict.ledger.infra_seconds == pytest.approx(9.8)
    assert [q.answer for q in (verdict.questions.happened, verdict.questions.outcome_differs)] == ["yes", "yes"]
    assert verdict.answers.retry == "yes"


def test_529_that_a_retry_mended_is_present_and_the_failure_is_the_models() -> None:
    verdict = started().refused(529, times=2).call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert ended(verdict) is None
    assert [(p.cause, p.step) for p in verdict.present] == [("model_api.overloaded", 2)]


def test_a_whole_reply_whose_text_names_an_error_is_no_error() -> None:
    told = started().call(tools=0, error_type="overloaded_error", error_names=["quota"])
    assert summary(told.end(1).verdict()) == ("model", "proved", None, None)


@pytest.mark.parametrize(
    "status, reply, cause",
    [
        (500, {}, "model_api.server_error"),
        (503, {}, "model_api.server_error"),
        (529, {"provider_id": False}, "model_api.overloaded"),
        (429, {}, "model_api.rate_limited"),
        (503, {"provider_id": False}, "gateway.error"),
        (502, {"html": True}, "gateway.error"),
    ],
)
def test_each_status_without_a_later_success_is_proved(status: int, reply: dict[str, object], cause: str) -> None:
    verdict = started().waited(90).refused(status, times=3, **reply).end(1).verdict()  # type: ignore[arg-type]
    assert summary(verdict) == ("infra", "proved", cause, 2)
    assert ended(verdict) == (cause, "proved", 2)


@pytest.mark.parametrize(
    "error_type, cause",
    [
        ("overloaded_error", "model_api.overloaded"),
        ("api_error", "model_api.server_error"),
        ("rate_limit_error", "model_api.rate_limited"),
        ("server_is_overloaded", "model_api.overloaded"),
        ("UNAVAILABLE", "model_api.server_error"),
        ("throttlingException", "model_api.rate_limited"),
    ],
)
def test_an_error_event_inside_a_200_is_judged_by_its_type(error_type: str, cause: str) -> None:
    assert summary(error_event(error_type)) == ("infra", "proved", cause, 2)


def error_event(error_type: str | None) -> Verdict:
    reply = ReplyFacts(status=200, provider_id=True, error_in_stream=True, error_type=error_type, terminator=False)
    return started().attempt(reply, outcome="error").end(1).verdict()


@pytest.mark.parametrize("error_type", [None, "an_error_type_of_tomorrow", "moderation_blocked"])
def test_an_error_event_of_a_type_that_nobody_knows_proves_nothing(error_type: str | None) -> None:
    """It may as well say that the request was bad."""
    assert summary(error_event(error_type)) == ("infra", "suspected", "model_api.server_error", 2)


@pytest.mark.parametrize(
    "error_type", ["context_length_exceeded", "invalid_prompt", "INVALID_ARGUMENT", "validationException"]
)
def test_an_error_event_that_says_the_request_was_bad_is_never_infra(error_type: str) -> None:
    verdict = error_event(error_type)
    assert verdict.blame is not Blame.INFRA
    assert verdict.grade is not Grade.PROVED


def test_a_gateway_timeout_of_the_provider_stays_suspected() -> None:
    assert summary(started().refused(504).end(1).verdict()) == ("infra", "suspected", "model_api.timeout", 2)


def test_a_stream_cut_and_its_fallback_cut_too_is_proved() -> None:
    told = started().cut(open_tools=1)
    told.attempt(
        ReplyFacts(status=200, provider_id=True, started_content=True, terminator=False),
        outcome="truncated",
        request=told.request(stream=False),
        first_failure="upstream",
        closed_by="upstream",
        close_kind="rst",
        bytes_down=90,
    )
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.truncated", 2)
    assert "2 attempts" in verdict.sentence
    assert "90 B received" in verdict.sentence


def test_a_stream_cut_once_and_asked_again_is_present() -> None:
    verdict = started().cut(open_tools=1).call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert [p.cause for p in verdict.present] == ["model_api.truncated"]


def test_a_cut_reply_that_the_client_kept_bends_the_rest_and_is_suspected() -> None:
    told = started().cut()
    told.turns += 1
    verdict = told.call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.truncated", 2)
    assert ended(verdict) is None
    assert "took the broken reply for an answer" in verdict.sentence
    assert verdict.questions.ended_or_distorted.answer == "yes"


def test_a_cut_reply_that_ended_the_trial_within_its_turn_is_proved() -> None:
    assert summary(started().cut(open_tools=1).end(1).verdict()) == ("infra", "proved", "model_api.truncated", 2)


def test_a_cut_behind_the_stop_reason_that_the_client_took_lost_only_the_end_mark() -> None:
    told = started().cut(stop_reason="tool_use")
    told.turns += 1
    assert summary(told.call(tools=0).end(1).verdict()) == ("model", "proved", None, None)


def test_a_cut_behind_the_stop_reason_after_which_nothing_came_may_have_been_an_exception() -> None:
    verdict = started().cut(stop_reason="end_turn").end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.truncated", 2)


def test_a_reply_stopped_for_its_length_is_whole() -> None:
    told = started().call(tools=0, stop_reason="max_tokens").end(1)
    assert summary(told.verdict()) == ("model", "proved", None, None)


def test_a_smaller_model_taken_after_outside_errors_bends_every_later_step() -> None:
    told = started().refused(529, times=2)
    told.attempt(
        ReplyFacts(status=200, provider_id=True, stop_reason="end_turn", terminator=True),
        request=told.request(model="claude-small", body_digest="other"),
    )
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.overloaded", 2)
    assert "model" in verdict.sentence


def test_an_upstream_that_answered_before_and_cannot_be_dialled_any_more_is_suspected_of_being_unreachable() -> None:
    """A tool of the agent may have changed this machine's network; nothing else looked from elsewhere."""
    told = started().undialled("connect", "OSError: Connection refused", errno="ECONNREFUSED")
    assert summary(told.end(1).verdict()) == ("infra", "suspected", "model_api.unreachable", 2)


def test_a_reset_before_the_head_counts_as_unreachable_once_the_upstream_has_answered() -> None:
    told = started().attempt(ReplyFacts(), outcome="error", first_failure="upstream", close_kind="rst")
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.unreachable", 2)


def test_a_failed_dial_on_one_attempt_and_then_success_is_present() -> None:
    told = Scene().undialled().call().ran(1).call(tools=0).end(1)
    verdict = told.verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert len(verdict.present) == 1


def test_a_silence_that_reached_the_clients_watchdog_is_a_stall() -> None:
    verdict = started().aborted(silence=301).waited(9).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.stalled", 2)
    assert "5 min 1 s" in verdict.sentence


def test_a_failed_tls_handshake_is_suspected_and_the_operators_when_the_trust_store_is_at_fault() -> None:
    broken = started().undialled("tls", "SSLEOFError: EOF occurred").end(1).verdict()
    assert summary(broken) == ("infra", "suspected", "network.tls", 2)
    trust = Scene().undialled("tls", "SSLCertVerificationError: certificate verify failed").end(1).verdict()
    assert summary(trust) == ("operator", "suspected", "network.tls", 1)


def test_a_failed_title_call_is_nobodys_end() -> None:
    told = started()
    title: dict[str, object] = {"first_user_digest": "t", "message_digests": ["t"], "body_digest": "title"}
    aside = told.request(model="small", has_tools=False, history_len=1, **title)  # type: ignore[arg-type]
    told.attempt(ReplyFacts(status=529), outcome="error", request=aside).call(tools=0)
    assert summary(told.end(1).verdict()) == ("model", "proved", None, None)


def test_an_earlier_recovered_error_never_shadows_the_later_one_that_ended_the_trial() -> None:
    told = started().refused(529).call().ran(0).waited(90).refused(500, times=3).end(1)
    verdict = told.verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.server_error", 3)
    assert [p.cause for p in verdict.present] == ["model_api.overloaded"]


def test_an_error_that_ended_a_trial_with_exit_code_0_is_suspected_because_nobody_read_the_score() -> None:
    verdict = started().refused(529, times=3).end(0).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.overloaded", 2)
    assert ended(verdict) == ("model_api.overloaded", "proved", 2)
    assert "exit code 0, which is not a score" in verdict.sentence


def test_attempts_that_the_agent_could_have_forged_prove_nothing() -> None:
    told = started()
    before = len(told.observations)
    told.refused(529, times=3)
    seen = told.observations[before:]
    told.observations[before:] = [msgspec.structs.replace(o, trust=Trust.SAME_UID) for o in seen]
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.overloaded", 2)
    assert ended(verdict) == ("model_api.overloaded", "suspected", 2)


def test_a_model_call_that_failed_after_a_kill_is_what_ended_the_trial_because_the_agent_was_still_trying() -> None:
    verdict = Scene().call().ran(137, oom=True).refused(529, times=4).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.overloaded", 2)
    assert ended(verdict) == ("model_api.overloaded", "proved", 2)
    assert [p.cause for p in verdict.present] == ["container.oom_kill"]


@pytest.mark.parametrize("status, cause", [(500, "model_api.poison_request"), (502, "gateway.error")])
def test_a_body_that_is_refused_again_and_again_while_others_pass_may_be_poisoned(status: int, cause: str) -> None:
    verdict = started().refused(status, times=3, provider_id=status == 500).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", cause, 2)
    assert ended(verdict) == (cause, "proved", 2)
    assert "itself may be at fault" in verdict.sentence


def test_a_request_with_something_new_in_it_each_time_may_be_poisoned_all_the_same() -> None:
    told = started()
    for n in range(3):
        reply = ReplyFacts(status=500, provider_id=True)
        told.attempt(reply, outcome="error", request=told.request(body_digest=f"nonce {n}")).waited()
    assert summary(told.end(1).verdict()) == ("infra", "suspected", "model_api.poison_request", 2)


def test_other_requests_that_passed_to_another_model_say_nothing_of_this_one() -> None:
    told = started()
    for _ in range(3):
        reply = ReplyFacts(status=500, provider_id=True)
        told.attempt(reply, outcome="error", request=told.request(model="another")).waited()
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.server_error", 2)


def test_two_refusals_of_a_body_are_no_poison_and_529_never_is() -> None:
    assert started().refused(500, times=2).end(1).verdict().grade == "proved"
    assert started().refused(529, times=5).end(1).verdict().grade == "proved"


def prompt(told: Scene, name: str) -> RequestFacts:
    """A conversation of one question, without a session."""
    alone: dict[str, object] = {"session": None, "session_kind": None, "history_len": 1, "assistant_turns": 0}
    return told.request(**alone, first_user_digest=name, message_digests=[name], body_digest=name)  # type: ignore[arg-type]


def test_a_prompt_that_never_got_its_reply_is_not_mended_by_another_prompt() -> None:
    told = Scene()
    for name, status in (("a", 200), ("b", 200), ("c", 529), ("c", 529), ("d", 200)):
        reply = ReplyFacts(status=status, terminator=status == 200, stop_reason="end_turn" if status == 200 else None)
        told.attempt(reply, outcome="ok" if status == 200 else "error", request=prompt(told, name)).waited()
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.overloaded", 3)
    assert "went on with another prompt" in verdict.sentence


# --- given up for good ----------------------------------------------------------------------------------------------


def test_a_model_that_was_changed_after_a_turn_had_failed_bends_every_later_step() -> None:
    told = started().refused(529, times=3, error_type="overloaded_error").waited(300)
    told.attempt(
        ReplyFacts(status=200, terminator=True, stop_reason="end_turn"),
        request=told.request(model="smaller", first_user_digest="m0", body_digest="changed", history_len=9),
    )
    verdict = told.end(1).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "model_api.overloaded")
    assert "given up (model)" in verdict.sentence


# --- a framing cut behind the end mark ------------------------------------------------------------------------------


def with_cut_framing(exit_code: int | None, *, by: str = "upstream", last: bool = True) -> Verdict:
    told = started().call(tools=0)
    next(o for o in reversed(told.observations) if o.kind == "attempt.ended").value["framing_cut"] = by
    return (told if last else told.call().ran(1).call(tools=0)).end(exit_code).verdict()


def test_a_framing_cut_behind_the_last_reply_is_suspected_where_the_command_then_failed() -> None:
    verdict = with_cut_framing(1)
    assert summary(verdict) == ("infra", "suspected", "model_api.truncated", 2)
    assert "cut the framing behind it" in verdict.sentence
    assert ended(verdict) == ("model_api.truncated", "suspected", 2)


def test_a_framing_that_fairtrial_itself_cut_is_fairtrials() -> None:
    assert summary(with_cut_framing(1, by="fairtrial"))[:3] == ("fairtrial", "suspected", "observer.relay_fault")


@pytest.mark.parametrize("told", [{"exit_code": 0}, {"exit_code": 1, "by": "client"}, {"exit_code": 1, "last": False}])
def test_a_framing_cut_that_nobody_minded_is_nothing(told: dict[str, object]) -> None:
    """Near-miss: the command ended well; the client itself hung up; the conversation went on."""
    assert with_cut_framing(**told).cause is None  # type: ignore[arg-type]


def test_a_client_that_had_gone_on_from_such_replies_does_not_mind_the_last_one_either() -> None:
    told = Scene()
    for tools in (1, 1, 0):
        told.call(tools=tools)
        next(o for o in reversed(told.observations) if o.kind == "attempt.ended").value["framing_cut"] = "upstream"
        told.ran(0)
    assert told.end(1).verdict().blame == "model"


# --- silence inside a whole reply -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gap, blocked, present", [(120.0, 0.0, ["model_api.stalled"]), (20.0, 0.0, []), (120.0, 119.0, [])]
)
def test_a_long_silence_inside_a_whole_reply_is_present_and_a_clients_own_is_not(
    gap: float, blocked: float, present: list[str]
) -> None:
    told = started().call().ran(1)
    value = next(o for o in reversed(told.observations) if o.kind == "attempt.ended").value
    value["max_gap_with_pings"], value["downstream_blocked"] = gap, blocked
    verdict = told.call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == present


# --- what ended it, and how surely ----------------------------------------------------------------------------------


def test_that_it_ended_the_trial_is_no_surer_than_that_the_call_was_the_agents() -> None:
    told = Scene(user_agent="curl/8.5.0").refused(500, times=3).end(1)
    assert ended(told.verdict()) == ("model_api.server_error", "suspected", 1)


def test_that_it_ended_the_trial_is_a_fact_where_only_whose_doing_is_open() -> None:
    assert ended(started().refused(500, times=3).end(1).verdict()) == ("model_api.poison_request", "proved", 2)
