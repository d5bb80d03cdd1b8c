"""What the observer makes of the traffic that a rig relayed, and what the relay holds while it passes."""

from __future__ import annotations

from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, Host, Observation, decode
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.relay.ends import HangupWatch
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.model import ModelDoor
from fairtrial.middleware.relay.relay import Relay
from fairtrial.middleware.wire.exchange import ExchangeTracker
from tests.middleware.held import held_bytes
from tests.middleware.relay.rig import TOKEN, Rig

TRIAL = "trial-1"


def attempts(rig: Rig) -> list[AttemptEnded]:
    """Every attempt that ended, in the order of their ends; each began once and ended once, and nothing was a fault."""
    observations: list[Observation] = []
    source = Source("door.model", observations.append, host=Host(name="node"), trial=TRIAL)
    tracker = ExchangeTracker(source, trial_of_token={TOKEN: TRIAL})
    for record in tuple(rig.observer.records):
        tracker.take(record)
    assert tracker.faults == 0, tracker.last_fault
    values = [decode(observation) for observation in observations]
    begun = [value.attempt for value in values if isinstance(value, AttemptStarted)]
    ended = [value for value in values if isinstance(value, AttemptEnded)]
    assert sorted(begun) == sorted(value.attempt for value in ended), "an attempt without its one end"
    assert len(set(begun)) == len(begun)
    assert tracker.open_attempts == 0
    return ended


def attempt(rig: Rig) -> AttemptEnded:
    """The only attempt."""
    (ended,) = attempts(rig)
    return ended


def held_by_pairs(rig: Rig) -> int:
    """Bytes that the relay holds for all of its connections."""
    kinds = (Relay, FeedSender, ModelDoor, HangupWatch)
    total = rig.in_loop(lambda: held_bytes(list(rig.relay._pairs.values()), without=kinds))
    assert isinstance(total, int)
    return total
