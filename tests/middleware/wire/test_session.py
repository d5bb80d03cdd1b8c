"""Tokens come off paths whatever their form; ids of known clients become digests."""

import pytest

from fairtrial.middleware.core.claims import Claims
from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.http1 import Headers, RequestHead
from fairtrial.middleware.wire.redact import digest
from fairtrial.middleware.wire.session import KeyDigest, claims, identify, split_token


@pytest.mark.parametrize(
    "target, expected",
    [
        ("/t/abc/v1/messages?beta=true", ("abc", "/v1/messages?beta=true")),
        ("/t/abc", ("abc", "/")),
        ("/t/abc?x=1", ("abc", "/?x=1")),
        ("/v1/messages", (None, "/v1/messages")),
        ("/team/x", (None, "/team/x")),
        ("http://127.0.0.1:1/t/abc/v1/x", ("abc", "/v1/x")),
        ("/v1/x?u=http://h/t/abc/", (None, "/v1/x?u=http://h/t/abc/")),
    ],
)
def test_the_token_is_taken_off_the_front(target: str, expected: tuple[str | None, str]) -> None:
    assert split_token(target) == expected


def test_ids_are_digested_and_the_first_known_session_header_wins() -> None:
    who = identify(
        Headers(
            (
                ("session-id", "codex"),
                ("x-claude-code-session-id", "claude"),
                ("x-claude-code-agent-id", "agent"),
                ("x-irid", "call"),
                ("x-stainless-retry-count", "2"),
                ("user-agent", "claude-cli/2"),
            )
        )
    )
    assert (who.session_kind, who.session) == ("x-claude-code-session-id", digest("claude"))
    assert (who.agent, who.call_key, who.retry_count) == (digest("agent"), digest("call"), 2)
    assert who.user_agent == "claude-cli/2"


def test_what_a_client_does_not_send_is_none() -> None:
    who = identify(Headers((("x-stainless-retry-count", "many"),)))
    assert (who.session_kind, who.session, who.agent, who.retry_count) == (None, None, None, None)


KEYS = KeyDigest(b"secret of this process")


def claimed(*fields: tuple[str, str], target: str = "/v1/x", request: RequestFacts | None = None) -> Claims:
    head = RequestHead("POST", target, Headers(fields))
    request = request or RequestFacts()
    return claims(head, request, attempt="a", at_ns=1, door="model:x", peer="127.0.0.1", keys=KEYS)


def test_the_trial_is_named_by_token_header_or_baggage() -> None:
    said = claimed(
        ("x-fairtrial-trial", " t42 \x07"),
        ("baggage", "a=1, fairtrial.trial=caf%C3%A9%20one;ttl=3 ,fairtrial.trials=no"),
        target="/t/abc/v1/x",
    )
    assert (said.token, said.named, said.baggage) == ("abc", "t42", "café one")
    assert (claimed().token, claimed().named, claimed().baggage) == (None, None, None)
    assert len(claimed(("x-fairtrial-trial", "x" * 1000)).named or "") == 128


def test_every_native_id_is_claimed_once_and_best_first() -> None:
    turn = '{"session_id":"s","thread_id":"t2","parent_thread_id":"s","turn_id":"u"}'
    said = claimed(
        ("thread-id", "t2"),
        ("session-id", "s"),
        ("x-codex-turn-metadata", turn),
        ("x-irid", "call"),
        ("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
        request=RequestFacts(
            session_kind="prompt_cache_key",
            session=digest("s"),
            agent=digest("t2"),
            parent_agent=digest("s"),
            call_key=digest("call"),
            previous_response="resp_1",
        ),
    )
    assert said.ids == (
        ("session-id", digest("s")),
        ("thread-id", digest("t2")),
        ("x-codex-turn-metadata", digest("s")),
        ("x-codex-turn-metadata", digest("t2")),
        ("prompt_cache_key", digest("s")),
        ("agent", digest("t2")),
        ("x-irid", digest("call")),
        ("previous_response_id", "resp_1"),
    )
    assert said.parents == (("agent", digest("s")),)
    assert said.trace == "a" * 32


@pytest.mark.parametrize("value", ["[1]", "{", "x" * 70000, '{"session_id":5}'])
def test_turn_metadata_that_is_none_is_no_claim(value: str) -> None:
    assert claimed(("x-codex-turn-metadata", value)).ids == ()


@pytest.mark.parametrize(
    "fields, target",
    [
        ((("authorization", "Bearer sk-1"),), "/x"),
        ((("authorization", "bearer  sk-1"),), "/x"),
        ((("x-api-key", "sk-1"),), "/x"),
        ((("x-goog-api-key", "sk-1"),), "/x"),
        ((("api-key", "sk-1"),), "/x"),
        ((), "/x?alt=sse&key=sk-1"),
        ((("authorization", "AWS4-HMAC-SHA256 Credential=sk-1/20261130/eu/bedrock/aws4_request, Signature=9"),), "/x"),
    ],
    ids=str,
)
def test_a_key_is_known_by_its_keyed_digest_wherever_it_stands(
    fields: tuple[tuple[str, str], ...], target: str
) -> None:
    said = claimed(*fields, target=target)
    assert said.key == KEYS.of("sk-1")
    assert "sk-1" not in repr(said)
    assert said.key != KeyDigest(b"another process").of("sk-1")
    assert said.key != digest("sk-1")


def test_no_key_is_none() -> None:
    assert claimed().key is None
