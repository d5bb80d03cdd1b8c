"""Kubernetes: containers of pods, jobs and all that has a pod template; requests are floors, limits ceilings.

**Source:** Kubernetes API reference (PodSpec, JobSpec); node-pressure eviction and QoS classes in its documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fairtrial.middleware.doctor.declared import Declared, Flag
from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, rows, table_of
from fairtrial.middleware.doctor.quantities import kubernetes_quantity, number

_TEMPLATES: Final = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
_USUAL: Final = ("spec", "template", "spec")


def recognises(name: str, document: Mapping[str, Any]) -> bool:
    """An API version and a kind."""
    del name
    return "apiVersion" in document and "kind" in document


def read(document: Mapping[str, Any]) -> list[Declared]:
    """One for each container, init containers included; [] for a kind without any."""
    if document["kind"] == "List":
        return [one for item in rows(document.get("items"), "items") for one in read(item)]
    path = _TEMPLATES.get(str(document["kind"]), _USUAL)
    spec = table_of(document, *path)
    name = str(mapping(document.get("metadata"), "metadata").get("name", document["kind"]))
    times = dict(_times(document, spec))
    pod = table_of(spec, "resources")
    return [
        _container(f"{name}/{container.get('name', '?')}", container, times, pod)
        for key in ("initContainers", "containers")
        for container in rows(spec.get(key), f"{'.'.join(path)}.{key}")
    ]


def _times(document: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    job = table_of(document, "spec", "jobTemplate", "spec") if document["kind"] == "CronJob" else None
    if document["kind"] == "Job":
        job = table_of(document, "spec")
    if job is not None:
        deadline = amount(job, "activeDeadlineSeconds", "spec", number)
        yield "deadline", deadline if deadline is not None else amount(spec, "activeDeadlineSeconds", "spec", number)
    elif (own := amount(spec, "activeDeadlineSeconds", "spec", number)) is not None:
        yield "deadline", own
    if (grace := amount(spec, "terminationGracePeriodSeconds", "spec", number)) is not None:
        yield "termination grace", grace


def _container(
    name: str, container: Mapping[str, Any], times: Mapping[str, float | None], pod: Mapping[str, Any]
) -> Declared:
    """`pod`: resources of the pod as a whole (Kubernetes 1.34 and newer), which its containers share."""
    flags: list[Flag] = []
    limits = {**table_of(pod, "limits"), **table_of(container, "resources", "limits")}
    requests = {**table_of(pod, "requests"), **table_of(container, "resources", "requests")}
    if pod and "memory" not in table_of(container, "resources", "limits"):
        flags.append(Flag(text="the pod's own limit counts: all its containers share it"))
    ceiling = amount(limits, "memory", f"{name}.resources.limits", kubernetes_quantity)
    floor = amount(requests, "memory", f"{name}.resources.requests", kubernetes_quantity)
    cpu = amount(limits, "cpu", f"{name}.resources.limits", kubernetes_quantity)
    cpu_floor = amount(requests, "cpu", f"{name}.resources.requests", kubernetes_quantity)
    if ceiling is not None and floor is None:
        floor = ceiling
        flags.append(Flag(text="no memory request: Kubernetes takes the limit for it, so floor = ceiling"))
    if cpu is not None and cpu_floor is None:
        cpu_floor = cpu
    if ceiling is None and floor is None:
        text = "no memory request: the first to be evicted when the node runs short (QoS BestEffort or Burstable)"
        flags.append(Flag(text=text, remedy="set resources.requests.memory to the floor"))
    return Declared(
        name=name,
        memory_floor=None if floor is None else round(floor),
        memory_ceiling=None if ceiling is None else round(ceiling),
        cpu_floor=cpu_floor,
        cpu_ceiling=cpu,
        times=times,
        raises="resources.limits.memory",
        flags=tuple(flags),
    )
