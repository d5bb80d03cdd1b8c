"""Settings files of agents that beat the environment: found, said, and, with `--adapt`, answered by the agent's flag.

In: the command, the environment, the working folder, and files through a callable.  Out: `Findings` (what is set where,
in plain sentences) and, after the doors are open, an adapted command.  No file is ever written; a login or key command
(`apiKeyHelper`) is never touched.  Of `--settings`, inline JSON is joined with ours; a file's content is never put on
the command line, where everybody could read it.

Recognised: Claude Code, Codex, opencode and aider, by the program's name, also behind `npx`, `env`, `timeout` and the
like.
Not recognised: an agent inside a shell line (`sh -c "claude …"`) or a container.  The cost of missing one is a door
without calls, which the verdict says.

**Source:** Claude Code settings reference (user < project < local < --settings < managed); Codex configuration
reference (`openai_base_url`, `model_providers.<id>.base_url`, `-c key=value`); opencode configuration reference
(global < project < `OPENCODE_CONFIG_CONTENT`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.core.places import home_folder
from fairtrial.middleware.relay import settings_aider
from fairtrial.middleware.relay.environment import (
    DEFAULT_URLS,
    DoorPlan,
    Mutation,
    Note,
    point_to,
    split_origin,
)

Tool = Literal["aider", "claude", "codex", "opencode"]
ReadText = Callable[[str], str | None]

_PROGRAMS: Final[Mapping[str, Tool]] = {
    "aider": "aider",
    "claude": "claude",
    "@anthropic-ai/claude-code": "claude",
    "claude-code": "claude",
    "codex": "codex",
    "@openai/codex": "codex",
    "opencode": "opencode",
    "opencode-ai": "opencode",
}
_LAUNCHERS: Final = ("npx", "bunx", "pnpx", "pnpm", "yarn", "dlx", "exec", "x", "node", "bun", "uvx")
_PREFIXES: Final = ("env", "nice", "ionice", "timeout", "stdbuf", "nohup", "setsid", "sudo", "time", "command")
_WRAPPERS: Final = frozenset({*_LAUNCHERS, *_PREFIXES})
_MANAGED: Final = "/etc/claude-code/managed-settings.json"
_NAMES: Final[Mapping[Tool, str]] = {
    "aider": "aider",
    "claude": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
}
_FLAGS: Final[Mapping[Tool, str]] = {
    "aider": settings_aider.OPTION,
    "claude": "--settings",
    "codex": "-c",
    "opencode": "OPENCODE_CONFIG_CONTENT",
}
_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One setting that sends the agent's calls past the door.

    `key` as the tool spells it; `url` what it holds.  `door` is the name of the door that will stand before it when
    adapted; None when it cannot be adapted, and then `why_not` says why.  `quiet`: perhaps the tool honours the
    variable (older Codex does), so it is adapted when asked for, but nothing is said.
    """

    tool: Tool
    path: str
    key: str
    url: str
    door: str | None
    why_not: str | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the files say.  `tool` None: no agent that is known here; `at` is its program's place in the command."""

    tool: Tool | None = None
    at: int = 0
    overrides: tuple[Override, ...] = ()
    notes: tuple[Note, ...] = ()
    leave: Mapping[str, str] = field(default_factory=dict[str, str])

    def held(self, *, adapt: bool) -> dict[str, str]:
        """Variable -> what a file holds for it, for the doors that stand before it.

        aider's address counts also when nothing is adapted: its library asks OPENAI_BASE_URL first, so that one of
        ours, before the provider's own address, would send its calls there and not where the file says.
        """
        held: dict[str, str] = {}
        for override in self.overrides:
            if override.door is None:
                continue
            if override.tool == "aider":
                held["OPENAI_API_BASE"] = override.url
            elif override.tool == "claude" and adapt:
                held[override.key.removeprefix("env.")] = override.url
        return held

    def extra_doors(self) -> tuple[DoorPlan, ...]:
        """Doors for settings that are no variables."""
        doors: list[DoorPlan] = []
        for override in self.overrides:
            found = split_origin(override.url)
            if override.tool not in {"aider", "claude"} and override.door is not None and found is not None:
                doors.append(DoorPlan(override.door, found[0]))
        return tuple(doors)

    def sentences(self, *, adapt: bool) -> list[Note]:
        """One line for each setting that beats the environment and is not adapted."""
        lines: list[Note] = []
        for override in self.overrides:
            if override.quiet or (adapt and override.door is not None):
                continue
            if override.why_not is not None:
                advice = f"{override.why_not}."
            else:
                advice = (
                    f"Pass --adapt to let fairtrial give {_FLAGS[override.tool]} for this run, or take the key out."
                )
            text = (
                f"{override.path} sets {override.key} to {mask_url(override.url)}, which beats the environment: "
                f"{_NAMES[override.tool]}'s calls will not be seen. {advice}"
            )
            lines.append(Note("settings.beats_environment", text, say=True))
        return lines


