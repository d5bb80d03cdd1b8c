"""Where a process's cgroup is, on hosts of every kind, as trees on disk."""

from pathlib import Path

import pytest

from fairtrial.collectors.cgroup_paths import locate
from tests.collectors.trees import CONTAINER, Tree, v1_host, v1_lines, v2_host


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{CONTAINER}",
        f"/system.slice/docker-{CONTAINER}.scope",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-podab.slice/cri-containerd-{CONTAINER}.scope",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{CONTAINER}.scope",
    ],
)
def test_v1_is_found_per_controller_with_any_driver(tmp_path: Path, path: str) -> None:
    tree = v1_host(tmp_path, path)
    tree.process(7, v1_lines(path))
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.version == "hybrid"
    assert found.hierarchy_path == path
    assert found.places["memory"].path == tmp_path / "sys/fs/cgroup/memory" / path.lstrip("/")
    assert not found.places["pids"].v2
    assert found.unified == tmp_path / "sys/fs/cgroup/unified" / path.lstrip("/")
    assert found.missing == {}


def test_v1_without_a_unified_mount_is_v1_and_has_no_pressure(tmp_path: Path) -> None:
    path = f"/docker/{CONTAINER}"
    tree = v1_host(tmp_path, path, unified=False)
    tree.process(7, v1_lines(path, unified=False))
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.version == "v1"
    assert found.unified is None


def test_v2_gives_one_directory_for_all_controllers(tmp_path: Path) -> None:
    path = f"/system.slice/docker-{CONTAINER}.scope"
    tree = v2_host(tmp_path, path)
    tree.process(7, f"0::{path}\n")
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.version == "v2"
    assert {place.path for place in found.places.values()} == {tmp_path / "sys/fs/cgroup" / path.lstrip("/")}
    assert all(place.v2 for place in found.places.values())


def test_a_controller_that_is_not_enabled_is_missing_with_a_reason(tmp_path: Path) -> None:
    path = f"/docker/{CONTAINER}"
    tree = v2_host(tmp_path, path)
    (tmp_path / "sys/fs/cgroup" / path.lstrip("/") / "pids.current").unlink()
    tree.process(7, f"0::{path}\n")
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert "pids" not in found.places
    assert "not enabled" in found.missing["pids"]


def test_a_container_whose_first_process_made_cgroups_below_is_watched_at_its_own_level(tmp_path: Path) -> None:
    path = f"/docker/{CONTAINER}"
    tree = v2_host(tmp_path, path)
    tree.process(7, f"0::{path}/init.scope\n")
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.hierarchy_path == path


def test_a_nested_engine_that_sees_a_part_of_the_hierarchy_strips_the_mounted_root(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    top = tree.mount("/sys/fs/cgroup", "cgroup2", "rw", root="/docker/outer")
    (top / "docker" / CONTAINER).mkdir(parents=True)
    tree.process(7, f"0::/docker/outer/docker/{CONTAINER}\n")
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.unified == top / "docker" / CONTAINER


def test_a_path_out_of_our_cgroup_namespace_is_unreadable_and_not_guessed(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, "/x")
    tree.process(7, f"0::/../../docker/{CONTAINER}\n")
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.places == {}
    assert "another cgroup namespace" in found.missing["memory"]


def test_a_process_that_is_not_the_containers_is_refused(tmp_path: Path) -> None:
    """A pid told by a remote engine is some other process here; its cgroup must never be written."""
    tree = v1_host(tmp_path, "/user.slice")
    tree.process(7, v1_lines("/user.slice"))
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.places == {}
    assert found.unified is None
    assert "does not name the container" in found.missing["memory"]


@pytest.mark.parametrize("short", ["", "docker", "cbe1a32c898"])
def test_an_empty_or_short_id_can_never_select_a_parent(tmp_path: Path, short: str) -> None:
    tree = v1_host(tmp_path, "/docker")
    tree.process(7, v1_lines("/docker"))
    with pytest.raises(ValueError, match="too short"):
        locate(7, proc=tree.proc, root=tree.root, must_contain=short)


def test_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    tree = v2_host(tmp_path, "/x")
    with pytest.raises(FileNotFoundError):
        locate(99, proc=tree.proc, root=tree.root)


def test_the_hosts_hierarchy_in_a_namespace_of_our_own_is_searched_at_the_depth_that_the_kernel_tells(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path)
    top = tree.mount("/sys/fs/cgroup", "cgroup2", "rw", root="/../..")
    for parent in ("system.slice", "kubepods"):
        directory = top / parent / f"docker-{CONTAINER}.scope"
        directory.mkdir(parents=True)
        (directory / "cgroup.procs").write_text("7\n" if parent == "kubepods" else "8\n")
    tree.process(7, f"0::/../docker-{CONTAINER}.scope\n")
    found = locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER)
    assert found.unified == top / "kubepods" / f"docker-{CONTAINER}.scope"


def test_a_directory_of_the_right_name_without_the_process_is_not_believed(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    top = tree.mount("/sys/fs/cgroup", "cgroup2", "rw", root="/../..")
    directory = top / "system.slice" / f"docker-{CONTAINER}.scope"
    directory.mkdir(parents=True)
    (directory / "cgroup.procs").write_text("8\n")
    tree.process(7, f"0::/../docker-{CONTAINER}.scope\n")
    assert locate(7, proc=tree.proc, root=tree.root, must_contain=CONTAINER).unified is None


@pytest.mark.parametrize("bad", ["../../../../etc/", "..", "a/../../../b/cgr", "\x00" * 12])
def test_an_id_with_traversal_characters_selects_nothing(tmp_path: Path, bad: str) -> None:
    tree = v2_host(tmp_path, f"/docker/{CONTAINER}")
    tree.process(7, f"0::/docker/{CONTAINER}/../../../etc\n")
    try:
        found = locate(7, proc=tree.proc, root=tree.root, must_contain=bad)
    except ValueError:
        return  # too short
    assert found.places == {}
    assert found.unified is None
