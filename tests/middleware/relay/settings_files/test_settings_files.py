"""Settings that beat the environment are found where the tools look for them, and adapted by the tools' own flags."""

from __future__ import annotations

import json
import shlex

import pytest

from fairtrial.middleware.relay.session import relay_settings
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.relay.settings_files import Findings, adapt, find_tool, inspect

DOOR = "http://127.0.0.1:4000/t/0123456789abcdef0123456789abcdef"
HOME = {"HOME": "/h"}


def look(command: str, files: dict[str, str], environ: dict[str, str] | None = None) -> Findings:
    return inspect(shlex.split(command), {**HOME, **(environ or {})}, "/w/project", reader=files.get)


@pytest.mark.parametrize(
    "command, expected",
    [
        ("claude -p x", ("claude", 0)),
        ("/usr/local/bin/claude", ("claude", 0)),
        ("npx -y @anthropic-ai/claude-code@2.1.197 -p x", ("claude", 2)),
        ("npx @openai/codex exec x", ("codex", 1)),
        ("env A=b timeout 60s codex exec x", ("codex", 4)),
        ("nice -n 5 opencode run x", ("opencode", 3)),
        ("pnpm dlx opencode-ai@latest run x", ("opencode", 2)),
        ("docker run image claude", None),
        ("sh -c claude", None),
        ("echo claude", None),
        ("python agent.py", None),
    ],
)
def test_the_agent_is_known_by_its_program(command: str, expected: tuple[str, int] | None) -> None:
    assert find_tool(shlex.split(command)) == expected


def _claude_settings(url: str) -> str:
    return json.dumps({"apiKeyHelper": "/bin/key", "env": {"ANTHROPIC_BASE_URL": url, "OTHER": "x"}})


@pytest.mark.parametrize(
    "path, shown",
    [
        ("/h/.claude/settings.json", "~/.claude/settings.json"),
        ("/w/project/.claude/settings.json", "/w/project/.claude/settings.json"),
        ("/w/project/.claude/settings.local.json", "/w/project/.claude/settings.local.json"),
        ("/etc/claude-code/managed-settings.json", "/etc/claude-code/managed-settings.json"),
    ],
)
def test_each_of_claude_codes_files_is_said_with_its_key(path: str, shown: str) -> None:
    findings = look("claude -p x", {path: _claude_settings("https://me:pw@gw/x")})
    (line,) = findings.sentences(adapt=False)
    assert line.say
    assert line.text.startswith(f"{shown} sets env.ANTHROPIC_BASE_URL to https://***@gw/x")


def test_managed_drop_ins_beat_the_managed_file_and_the_last_of_them_beats_all() -> None:
    folder = "/etc/claude-code/managed-settings.d"
    names = ["90-late.json", "10-early.json", ".95-hidden.json", "99-note.txt"]
    files = {f"{folder}/{name}": _claude_settings(f"https://{name[:2]}/x") for name in names}
    files["/etc/claude-code/managed-settings.json"] = _claude_settings("https://base/x")
    for there, strongest in ((names, "90-late.json"), (names[1:], "10-early.json"), (names[2:], None)):
        found = inspect(["claude"], HOME, "/w", reader=files.get, names={folder: there}.__getitem__)
        (override,) = found.overrides
        path = f"{folder}/{strongest}" if strongest else "/etc/claude-code/managed-settings.json"
        assert (override.path, override.door) == (path, None)
        assert "Managed settings beat every flag" in (override.why_not or "")


def test_the_companys_network_in_a_settings_file_is_what_the_door_goes_by() -> None:
    weak = json.dumps({"env": {"HTTPS_PROXY": "http://weak:1", "NODE_EXTRA_CA_CERTS": "/ca.pem", "OTHER": "x"}})
    strong = json.dumps({"env": {"HTTPS_PROXY": "http://strong:1", "NO_PROXY": ""}})
    findings = look("claude", {"/h/.claude/settings.json": weak, "/w/project/.claude/settings.json": strong})
    assert findings.network == {"HTTPS_PROXY": "http://strong:1", "NO_PROXY": "", "NODE_EXTRA_CA_CERTS": "/ca.pem"}
    assert not findings.past_connect()
    small = json.dumps({"env": {"https_proxy": "http://small:1"}})
    (note,) = look("claude", {"/h/.claude/settings.json": small}).past_connect()
    assert note.text.startswith("~/.claude/settings.json sets env.https_proxy, which beats the environment")


