"""Whose doing an end was: what a client or a tool of the agent can bring about alone never makes infra, proved or not.

Each scene is told three times: the client's own doing, a near-miss in which the far side is all the same at fault, and
an innocent one.
"""

import pytest

from fairtrial.middleware.core.observations import Note, ReplyFacts, RequestFacts, ToolUse
from tests.middleware.attribution.scene import EPOCH_NS, Scene, ended, summary


def started(user_agent: str = "my-agent/1") -> Scene:
    return Scene(user_agent=user_agent).call().ran(0)


NO_HEAD: dict[str, object] = {"first_failure": "upstream", "closed_by": "upstream", "close_kind": "fin"}


# --- a request that was never whole ---------------------------------------------------------------------------------


def test_a_request_that_was_never_whole_is_never_infra() -> None:
    told = started().attempt(ReplyFacts(), outcome="error", request_whole=False, seconds=60, **NO_HEAD)  # type: ignore[arg-type]
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "model_api.client_error", 2)
    assert ended(verdict) is None
    assert "never sent step 2's request whole" in verdict.sentence


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_no_status_makes_infra_of_a_request_that_was_never_whole(status: int) -> None:
    told = started().attempt(ReplyFacts(status=status, provider_id=True), outcome="error", request_whole=False)
    assert summary(told.end(1).verdict()) == ("harness", "suspected", "model_api.client_error", 2)


def test_a_client_that_gave_up_on_its_own_unfinished_request_had_no_silent_api() -> None:
    told = started().attempt(
        ReplyFacts(), outcome="client_disconnect", seconds=300, request_whole=False, first_failure="client"
    )
    verdict = told.waited(9).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.client_timeout", 2)
    assert "before it had sent its request whole" in verdict.sentence


def test_a_first_request_that_was_never_whole_tells_nothing_of_the_address() -> None:
    told = Scene().attempt(ReplyFacts(), outcome="error", request_whole=False, **NO_HEAD)  # type: ignore[arg-type]
    assert told.end(1).verdict().cause == "model_api.client_error"


@pytest.mark.parametrize("whole", [True, None])
def test_a_close_before_the_head_of_a_whole_request_stays_infra(whole: bool | None) -> None:
    told = started().attempt(ReplyFacts(), outcome="error", request_whole=whole, after_close=False, **NO_HEAD)  # type: ignore[arg-type]
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.unreachable", 2)


def test_a_dial_that_failed_while_the_request_still_came_is_the_dials() -> None:
    told = started().undialled("connect", "OSError: timed out", request_whole=False)
    assert summary(told.end(1).verdict())[2] == "model_api.unreachable"


# --- a connection that was already closing ---------------------------------------------------------------------------


def test_a_request_on_a_closing_connection_is_never_infra() -> None:
    told = started().attempt(ReplyFacts(), outcome="error", after_close=True, request_whole=True, **NO_HEAD)  # type: ignore[arg-type]
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "model_api.client_error", 2)
    assert "already closing" in verdict.sentence


def test_an_answer_on_a_closing_connection_is_an_answer() -> None:
    told = started().attempt(ReplyFacts(status=529, provider_id=True), outcome="error", after_close=True)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.overloaded", 2)


# --- a client that does not read --------------------------------------------------------------------------------------


def test_a_cut_while_the_client_did_not_read_is_the_clients() -> None:
    told = started().cut(seconds=70, downstream_blocked=60.0, blocked_before_end=60.0)
    verdict = told.waited(9).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.client_timeout", 2)
    assert "did not read step 2's reply for 60 s" in verdict.sentence
    assert ended(verdict) is None


def test_a_cut_after_a_client_that_was_behind_for_a_moment_stays_the_upstreams() -> None:
    told = started().cut(seconds=70, downstream_blocked=0.2, blocked_before_end=0.0)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.truncated", 2)


def test_a_cut_after_a_client_that_was_behind_for_seconds_and_reads_again_is_only_suspected() -> None:
    told = started().cut(seconds=70, downstream_blocked=5.0, blocked_before_end=0.0)
    assert summary(told.end(1).verdict()) == ("infra", "suspected", "model_api.truncated", 2)


def test_a_silence_that_the_client_caused_by_not_reading_is_no_stall() -> None:
    told = started().aborted(silence=120, downstream_blocked=119.0).waited(9)
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.client_timeout", 2)
    assert "did not read" in verdict.sentence
    assert verdict.ledger.infra_seconds == 0.0


def test_a_silence_beside_a_short_back_pressure_stays_a_stall() -> None:
    told = started().aborted(silence=120, downstream_blocked=0.5).waited(9)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.stalled", 2)