@dataclass(frozen=True, slots=True)
class Adapted:
    """The command and the variables of an adapted run."""

    command: tuple[str, ...]
    variables: dict[str, str]
    mutations: tuple[Mutation, ...]


def find_tool(command: Sequence[str]) -> tuple[Tool, int] | None:
    """Which agent the command starts, and where in the command its program stands."""
    for index, word in enumerate(command[:12]):
        name = word.rsplit("/", 1)[-1] if not word.startswith("@") else word
        scope, at, version = name.rpartition("@")
        tool = _PROGRAMS.get(scope if at and scope and re.match(r"[\w.^~-]+$", version) else name)
        if tool is not None:
            return tool, index
        is_option = word.startswith("-") or re.fullmatch(r"[A-Za-z_]\w*=.*|[\d.]+[smhd]?", word, re.DOTALL) is not None
        if name not in _WRAPPERS and not is_option:
            return None
    return None


def inspect(command: Sequence[str], environ: Mapping[str, str], cwd: str, *, reader: ReadText) -> Findings:
    """Read the files that the agent of this command would read.  Unreadable files count as absent."""
    found = find_tool(command)
    if found is None:
        return Findings()
    tool, at = found
    home = home_folder(environ)
    arguments = command[at + 1 :]
    match tool:
        case "aider":
            return _aider(at, arguments, home, cwd, reader)
        case "claude":
            return _claude(at, arguments, environ, home, cwd, reader)
        case "codex":
            return _codex(at, arguments, environ, home, reader)
        case "opencode":
            return _opencode(at, environ, home, cwd, reader)


def adapt(
    command: Sequence[str], environ: Mapping[str, str], findings: Findings, door_urls: Mapping[str, str]
) -> Adapted:
    """Put the open doors into the agent's own flags.  `door_urls`: door name -> URL with the token."""
    pointed: list[tuple[Override, str]] = []
    for override in findings.overrides:
        base = door_urls.get(override.door or "")
        found = split_origin(override.url)
        if base is not None and found is not None:
            pointed.append((override, point_to(base, found[1], found[2])))
    if not pointed:
        return Adapted(tuple(command), {}, ())
    insert: list[str] = []
    variables: dict[str, str] = {}
    match findings.tool:
        case "aider":
            insert = [settings_aider.OPTION, pointed[-1][1]]
        case "claude":
            env = {override.key.removeprefix("env."): url for override, url in pointed}
            arguments = command[findings.at + 1 :]
            own = _last_option(arguments, "--settings")
            if own is not None:  # one more would take its place: theirs, with the doors in it
                return Adapted((*command[: findings.at + 1], *_with_env(arguments, own, env)), {}, _mutations(pointed))
            insert = ["--settings", json.dumps({"env": env}, separators=(",", ":"))]
        case "codex":
            for override, url in pointed:
                insert += ["-c", f"{override.key}={json.dumps(url)}"]
        case "opencode":
            inline = _json_object(environ.get("OPENCODE_CONFIG_CONTENT"))
            for override, url in pointed:
                _set(inline, override.key, url)
            variables["OPENCODE_CONFIG_CONTENT"] = json.dumps(inline, separators=(",", ":"))
        case None:
            return Adapted(tuple(command), {}, ())
    cut = findings.at + 1
    return Adapted((*command[:cut], *insert, *command[cut:]), variables, _mutations(pointed))


