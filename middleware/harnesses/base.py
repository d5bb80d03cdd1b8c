"""What every reader of a harness's files gives: outcomes with the keys that join them, and a sentence per file.

Shapes only.  In `HarnessOutcome` lies what is stored; `Keys` are used once, to find the trial, and not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fairtrial.middleware.core.observations import HarnessOutcome
from fairtrial.middleware.core.records import Trust

_NO: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What a trial can be found by, strongest first.  Sessions and call keys are digests, as the model door keeps
    them (`wire/redact.digest`)."""

    trial_ids: frozenset[str] = _NO
    """fairtrial's own, where a harness passed them on."""
    requests: frozenset[str] = _NO
    """The provider's request ids."""
    responses: frozenset[str] = _NO
    """Ids of replies: `msg_…`, `chatcmpl-…`, `resp_…`."""
    tool_calls: frozenset[str] = _NO
    call_keys: frozenset[str] = _NO
    sessions: frozenset[str] = _NO
    projects: frozenset[str] = _NO
    """Compose projects of its containers, lower case."""
    containers: frozenset[str] = _NO
    """Whole container ids."""
    names: frozenset[str] = _NO
    """What the trial may be called in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """One trial as a harness booked it."""

    outcome: HarnessOutcome
    keys: Keys = Keys()
    trust: Trust = Trust.SAME_UID
    program: tuple[str, ...] = ()
    """Words of a command line by which a wrapped run of this harness is known; none: never joined by time alone."""


State = Literal["whole", "partial", "unreadable", "foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNote:
    """One sentence about one file or folder.  `whole`: nothing of it was lost; `foreign`: it is not this harness's."""

    path: str
    state: State
    said: str


@dataclass(slots=True)
class Reading:
    """All that one import found."""

    booked: list[Booked] = field(default_factory=list[Booked])
    notes: list[FileNote] = field(default_factory=list[FileNote])

    def note(self, path: Path | str, state: State, said: str) -> None:
        """Say something about a file."""
        self.notes.append(FileNote(path=str(path), state=state, said=said))

    def add(self, other: Reading) -> None:
        """Take in what another reading found."""
        self.booked += other.booked
        self.notes += other.notes


class Reads(Protocol):
    """Reads a file or folder; raises nothing for what it finds there."""

    def __call__(self, path: Path) -> Reading: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One harness: `read` takes what `takes` describes."""

    name: str
    takes: str
    read: Callable[[Path], Reading]