def test_a_silence_on_an_old_connection_without_a_byte_is_only_suspected_because_the_way_may_have_been_shut() -> None:
    told = started().aborted(silence=120, ttfb=None, reused=True).waited(9)
    assert summary(told.end(1).verdict()) == ("infra", "suspected", "model_api.stalled", 2)
    fresh = started().aborted(silence=120, ttfb=None, reused=False, connect=0.01).waited(9)
    assert summary(fresh.end(1).verdict()) == ("infra", "proved", "model_api.stalled", 2)


@pytest.mark.parametrize("errno", ["ENETUNREACH", "EHOSTUNREACH", "ETIMEDOUT", "ENETDOWN", "ECONNABORTED"])
def test_an_end_that_this_machines_own_network_can_cause_is_only_suspected(errno: str) -> None:
    assert summary(started().cut(errno=errno).end(1).verdict()) == ("infra", "suspected", "model_api.truncated", 2)


# --- redirects and addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
def test_a_redirect_is_the_operators_and_nothing_behind_it_was_seen(status: int) -> None:
    verdict = Scene().attempt(ReplyFacts(status=status), outcome="error").end(1).verdict()
    assert summary(verdict) == ("operator", "suspected", "operator.endpoint", 1)
    assert verdict.ended_as != "never_ran"
    assert "past the door" in verdict.sentence
    assert "never ran" not in verdict.sentence
    assert ended(verdict) == ("operator.endpoint", "suspected", 1)


def test_after_a_redirect_nothing_at_the_door_is_proved() -> None:
    told = Scene().attempt(ReplyFacts(status=307), outcome="error").refused(529, times=3)
    assert told.end(1).verdict().grade != "proved"


@pytest.mark.parametrize("reply", [{"status": 204}, {"status": 200, "html": True}, {"status": 200}])
def test_an_address_that_never_gave_a_reply_of_the_api_is_the_operators(reply: dict[str, object]) -> None:
    told = Scene().attempt(ReplyFacts(**reply), outcome="error")  # type: ignore[arg-type]
    assert summary(told.end(1).verdict()) == ("operator", "suspected", "operator.endpoint", 1)


@pytest.mark.parametrize("status", [417, 431, 501, 505])
def test_a_status_about_the_requests_own_form_is_the_clients(status: int) -> None:
    verdict = started().refused(status).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "model_api.client_error", 2)


# --- a tool of the agent that calls the door itself -----------------------------------------------------------------


def of_a_tool(told: Scene, **changes: object) -> RequestFacts:
    """The agent's libraries, key and tools; a conversation of its own."""
    alone: dict[str, object] = {
        "session": None,
        "first_user_digest": "hello",
        "message_digests": ["hello"],
        "history_len": 1,
        "assistant_turns": 0,
        "body_digest": "hello",
    }
    return told.request(**(alone | changes))  # type: ignore[arg-type]


JUNK = [401, 429, 500, 503, 529]


@pytest.mark.parametrize("status", JUNK)
@pytest.mark.parametrize("has_tools", [True, False])
def test_a_tools_own_failed_call_as_the_last_one_is_nobodys(status: int, has_tools: bool) -> None:
    told = started()
    told.attempt(ReplyFacts(status=status), outcome="error", request=of_a_tool(told, has_tools=has_tools))
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    assert ended(verdict) is None
    assert "agent's or a tool's" in verdict.sentence


@pytest.mark.parametrize("status", JUNK)
def test_a_tools_own_failed_call_in_the_middle_is_no_reason(status: int) -> None:
    told = started()
    told.attempt(ReplyFacts(status=status), outcome="error", request=of_a_tool(told))
    verdict = told.call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert verdict.present == []
    assert "another conversation" in verdict.sentence


def test_a_tool_that_got_through_once_is_still_no_agent() -> None:
    told = started()
    told.attempt(ReplyFacts(status=200, terminator=True, stop_reason="end_turn"), request=of_a_tool(told))
    told.attempt(ReplyFacts(status=500), outcome="error", request=of_a_tool(told, body_digest="again"))
    assert told.end(1).verdict().blame == "indeterminate"


def test_a_tool_whose_calls_all_got_through_changes_nothing() -> None:
    told = started()
    told.attempt(ReplyFacts(status=200, terminator=True, stop_reason="end_turn"), request=of_a_tool(told))
    verdict = told.call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)


def test_the_same_failure_in_the_agents_own_conversation_is_proved() -> None:
    told = started()
    own = told.request(session=None, session_kind=None)
    told.attempt(ReplyFacts(status=500, provider_id=True), outcome="error", request=own)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.server_error", 2)


def test_a_conversation_like_the_agents_is_at_most_suspected() -> None:
    told = Scene(user_agent="my-agent/1")
    first = told.request(session=None, system_digest="prompt")
    told.attempt(ReplyFacts(status=200, terminator=True, tool_calls=[ToolUse(id="t")]), request=first)
    told.attempt(ReplyFacts(status=529), outcome="error", request=of_a_tool(told, system_digest="prompt"))
    verdict = told.end(1).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "model_api.overloaded")


