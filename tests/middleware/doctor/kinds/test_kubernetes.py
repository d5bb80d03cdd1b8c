"""Kubernetes: requests are floors, limits are ceilings, a job has a deadline or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.middleware.doctor.kinds.read import declared, flags

GIB = 1 << 30
CONTAINER = "{name: c, resources: {requests: {memory: 1Gi, cpu: 500m}, limits: {memory: 3Gi, cpu: '2'}}}"
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {%s template: {spec: {containers: [%s]}}}"


def test_a_job_has_floor_ceiling_and_deadline(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, JOB % ("activeDeadlineSeconds: 900,", CONTAINER))
    assert (one.memory_floor, one.memory_ceiling, one.cpu_floor, one.cpu_ceiling) == (GIB, 3 * GIB, 0.5, 2.0)
    assert dict(one.times) == {"deadline": 900.0}
    assert flags(one) == ""


def test_a_job_without_a_deadline_is_flagged_and_a_pod_is_not(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, JOB % ("", CONTAINER))
    assert "no time limit (deadline)" in flags(one)
    (pod,) = declared(tmp_path, f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{CONTAINER}]}}")
    assert flags(pod) == ""


@pytest.mark.parametrize(
    "resources, words",
    [
        ("{limits: {memory: 1Gi}}", "Kubernetes takes the limit for it, so floor = ceiling"),
        ("{requests: {memory: 1Gi}, limits: {memory: 1Gi}}", "floor = ceiling = 1.0 GiB"),
        ("{requests: {memory: 1Gi}}", "no memory limit"),
        ("{}", "the first to be evicted"),
    ],
)
def test_what_requests_and_limits_mean_together(tmp_path: Path, resources: str, words: str) -> None:
    (one,) = declared(
        tmp_path, f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{{name: c, resources: {resources}}}]}}"
    )
    assert words in flags(one)


def test_cron_jobs_lists_and_init_containers_are_looked_into(tmp_path: Path) -> None:
    cron = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: n}\nspec: {jobTemplate: {spec: "
        "{activeDeadlineSeconds: 60, template: {spec: {initContainers: [{name: i}], containers: [{name: c}]}}}}}"
    )
    assert [one.name for one in declared(tmp_path, cron)] == ["n/i", "n/c"]
    assert dict(declared(tmp_path, cron)[0].times) == {"deadline": 60.0}
    listed = f"apiVersion: v1\nkind: List\nitems: [{{apiVersion: v1, kind: Pod, spec: {{containers: [{CONTAINER}]}}}}]"
    assert len(declared(tmp_path, listed)) == 1
    assert declared(tmp_path, "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}") == []
