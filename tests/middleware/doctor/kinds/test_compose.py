"""Compose: both spellings of a limit, and the swap that an engine gives without being asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.middleware.doctor.kinds.read import declared, flags

GIB = 1 << 30


@pytest.mark.parametrize(
    "service",
    [
        "{mem_limit: 2g, mem_reservation: 1g, cpus: 2}",
        "{deploy: {resources: {limits: {memory: 2g, cpus: '2'}, reservations: {memory: 1g}}}}",
    ],
)
def test_both_spellings_say_the_same(tmp_path: Path, service: str) -> None:
    (one,) = declared(tmp_path, f"services: {{x: {service}}}")
    assert (one.memory_floor, one.memory_ceiling, one.cpu_ceiling) == (GIB, 2 * GIB, 2.0)


@pytest.mark.parametrize(
    "both, swap", [("", 2 * GIB), (", memswap_limit: 2g", 0), (", memswap_limit: 3g", GIB), (", memswap_limit: -1", -1)]
)
def test_without_memswap_limit_a_container_may_swap_as_much_again(tmp_path: Path, both: str, swap: int) -> None:
    (one,) = declared(tmp_path, f"services: {{x: {{mem_limit: 2g{both}}}}}")
    assert one.swap == swap
    assert ("swap" in flags(one)) == (swap != 0)


def test_the_compositions_of_this_repository_can_be_read(repo_root: Path) -> None:
    from fairtrial.middleware.doctor.files import examine_files

    (report,) = examine_files([str(repo_root / "deploy" / "compose.yaml")])
    assert (report.kind, len(report.declared)) == ("compose", 5)
