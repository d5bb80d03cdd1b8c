"""The table gives each request to one dialect."""

import pytest

from fairtrial.middleware.wire.dialects import choose


@pytest.mark.parametrize(
    "method, path, provider, name",
    [
        ("POST", "/v1/messages", "openai", "anthropic_messages"),
        ("POST", "/v1/chat/completions", "anthropic", "openai_chat"),
        ("GET", "/v1/models", "openai", "openai_chat"),
        ("GET", "/v1/models", "anthropic", "anthropic_messages"),
        ("HEAD", "/", None, "anthropic_messages"),
        ("POST", "/v1/responses", "openai", "openai_responses"),
        ("POST", "/v1beta/models/x:generateContent", None, "gemini"),
    ],
)
def test_a_path_decides_and_the_door_breaks_ties(method: str, path: str, provider: str | None, name: str) -> None:
    assert choose(method, path, provider).name == name
