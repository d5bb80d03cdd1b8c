"""Which calls open a step, and which ask again for the turn of the open one."""

from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import TRIAL, Story


def test_a_call_that_never_completed_opens_the_step_it_would_have_become() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.s += 1
    told.attempt(turns=1, outcome="truncated")
    trial = assemble(told.end(1).observations, TRIAL).trial
    assert [step.calls[0].outcome for step in trial.steps] == ["ok", "truncated"]


def test_a_call_whose_end_was_never_seen_has_no_outcome_and_opens_a_step() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.attempt(turns=1, started_only=True)
    trial = assemble(told.observations, TRIAL).trial
    assert [step.calls[0].outcome for step in trial.steps] == ["ok", None]
    assert trial.closed == "incomplete"
    assert trial.outcome is Outcome.UNKNOWN


def test_a_changed_request_for_a_turn_that_failed_stays_in_its_step() -> None:
    told = Story().begin()
    told.attempt(turns=0, outcome="error")
    told.s += 1000
    told.attempt(turns=0, body_digest="other", message_digests=["changed"])
    told.s += 1
    told.attempt(turns=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [len(step.calls) for step in trial.steps] == [2, 1]


def test_a_truncated_reply_that_the_client_accepted_keeps_its_own_step() -> None:
    told = Story().begin()
    told.attempt(turns=0, outcome="truncated")
    told.s += 1
    told.attempt(turns=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [step.calls[0].outcome for step in trial.steps] == ["truncated", "ok"]


def test_a_hedged_twin_is_in_its_twins_step_and_only_the_reply_that_was_taken_has_tools() -> None:
    told = Story().begin()
    told.attempt(turns=0, seconds=5.0, advance=False, tools=(("toolu_a", "Bash", None),))
    told.s += 1
    told.attempt(turns=0, tools=(("toolu_b", "Bash", None),))
    told.s += 5
    told.attempt(turns=1, tool_result_ids=["toolu_b"])
    trial = assemble(told.end().observations, TRIAL).trial
    assert [len(step.calls) for step in trial.steps] == [2, 1]
    assert [tool.call_id for tool in trial.steps[0].tools] == ["toolu_b"]
    assert trial.steps[0].calls[1].concurrent_duplicate == trial.steps[0].calls[0].id


def test_a_model_changed_after_errors_is_said_whether_or_not_the_turn_was_given_up() -> None:
    told = Story().begin()
    told.attempt(turns=1, outcome="error")
    # Another model, and a history that was changed for it: no retry, but the same step.
    told.attempt(turns=1, outcome="error", model="claude-small", message_digests=["m0", "x", "m2"], body_digest="b")
    # The client takes its own error text for the answer and goes on with a third one.
    told.attempt(turns=2, model="claude-tiny", max_tokens=1000)
    told.attempt(turns=3, model="claude-tiny")
    trial = assemble(told.end().observations, TRIAL).trial
    assert [[call.fell_back for call in step.calls] for step in trial.steps] == [[None, "model"], ["model"], [None]]
