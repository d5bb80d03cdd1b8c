"""Under `run` the token tells whose a request is, or the door that is its trial's own socket."""

import pytest

from fairtrial.middleware.core.claims import Assigned
from fairtrial.middleware.wire.http1 import Headers, RequestHead
from fairtrial.middleware.wire.passing import Conn
from fairtrial.middleware.wire.whose import Whose
from tests.middleware.wire.test_bodies import passing

ONE, TWO = {"tok": "t1"}, {"tok": "t1", "kot": "t2"}


@pytest.mark.parametrize(
    "tokens, door, target, trial",
    [
        (ONE, "model:a", "/t/tok/v1/messages", "t1"),
        (ONE, "model:a", "/t/other/v1/messages", None),
        (ONE, "model:a", "/v1/messages", None),
        (ONE, "socket:a", "/v1/messages", "t1"),
        (ONE, "socket:a", "/t/other/v1/messages", None),
        (TWO, "socket:a", "/v1/messages", None),
    ],
)
def test_the_token_decides_and_a_socket_of_the_only_trial(
    tokens: dict[str, str], door: str, target: str, trial: str | None
) -> None:
    exchange = passing()
    exchange.head = RequestHead("POST", target, Headers())
    whose, conn = Whose(tokens), Conn(door=door)
    assert whose.ask(conn, exchange) == Assigned(trial=trial, how=None if trial is None else "token")


@pytest.mark.parametrize(
    "target, headers, named",
    [
        ("/t/tok.task-7/v1", [], "task-7"),
        ("/t/tok.caf%C3%A9%20one/v1", [], "café one"),
        ("/t/tok.a.b/v1", [("x-fairtrial-trial", "other")], "a.b"),
        ("/t/tok/v1", [("x-fairtrial-trial", "by header"), ("baggage", "fairtrial.trial=by-baggage")], "by header"),
        ("/t/tok/v1", [("baggage", "fairtrial.trial=by-baggage")], "by-baggage"),
        ("/t/tok./v1", [], None),
        ("/t/tok/v1", [], None),
        ("/t/other.name/v1", [("x-fairtrial-trial", "stranger")], None),
        ("/v1", [("x-fairtrial-trial", "stranger")], None),
    ],
)
def test_a_trial_within_the_run_is_named_in_the_path_a_header_or_baggage_by_whoever_has_the_token(
    target: str, headers: list[tuple[str, str]], named: str | None
) -> None:
    exchange = passing()
    exchange.head = RequestHead("POST", target, Headers(tuple(headers)))
    assert Whose(ONE).ask(Conn(door="model:a"), exchange).named == named
