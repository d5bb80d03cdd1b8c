"""The place in one line: where we are, as whom, what can be seen from here and what cannot.

In: what the other looks found.  Out: one finding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.doctor.machine import OwnCgroup
from fairtrial.middleware.report.words import size

_CI: Final = {
    "GITHUB_ACTIONS": "GitHub Actions",
    "GITLAB_CI": "GitLab CI",
    "JENKINS_URL": "Jenkins",
    "BUILDKITE": "Buildkite",
    "CIRCLECI": "CircleCI",
}
_MARKS: Final = (".dockerenv", "run/.containerenv")


def place(environ: Mapping[str, str], root: Path = Path("/")) -> str:
    """Where we are, in words: machine or container, of whom, as which user."""
    where = "on a machine of its own"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        where = "in a container of a Kubernetes pod"
    elif any((root / mark).exists() for mark in _MARKS) or environ.get("container"):
        where = "in a container"
    server = next((name for variable, name in _CI.items() if environ.get(variable)), None)
    under = f", under {server}" if server else ""
    return f"{where}{under}, {'as root' if os.geteuid() == 0 else f'as uid {os.geteuid()}'}"


def sight(environ: Mapping[str, str], own: OwnCgroup, findings: Sequence[Finding], root: Path = Path("/")) -> Finding:
    """`partial` as soon as something cannot be seen."""
    states = {finding.name: finding.state for finding in findings}
    sees: list[str] = ["model calls"] if states.get("model door") == "ok" else []
    blind: list[str] = [] if sees else ["model calls (no door)"]
    if own.why_not is None and own.kills is not None:
        ceiling = "no ceiling" if own.limit_bytes is None else f"ceiling {size(own.limit_bytes)}"
        sees.append(f"the job's own memory ({ceiling}, peak, kills)")
    elif states.get("host oom counter") == "ok":
        blind.append("the job's own memory (its cgroup cannot be read; only the node's kills are counted)")
    else:
        blind.append("memory (neither its cgroup nor the node's counter can be read)")
    (sees if states.get("kernel log") == "ok" else blind).append("who was killed for memory")
    (sees if states.get("docker") in ("ok", "partial") else blind).append("containers that it starts")
    cannot = f"; cannot see {', '.join(blind)}" if blind else ""
    return Finding("sight", "partial" if blind else "ok", f"{place(environ, root)}: sees {', '.join(sees)}{cannot}")
