"""Which containers are this trial's: by its own mark, else by being started while nobody else could have.

In: a container's facts, the trial's id and start, and whether another fairtrial trial uses the same engine.
Out: how it was joined, or why not.  Nothing joins by name.

`started_after` can be wrong: on a shared engine someone without fairtrial may start a container meanwhile.  That is
said in the coverage, and costs at most a container too many in the record.  A container that ran before is never ours.
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from fairtrial.collectors.parse.docker import TRIAL_LABEL, ContainerFacts

Join = Literal["env", "label", "started_after"]
_PREFIX: Final = "fairtrial-engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not ours, and why."""

    why: str


def judge(facts: ContainerFacts, *, trial_id: str, started_ns: int, others: int, skew_ns: int = 0) -> Join | Refused:
    """`started_ns` is our wall clock, `skew_ns` the engine's minus ours; `others`: other trials on this engine."""
    label = facts.labels.get(TRIAL_LABEL)
    if facts.trial_in_env == trial_id:
        return "env"
    if label == trial_id:
        return "label"
    if facts.trial_in_env is not None or label is not None:
        return Refused(why="it is marked as another trial's")
    since_ns = started_ns + skew_ns
    if facts.created_ns is None:
        return Refused(why="the engine does not say when it was created")
    if facts.created_ns < since_ns:
        restarted = (facts.restarts or 0) > 0
        if facts.started_ns is None or facts.started_ns < since_ns or restarted:
            return Refused(why="it was there before this trial")
    if others > 0:
        return Refused(why=f"{others} other trial(s) use this engine and it carries no mark of ours")
    return "started_after"


class Presence:
    """Says to other trials of this network namespace that we use an engine, and counts them.

    An abstract unix socket per trial: no file is left behind, and the kernel takes it away with the process.  A trial
    in another network namespace is not seen; a stranger that fakes a name only makes us more careful.
    """

    def __init__(self, *, engine_id: str, trial_id: str, proc: Path) -> None:
        engine = hashlib.blake2b(engine_id.encode(), digest_size=8).hexdigest()
        self._group = f"@{_PREFIX}/{engine}/"
        self._name = f"{self._group}{trial_id}"
        self._table = proc / "self" / "net" / "unix"
        self._socket: socket.socket | None = None

    def announce(self) -> None:
        """Bind the name; a trial whose observer was restarted may find it still taken, which is as good."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind("\0" + self._name[1:])
        except OSError:
            self._socket.close()
            self._socket = None

    def others(self) -> int:
        """How many other trials announce the same engine now."""
        try:
            raw = self._table.read_bytes()
        except OSError:
            return 0
        names = {os.fsdecode(line.rpartition(b" ")[2]) for line in raw.splitlines()}
        return sum(1 for name in names if name.startswith(self._group) and name != self._name)

    def close(self) -> None:
        """Take the name back; safe to call twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
