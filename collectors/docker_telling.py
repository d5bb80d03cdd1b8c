"""How the containers' life is written: observations on our clock, and the coverage of the event stream.

In: values with the engine's time, losses and limits of the stream.  Out: observations of `collector.docker_events`.
The engine's clock becomes ours (`skew_ns`: its clock minus ours), and nothing is written later than now.
What this module does not do: know containers.
"""

from __future__ import annotations

import time
from typing import Final, Literal

from fairtrial.middleware.core.observations import CoverageChanged, GapSeen, Subject, Value
from fairtrial.middleware.core.sink import Source

COVERAGE_SOURCE: Final = "collector.docker_events"
FAMILIES: Final = ("memory", "node")
_LOCAL_S: Final = 0.001
_REMOTE_S: Final = 0.05
"""How far the engine's clock may be from what we take it for."""


class Teller:
    """Writes for one trial and one engine; `local`: the engine's clock is surely ours."""

    def __init__(self, source: Source, *, trial_id: str, local: bool) -> None:
        self.source = source
        self.skew_ns = 0
        self._trial_id = trial_id
        self._uncertainty_s = _LOCAL_S if local else _REMOTE_S
        self._said_partial: set[str] = set()

    def now_ns(self) -> int:
        """The engine's clock."""
        return time.time_ns() + self.skew_ns

    def tell(
        self, value: Value, *, container_id: str | None = None, at_ns: int | None = None, exec_id: str | None = None
    ) -> None:
        """Write one value; `at_ns` is by the engine's clock, None: now by ours."""
        wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        if at_ns is not None:
            ago_ns = max(0, wall_ns - (at_ns - self.skew_ns))
            wall_ns, mono_ns = wall_ns - ago_ns, mono_ns - ago_ns
        self.source.emit(
            value,
            subject=Subject(trial=self._trial_id, container_id=container_id, exec=exec_id),
            wall_ns=wall_ns,
            mono_ns=mono_ns,
            uncertainty_s=0.0 if at_ns is None else self._uncertainty_s,
        )

    def cover(
        self,
        level: Literal["on", "off", "lost"],
        why: str | None,
        *,
        containers_missed: bool = False,
        since_ns: int | None = None,
    ) -> None:
        """Whether the stream is watched; `since_ns`: from when on, by our clock."""
        now_wall_ns, now_mono_ns = time.time_ns(), time.monotonic_ns()
        ago_ns = 0 if since_ns is None else max(0, now_wall_ns - since_ns)
        self.source.emit(
            CoverageChanged(
                source=COVERAGE_SOURCE,
                families=list(FAMILIES),
                state=level,
                why=why,
                containers_missed=containers_missed,
            ),
            wall_ns=now_wall_ns - ago_ns,
            mono_ns=now_mono_ns - ago_ns,
        )

    def partial(self, key: str, why: str, *, containers_missed: bool = False) -> None:
        """A limit of what is seen, said once per `key`."""
        if key not in self._said_partial:
            self._said_partial.add(key)
            self.cover("on", why, containers_missed=containers_missed)

    def gap(self, since_ns: int | None, why: str) -> None:
        """From `since_ns` (our clock) to now something may have passed unseen."""
        self.source.emit(
            GapSeen(
                source=COVERAGE_SOURCE, families=list(FAMILIES), since_ns=since_ns, until_ns=time.time_ns(), why=why
            )
        )