def _mutations(pointed: Sequence[tuple[Override, str]]) -> tuple[Mutation, ...]:
    return tuple(
        Mutation(
            what=f"{override.key} of {_NAMES[override.tool]}, by {_FLAGS[override.tool]}",
            old=mask_url(override.url),
            new=mask_url(url),
            why=f"--adapt: {override.path} {'may beat' if override.quiet else 'beats'} the environment",
            side_effects="one more setting on the agent's command line or in its environment",
        )
        for override, url in pointed
    )


# --- Claude Code ----------------------------------------------------------------------------------------------------


def _claude(
    at: int, arguments: Sequence[str], environ: Mapping[str, str], home: str, cwd: str, reader: ReadText
) -> Findings:
    user = os.path.join(environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude"), "settings.json")
    own = _last_option(arguments, "--settings")
    inline = own is not None and own[1].lstrip().startswith("{")
    asked = _last_option(arguments, "--setting-sources")
    sources = None if asked is None else {word.strip() for word in asked[1].split(",")}
    files: list[tuple[str, str, str | None]] = [("managed", _MANAGED, reader(_MANAGED))]  # the strongest first
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
    for source, path, text in files:
        env = _json_object(text).get("env")
        if not isinstance(env, dict):
            continue
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
                            f"{_short(path, home)} sets env.{key}: Claude Code's calls go past the door, unseen.",
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
                    path=_short(path, home),
                    key=f"env.{key}",
                    url=value,
                    door=None if why_not else "anthropic",
                    why_not=why_not,
                )
            )
    return Findings(tool="claude", at=at, overrides=tuple(overrides), notes=tuple(notes))


def _last_option(arguments: Sequence[str], name: str) -> tuple[int, str] | None:
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


