"""What the scripted model says, turn by turn, and the whole of one scenario as a record that fits in a JSON file.

In: steps and faults written by a test or the demo, or the bytes of a scenario file. Out: `Step`, `Scenario`.
How a step becomes an answer in one of the three APIs is said in `answers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from fairtrial.middleware.demo.faults import Fault

StopReason = Literal["end_turn", "max_tokens", "refusal", "stop_sequence", "tool_use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one answer.

    Input excludes cached tokens, as in the Messages API; the OpenAI APIs show the sum.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def all_input_tokens(self) -> int:
        """Everything that was read: what the OpenAI APIs call prompt or input tokens."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One assistant turn: words, shell commands, or a call of a named tool.

    `commands` go to whatever shell tool the client offers, one tool call each; `{task}` in them and in `text` is the
    word of the form `task-…` that the request names. With `tool` set that tool is called with
    `arguments` instead. Neither: the turn ends the work (stop reason end_turn). Token counts that are None are taken
    from the sizes of request and answer (four bytes each).
    """

    text: str | None = None
    commands: tuple[str, ...] = ()
    tool: str | None = None
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    stop_reason: StopReason | None = None
    """Overrides end_turn or tool_use, such as max_tokens."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    head_delay_s: float = 0.0
    """Silence before the response head: the time to first byte of a healthy answer."""
    event_gap_s: float = 0.0
    """Between the events of a stream."""

    @property
    def calls_tools(self) -> bool:
        """Whether the turn asks for tool work."""
        return bool(self.commands) or self.tool is not None


def shell(*commands: str, text: str | None = None) -> Step:
    """A turn that runs these commands (several: parallel tool calls)."""
    return Step(commands=commands, text=text)


def say(text: str) -> Step:
    """A turn that only speaks: the end of the work."""
    return Step(text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that one stand-in does: the script, the faults and its manners. The JSON form has the same names.

    `side_text` answers calls that offer no tools (titles, probes); None lets the script answer those as well, as
    clients without tool calling need. `request_ids` off leaves out request-id and x-request-id. `gzip_replies`
    compresses answers for clients that accept it. `websockets` answers the handshake of a WebSocket (Responses) instead
    of with 404.
    """

    steps: tuple[Step, ...]
    faults: tuple[Fault, ...] = ()
    side_text: str | None = "A small task"
    request_ids: bool = True
    gzip_replies: bool = False
    websockets: bool = False
    models: tuple[str, ...] = ("stand-in", "claude-opus-4-8", "gpt-5-mini")

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError("a scenario needs at least one step; the last one is repeated for ever")

    def step_at(self, index: int) -> Step:
        """The turn for a request whose history holds `index` assistant turns; the last one repeats."""
        return self.steps[min(index, len(self.steps) - 1)]


def load_scenario(content: bytes) -> Scenario:
    """Read a scenario from JSON. Raises msgspec.ValidationError or msgspec.DecodeError, which name the faulty place."""
    return msgspec.json.decode(content, type=Scenario)


def dump_scenario(scenario: Scenario) -> bytes:
    """The JSON form, which `load_scenario` reads back to an equal value."""
    return msgspec.json.encode(scenario)
