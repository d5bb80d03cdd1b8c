"""The trial itself: its begin and end, what was changed for it, what was watched and what was not.

What all of them share is said in the package. In: nothing.  Out: typed values, one struct an observation kind.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from fairtrial.middleware.core.observations.base import Value


class TrialStarted(Value, frozen=True, kw_only=True):
    """The run process started the command."""

    kind: ClassVar[str] = "trial.started"
    command: list[str] = []
    name: str | None = None
    run: str | None = None
    harness: str | None = None
    task: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    fairtrial_version: str | None = None
    trace_id: str | None = None
    root_span_id: str | None = None
    parent_span_id: str | None = None
    options: dict[str, object] = {}
    kernel: str | None = None
    cores: int | None = None
    cpu_model: str | None = None
    cgroup: str | None = None


class TrialEnded(Value, frozen=True, kw_only=True):
    """The command is gone.  `closed` tells whether the run process itself said so."""

    kind: ClassVar[str] = "trial.ended"
    exit_code: int | None = None
    signal: int | None = None
    closed: Literal["normal", "recovered", "incomplete"] = "normal"
    why: str | None = None
    forwarded_signals: list[int] = []
    """Signals that someone sent to fairtrial from outside and that were passed on to the command."""
    keyboard_signals: list[int] = []
    """Signals typed at the terminal (Ctrl-C, Ctrl-\\) while the command ran; the terminal gave them to it as well."""


class MutationSeen(Value, frozen=True, kw_only=True):
    """Something that fairtrial changed."""

    kind: ClassVar[str] = "trial.mutation"
    what: str
    old: str | None = None
    new: str | None = None
    why: str | None = None
    side_effects: str | None = None


class Note(Value, frozen=True, kw_only=True):
    """A fact about fairtrial itself or its surroundings, for people; no rule reads its text."""

    kind: ClassVar[str] = "trial.note"
    event: str
    text: str | None = None
    fields: dict[str, object] = {}


class CoverageChanged(Value, frozen=True, kw_only=True):
    """A source began to watch, stopped, or could not.

    `source` e.g. "door.model.anthropic", "collector.cgroup", "collector.docker_events", "collector.kernel_log",
    "collector.vmstat", "collector.network", "observer".  `families`: which causes it can see.
    """

    kind: ClassVar[str] = "coverage"
    source: str
    families: list[str] = []
    state: Literal["on", "off", "lost"] = "on"
    why: str | None = None
    container_id: str | None = None
    containers_missed: bool = False
    """Containers of the trial may exist that nobody watches: one was not told to be its own, or events were late."""


class GapSeen(Value, frozen=True, kw_only=True):
    """A source did not see for a while (feed overrun, observer restart, event stream reconnect)."""

    kind: ClassVar[str] = "coverage.gap"
    source: str
    families: list[str] = []
    since_ns: int | None = None
    until_ns: int | None = None
    why: str | None = None
    lost_records: int | None = None
    lost_bytes: int | None = None
