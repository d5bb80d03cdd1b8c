"""What the settings files of an agent say, for whoever opens doors and for the person who reads.

In: what the modules beside this one found.  Out: `Findings`, `Override`, and the sentences about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.relay.environment import DoorPlan, Mutation, Note, split_origin

Tool = Literal["aider", "claude", "codex", "opencode"]
ReadText = Callable[[str], str | None]
ListNames = Callable[[str], Sequence[str]]

NAMES: Final[Mapping[Tool, str]] = {
    "aider": "aider",
    "claude": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
}
FLAGS: Final[Mapping[Tool, str]] = {
    "aider": "--openai-api-base",
    "claude": "--settings",
    "codex": "-c",
    "opencode": "OPENCODE_CONFIG_CONTENT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One setting that sends the agent's calls past the door.

    `key` as the tool spells it; `url` what it holds.  `door` is the name of the door that will stand before it when
    adapted; None when it cannot be adapted, and then `why_not` says why.  `quiet`: perhaps the tool honours the
    variable (older Codex does), so it is adapted when asked for, but nothing is said.  `side_effects`: what else it
    changes to be adapted; None: nothing.
    """

    tool: Tool
    path: str
    key: str
    url: str
    door: str | None
    why_not: str | None = None
    quiet: bool = False
    side_effects: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the files say.  `tool` None: no agent that is known here; `at` is its program's place in the command."""

    tool: Tool | None = None
    at: int = 0
    overrides: tuple[Override, ...] = ()
    notes: tuple[Note, ...] = ()
    leave: Mapping[str, str] = field(default_factory=dict[str, str])
    network: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the company's network that a file gives the agent (proxy, CA, client certificate): what it would
    have used towards its provider, and so what the door uses."""
    proxied: tuple[str, str] | None = None
    """(file, key) of a proxy among them that beats the environment."""

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

    def past_connect(self) -> list[Note]:
        """What sends an agent past the door of `--via connect`: a proxy of a file's own."""
        if self.proxied is None or self.tool is None:
            return []
        path, key = self.proxied
        text = (
            f"{path} sets {key}, which beats the environment: {NAMES[self.tool]}'s connections will not be seen. Take "
            f"the key out, and put the proxy into the environment of `fairtrial run`."
        )
        return [Note("settings.beats_environment", text, say=True)]

    def sentences(self, *, adapt: bool) -> list[Note]:
        """One line for each setting that beats the environment and is not adapted."""
        lines: list[Note] = []
        for override in self.overrides:
            if override.quiet or (adapt and override.door is not None):
                continue
            if override.why_not is not None:
                advice = f"{override.why_not}."
            else:
                advice = f"Pass --adapt to let fairtrial give {FLAGS[override.tool]} for this run, or take the key out."
            text = (
                f"{override.path} sets {override.key} to {mask_url(override.url)}, which beats the environment: "
                f"{NAMES[override.tool]}'s calls will not be seen. {advice}"
            )
            lines.append(Note("settings.beats_environment", text, say=True))
        return lines


@dataclass(frozen=True, slots=True)
class Adapted:
    """The command and the variables of an adapted run."""

    command: tuple[str, ...]
    variables: dict[str, str]
    mutations: tuple[Mutation, ...]
