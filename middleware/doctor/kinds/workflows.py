"""Workflows of CI services: limits in time of each job, and of its containers where the file sets them.

A runner's own machine or pod gives memory and CPU; the file says nothing of them, so nothing is claimed.  A GitLab job
can ask for them where its runner is of Kubernetes and allows it (KUBERNETES_MEMORY_LIMIT and its like).

**Source:** GitHub Actions workflow syntax (`timeout-minutes` is 360 by default); GitLab CI reference (`timeout`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fairtrial.middleware.doctor.declared import Declared, Flag
from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, rows
from fairtrial.middleware.doctor.quantities import Unknown, Unreadable, docker_bytes, kubernetes_quantity, number

GITHUB_DEFAULT_S: Final = 360 * 60.0
_NOT_JOBS: Final = frozenset(
    {"default", "include", "stages", "variables", "workflow", "image", "services", "cache", "spec"}
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
    return [one for name, job in jobs.items() for one in _github_job(str(name), mapping(job, f"jobs.{name}"))]


def _github_job(name: str, job: Mapping[str, Any]) -> Iterator[Declared]:
    """The job, and the services beside it whose containers have options."""
    yield _github(name, job)
    services = job.get("services")
    for service, table in services.items() if isinstance(services, Mapping) else ():
        if isinstance(table, Mapping) and table.get("options"):
            yield _box(f"{name}/{service}", table, f"jobs.{name}.services.{service}", "options", {}, [])


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
    if container is None:
        return Declared(name=name, times=times, limited=False, flags=tuple(flags))
    table = container if isinstance(container, Mapping) else {}
    return _box(name, table, f"{where}.container", "container.options", times, flags)


def _box(
    name: str,
    container: Mapping[str, Any],
    where: str,
    spelt: str,
    times: Mapping[str, float | None],
    flags: list[Flag],
) -> Declared:
    """A container of a job's: its limits are options of `docker create`."""
    text = str(container.get("options") or "")
    if "${{" in text:
        flag = Flag(text=f"{spelt} is {text}: known only when it runs")
        return Declared(name=name, times=times, limited=False, flags=(*flags, flag))
    options = _options(text)
    ceiling = amount(options, "memory", f"{where}.options", docker_bytes)
    both = amount(options, "memory-swap", f"{where}.options", docker_bytes)
    swap = None if ceiling is None else ceiling if both is None else -1 if both < 0 else max(0, both - ceiling)
    return Declared(
        name=name,
        memory_ceiling=ceiling,
        memory_floor=amount(options, "memory-reservation", f"{where}.options", docker_bytes),
        swap=swap,
        cpu_ceiling=amount(options, "cpus", f"{where}.options", number),
        times=times,
        raises=f"--memory of {spelt}",
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
    jobs = {str(name): job for name, job in document.items() if name not in _NOT_JOBS and isinstance(job, Mapping)}
    general = document.get("variables")
    declared: list[Declared] = []
    for name, job in jobs.items():
        if "script" not in job and "extends" not in job:
            continue
        given, asked = default, dict(general) if isinstance(general, Mapping) else {}
        for table in _inherited(name, jobs):
            given = table.get("timeout", given)
            own = table.get("variables")
            asked |= dict(own) if isinstance(own, Mapping) else {}
        flags = () if given is not None else (Flag(text="no timeout: the project's, 1 h unless somebody changed it"),)
        times = {} if given is None else {"job": _gitlab_s(given, name)}
        declared.append(_gitlab(name, asked, times, flags))
    return declared


def _inherited(name: str, jobs: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The job behind what it extends, the nearest last; templates of other files are not known here."""
    found: list[Mapping[str, Any]] = []
    waiting, seen = [name], {name}
    while waiting:
        job = jobs.get(waiting.pop())
        if job is None:
            continue
        found.append(job)
        bases = job.get("extends")
        for base in bases if isinstance(bases, list) else [bases]:  # the last of several counts most
            if isinstance(base, str) and base not in seen:
                seen.add(base)
                waiting.append(base)
    return found[::-1]


def _gitlab(
    name: str, asked: Mapping[str, object], times: Mapping[str, float | None], flags: tuple[Flag, ...]
) -> Declared:
    values = {key: value.get("value") if isinstance(value, Mapping) else value for key, value in asked.items()}
    try:
        ceiling, floor, cpu, cpu_floor = (
            amount(values, f"KUBERNETES_{what}", "variables", kubernetes_quantity)
            for what in ("MEMORY_LIMIT", "MEMORY_REQUEST", "CPU_LIMIT", "CPU_REQUEST")
        )
    except Unknown as reason:
        return Declared(name=name, times=times, limited=False, flags=(*flags, Flag(text=str(reason))))
    limited = any(one is not None for one in (ceiling, floor, cpu, cpu_floor))
    if limited:
        text = "KUBERNETES_… counts on a runner of Kubernetes alone, and as far as it lets jobs overwrite its own"
        flags = (*flags, Flag(text=text))
    return Declared(
        name=name,
        memory_floor=None if floor is None else round(floor),
        memory_ceiling=None if ceiling is None else round(ceiling),
        cpu_floor=cpu_floor,
        cpu_ceiling=cpu,
        times=times,
        limited=limited,
        raises="KUBERNETES_MEMORY_LIMIT",
        flags=flags,
    )


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
