"""Claude Code's settings files: user < project < local < `--settings` < managed < managed drop-ins, by their names.

In: its arguments, the environment, and files through a callable.  Out: `Findings`; and its arguments with the doors in
an inline `--settings` of its own.  A login or key command (`apiKeyHelper`) is never touched.
**Source:** Claude Code settings reference; the order was seen with 2.1.197 and 2.1.332
(`tests/e2e/test_run_claude_settings.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Final

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.relay.environment import Note, split_origin
from fairtrial.middleware.relay.settings_files.findings import Findings, ListNames, Override, ReadText
from fairtrial.middleware.relay.settings_files.reading import json_object, short

_MANAGED: Final = "/etc/claude-code/managed-settings.json"
_DROP_INS: Final = "/etc/claude-code/managed-settings.d"
_PROXY: Final = "https_proxy"  # Claude Code looks for the capitals last, so those of a file do not beat ours
_NETWORK: Final = (
    _PROXY, "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE",
    "CLAUDE_CODE_CLIENT_CERT", "CLAUDE_CODE_CLIENT_KEY", "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
)  # fmt: skip
_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def find(
    at: int,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    home: str,
    cwd: str,
    reader: ReadText,
    names: ListNames,
) -> Findings:
    user = os.path.join(environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude"), "settings.json")
    own = last_option(arguments, "--settings")
    inline = own is not None and own[1].lstrip().startswith("{")
    asked = last_option(arguments, "--setting-sources")
    sources = None if asked is None else {word.strip() for word in asked[1].split(",")}
    managed = [os.path.join(_DROP_INS, name) for name in sorted(names(_DROP_INS), reverse=True) if _is_drop_in(name)]
    # The strongest first.
    files: list[tuple[str, str, str | None]] = [("managed", path, reader(path)) for path in (*managed, _MANAGED)]
    if own is not None:
        path = os.path.join(cwd, own[1])
        files.append(("flag", "--settings of the command", own[1]) if inline else ("flag", path, reader(path)))
    for source, path in (
        ("local", os.path.join(cwd, ".claude", "settings.local.json")),
        ("project", os.path.join(cwd, ".claude", "settings.json")),
        ("user", user),
    ):
        if sources is None or source in sources:
            files.append((source, path, reader(path)))
    overrides: list[Override] = []
    notes: list[Note] = []
    seen: set[str] = set()
    network: dict[str, str] = {}
    proxied: tuple[str, str] | None = None
    for source, path, text in files:
        env = json_object(text).get("env")
        if not isinstance(env, dict):
            continue
        for key in _NETWORK:
            value = env.get(key)
            if isinstance(value, str) and key not in network:
                network[key] = value  # "" as well: Claude Code then has none, whatever a weaker file or we were given
                if value and key == _PROXY:
                    proxied = short(path, home), f"env.{key}"
        for key in ("ANTHROPIC_BASE_URL", *_CLOUDS):
            value = env.get(key)
            if not isinstance(value, str) or not value or key in seen:
                continue
            seen.add(key)
            if key in _CLOUDS:
                if value.lower() not in {"0", "false", "no", "off"}:
                    notes.append(
                        Note(
                            "settings.cloud",
                            f"{short(path, home)} sets env.{key}: Claude Code's calls go past the door, unseen.",
                            say=True,
                        )
                    )
                continue
            why_not = None
            if source == "managed":
                why_not = "Managed settings beat every flag; ask whoever manages them"
            elif own is not None and not inline:
                why_not = (
                    f"The command already has --settings {own[1]}, a file, which fairtrial leaves alone. Take the key "
                    f"out, and paste `ANTHROPIC_BASE_URL={mask_url(value)} fairtrial run --` before the command"
                )
            elif split_origin(value) is None:
                why_not = "It is no http(s) address"
            overrides.append(
                Override(
                    tool="claude",
                    path=short(path, home),
                    key=f"env.{key}",
                    url=value,
                    door=None if why_not else "anthropic",
                    why_not=why_not,
                )
            )
    return Findings(
        tool="claude", at=at, overrides=tuple(overrides), notes=tuple(notes), network=network, proxied=proxied
    )


def _is_drop_in(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")


def last_option(arguments: Sequence[str], name: str) -> tuple[int, str] | None:
    """Place and value of the last `name VALUE` or `name=VALUE`; the place is that of the word that holds the value."""
    found: tuple[int, str] | None = None
    for index, word in enumerate(arguments):
        if word == "--":
            break
        if word == name and index + 1 < len(arguments):
            found = index + 1, arguments[index + 1]
        elif word.startswith(f"{name}="):
            found = index, word.removeprefix(f"{name}=")
    return found


def with_env(arguments: Sequence[str], own: tuple[int, str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with these variables in the `env` of their own inline --settings."""
    index, text = own
    settings = json_object(text)
    theirs = settings.get("env")
    settings["env"] = {**(theirs if isinstance(theirs, dict) else {}), **env}
    value = json.dumps(settings, separators=(",", ":"))
    option = "--settings=" if arguments[index].startswith("--settings=") else ""
    return (*arguments[:index], option + value, *arguments[index + 1 :])
