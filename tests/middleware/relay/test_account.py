"""The account of a pair says who ended it first, and tells of every attempt that was cut exactly what is known."""

import socket

from fairtrial.middleware.relay.account import Account, trial_note
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.framing import InFlight
from fairtrial.middleware.wire.feed import Decoder, Kind, Record


class Told:
    """An account of connection 7 and what it has told."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.feed = FeedSender(self.near)
        self.account = Account(self.feed, 7)

    def records(self) -> list[Record]:
        assert self.feed.drain(5)
        self.feed.close()
        records = Decoder().feed(self.far.recv(1 << 20))
        self.far.close()
        assert all(record.conn == 7 for record in records)
        return records


def test_only_the_first_end_counts() -> None:
    told = Told()
    told.account.note_first("upstream", "rst", 104, "reset")
    told.account.note_first("client", "fin", None, None)
    told.account.close(3)
    (close,) = told.records()
    value = close.json()
    assert close.kind == Kind.CLOSE
    assert [value[name] for name in ("first", "how", "errno", "text", "messages")] == [
        "upstream",
        "rst",
        104,
        "reset",
        3,
    ]
    assert value["first_ns"]


def test_a_cut_attempt_bears_who_was_first_and_the_bytes_of_the_response_that_had_begun() -> None:
    told = Told()
    told.account.client_last_ns = 5
    told.account.note_lag(0.2)
    told.account.note_lag(0.1)
    told.account.note_first("client", "fin", None, None)
    told.account.responses_cut([InFlight(1, b"POST", responded=True), InFlight(2, b"POST")], 99)
    told.account.close(2)
    first, second, close = (record.json() for record in told.records())
    assert (first["wire_bytes"], second["wire_bytes"]) == (99, 0)
    for end in (first, second):
        assert end["complete"] is False
        assert (end["how"], end["first"], end["close_how"]) == ("client_gone", "client", "fin")
        assert (end["client_last_ns"], end["upstream_last_ns"], end["lag_max_s"]) == (5, None, 0.2)
    assert close["in_flight"] == 2


def test_what_is_still_held_up_at_the_end_is_told_before_the_close() -> None:
    told = Told()
    told.account.blocked("client")
    told.account.blocked("upstream")
    told.account.unblocked("upstream", 1)
    told.account.unblocked("upstream", 1)
    told.account.close(1)
    records = told.records()
    assert [record.kind for record in records] == [Kind.BLOCKED, Kind.BLOCKED, Kind.CLOSE]
    assert [record.json()["side"] for record in records[:2]] == ["upstream", "client"]


def test_a_request_without_a_known_token_is_nobodys() -> None:
    assert trial_note(None) == b'{"event": "trial", "trial": null, "token": null}'
    assert trial_note("t1") == b'{"event": "trial", "trial": "t1", "token": "known"}'
