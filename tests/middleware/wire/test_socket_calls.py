"""Calls over a WebSocket are attempts of their own, begun and finished inside the exchange whose 101 opened it."""

import pytest

from fairtrial.middleware.core.claims import Assigned, Claims
from fairtrial.middleware.core.observations import ReplyFacts
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.http1 import Headers, ResponseHead
from fairtrial.middleware.wire.passing import Conn, Ending, Exchange
from fairtrial.middleware.wire.socket_calls import SocketCalls
from tests.middleware.wire.dialects.test_openai_responses import BEGUN, DONE
from tests.middleware.wire.dialects.test_responses_socket import PATH, Peers
from tests.middleware.wire.test_bodies import passing
from tests.middleware.wire.traffic import Wire


def calls() -> tuple[SocketCalls, list[str]]:
    told: list[str] = []

    def begin(conn: Conn, inner: Exchange) -> None:
        told.append("begin")

    def finish(conn: Conn, inner: Exchange, ending: Ending, t_ns: int) -> None:
        told.append("finish")

    return SocketCalls(begin=begin, finish=finish, fault=told.append), told


@pytest.mark.parametrize("status", [200, 101])
def test_only_a_101_of_an_api_that_speaks_over_one_opens_a_socket(status: int) -> None:
    sockets, told = calls()
    exchange = passing()
    sockets.handshake(exchange, ResponseHead(status, Headers()))
    assert exchange.socket is None
    assert told == []


class OneDesk:
    """Gives all to one trial, and remembers who asked."""

    def __init__(self) -> None:
        self.asked: list[Claims] = []

    def resolve(self, claims: Claims) -> Assigned:
        self.asked.append(claims)
        return Assigned(trial="trial-7", how="header")

    def ended(self, attempt: str, reply: ReplyFacts, *, whole: bool) -> None:
        pass


def test_whose_a_call_is_is_asked_for_each_call_of_the_socket_with_its_own_body() -> None:
    desk, peers = OneDesk(), Peers()
    wire = Wire(door="model:openai", assigns=desk)
    wire.request(method="GET", path=PATH, token=None, headers=["Upgrade: websocket", "session-id: s"])
    wire.head(101)
    wire.json(Kind.RESPONSE_END, {"wire_bytes": 0, "complete": True, "how": "tunnel"})
    for number in (1, 2):
        wire.write(Kind.TUNNEL_UP, peers.create(prompt_cache_key=f"cache-{number}", previous_response_id="resp_0"))
        wire.write(Kind.TUNNEL_DOWN, peers.says(*BEGUN, *DONE))
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    assert len({claims.attempt for claims in desk.asked}) == len(desk.asked) == len(wire.ended()) == 3
    assert [claims.request.operation for claims in desk.asked] == ["hello", "chat", "chat"]
    assert [claims.request.previous_response for claims in desk.asked] == [None, "resp_0", "resp_0"]
    assert {value.assigned_by for value in wire.ended()} == {"header"}
    trials = {o.subject.trial for o in wire.observations if o.kind.startswith("attempt.")}
    assert trials == {"trial-7"}
