"""Workflows of CI services: limits in time of each job, and of its containers where the file sets them.

A runner's own machine or pod gives memory and CPU; the file says nothing of them, so nothing is claimed.

**Source:** GitHub Actions workflow syntax (`timeout-minutes` is 360 by default); GitLab CI reference (`timeout`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from fairtrial.middleware.doctor.declared import Declared, Flag
from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, rows
from fairtrial.middleware.doctor.quantities import Unreadable, docker_bytes, number

GITHUB_DEFAULT_S: Final = 360 * 60.0
_NOT_JOBS: Final = frozenset(
    {"default", "include", "stages", "variables", "workflow", "image", "services", "cache", "spec", "pages"}
)
_UNITS: Final = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400, "day": 86400}
_PART: Final = re.compile(r"([0-9.]+)\s*([a-z]+)")


def is_github(name: str, document: Mapping[str, Any]) -> bool:
    """Jobs and a trigger."""
    del name
    return "jobs" in document and "on" in document


def is_gitlab(name: str, document: Mapping[str, Any]) -> bool:
    """By its name, or jobs that have a script."""
    return ".gitlab-ci" in name or any(isinstance(job, Mapping) and "script" in job for job in document.values())


def read_github(document: Mapping[str, Any]) -> list[Declared]:
    """One for each job; a job that calls a workflow has its limits there."""
    jobs = mapping(document.get("jobs"), "jobs")
    return [_github(name, mapping(job, f"jobs.{name}")) for name, job in jobs.items()]


def _github(name: str, job: Mapping[str, Any]) -> Declared:
    where = f"jobs.{name}"
    if "uses" in job:
        return Declared(name=name, limited=False, flags=(Flag(text=f"calls {job['uses']}: its limits stand there"),))
    flags: list[Flag] = []
    given = job.get("timeout-minutes")
    minutes = None if isinstance(given, str) and "${{" in given else amount(job, "timeout-minutes", where, number)
    times: dict[str, float | None] = {"job": GITHUB_DEFAULT_S if given is None else 60 * minutes if minutes else 0.0}
    if given is None:
        text = "no timeout-minutes: 6 h by default, then it is cancelled like by a person"
        flags.append(Flag(text=text, remedy="set timeout-minutes to what the agent may take"))
    elif minutes is None:
        times = {}
        flags.append(Flag(text=f"timeout-minutes is {given}: known only when it runs"))
    for index, step in enumerate(rows(job.get("steps"), f"{where}.steps")):
        limit = step.get("timeout-minutes")
        if isinstance(limit, int | float):
            times[f"step {step.get('name', index + 1)}"] = 60.0 * limit
    container = job.get("container")
    if not isinstance(container, Mapping):
        return Declared(name=name, times=times, limited=False, flags=tuple(flags))
    options = _options(str(mapping(container, f"{where}.container").get("options") or ""))
    ceiling = amount(options, "memory", f"{where}.container.options", docker_bytes)
    both = amount(options, "memory-swap", f"{where}.container.options", docker_bytes)
    swap = None if ceiling is None else ceiling if both is None else -1 if both < 0 else max(0, both - ceiling)
    return Declared(
        name=name,
        memory_ceiling=ceiling,
        memory_floor=amount(options, "memory-reservation", f"{where}.container.options", docker_bytes),
        swap=swap,
        cpu_ceiling=amount(options, "cpus", f"{where}.container.options", number),
        times=times,
        raises="--memory of container.options",
        flags=tuple(flags),
    )


def _options(text: str) -> dict[str, str]:
    """`--memory 2g --cpus=2` -> {memory: 2g, cpus: 2}."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Unreadable(f"container.options {text!r}: {error}") from None
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("-m", "--memory") or name.startswith("--"):
            key = "memory" if name == "-m" else name.removeprefix("--")
            found[key] = value if equals else words[index + 1] if index + 1 < len(words) else ""
    return found


def read_gitlab(document: Mapping[str, Any]) -> list[Declared]:
    """One for each job with a script; templates (`.name`) included, since jobs are made of them."""
    default = mapping(document.get("default"), "default").get("timeout")
    jobs = {name: job for name, job in document.items() if name not in _NOT_JOBS and isinstance(job, Mapping)}
    declared: list[Declared] = []
    for name, job in jobs.items():
        if "script" not in job and "extends" not in job:
            continue
        given = job.get("timeout", default)
        flags = () if given is not None else (Flag(text="no timeout: the project's, 1 h unless somebody changed it"),)
        times = {} if given is None else {"job": _gitlab_s(given, name)}
        declared.append(Declared(name=str(name), times=times, limited=False, flags=flags))
    return declared


def _gitlab_s(value: object, name: str) -> float:
    """`3h 30m`, `90 minutes`; a plain number is seconds."""
    text = str(value).strip().lower()
    parts = _PART.findall(text)
    units = {unit: unit.removesuffix("s") or unit for _, unit in parts}
    known = {"minute": 60, "hour": 3600, "second": 1, **_UNITS}
    if parts and all(units[unit] in known or unit in known for _, unit in parts):
        return sum(float(number_) * known.get(units[unit], known.get(unit, 0)) for number_, unit in parts)
    try:
        return number(value)
    except ValueError:
        raise Unreadable(f"{name}.timeout: {value!r} is no duration such as 3h 30m") from None
