"""The one place where observations are born: a `Source` numbers and stamps them and hands them to a sink.

In: typed values from a door or collector.  Out: `Observation` records with id, source id, sequence number,
host and clock pair.  A source id is unique per process start, so (source_id, seq) is unique for good and a
repeated delivery can be told.  The sink itself (the store's writer) is given by the composition root.
"""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Callable
from pathlib import Path

from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.core.masking import mask_values
from fairtrial.middleware.core.observations import Host, Observation, Subject, TrialStarted, Value, encode_value
from fairtrial.middleware.core.records import PhaseName, Trust

Sink = Callable[[Observation], None]


def this_host(proc: Path = Path("/proc")) -> Host:
    """Name and boot id of this machine; the boot id is None where /proc does not tell."""
    try:
        boot_id: str | None = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = None
    return Host(name=platform.node() or None, boot_id=boot_id)


class Source:
    """Stamps and numbers the observations of one door or collector.

    `name` is stable ("collector.cgroup"); the source id is new for every object.
    """

    def __init__(self, name: str, sink: Sink, *, host: Host, trial: str | None = None) -> None:
        self.name = name
        self._sink = sink
        self._host = host
        self._trial = trial
        self._id = f"{name}/{new_id()}"
        self._seq = itertools.count(1)

    def emit(
        self,
        value: Value,
        *,
        subject: Subject | None = None,
        wall_ns: int | None = None,
        mono_ns: int | None = None,
        uncertainty_s: float = 0.0,
        trust: Trust = Trust.HOST,
        phase: PhaseName | None = None,
    ) -> Observation:
        """Hand one fact to the sink; times default to now (CLOCK_REALTIME and CLOCK_MONOTONIC, ns)."""
        observation = Observation(
            id=new_id(),
            source=self.name,
            source_id=self._id,
            seq=next(self._seq),
            host=self._host,
            subject=subject if subject is not None else Subject(trial=self._trial),
            phase=phase,
            wall_ns=time.time_ns() if wall_ns is None else wall_ns,
            mono_ns=time.monotonic_ns() if mono_ns is None else mono_ns,
            uncertainty_s=uncertainty_s,
            trust=trust,
            kind=value.kind,
            value=_without_keys(value),
        )
        self._sink(observation)
        return observation


def _without_keys(value: Value) -> dict[str, object]:
    """What has the shape of a key is masked before anybody keeps or shows it.

    Not in what the operator called the trial, by which it is found; its command line is masked where it is read.
    """
    values = encode_value(value)
    return values if isinstance(value, TrialStarted) else mask_values(values)