def test_a_proxy_that_the_strongest_file_takes_away_is_nobodys() -> None:
    """Claude Code 2.1.332 goes straight then, past the proxy of a weaker file or of its environment."""
    weak, strong = (
        json.dumps({"env": dict.fromkeys(("HTTPS_PROXY", "https_proxy"), to)}) for to in ("http://weak:1", "")
    )
    environ = {"HTTPS_PROXY": "http://own:1", "https_proxy": "http://own:1"}
    files = {"/h/.claude/settings.json": weak, "/w/project/.claude/settings.json": strong}
    findings = look("claude", files, environ)
    assert relay_settings({**environ, **findings.network}).proxy.https_proxy == ""
    assert not findings.past_connect()


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"HTTP_PROXY": "http://one:1"}, "one"),
        ({"HTTPS_PROXY": "http://two:1"}, "two"),
        ({"HTTP_PROXY": "http://one:1", "HTTPS_PROXY": "http://two:1"}, "two"),
        ({"HTTP_PROXY": "http://one:1", "ALL_PROXY": "http://all:1"}, "one"),
        ({"HTTP_PROXY": "http://one:1", "NO_PROXY": "api.test"}, None),
    ],
)
def test_the_door_of_claude_code_goes_by_the_one_proxy_that_claude_code_would_take(
    given: dict[str, str], expected: str | None
) -> None:
    """As 2.1.332 went with each of these, to an https and to a plain address alike; other doors go as curl does."""
    settings = relay_settings(given, tool="claude")
    for url in ("https://api.test", "http://api.test"):
        proxy = settings.proxy_for(Upstream.parse("anthropic", url))
        assert (proxy and proxy.host) == expected
        other = Upstream.parse("openai", url)
        assert settings.proxy_for(other) == relay_settings(given).proxy.choose(other)


def test_the_strongest_of_several_files_counts() -> None:
    files = {
        "/h/.claude/settings.json": _claude_settings("https://user/"),
        "/w/project/.claude/settings.json": _claude_settings("https://project/"),
    }
    assert [override.url for override in look("claude", files).overrides] == ["https://project/"]


def test_another_folder_for_the_users_file_is_honoured() -> None:
    files = {"/c/settings.json": _claude_settings("https://user/")}
    assert look("claude", files, {"CLAUDE_CONFIG_DIR": "/c"}).overrides
    assert not look("claude", files).overrides


def test_adapt_gives_claude_code_the_door_right_behind_its_program() -> None:
    command = "npx @anthropic-ai/claude-code -p 'do it'"
    findings = look(command, {"/h/.claude/settings.json": _claude_settings("https://gw/api")})
    assert findings.held(adapt=True) == {"ANTHROPIC_BASE_URL": "https://gw/api"}
    assert not findings.sentences(adapt=True)
    made = adapt(shlex.split(command), HOME, findings, {"anthropic": DOOR})
    assert made.command[:2] == ("npx", "@anthropic-ai/claude-code")
    assert made.command[2] == "--settings"
    assert json.loads(made.command[3]) == {"env": {"ANTHROPIC_BASE_URL": f"{DOOR}/api"}}
    assert made.command[4:] == ("-p", "do it")
    (mutation,) = made.mutations
    assert (mutation.old, mutation.new) == ("https://gw/api", "http://127.0.0.1:4000/t/***/api")
    assert made.variables == {}


@pytest.mark.parametrize(
    "command, path, why",
    [
        ("claude -p x", "/etc/claude-code/managed-settings.json", "Managed settings"),
        ("claude --settings own.json -p x", "/h/.claude/settings.json", "already has --settings"),
    ],
)
def test_what_cannot_be_adapted_says_why(command: str, path: str, why: str) -> None:
    findings = look(command, {path: _claude_settings("https://gw/")})
    assert findings.held(adapt=True) == {}
    assert why in findings.sentences(adapt=True)[0].text
    assert adapt(shlex.split(command), HOME, findings, {"anthropic": DOOR}).command == tuple(shlex.split(command))


