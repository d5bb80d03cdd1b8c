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


def test_the_same_turn_is_recognised_where_one_request_sent_only_what_was_new() -> None:
    """As Codex 0.171.0 did over a WebSocket, before and after a cut: the second time it sent the whole history."""
    part = request_facts(3, message_digests=["m6"], body_digest=None, system_digest=None)
    assert same_history(part, request_facts(3))
    assert same_history(request_facts(3), part)
    assert not same_history(part, request_facts(3, message_digests=["m0", "x"]))
    assert not same_history(part, request_facts(3, first_user_digest="other"))
    assert not same_history(part, request_facts(4))
    assert not same_history(request_facts(3, message_digests=[]), part)
