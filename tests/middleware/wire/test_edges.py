"""Main-agent calls are told when they begin and end, once each; side calls are not."""

from fairtrial.middleware.core.claims import Assigned
from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.edges import MAX_SESSIONS, Edge, Edges
from fairtrial.middleware.wire.passing import Exchange
from tests.middleware.wire.test_bodies import passing


def call(*, trial: str | None = "t", session: str = "s", operation: str = "chat", **facts: object) -> Exchange:
    exchange = passing()
    exchange.assigned = Assigned(trial=trial)
    exchange.request = RequestFacts(operation=operation, session_kind="k", session=session, **facts)  # type: ignore[arg-type]
    return exchange


def test_a_call_is_told_once_at_each_end() -> None:
    told: list[Edge] = []
    edges = Edges(told.append)
    main = call(has_tools=True)
    edges.began(main)
    edges.ended(main)
    edges.ended(main)
    assert told == ["call_started", "call_ended"]


def test_side_calls_and_calls_of_nobody_are_not_told() -> None:
    told: list[Edge] = []
    edges = Edges(told.append)
    edges.began(call(has_tools=True, trial=None))
    edges.began(call(has_tools=True))
    told.clear()
    for side in (call(has_tools=False), call(has_tools=True, max_tokens=1), call(operation="count_tokens")):
        edges.began(side)
        edges.ended(side)
    assert told == []
    edges.began(call(has_tools=False, session="of a client without tools"))
    edges.began(call(has_tools=False, trial="of another trial"))
    assert told == ["call_started"] * 2


def test_sessions_are_remembered_within_bounds() -> None:
    edges = Edges(None)
    for n in range(MAX_SESSIONS + 10):
        edges.began(call(has_tools=True, session=str(n)))
    assert len(edges._with_tools) == MAX_SESSIONS