def test_a_settings_file_of_the_commands_own_is_read_and_the_line_to_paste_is_said() -> None:
    files = {"/w/project/own.json": _claude_settings("https://me:pw@own/"), "/h/.claude/settings.json": "{}"}
    (line,) = look("claude --settings own.json -p x", files).sentences(adapt=True)
    assert line.text.startswith("/w/project/own.json sets env.ANTHROPIC_BASE_URL to https://***@own/")
    assert "ANTHROPIC_BASE_URL=https://***@own/ fairtrial run --" in line.text


@pytest.mark.parametrize("form", ["--settings {}", "--settings={}"])
def test_inline_settings_of_the_commands_own_keep_all_else_and_get_the_door(form: str) -> None:
    own = json.dumps({"model": "m", "env": {"ANTHROPIC_BASE_URL": "https://own/api", "OTHER": "x"}})
    command = ["claude", "-p", "x", *(form.format(own).split(" ", 1) if " " in form else [form.format(own)])]
    files = {"/h/.claude/settings.json": _claude_settings("https://user/")}
    findings = inspect(command, HOME, "/w/project", reader=files.get)
    assert "--settings of the command sets" in findings.sentences(adapt=False)[0].text
    assert findings.held(adapt=True) == {"ANTHROPIC_BASE_URL": "https://own/api"}
    made = adapt(command, HOME, findings, {"anthropic": DOOR})
    assert len(made.command) == len(command)
    assert json.loads(made.command[-1].removeprefix("--settings=")) == {
        "model": "m",
        "env": {"ANTHROPIC_BASE_URL": f"{DOOR}/api", "OTHER": "x"},
    }
    assert len(made.mutations) == 1


def test_inline_settings_without_an_address_are_joined_with_the_files() -> None:
    command = ["claude", "--settings", '{"model":"m"}', "-p", "x"]
    files = {"/h/.claude/settings.json": _claude_settings("https://user/")}
    made = adapt(command, HOME, inspect(command, HOME, "/w", reader=files.get), {"anthropic": DOOR})
    assert json.loads(made.command[2]) == {"model": "m", "env": {"ANTHROPIC_BASE_URL": f"{DOOR}/"}}


def test_files_that_setting_sources_leaves_out_are_not_read() -> None:
    files = {"/h/.claude/settings.json": _claude_settings("https://user/")}
    assert not look("claude --setting-sources project,local -p x", files).overrides
    assert look("claude --setting-sources=user -p x", files).overrides


def test_a_prompt_behind_the_end_of_options_is_no_option() -> None:
    files = {"/h/.claude/settings.json": _claude_settings("https://user/")}
    assert look("claude -p -- --settings x", files).held(adapt=True)


