"""Settings files of agents that beat the environment: found, said, and, with `--adapt`, answered by the agent's flag.

In: the command, the environment, the working folder, and files through a callable.  Out: `Findings` (what is set where,
in plain sentences) and, after the doors are open, an adapted command.  No file is ever written; a login or key command
(`apiKeyHelper`) is never touched.  Of `--settings`, inline JSON is joined with ours; a file's content is never put on
the command line, where everybody could read it.

Recognised: Claude Code, Codex, opencode and aider, by the program's name, also behind `npx`, `env`, `timeout` and the
like.
Not recognised: an agent inside a shell line (`sh -c "claude …"`) or a container.  The cost of missing one is a door
without calls, which the verdict says.

Each agent has a module of its own here, with its sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.core.places import home_folder
from fairtrial.middleware.relay.environment import Mutation, point_to, split_origin
from fairtrial.middleware.relay.settings_files import aider, claude, codex, opencode
from fairtrial.middleware.relay.settings_files.findings import (
    FLAGS,
    NAMES,
    Adapted,
    Findings,
    ListNames,
    Override,
    ReadText,
    Tool,
)
from fairtrial.middleware.relay.settings_files.reading import folder_names, json_object

__all__ = ["Adapted", "Findings", "Override", "ReadText", "Tool", "adapt", "find_tool", "inspect"]

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
_MORE: Final = "one more setting on the agent's command line or in its environment"
_WRAPPERS: Final = frozenset({*_LAUNCHERS, *_PREFIXES})


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


def inspect(
    command: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    *,
    reader: ReadText,
    names: ListNames = folder_names,
) -> Findings:
    """Read the files that the agent of this command would read.  Unreadable files and folders count as absent."""
    found = find_tool(command)
    if found is None:
        return Findings()
    tool, at = found
    home = home_folder(environ)
    arguments = command[at + 1 :]
    match tool:
        case "aider":
            return aider.find(at, arguments, home, cwd, reader)
        case "claude":
            return claude.find(at, arguments, environ, home, cwd, reader, names)
        case "codex":
            return codex.find(at, arguments, environ, home, reader)
        case "opencode":
            return opencode.find(at, environ, home, cwd, reader)


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
            insert = [aider.OPTION, pointed[-1][1]]
        case "claude":
            env = {override.key.removeprefix("env."): url for override, url in pointed}
            arguments = command[findings.at + 1 :]
            own = claude.last_option(arguments, "--settings")
            if own is not None:  # one more would take its place: theirs, with the doors in it
                return Adapted(
                    (*command[: findings.at + 1], *claude.with_env(arguments, own, env)), {}, _mutations(pointed)
                )
            insert = ["--settings", json.dumps({"env": env}, separators=(",", ":"))]
        case "codex":
            for override, url in pointed:
                insert += ["-c", f"{override.key}={json.dumps(url)}"]
        case "opencode":
            inline = json_object(environ.get("OPENCODE_CONFIG_CONTENT"))
            for override, url in pointed:
                opencode.set_base_url(inline, override.key, url)
            variables["OPENCODE_CONFIG_CONTENT"] = json.dumps(inline, separators=(",", ":"))
        case None:
            return Adapted(tuple(command), {}, ())
    cut = findings.at + 1
    return Adapted((*command[:cut], *insert, *command[cut:]), variables, _mutations(pointed))


def _mutations(pointed: Sequence[tuple[Override, str]]) -> tuple[Mutation, ...]:
    return tuple(
        Mutation(
            what=f"{override.key} of {NAMES[override.tool]}, by {FLAGS[override.tool]}",
            old=mask_url(override.url),
            new=mask_url(url),
            why=f"--adapt: {override.path} {'may beat' if override.quiet else 'beats'} the environment",
            side_effects=_MORE + (f"; {override.side_effects}" if override.side_effects else ""),
        )
        for override, url in pointed
    )
