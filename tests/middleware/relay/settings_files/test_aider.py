"""aider's own address is found where aider looks for it, and given the door by its own option."""

from __future__ import annotations

import shlex

import pytest

from fairtrial.middleware.relay.settings_files import adapt, inspect
from fairtrial.middleware.relay.settings_files.aider import ON_THE_COMMAND_LINE, held

DOOR = "http://127.0.0.1:4000/t/0123456789abcdef0123456789abcdef"
FOLDERS = ("/w/p", "/w", "/h")
DOTENV = "# keys\nexport OPENAI_API_BASE='https://gw/v1' # ours\n"
YAML = "model: gpt\nopenai-api-base: https://yaml/v1\n"


@pytest.mark.parametrize(
    "command, files, expected",
    [
        ("", {}, None),
        ("", {"/w/p/.env": "OPENAI_API_KEY=x\n", "/h/.aider.conf.yml": "#openai-api-base: https://no\n"}, None),
        ("", {"/w/p/.env": DOTENV, "/w/.env": "OPENAI_API_BASE=https://upper"}, ("/w/p/.env", "https://gw/v1")),
        ("", {"/h/.env": "AIDER_OPENAI_API_BASE=https://a\n"}, ("/h/.env", "https://a")),
        ("", {"/w/.aider.conf.yml": YAML}, ("/w/.aider.conf.yml", "https://yaml/v1")),
        ("", {"/w/.aider.conf.yml": YAML, "/h/.env": DOTENV}, ("/h/.env", "https://gw/v1")),
        ("--openai-api-base https://cli", {"/w/p/.env": DOTENV}, (ON_THE_COMMAND_LINE, "https://cli")),
        ("--openai-api-base=https://cli", {}, (ON_THE_COMMAND_LINE, "https://cli")),
    ],
)
def test_the_address_that_aider_would_use_is_found(
    command: str, files: dict[str, str], expected: tuple[str, str] | None
) -> None:
    assert held(shlex.split(command), FOLDERS, files.get) == expected


def test_adapt_gives_aider_the_door_by_its_option() -> None:
    command = shlex.split("aider --model openai/x --message m f.py")
    findings = inspect(command, {"HOME": "/h"}, "/w/p", reader={"/w/p/.env": DOTENV}.get)
    (line,) = findings.sentences(adapt=False)
    assert "/w/p/.env sets openai-api-base to https://gw/v1, which beats the environment" in line.text
    assert "--adapt" in line.text
    for chosen in (True, False):  # else OPENAI_BASE_URL would lead to the provider's own address
        assert findings.held(adapt=chosen) == {"OPENAI_API_BASE": "https://gw/v1"}
    assert findings.extra_doors() == ()
    adapted = adapt(command, {}, findings, {"openai": DOOR})
    assert adapted.command == ("aider", "--openai-api-base", f"{DOOR}/v1", *command[1:])
    assert [m.what for m in adapted.mutations] == ["openai-api-base of aider, by --openai-api-base"]


def test_an_address_on_the_command_line_is_left_and_the_line_to_paste_is_said() -> None:
    command = shlex.split("aider --openai-api-base https://k:s@cli/v1 f.py")
    findings = inspect(command, {"HOME": "/h"}, "/w/p", reader=lambda _: None)
    (line,) = findings.sentences(adapt=True)
    assert "paste `OPENAI_API_BASE=https://***@cli/v1 fairtrial run --` before the rest" in line.text
    assert adapt(command, {}, findings, {"openai": DOOR}).command == tuple(command)