def test_a_cloud_switched_on_in_a_file_is_said() -> None:
    files = {"/h/.claude/settings.json": json.dumps({"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}})}
    assert "CLAUDE_CODE_USE_BEDROCK" in look("claude", files).notes[0].text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"env": 3}', '{"env": {"ANTHROPIC_BASE_URL": 3}}'])
def test_a_file_that_makes_no_sense_is_no_finding(text: str) -> None:
    assert look("claude", {"/h/.claude/settings.json": text}) == Findings(tool="claude", at=0)


_CODEX = """
model_provider = "gw"
[model_providers.gw]
base_url = "https://gw.example/v1"
[model_providers.other]
base_url = "http://other/v1"
[profiles.p]
model_provider = "other"
"""


@pytest.mark.parametrize(
    "command, key, url",
    [
        ("codex exec x", "model_providers.gw.base_url", "https://gw.example/v1"),
        ("codex --profile p exec x", "model_providers.other.base_url", "http://other/v1"),
        ("codex -c model_provider=other exec x", "model_providers.other.base_url", "http://other/v1"),
    ],
)
def test_the_provider_that_codex_will_use_is_found(command: str, key: str, url: str) -> None:
    (override,) = look(command, {"/h/.codex/config.toml": _CODEX}).overrides
    assert (override.path, override.key, override.url) == ("~/.codex/config.toml", key, url)


def test_adapt_gives_codex_the_door_by_its_config_flag() -> None:
    findings = look("codex exec x", {"/c/config.toml": _CODEX}, {"CODEX_HOME": "/c"})
    (door,) = findings.extra_doors()
    assert (door.name, door.origin) == ("codex.gw", "https://gw.example")
    made = adapt(["codex", "exec", "x"], HOME, findings, {"codex.gw": DOOR})
    assert made.command == ("codex", "-c", f'model_providers.gw.base_url="{DOOR}/v1"', "exec", "x")


def test_codexs_own_key_for_the_built_in_provider_is_found() -> None:
    (override,) = look("codex", {"/h/.codex/config.toml": 'openai_base_url = "http://g/v1"'}).overrides
    assert (override.key, override.door) == ("openai_base_url", "codex.openai")


def test_codex_without_a_configuration_is_adapted_when_asked_for_and_nothing_is_said() -> None:
    findings = look("codex exec x", {}, {"OPENAI_API_KEY": "k"})
    assert not findings.sentences(adapt=False)
    (door,) = findings.extra_doors()
    assert door.origin == "https://api.openai.com"
    made = adapt(["codex", "exec", "x"], HOME, findings, {"codex.openai": DOOR})
    assert made.command == ("codex", "-c", f'openai_base_url="{DOOR}/v1"', "exec", "x")
    assert not look("codex -c openai_base_url=http://h/v1 exec x", {}).overrides


CHATGPT = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": {"access_token": "x"}}


def test_codex_logged_in_with_chatgpt_keeps_its_address_unless_it_is_to_be_adapted() -> None:
    files = {"/h/.codex/auth.json": json.dumps(CHATGPT)}
    findings = look("codex exec x", files, {"OPENAI_API_KEY": "unused by a login"})
    assert "--via connect" in findings.leave["OPENAI_BASE_URL"]
    (door,) = findings.extra_doors()
    assert door.origin == "https://chatgpt.com"
    made = adapt(["codex", "exec", "x"], HOME, findings, {"codex.chatgpt": DOOR})
    assert made.command == ("codex", "-c", f'openai_base_url="{DOOR}/backend-api/codex"', "exec", "x")
    assert "x-openai-account-routing-override" in (made.mutations[0].side_effects or "")


@pytest.mark.parametrize(
    "auth, environ, login",
    [
        (CHATGPT, {}, True),
        (CHATGPT, {"CODEX_API_KEY": "k"}, False),
        ({**CHATGPT, "auth_mode": "apikey", "OPENAI_API_KEY": "k"}, {}, False),
        ({"tokens": {"access_token": "x"}}, {}, True),
        ({"tokens": {"access_token": "x"}, "OPENAI_API_KEY": "k"}, {}, False),
        ({"auth_mode": "chatgpt", "tokens": None}, {}, False),
    ],
)
def test_how_codex_is_logged_in_decides_where_its_calls_go(
    auth: dict[str, object], environ: dict[str, str], login: bool
) -> None:
    findings = look("codex exec x", {"/h/.codex/auth.json": json.dumps(auth)}, environ)
    assert [door.origin for door in findings.extra_doors()] == [
        "https://chatgpt.com" if login else "https://api.openai.com"
    ]
    assert bool(findings.leave) == login


_OPENCODE = """
{
  // where "https://comments" are not addresses
  "provider": {
    "gw": {"options": {"baseURL": "https://gw/v1", /* no */ "apiKey": "{env:KEY}"}},
    "none": {"options": {}},
  },
}
"""


@pytest.mark.parametrize("path", ["/w/project/opencode.json", "/w/opencode.jsonc", "/h/.config/opencode/opencode.json"])
def test_opencodes_files_are_found_with_their_comments(path: str) -> None:
    (override,) = look("opencode run x", {path: _OPENCODE}).overrides
    assert (override.key, override.url) == ("provider.gw.options.baseURL", "https://gw/v1")


def test_adapt_gives_opencode_the_door_by_its_inline_configuration() -> None:
    environ = {"OPENCODE_CONFIG_CONTENT": '{"model": "gw/m"}'}
    findings = look("opencode run x", {"/w/project/opencode.json": _OPENCODE}, environ)
    made = adapt(["opencode", "run", "x"], environ, findings, {"opencode.gw": DOOR})
    assert made.command == ("opencode", "run", "x")
    assert json.loads(made.variables["OPENCODE_CONFIG_CONTENT"]) == {
        "model": "gw/m",
        "provider": {"gw": {"options": {"baseURL": f"{DOOR}/v1"}}},
    }


def test_another_command_reads_no_file() -> None:
    def refuse(path: str) -> str | None:
        raise AssertionError(path)

    assert inspect(["python", "agent.py"], HOME, "/w", reader=refuse) == Findings()