def test_a_rate_limit_of_which_a_tool_may_have_spent_is_only_suspected() -> None:
    told = started()
    told.attempt(ReplyFacts(status=200, terminator=True, stop_reason="end_turn"), request=of_a_tool(told))
    assert summary(told.refused(429, times=3).end(1).verdict())[:3] == ("infra", "suspected", "model_api.rate_limited")


def a_subagents(told: Scene) -> RequestFacts:
    return told.request(agent="helper", first_user_digest="a task", message_digests=["a task"], history_len=1)


@pytest.mark.parametrize("seconds, grade", [(1.0, "proved"), (30.0, "suspected")])
def test_a_rate_limit_that_the_agents_own_width_may_have_reached_is_only_suspected(seconds: float, grade: str) -> None:
    told = started()
    whole = ReplyFacts(status=200, terminator=True, stop_reason="end_turn")
    told.attempt(whole, request=a_subagents(told), seconds=seconds)
    told.s -= seconds - 1.0
    told.waited(0.5).refused(429, times=3)
    told.s += 30.0
    assert summary(told.end(1).verdict())[:3] == ("infra", grade, "model_api.rate_limited")


@pytest.mark.parametrize("tools, grade", [(1, "proved"), (0, "suspected")])
def test_a_subagents_failure_that_the_agent_did_not_wait_for_is_only_suspected(tools: int, grade: str) -> None:
    told = Scene().call().call(tools=tools)
    told.attempt(ReplyFacts(status=500, provider_id=True), outcome="error", request=a_subagents(told))
    assert summary(told.end(1).verdict())[:3] == ("infra", grade, "model_api.server_error")


@pytest.mark.parametrize("user_agent", ["curl/8.5.0", "Wget/1.21", "Python-urllib/3.11", ""])
def test_a_bare_tool_that_is_all_that_ever_called_proves_nothing(user_agent: str) -> None:
    verdict = Scene(user_agent=user_agent).refused(500, times=3).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.server_error", 1)


def beside_a_subagent(last_tools: int) -> Scene:
    """A subagent in the background is refused for 50 s; meanwhile the main agent works on and speaks its last word."""
    told = Scene().call()
    began = told.s
    asked = a_subagents(told)
    for n in range(6):
        told.s = began + n * 10
        told.attempt(ReplyFacts(status=529, provider_id=True), outcome="error", request=asked, seconds=0.2)
    told.s = began + 5
    told.call().ran(0).waited(10)
    return told.call(tools=last_tools, seconds=40).waited(0.5).end(1)


@pytest.mark.parametrize("last_tools, grade", [(0, "suspected"), (1, "proved")])
def test_a_subagents_failure_beside_a_main_agent_that_went_on_to_its_last_word_is_only_suspected(
    last_tools: int, grade: str
) -> None:
    verdict = beside_a_subagent(last_tools).verdict()
    assert summary(verdict)[:3] == ("infra", grade, "model_api.overloaded")
    assert (verdict.terminated_by is None) is (last_tools == 0)
    assert ("went on without its work" in verdict.sentence) is (last_tools == 0)


def test_an_agent_whose_first_call_never_got_through_is_proved() -> None:
    verdict = Scene().refused(500, times=3).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.server_error", 1)
    assert verdict.ended_as == "never_ran"


def test_an_answer_that_no_dialect_reads_may_have_been_the_agents() -> None:
    told = Scene()
    unread = {"dialect": "unknown", "parse": "none", "method": "POST", "request": RequestFacts(operation="other")}
    told.attempt(ReplyFacts(status=200), outcome="ok", **unread)  # type: ignore[arg-type]
    verdict = told.refused(500, times=3).end(1).verdict()
    assert (verdict.blame, verdict.grade, verdict.ended_as) == ("infra", "suspected", "agent.gave_up")


# --- a run that somebody suspended ----------------------------------------------------------------------------------


def suspended(told: Scene, length_s: float) -> Scene:
    """The last attempt's time held a suspension that ended with it."""
    until = told.wall() - EPOCH_NS
    fields: dict[str, object] = {"since_ns": until - round(length_s * 1e9), "until_ns": until}
    told.tell(Note(event="suspended", fields=fields), told.runner)
    return told


def test_a_silence_or_a_cut_inside_a_suspension_is_nobodys_stall() -> None:
    stalled = suspended(started().aborted(silence=120), 100).waited(9).end(1).verdict()
    assert summary(stalled) == ("operator", "suspected", "operator.cancelled", 2)
    cut = suspended(started().cut(seconds=70), 60).waited(9).end(1).verdict()
    assert summary(cut) == ("operator", "suspected", "operator.cancelled", 2)
    assert "suspended for 60 s" in cut.sentence


def test_a_suspension_before_the_call_explains_nothing_of_it() -> None:
    told = suspended(started(), 0.5).waited(5).cut(seconds=2)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.truncated", 2)