def _with_env(arguments: Sequence[str], own: tuple[int, str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with these variables in the `env` of their own inline --settings."""
    index, text = own
    settings = _json_object(text)
    theirs = settings.get("env")
    settings["env"] = {**(theirs if isinstance(theirs, dict) else {}), **env}
    value = json.dumps(settings, separators=(",", ":"))
    option = "--settings=" if arguments[index].startswith("--settings=") else ""
    return (*arguments[:index], option + value, *arguments[index + 1 :])


# --- Codex ----------------------------------------------------------------------------------------------------------


def _codex(at: int, arguments: Sequence[str], environ: Mapping[str, str], home: str, reader: ReadText) -> Findings:
    folder = environ.get("CODEX_HOME") or os.path.join(home, ".codex")
    path = os.path.join(folder, "config.toml")
    config = _toml(reader(path))
    flags = dict(_codex_flags(arguments))
    profile = flags.get("profile") or config.get("profile")
    profiles = config.get("profiles")
    chosen = profiles.get(profile) if isinstance(profiles, dict) and isinstance(profile, str) else None
    provider = flags.get("model_provider")
    for table in (chosen, config):
        if provider is None and isinstance(table, dict) and isinstance(table.get("model_provider"), str):
            provider = str(table["model_provider"])
    provider = provider or "openai"
    shown = _short(path, home)
    if provider == "openai":
        return _codex_builtin(
            at, flags, environ, config, shown, _json_object(reader(os.path.join(folder, "auth.json")))
        )
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


def _codex_builtin(
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
    has_key = bool(environ.get("OPENAI_API_KEY") or environ.get("CODEX_API_KEY") or auth.get("OPENAI_API_KEY"))
    if auth.get("tokens") and not has_key:
        # The subscription's tokens are for another host than api.openai.com; a base URL would break the login.
        why = "Codex is logged in with ChatGPT, whose address is not this variable's; its calls are not seen."
        return Findings(tool="codex", at=at, leave={"OPENAI_BASE_URL": why})
    if "openai_base_url" in flags:
        return Findings(tool="codex", at=at)
    override = Override(
        tool="codex",
        path="Codex's built-in provider",
        key="openai_base_url",
        url=environ.get("OPENAI_BASE_URL") or DEFAULT_URLS["openai"],
        door="codex.openai",
        quiet=True,
    )
    return Findings(tool="codex", at=at, overrides=(override,) if split_origin(override.url) else ())


def _codex_flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
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


# --- opencode -------------------------------------------------------------------------------------------------------


def _opencode(at: int, environ: Mapping[str, str], home: str, cwd: str, reader: ReadText) -> Findings:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = [os.path.join(folder, name) for folder in _upwards(cwd) for name in ("opencode.jsonc", "opencode.json")]
    if chosen := environ.get("OPENCODE_CONFIG"):
        files.append(os.path.join(cwd, chosen))
    files += [os.path.join(base, "opencode", name) for name in ("opencode.jsonc", "opencode.json", "config.json")]
    sources = [("OPENCODE_CONFIG_CONTENT", environ.get("OPENCODE_CONFIG_CONTENT"))]
    sources += [(_short(path, home), reader(path)) for path in files]
    overrides: list[Override] = []
    seen: set[str] = set()
    for path, text in sources:
        providers = _json_object(_without_comments(text or "")).get("provider")
        for name, provider in providers.items() if isinstance(providers, dict) else ():
            options = provider.get("options") if isinstance(provider, dict) else None
            url = options.get("baseURL") if isinstance(options, dict) else None
            if not isinstance(url, str) or name in seen:
                continue
            seen.add(name)
            why_not = None if split_origin(url) is not None else "It is no http(s) address"
            overrides.append(
                Override(
                    tool="opencode",
                    path=path,
                    key=f"provider.{name}.options.baseURL",
                    url=url,
                    door=None if why_not else f"opencode.{name}",
                    why_not=why_not,
                )
            )
    return Findings(tool="opencode", at=at, overrides=tuple(overrides))


# --- aider ----------------------------------------------------------------------------------------------------------


def _aider(at: int, arguments: Sequence[str], home: str, cwd: str, reader: ReadText) -> Findings:
    found = settings_aider.held(arguments, (cwd, list(_upwards(cwd))[-1], home), reader)
    if found is None:
        return Findings(tool="aider", at=at)
    path, url = found
    why_not = None if split_origin(url) is not None else "It is no http(s) address"
    if path == settings_aider.ON_THE_COMMAND_LINE:
        why_not = f"Leave the option out, and paste `OPENAI_API_BASE={mask_url(url)} fairtrial run --` before the rest"
    override = Override(
        tool="aider",
        path=_short(path, home),
        key="openai-api-base",
        url=url,
        door=None if why_not else "openai",
        why_not=why_not,
    )
    return Findings(tool="aider", at=at, overrides=(override,))


def _upwards(folder: str) -> Iterator[str]:
    """The folder and those above it, up to the root of the repository (or of the file system)."""
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder or os.path.exists(os.path.join(folder, ".git")):
            return
        folder = parent


# --- small things ---------------------------------------------------------------------------------------------------


def _short(path: str, home: str) -> str:
    return "~" + path[len(home) :] if home != "/" and path.startswith(home.rstrip("/") + "/") else path


def _set(tree: dict[str, object], dotted: str, value: str) -> None:
    """Set `provider.<name>.options.baseURL`; the name itself may hold dots."""
    first, _, rest = dotted.partition(".")
    name, options, leaf = rest.rsplit(".", 2)
    for part in (first, name, options):
        child = tree.get(part)
        if not isinstance(child, dict):
            child = tree[part] = {}
        tree = child
    tree[leaf] = value


def _json_object(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _toml(text: str | None) -> dict[str, object]:
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _without_comments(text: str) -> str:
    """JSON with comments and trailing commas as plain JSON; texts in quotes stay as they are."""
    kept = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda found: found[1] or " ", text, flags=re.DOTALL)
    return re.sub(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', lambda found: found[1] or "", kept)
