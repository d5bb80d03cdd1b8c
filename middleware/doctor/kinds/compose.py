"""Compose files: limits of services, in both spellings (`mem_limit`, and `deploy.resources` of the specification).

`${NAME:-default}` counts as its default, and that is said; `extends` is followed inside the file.  Profiles are not
asked for: a service that a profile leaves out is read like any other.

**Source:** compose specification; Docker Engine: without `--memory-swap` a container may use as much swap as memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fairtrial.middleware.doctor.declared import Declared, Flag
from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, table_of
from fairtrial.middleware.doctor.quantities import Unknown, docker_bytes, duration_s, number

_READ: Final = frozenset(
    {
        "mem_limit", "mem_reservation", "memswap_limit", "cpus", "stop_grace_period", "deploy", "resources", "limits",
        "reservations", "memory",
    }
)  # fmt: skip
_DEFAULT: Final = re.compile(r"\$\{(\w+):?-([^${}]*)\}")


def recognises(name: str, document: Mapping[str, Any]) -> bool:
    """A table `services`, and no kind of Kubernetes'."""
    del name
    return "services" in document and "apiVersion" not in document and "jobs" not in document


def read(document: Mapping[str, Any]) -> list[Declared]:
    """One for each service."""
    services = mapping(document.get("services"), "services")
    return [_read(str(name), services) for name in services]


def _read(name: str, services: Mapping[str, Any]) -> Declared:
    flags: list[Flag] = []
    try:
        service = _with_defaults(_extended(name, services, flags), flags)
        read = _service(name, service)
    except Unknown as reason:
        return Declared(name=name, limited=False, flags=(*flags, Flag(text=str(reason))))
    return replace(read, flags=(*flags, *read.flags))


def _extended(name: str, services: Mapping[str, Any], flags: list[Flag]) -> Mapping[str, Any]:
    """A service with what it inherits; tables are joined, its own values count."""
    service = mapping(services.get(name), f"services.{name}")
    seen = {name}
    while (wanted := service.get("extends")) is not None:
        table = {"service": wanted} if isinstance(wanted, str) else mapping(wanted, f"services.{name}.extends")
        base = str(table.get("service"))
        service = {key: value for key, value in service.items() if key != "extends"}
        if table.get("file") is not None or base in seen or base not in services:
            where = f"{table['file']}, service {base}" if table.get("file") else f"service {base}"
            flags.append(Flag(text=f"extends {where}: what is set there is not read here"))
            break
        seen.add(base)
        service = _joined(mapping(services.get(base), f"services.{base}"), service)
    return service


def _joined(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    both = {**base, **own}
    for key, value in base.items():
        if isinstance(value, Mapping) and isinstance(own.get(key), Mapping):
            both[key] = _joined(value, own[key])
    return both


def _with_defaults(value: Any, flags: list[Flag], key: str = "") -> Any:
    """Every `${NAME:-default}` of what limits a service as its default."""
    if isinstance(value, Mapping):
        return {name: _with_defaults(one, flags, str(name)) if name in _READ else one for name, one in value.items()}
    found = _DEFAULT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    flags.append(Flag(text=f"{key} is {value}: taken as {found[2]}, another where {found[1]} is set"))
    return found[2]


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
