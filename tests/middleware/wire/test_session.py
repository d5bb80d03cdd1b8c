"""Tokens come off paths whatever their form; ids of known clients become digests."""

import pytest

from fairtrial.middleware.wire.http1 import Headers
from fairtrial.middleware.wire.redact import digest
from fairtrial.middleware.wire.session import identify, split_token


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
