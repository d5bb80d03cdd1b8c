"""The trouble of a call as an event: its numbers, its evidence, its answers."""

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import ReplyFacts
from tests.middleware.attribution.scene import Scene, storm


def test_an_event_cites_the_first_attempts_and_the_last_and_counts_the_rest() -> None:
    ctx = Context.of(storm(9).assembly(), DEFAULT_THRESHOLDS)
    event = call_event(ctx, ctx.troubles[0])
    assert [e.claim.split(":")[0] for e in event.evidence] == [
        "attempt 1 of 9",
        "attempt 2 of 9",
        "attempt 3 of 9",
        "attempt 9 of 9",
    ]
    assert len(event.happened.by) == 9
    assert event.proved


def test_an_event_that_a_retry_mended_changes_nothing_and_tells_little() -> None:
    ctx = Context.of(Scene().refused(529, times=5).call(tools=0).end(1).assembly(), DEFAULT_THRESHOLDS)
    event = call_event(ctx, ctx.troubles[0])
    assert event.outcome_differs.answer == "no"
    assert not event.proved
    assert len(event.evidence) == 1


def test_a_request_that_leaves_the_agents_tool_unanswered_may_be_that_tools_own() -> None:
    """It has the agent's session id, which stands in a file of the agent's; two 5xx then prove nothing."""

    def proved(results: list[str] | None = None) -> bool:
        told = Scene().call(tools=1).ran(0)
        for _ in range(2):
            request = told.request() if results is None else told.request(tool_result_ids=results)
            told.waited(1).attempt(ReplyFacts(status=500, provider_id=True), outcome="error", request=request)
        ctx = Context.of(told.end(1).assembly(), DEFAULT_THRESHOLDS)
        return call_event(ctx, ctx.troubles[0]).proved

    assert proved()
    assert not proved([])
    assert not proved(["toolu-of-another-call"])

    unread = Scene().call(tools=1).ran(0)
    request = unread.request(
        tool_result_ids=[], history_len=None, message_digests=[], first_user_digest=None, unreadable="too large"
    )
    for _ in range(2):
        unread.attempt(ReplyFacts(status=500, provider_id=True), outcome="error", request=request)
    ctx = Context.of(unread.end(1).assembly(), DEFAULT_THRESHOLDS)
    assert not call_event(ctx, ctx.troubles[0]).proved
