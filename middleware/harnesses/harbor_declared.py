"""What Harbor declared for a trial: its limits of time, memory and cores, from its configuration and its task.

In: a trial's configuration.  Out: numbers, multipliers applied.  The task's own task.toml is read where it is still
there; Harbor copies none of its limits into the result.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.middleware.core.records import TimeLimits
from fairtrial.middleware.harnesses.files import read_bytes
from fairtrial.middleware.harnesses.harbor_shapes import Config

AGENT_SETUP_S: Final = 360.0
"""Harbor's own limit for setting an agent up, where the trial sets none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The limits of the task's own task.toml, where it is still there; seconds, MB, cores."""

    found: bool = False
    agent: float | None = None
    verifier: float | None = None
    memory_mb: float | None = None
    cpus: float | None = None

    @classmethod
    def of(cls, config: Config) -> Task:
        if not config.task.path:
            return cls()
        content = read_bytes(Path(config.task.path) / "task.toml", 1 << 20).value
        try:
            told = tomllib.loads((content or b"").decode())
        except (ValueError, RecursionError):
            return cls()
        return cls(
            found=content is not None,
            agent=_number(told, "agent", "timeout_sec"),
            verifier=_number(told, "verifier", "timeout_sec"),
            memory_mb=_number(told, "environment", "memory_mb"),
            cpus=_number(told, "environment", "cpus"),
        )

    def limits(self, config: Config) -> TimeLimits:
        agent, verifier = config.agent, config.verifier
        multiplier = config.timeout_multiplier
        return TimeLimits(
            agent=_times(
                _least(agent.override_timeout_sec or self.agent, agent.max_timeout_sec),
                config.agent_timeout_multiplier or multiplier,
            ),
            verifier=_times(
                _least(verifier.override_timeout_sec or self.verifier, verifier.max_timeout_sec),
                config.verifier_timeout_multiplier or multiplier,
            ),
            setup=_times(
                agent.override_setup_timeout_sec or (AGENT_SETUP_S if self.found else None),
                config.agent_setup_timeout_multiplier or multiplier,
            ),
            multiplier=multiplier,
            source="harbor: config.json and task.toml" if self.found else "harbor: config.json",
        )

    def memory(self, config: Config) -> int | None:
        megabytes = config.environment.override_memory_mb or self.memory_mb
        return None if megabytes is None else round(megabytes * (1 << 20))


def _number(told: dict[str, object], section: str, key: str) -> float | None:
    table = told.get(section)
    value = table.get(key) if isinstance(table, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _least(value: float | None, most: float | None) -> float | None:
    return value if most is None or value is None else min(value, most)


def _times(value: float | None, multiplier: float | None) -> float | None:
    return None if value is None else value * (1.0 if multiplier is None else multiplier)
