"""Codex's configuration: `openai_base_url`, `model_providers.<id>.base_url`, `-c key=value`, and how it is logged in.

In: its arguments, the environment, and files through a callable.  Out: `Findings`.
**Source:** Codex configuration reference; for a login with ChatGPT, Codex 0.171.0 itself
(`tests/e2e/test_run_codex_chatgpt.py`): its calls go to `CHATGPT_URL`, `openai_base_url` moves them with their login,
`chatgpt_base_url` moves all but them, and OPENAI_API_KEY of the environment changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fairtrial.middleware.relay.environment import DEFAULT_URLS, split_origin
from fairtrial.middleware.relay.settings_files.findings import Findings, Override, ReadText
from fairtrial.middleware.relay.settings_files.reading import json_object, short, toml_table

CHATGPT_URL: Final = "https://chatgpt.com/backend-api/codex"
_WITHOUT: Final = (
    "Codex leaves out x-openai-account-routing-override, which it sends to ChatGPT's own address for an account that "
    "is bound to a region"
)


def find(at: int, arguments: Sequence[str], environ: Mapping[str, str], home: str, reader: ReadText) -> Findings:
    folder = environ.get("CODEX_HOME") or os.path.join(home, ".codex")
    path = os.path.join(folder, "config.toml")
    config = toml_table(reader(path))
    flags = dict(_flags(arguments))
    profile = flags.get("profile") or config.get("profile")
    profiles = config.get("profiles")
    chosen = profiles.get(profile) if isinstance(profiles, dict) and isinstance(profile, str) else None
    provider = flags.get("model_provider")
    for table in (chosen, config):
        if provider is None and isinstance(table, dict) and isinstance(table.get("model_provider"), str):
            provider = str(table["model_provider"])
    provider = provider or "openai"
    shown = short(path, home)
    if provider == "openai":
        return _builtin(at, flags, environ, config, shown, json_object(reader(os.path.join(folder, "auth.json"))))
    key = f"model_providers.{provider}.base_url"
    providers = config.get("model_providers")
    table = providers.get(provider) if isinstance(providers, dict) else None
    url = flags.get(key) or (table.get("base_url") if isinstance(table, dict) else None)
    if not isinstance(url, str):
        return Findings(tool="codex", at=at)
    why_not = "The command already gives it by -c" if key in flags else None
    if split_origin(url) is None:
        why_not = "It is no http(s) address"
    override = Override(
        tool="codex",
        path="the command line" if key in flags else shown,
        key=key,
        url=url,
        door=None if why_not else f"codex.{provider}",
        why_not=why_not,
    )
    return Findings(tool="codex", at=at, overrides=(override,))


def _builtin(
    at: int,
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    config: Mapping[str, object],
    shown: str,
    auth: Mapping[str, object],
) -> Findings:
    url = config.get("openai_base_url")
    if isinstance(url, str) and "openai_base_url" not in flags:
        why_not = None if split_origin(url) is not None else "It is no http(s) address"
        override = Override(
            tool="codex",
            path=shown,
            key="openai_base_url",
            url=url,
            door=None if why_not else "codex.openai",
            why_not=why_not,
        )
        return Findings(tool="codex", at=at, overrides=(override,))
    if "openai_base_url" in flags:
        return Findings(tool="codex", at=at)
    if _with_chatgpt(environ, auth):
        override = Override(
            tool="codex",
            path="Codex's login with ChatGPT",
            key="openai_base_url",
            url=CHATGPT_URL,
            door="codex.chatgpt",
            quiet=True,
            side_effects=_WITHOUT,
        )
        why = (
            f"Codex is logged in with ChatGPT: its calls go to {CHATGPT_URL} and are not seen. Pass --adapt to have "
            "them read, or --via connect to have their connections timed."
        )
        # The subscription's tokens are for another host than api.openai.com; that base URL would break the login.
        return Findings(tool="codex", at=at, overrides=(override,), leave={"OPENAI_BASE_URL": why})
    override = Override(
        tool="codex",
        path="Codex's built-in provider",
        key="openai_base_url",
        url=environ.get("OPENAI_BASE_URL") or DEFAULT_URLS["openai"],
        door="codex.openai",
        quiet=True,
    )
    return Findings(tool="codex", at=at, overrides=(override,) if split_origin(override.url) else ())


def _with_chatgpt(environ: Mapping[str, str], auth: Mapping[str, object]) -> bool:
    """Whether the calls bear the login's tokens.  A file that does not say how it is logged in (older Codex) has a key
    or tokens."""
    if environ.get("CODEX_API_KEY") or not auth.get("tokens"):
        return False
    mode = auth.get("auth_mode")
    return mode == "chatgpt" if isinstance(mode, str) else not auth.get("OPENAI_API_KEY")


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in {"-c", "--config"}:
            key, _, text = (value if equals else next(words, "")).partition("=")
            yield key.strip(), text.strip().strip("\"'")
        elif name in {"-p", "--profile"}:
            yield "profile", value if equals else next(words, "")
        elif word == "--oss":
            yield "model_provider", "oss"
        elif word == "--":
            return
