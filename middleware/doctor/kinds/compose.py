"""Compose files: limits of services, in both spellings (`mem_limit`, and `deploy.resources` of the specification).

**Source:** compose specification; Docker Engine: without `--memory-swap` a container may use as much swap as memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairtrial.middleware.doctor.declared import Declared, Flag
from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, table_of
from fairtrial.middleware.doctor.quantities import docker_bytes, duration_s, number


def recognises(name: str, document: Mapping[str, Any]) -> bool:
    """A table `services`, and no kind of Kubernetes'."""
    del name
    return "services" in document and "apiVersion" not in document and "jobs" not in document


def read(document: Mapping[str, Any]) -> list[Declared]:
    """One for each service."""
    services = mapping(document.get("services"), "services")
    return [_service(name, mapping(service, f"services.{name}")) for name, service in services.items()]


def _service(name: str, service: Mapping[str, Any]) -> Declared:
    where = f"services.{name}"
    limits = table_of(service, "deploy", "resources", "limits")
    reserved = table_of(service, "deploy", "resources", "reservations")
    ceiling = amount(service, "mem_limit", where, docker_bytes)
    if ceiling is None:
        ceiling = amount(limits, "memory", f"{where}.deploy.resources.limits", docker_bytes)
    floor = amount(service, "mem_reservation", where, docker_bytes)
    if floor is None:
        floor = amount(reserved, "memory", f"{where}.deploy.resources.reservations", docker_bytes)
    cpus = amount(service, "cpus", where, number)
    if cpus is None:
        cpus = amount(limits, "cpus", f"{where}.deploy.resources.limits", number)
    cpu_floor = amount(reserved, "cpus", f"{where}.deploy.resources.reservations", number)
    flags: list[Flag] = []
    if floor is not None:
        text = "mem_reservation guarantees nothing on one engine: it only says who gives memory back first"
        flags.append(Flag(text=text))
    grace = amount(service, "stop_grace_period", where, duration_s)
    return Declared(
        name=name,
        memory_floor=floor,
        memory_ceiling=ceiling or None,
        swap=_swap(service, where, ceiling),
        cpu_floor=cpu_floor,
        cpu_ceiling=cpus or None,
        times={} if grace is None else {"stop grace": grace},
        raises="mem_limit",
        flags=tuple(flags),
    )


def _swap(service: Mapping[str, Any], where: str, ceiling: int | None) -> int | None:
    """What may be used beyond the ceiling: as much again unless `memswap_limit` says otherwise."""
    if not ceiling:
        return None
    both = amount(service, "memswap_limit", where, docker_bytes)
    if both is None or both == 0:
        return ceiling
    return -1 if both < 0 else max(0, both - ceiling)
