"""What every rule is given."""

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from tests.middleware.attribution.scene import Scene, model_failed


def test_it_knows_whether_any_call_ever_completed() -> None:
    assert Context.of(model_failed().assembly(), DEFAULT_THRESHOLDS).ever_completed
    assert not Context.of(Scene().refused(401).end(1).assembly(), DEFAULT_THRESHOLDS).ever_completed


def test_a_first_reply_that_was_cut_in_its_middle_is_not_a_trial_that_never_ran() -> None:
    assert Context.of(Scene().refused(529).end(1).assembly(), DEFAULT_THRESHOLDS).never_ran
    cut = Scene().cut().end(1)
    assert not Context.of(cut.assembly(), DEFAULT_THRESHOLDS).never_ran
    assert cut.verdict().ended_as == "agent.gave_up"


def test_only_signals_that_end_a_run_and_did_are_counted() -> None:
    stopped = Scene().call().end(143, forwarded=[15, 28])
    assert Context.of(stopped.assembly(), DEFAULT_THRESHOLDS).sent_signals == [15]
    outlived = Scene().call().end(0, forwarded=[15])
    assert Context.of(outlived.assembly(), DEFAULT_THRESHOLDS).sent_signals == []
