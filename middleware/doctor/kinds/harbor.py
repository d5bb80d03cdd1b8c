"""Harbor: a task's task.toml, and the configuration of a job that runs tasks.

`memory_mb` and `cpus` of a task are one number; whether it is a floor, a ceiling or both is the back end's and the
job's affair, and the default, `auto`, differs between back ends.

**Source:** Harbor 0.26.0, read: its models of task and trial configuration, its environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairtrial.middleware.doctor.declared import Declared, Flag
from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, rows, table_of
from fairtrial.middleware.doctor.quantities import Unreadable, docker_bytes, number

_AUTO_IS_LIMIT: Final = ("boxd", "docker", "ec2", "modal", "opensandbox", "sbx")
_AUTO_IS_REQUEST: Final = ("blaxel", "daytona", "gke", "islo", "langsmith", "openshift", "tensorlake", "vercel")
_BUILD_S: Final = 600.0
_VERIFIER_S: Final = 600.0
_POLICIES: Final = ("auto", "limit", "request", "guarantee", "ignore")
_AUTO: Final = (
    f"`auto` is a limit (kill ceiling) on {', '.join(_AUTO_IS_LIMIT)}, but a request only (no ceiling) on "
    f"{', '.join(_AUTO_IS_REQUEST)} and others: another test there, and result.json does not say which"
)


def is_task(name: str, document: Mapping[str, Any]) -> bool:
    """task.toml, or a file of its shape."""
    return name == "task.toml" or ("verifier" in document and "environment" in document and "agent" in document)


def is_job(name: str, document: Mapping[str, Any]) -> bool:
    """The configuration of a job: agents, and tasks or data sets."""
    del name
    return "agents" in document and ("tasks" in document or "datasets" in document)


def read_task(document: Mapping[str, Any]) -> list[Declared]:
    """One for the task; a step of its own limits is one more."""
    environment = table_of(document, "environment")
    memory = amount(environment, "memory_mb", "environment", number)
    size = None if memory is None else round(memory * (1 << 20))
    if size is None:
        size = amount(environment, "memory", "environment", docker_bytes)
    cpus = amount(environment, "cpus", "environment", number)
    tables = {"task": document}
    for index, step in enumerate(rows(document.get("steps"), "steps")):
        tables[str(step.get("name", f"step {index + 1}"))] = step
    build = amount(environment, "build_timeout_sec", "environment", number)
    # What the file gives is what `limit` makes of it; `auto` is flagged.
    return [
        Declared(
            name=name,
            memory_ceiling=size,
            swap=size,
            cpu_ceiling=cpus,
            times=_times(table, _BUILD_S if build is None else build),
            raises="environment.memory_mb (or memory_enforcement_policy of the job)",
            flags=_task_flags(size, cpus),
        )
        for name, table in tables.items()
        if name == "task" or "agent" in table or "verifier" in table
    ]


def _task_flags(size: int | None, cpus: float | None) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    if size is not None:
        text = "where it is a limit, the declared size is the kill ceiling (1 x): what it needs beyond it is a kill"
        flags.append(
            Flag(
                text=text, remedy=f"set override_memory_mb of the job to {round(size * 3) >> 20} (3 x), and publish it"
            )
        )
    if size is not None or cpus is not None:
        flags.append(Flag(text=_AUTO, remedy="set memory_enforcement_policy and cpu_enforcement_policy in the job"))
    return tuple(flags)


def _times(table: Mapping[str, Any], build: float) -> dict[str, float | None]:
    verifier = amount(table_of(table, "verifier"), "timeout_sec", "verifier", number)
    return {
        "agent": amount(table_of(table, "agent"), "timeout_sec", "agent", number),
        "verifier": _VERIFIER_S if verifier is None else verifier,
        "build": build,
    }


def read_job(document: Mapping[str, Any]) -> list[Declared]:
    """One for the job: what it changes for every task."""
    environment = mapping(document.get("environment"), "environment")
    backend = str(environment.get("type") or "docker")
    memory = amount(environment, "override_memory_mb", "environment", number)
    size = None if memory is None else round(memory * (1 << 20))
    cpus = amount(environment, "override_cpus", "environment", number)
    policies = {what: _policy(environment, f"{what}_enforcement_policy") for what in ("memory", "cpu")}
    flags: list[Flag] = []
    if undecided := [f"{what}_enforcement_policy" for what, policy in policies.items() if policy == "auto"]:
        here = "a limit" if backend in _AUTO_IS_LIMIT else "a request" if backend in _AUTO_IS_REQUEST else "not known"
        text = f"{', '.join(undecided)}: {_AUTO}; on {backend} it is {here}"
        flags.append(Flag(text=text, remedy="set guarantee, limit or request, and publish it"))
    multiplier = amount(document, "timeout_multiplier", "job", number)
    if multiplier is not None and multiplier != 1:
        flags.append(Flag(text=f"timeout_multiplier {multiplier:g}: every limit in time is another than the tasks'"))
    means = {what: _meaning(policy, backend) for what, policy in policies.items()}
    ceiling = size if means["memory"] in ("limit", "guarantee") else None
    return [
        Declared(
            name="job",
            memory_floor=size if means["memory"] in ("request", "guarantee") else None,
            memory_ceiling=ceiling,
            swap=ceiling if backend == "docker" else None,
            cpu_floor=cpus if means["cpu"] in ("request", "guarantee") else None,
            cpu_ceiling=cpus if means["cpu"] in ("limit", "guarantee") else None,
            limited=size is not None or cpus is not None,
            raises="environment.override_memory_mb",
            flags=tuple(flags),
        )
    ]


def _policy(environment: Mapping[str, Any], key: str) -> str:
    policy = str(environment.get(key) or "auto")
    if policy not in _POLICIES:
        raise Unreadable(f"environment.{key} is {policy!r}, none of {', '.join(_POLICIES)}")
    return policy


def _meaning(policy: str, backend: str) -> str:
    """`auto` made plain; of a back end that is not known, nothing."""
    if policy != "auto":
        return policy
    return "limit" if backend in _AUTO_IS_LIMIT else "request" if backend in _AUTO_IS_REQUEST else "ignore"
