"""What is said of a connection is said of each trial that used it; what the feed lost is of everybody."""

import json

from fairtrial.middleware.core.clock import Instant
from fairtrial.middleware.core.observations import Host, Observation
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire.emission import Emission
from fairtrial.middleware.wire.feed import Kind, Record
from fairtrial.middleware.wire.passing import Conn


def saying() -> tuple[Emission, list[Observation]]:
    said: list[Observation] = []
    return Emission(Source("door.model", said.append, host=Host()), Instant(1000, 10)), said


def test_a_blind_connection_is_said_of_each_of_its_trials_and_its_gap_ends_once() -> None:
    emission, said = saying()
    conn = Conn(blind="response side not framed: x", trials=["a", "b"])
    emission.blind(7, conn, 20)
    emission.blind_no_more(conn, 50)
    emission.blind_no_more(conn, 60)
    assert [(o.kind, o.subject.trial, o.wall_ns) for o in said] == [
        ("trial.note", "a", 1010),
        ("trial.note", "b", 1010),
        ("coverage.gap", "a", 1040),
        ("coverage.gap", "b", 1040),
    ]
    assert (said[2].value["since_ns"], said[2].value["until_ns"]) == (1010, 1040)


def test_a_blind_connection_of_nobody_is_noted_and_no_gap() -> None:
    emission, said = saying()
    conn = Conn(blind="x")
    emission.blind(7, conn, 20)
    emission.blind_no_more(conn, 50)
    assert [(o.kind, o.subject.trial) for o in said] == [("trial.note", None)]


def test_what_the_feed_lost_is_a_gap_of_everybody() -> None:
    emission, said = saying()
    for payload in ({"records": 3, "bytes": 9, "since_ns": 12, "until_ns": 15}, {"records": "x"}):
        emission.lost(Record(Kind.LOST, 0, 0, 0, 20, json.dumps(payload).encode()))
    assert [(o.kind, o.subject.trial) for o in said] == [("coverage.gap", None)] * 2
    assert (said[0].value["since_ns"], said[0].value["lost_records"]) == (1002, 3)
    assert "lost_records" not in said[1].value
