"""Real cgroup v2: the collectors in a Debian kernel under qemu, in the layouts of docker, systemd, kubepods, rootless.

Each kernel is booted once; the tests claim things about what the guest's collectors wrote (guest/program.py).
6.1 has a read-only `memory.peak`, from 6.12 on each reader may set back its own.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.collectors.guest.boot import GuestUnavailable, boot, kernels, version
from tests.collectors.guest.program import LAYOUTS, LIMIT, MIB, SPIKE_BYTES, SPIKES, container_id

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Row = dict[str, object]


def _found() -> list[Path | None]:
    try:
        return list(kernels())
    except GuestUnavailable:
        return [None]


@functools.cache
def booted(kernel: Path) -> dict[str, dict[str, object]]:
    """What each scene said."""
    return boot(kernel)


@pytest.fixture(
    scope="module", params=_found(), ids=lambda k: "no-kernel" if k is None else ".".join(map(str, version(k)))
)
def kernel(request: pytest.FixtureRequest) -> Path:
    """One kernel after the other."""
    if request.param is None:
        try:
            kernels()
        except GuestUnavailable as why:
            pytest.skip(str(why))
    found = request.param
    assert isinstance(found, Path)
    return found


class Scene:
    """One scene of one guest."""

    def __init__(self, kernel: Path, name: str) -> None:
        self.said = booted(kernel)[name]
        failed = self.said.get("failed")
        assert failed is None, f"{failed}\n{self.said.get('last_told')}"

    def rows(self, kind: str) -> list[Row]:
        told = self.said["told"]
        assert isinstance(told, list)
        return [row for row in told if row["kind"] == kind]

    def last(self) -> Row:
        return self.rows("cgroup.reading")[-1]

    def number(self, name: str) -> int:
        value = self.said[name]
        assert isinstance(value, int)
        return value


def size(row: Row, name: str) -> float:
    """A number of a reading; a missing one is no zero."""
    value = row[name]
    assert isinstance(value, int | float)
    return value


def test_a_child_killed_at_the_containers_own_limit_is_counted_and_named(kernel: Path) -> None:
    scene = Scene(kernel, "child_oom")
    (kill,) = scene.rows("cgroup.oom_kill")
    assert (kill["delta"], kill["memory_limit"], kill["parent_limit_hit"]) == (1, LIMIT, False)
    # What it held by then is gone with the victim on a busy machine; the high-water mark is not.
    assert size(kill, "memory_peak") > LIMIT // 2
    (record,) = scene.rows("kernel.oom_kill")
    assert record["constraint"] == "CONSTRAINT_MEMCG"
    assert record["container_id"] == container_id(1)
    assert record["oom_memcg"] == "/" + LAYOUTS["docker"].format(id=container_id(1))
    assert scene.last()["oom_kill"] == 1
    assert size(scene.last(), "memory_max_hits") > 0
    seen = scene.rows("container.seen")[0]
    assert (seen["cgroup_version"], seen["oom_group"]) == ("v2", False)


def test_a_group_kill_counts_its_first_victim_twice_and_names_it_once(kernel: Path) -> None:
    scene = Scene(kernel, "group_oom")
    kills = scene.rows("cgroup.oom_kill")
    assert sum(size(kill, "delta") for kill in kills) == 4
    assert sum(size(kill, "group_delta") for kill in kills) == 1
    victims = [row["victim"] for row in scene.rows("kernel.oom_kill")]
    pids = [victim["pid"] for victim in victims if isinstance(victim, dict)]
    assert len(pids) == len(set(pids)) == 3
    assert scene.rows("container.seen")[0]["oom_group"] is True
    assert (scene.last()["oom_group_kill"], scene.last()["populated"]) == (1, False)


def test_a_kill_at_the_pods_limit_is_told_apart_from_one_at_the_containers(kernel: Path) -> None:
    scene = Scene(kernel, "parent_limit")
    (kill,) = scene.rows("cgroup.oom_kill")
    assert (kill["delta"], kill["parent_limit_hit"], kill["memory_limit"]) == (1, True, LIMIT)
    assert (scene.last()["oom_kill"], scene.last()["oom"]) == (1, 0)


def test_a_container_that_stands_still_for_memory_is_told_by_its_pressure_without_a_kill(kernel: Path) -> None:
    scene = Scene(kernel, "stalled")
    told = [row for row in scene.rows("cgroup.reading") if row["edge"] == "change"]
    assert size(told[0], "memory_high_hits") > 0
    assert size(told[0], "psi_memory") >= 0.1
    assert size(told[0], "psi_memory_full") > 0
    assert scene.last()["oom_kill"] == 0
    assert scene.last().get("memory_limit") is None


def test_a_refused_fork_is_told_at_once(kernel: Path) -> None:
    scene = Scene(kernel, "pids_limit")
    told = [row for row in scene.rows("cgroup.reading") if row["edge"] == "change"]
    assert (told[0]["pids_limit"], size(told[0], "pids_max_hits") > 0) == (4, True)
    hit = scene.rows("cgroup.pids_hit")[0]
    assert hit["limit"] == 4
    assert 1 <= size(hit, "tasks") <= 4
    # No reply of a model had passed, so nothing was started after one.
    assert hit.get("since_first_reply") is None


def test_throttled_time_is_seconds(kernel: Path) -> None:
    last = Scene(kernel, "throttled").last()
    assert 0.1 < size(last, "cpu_throttled") < 10
    assert size(last, "cpu_throttled_periods") >= 2
    assert 0.05 < size(last, "cpu_used") < 5


def test_the_peak_of_each_step_is_exact_where_the_kernel_lets_a_reader_set_back_its_own(kernel: Path) -> None:
    scene = Scene(kernel, "spikes")
    _, *steps, calm = [row for row in scene.rows("cgroup.reading") if row["edge"] == "end"]
    assert len(steps) == SPIKES
    if version(kernel) < (6, 12):
        assert {row["memory_peak_kind"] for row in [*steps, calm]} <= {"rose_in_step", "at_most"}
        assert calm["memory_peak_kind"] == "at_most"
        return
    assert {row["memory_peak_kind"] for row in [*steps, calm]} == {"exact"}
    assert sum(1 for row in steps if size(row, "memory_peak") >= SPIKE_BYTES) == SPIKES
    assert size(calm, "memory_peak") < SPIKE_BYTES
    assert scene.number("other_after") >= scene.number("other_before") > SPIKE_BYTES


def test_the_last_counters_of_a_container_outlive_its_cgroup(kernel: Path) -> None:
    scene = Scene(kernel, "vanished")
    assert sum(size(kill, "delta") for kill in scene.rows("cgroup.oom_kill")) == 1
    assert (scene.last()["edge"], scene.last()["oom_kill"]) == ("last", 1)
    assert [row["victim"] for row in scene.rows("kernel.oom_kill")]


def test_memory_is_split_and_what_is_not_there_is_no_zero(kernel: Path) -> None:
    first = Scene(kernel, "child_oom").rows("cgroup.reading")[0]
    for name in ("memory_anon", "memory_file", "memory_shmem", "memory_slab", "swap_current", "pids_current"):
        assert first[name] is not None
        assert size(first, name) < 10 * MIB
    own = Scene(kernel, "own")
    # The root cgroup has no memory.current, no memory.events and no limit.
    assert not {"memory_current", "oom_kill", "memory_limit"} & set(own.rows("cgroup.reading")[0])
    (memory,) = [row for row in own.rows("coverage") if row["families"] == ["memory"]]
    assert memory["state"] == "off"
    assert "memory.events" in str(memory["why"])


def test_from_a_cgroup_namespace_of_its_own_another_container_is_unreadable_and_said(kernel: Path) -> None:
    answer = Scene(kernel, "namespace").said["answer"]
    assert isinstance(answer, dict)
    assert answer["path"] == f"0::/../{container_id(10)}\n"
    assert answer["found"] == {}
    assert "another cgroup namespace" in answer["missing"]["memory"]
    assert answer["mine"]["memory"] == "/sys/fs/cgroup"


def test_from_a_cgroup_namespace_with_the_hosts_hierarchy_mounted_the_container_is_found(kernel: Path) -> None:
    answer = Scene(kernel, "namespace_with_host_mount").said["answer"]
    assert isinstance(answer, dict)
    assert answer["found"]["memory"] == f"/sys/fs/cgroup/docker/{container_id(10)}"
    assert answer["procs"] == [f"{answer['pid']}\n"]
    assert answer["mine"]["memory"] == f"/sys/fs/cgroup/docker/{container_id(9)}"
