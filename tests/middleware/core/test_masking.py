"""Secrets and prompts do not survive into what is shown or kept; addresses and options do."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.masking import is_secret_name, mask_command, mask_text, mask_url, mask_value, mask_values

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "x-api-key",
        "ANTHROPIC_AUTH_TOKEN",
        "apiKey",
        "password",
        "Authorization",
        "--client-secret",
        "key",
    ],
)
def test_a_name_that_usually_holds_a_secret_is_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["ANTHROPIC_BASE_URL", "PATH", "keyboard", "max-tokens", "monkey", "run", "author"])
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_a_url_loses_its_password_its_key_and_our_token_and_nothing_else() -> None:
    assert mask_url("https://me:hunter2@host/v1?key=abc&alt=sse#x") == "https://***@host/v1?key=***&alt=sse#x"
    assert mask_url(f"http://127.0.0.1:4000/t/{TOKEN}/v1") == "http://127.0.0.1:4000/t/***/v1"
    assert mask_url("https://host/api/anthropic?api-version=2") == "https://host/api/anthropic?api-version=2"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefgh",
        "ghp_abcdefghijklmnop1234",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOjF9.c2lnbg",
        "hf_abcdefghijklmnopq",
        "sk_live_abcdefgh12345678",
        "glpat-abcdefghij1234567890",
        "npm_abcdefghijklmnopqrst1234",
        "xai-abcdefghijklmnopqrstuvwx",
        "gsk_abcdefghijklmnopqrstuvwx",
        "nvapi-abcdefghijklmnopqrstuvwx",
        "ya29.abcdefghijklmnopqrst",
    ],
)
def test_well_known_shapes_are_masked_anywhere(secret: str) -> None:
    assert secret not in mask_text(f"value={secret} end")


@pytest.mark.parametrize(
    "name", ["task-20261130-1", "risk-assessment", "desk-booking-app", "apk-installer-2", "xai-grok-4-fast"]
)
def test_a_name_that_only_ends_like_the_prefix_of_a_key_is_left_alone(name: str) -> None:
    assert mask_text(name) == name


def test_the_value_of_a_secret_variable_is_gone_and_an_empty_one_stays_empty() -> None:
    assert mask_value("OPENAI_API_KEY", "abc") == "***"
    assert mask_value("OPENAI_API_KEY", "") == ""
    assert mask_value("NO_PROXY", "a,b") == "a,b"


def test_a_command_line_keeps_its_options_and_loses_its_secrets() -> None:
    command = [
        "tool",
        "--api-key",
        "abc",
        "--token=xyz",
        "OPENAI_API_KEY=k",
        "--url",
        "https://u:p@h/",
        "--max-tokens",
        "5",
        "-v",
    ]
    assert mask_command(command) == [
        "tool", "--api-key", "***", "--token=***", "OPENAI_API_KEY=***", "--url", "https://***@h/", "--max-tokens", "5",
        "-v",
    ]  # fmt: skip


def test_a_prompt_is_kept_as_its_length_only() -> None:
    assert mask_command(["/usr/bin/claude", "-p", "fix the bug", "--model", "x"]) == [
        "/usr/bin/claude", "-p", "<11 characters>", "--model", "x",
    ]  # fmt: skip
    assert mask_command(["python3", "agent.py", "--prompt", "a secret plan", "--task", "t1"]) == [
        "python3", "agent.py", "--prompt", "<13 characters>", "--task", "t1",
    ]  # fmt: skip
    assert mask_command(["sh", "-c", "myagent 'a secret plan'"]) == ["sh", "-c", "<23 characters>"]
    assert mask_command(["agent", "--prompt=a secret plan"]) == ["agent", "--prompt=<13 characters>"]
    assert mask_command(["agent", "-pa secret plan"]) == ["agent", "<15 characters>"]
    assert mask_command(["sh", "-c", "x" * 300]) == ["sh", "-c", "<300 characters>"]
    assert mask_command(["claude", "-p", "fix the bug"], keep_text=True)[2] == "fix the bug"


def test_values_are_masked_however_deep_and_digests_and_names_stay() -> None:
    key = "sk-ant-api03-abcdefgh"
    assert mask_values({"model": key, "n": 5, "none": None, "d": {key: [f"a {key}", ["https://u:p@h/"]]}}) == {
        "model": "***", "n": 5, "none": None, "d": {key: ["a ***", ["https://***@h/"]]},
    }  # fmt: skip
    assert mask_values({"text_digest": key}) == {"text_digest": key}
