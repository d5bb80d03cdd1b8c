"""What is said of a cgroup of which not everything can be seen."""

from __future__ import annotations

from pathlib import Path

from fairtrial.collectors.cgroup_coverage import coverage, network_coverage
from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.cgroup_paths import locate
from fairtrial.middleware.core.observations import CoverageChanged
from tests.collectors.trees import CONTAINER, Tree, v2_host

PATH = f"/docker/{CONTAINER}"


def seen(tree: Tree, *, looks_at_disks: bool = True) -> dict[str, CoverageChanged]:
    files = CgroupFiles(locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER), may_reset=False)
    told = coverage(
        files, container_id=CONTAINER, no_bell=None, shared=None, limit_bytes=1 << 20, looks_at_disks=looks_at_disks
    )
    files.close()
    return {change.families[0]: change for change in told}


def host(folder: Path, *without: str) -> Tree:
    tree = v2_host(folder, PATH)
    tree.process(7, f"0::{PATH}\n")
    for name in without:
        (folder / "sys/fs/cgroup" / PATH.lstrip("/") / name).unlink()
    return tree


def test_a_cgroup_with_all_its_files_is_on_without_a_limit(tmp_path: Path) -> None:
    told = seen(host(tmp_path))
    assert {(change.state, change.why) for change in told.values()} == {("on", None)}


def test_a_missing_count_of_kills_is_off_with_its_reason_and_a_missing_count_of_forks_is_partial(
    tmp_path: Path,
) -> None:
    told = seen(host(tmp_path, "memory.events", "pids.events"))
    assert told["memory"].state == "off"
    assert "memory.events" in (told["memory"].why or "")
    assert told["cpu"].state == "on"
    assert "refused forks are not counted" in (told["cpu"].why or "")
    assert told["disk"].why is None


def test_file_systems_that_cannot_be_looked_at_are_said(tmp_path: Path) -> None:
    told = seen(host(tmp_path), looks_at_disks=False)
    assert told["disk"].why == "partial: whether its file systems are full cannot be looked at"


def test_a_network_that_cannot_be_looked_at_is_off() -> None:
    told = network_coverage(None, "c")
    assert (told.state, told.families) == ("off", ["network"])
