"""Requests are grouped by what they carry."""

from fairtrial.middleware.steps.identity import NO_SESSION, extends, same_history, session_key
from tests.middleware.steps.story import request_facts


def test_clients_without_a_session_share_one_key() -> None:
    assert session_key(request_facts(0, session=None)) == NO_SESSION
    assert session_key(request_facts(0)) != NO_SESSION


def test_the_same_turn_is_recognised_when_model_and_limits_changed() -> None:
    assert same_history(request_facts(3), request_facts(3, model="other", max_tokens=1, body_digest="x"))
    assert not same_history(request_facts(3), request_facts(4))
    assert not same_history(request_facts(0, message_digests=[]), request_facts(0, message_digests=[]))


def test_a_later_turn_extends_an_earlier_one_within_and_beyond_the_kept_digests() -> None:
    assert extends(request_facts(4), request_facts(3))
    assert extends(request_facts(40), request_facts(3))
    assert not extends(request_facts(3), request_facts(4))
    assert not extends(request_facts(4, message_digests=["x"] * 8), request_facts(3))
    assert not extends(request_facts(40, first_user_digest="other"), request_facts(3))
