"""One line says where we are and what cannot be seen from there."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from fairtrial.middleware.doctor.findings import Finding, State
from fairtrial.middleware.doctor.machine import OwnCgroup
from fairtrial.middleware.doctor.sight import place, sight

OWN = OwnCgroup(
    version="v2",
    places=None,
    limit_bytes=2 << 30,
    peak_known=True,
    peak_resettable=False,
    kills=0,
    doorbell=True,
)


def looked(**states: State) -> list[Finding]:
    told: dict[str, State] = {"model door": "ok", "host oom counter": "ok", "kernel log": "ok", "docker": "ok"}
    for name, state in states.items():
        told[name.replace("_", " ")] = state
    return [Finding(name, state, "") for name, state in told.items()]


@pytest.mark.parametrize(
    "environ, mark, words",
    [
        ({}, None, "on a machine of its own, "),
        ({"GITHUB_ACTIONS": "true"}, None, "on a machine of its own, under GitHub Actions, "),
        ({"GITHUB_ACTIONS": "true"}, ".dockerenv", "in a container, under GitHub Actions, "),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "GITLAB_CI": "1"},
            ".dockerenv",
            "in a container of a Kubernetes pod, ",
        ),
        ({}, "run/.containerenv", "in a container, "),
    ],
)
def test_the_place_is_named(environ: dict[str, str], mark: str | None, words: str, tmp_path: Path) -> None:
    if mark is not None:
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).touch()
    assert place(environ, tmp_path).startswith(words)
    user = "as root" if os.geteuid() == 0 else "as uid"
    assert user in place(environ, tmp_path)


def test_where_everything_is_seen_nothing_is_missing(tmp_path: Path) -> None:
    finding = sight({}, OWN, looked(), tmp_path)
    assert finding.state == "ok"
    assert "the job's own memory (ceiling 2.0 GiB, peak, kills)" in finding.text
    assert "cannot see" not in finding.text


def test_a_container_job_says_what_it_cannot_see(tmp_path: Path) -> None:
    finding = sight({}, OWN, looked(kernel_log="no", docker="no"), tmp_path)
    assert finding.state == "partial"
    assert finding.text.endswith("; cannot see who was killed for memory, containers that it starts")


def test_without_its_own_cgroup_the_nodes_counter_is_all_there_is_and_without_both_nothing(tmp_path: Path) -> None:
    blind = dataclasses.replace(OWN, why_not="not mounted", kills=None)
    assert "only the node's kills are counted" in sight({}, blind, looked(), tmp_path).text
    assert "memory (neither" in sight({}, blind, looked(host_oom_counter="no"), tmp_path).text
