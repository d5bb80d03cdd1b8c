"""Parents, first seen."""

import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from fairtrial.collectors.process_tree import ProcessTree
from tests.collectors.trees import Tree


def test_a_victim_is_traced_to_the_first_process_of_its_exec_after_all_of_them_died(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(10, "containerd-shim", 1)
    files.stat(20, "sh", 10)
    files.stat(21, "bash", 20)
    files.stat(22, "tail", 21)
    (tmp_path / "cgroup.procs").write_text("20\n21\n22\n")
    tree = ProcessTree(files.proc)
    assert tree.scan(tmp_path) == 3
    for pid in (20, 21, 22):
        (files.proc / str(pid) / "stat").unlink()
    assert [seen.comm for seen in tree.chain(22)] == ["tail", "bash", "sh", "containerd-shim"]
    assert tree.descends_from(22, 20) is True
    assert tree.descends_from(22, 99) is False


def test_an_orphan_keeps_its_first_parent_and_takes_its_new_name(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(20, "runc", 5)
    tree = ProcessTree(files.proc)
    tree.look(20)
    files.stat(20, "make", 1)
    seen = tree.look(20)
    assert seen is not None
    assert (seen.ppid, seen.comm) == (5, "make")


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(20, "old", 5, start=100)
    tree = ProcessTree(files.proc)
    tree.look(20)
    files.stat(20, "new", 7, start=900)
    seen = tree.look(20)
    assert seen is not None
    assert (seen.ppid, seen.comm) == (7, "new")


def test_a_process_that_was_never_seen_is_unknown_and_not_guessed(tmp_path: Path) -> None:
    tree = ProcessTree(Tree(tmp_path).proc)
    assert tree.chain(4242) == []
    assert tree.descends_from(4242, 1) is None


def test_a_loop_of_parents_ends(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(2, "a", 3)
    files.stat(3, "b", 2)
    tree = ProcessTree(files.proc)
    tree.look(2)
    tree.look(3)
    assert len(tree.chain(2)) == 2


def test_outsiders_of_a_cgroup_are_counted(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(2, "relay", 1)
    files.stat(3, "agent", 2)
    files.stat(9, "sshd", 1)
    (tmp_path / "cgroup.procs").write_text("2\n3\n9\n")
    assert ProcessTree(files.proc).outsiders(tmp_path, 2) == 1


def test_a_cgroup_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert ProcessTree(Tree(tmp_path).proc).scan(tmp_path / "gone") == 0


def test_a_process_that_moved_is_where_it_was_last_seen(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(20, "sh", 1)
    first, then = tmp_path / "root", tmp_path / "box"
    for directory in (first, then):
        directory.mkdir()
        (directory / "cgroup.procs").write_text("20\n")
    tree = ProcessTree(files.proc)
    tree.scan(first)
    tree.scan(then)
    assert tree.directory_of(20) == then


def test_a_census_counts_threads_and_when_their_processes_started(tmp_path: Path) -> None:
    files = Tree(tmp_path)
    files.stat(20, "sh", 1, start=250)
    files.stat(21, "python", 20, start=900)
    (tmp_path / "cgroup.procs").write_text("20\n21\n99\n")
    ticks = os.sysconf("SC_CLK_TCK")
    # The fake files say that a process has no thread at all; a real one has at least one.
    assert ProcessTree(files.proc).census(tmp_path) == [(250 / ticks, 0), (900 / ticks, 0)]
    assert ProcessTree(files.proc).census(tmp_path / "gone") is None


@pytest.mark.parametrize("late", [20, 200])
def test_a_census_takes_a_thread_by_its_own_start(late: int) -> None:
    """This very process; its threads are younger than it is."""
    proc = Path("/proc")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(0.02)  # the kernel tells of starts in hundredths of a second
    go = threading.Event()
    threads = [threading.Thread(target=go.wait) for _ in range(late)]
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            for one in threads:
                one.start()
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "cgroup.procs").write_text(f"{os.getpid()}\n{other.pid}\n")
                census = ProcessTree(proc).census(Path(folder))
        finally:
            go.set()
            other.kill()
    assert census is not None
    assert sum(tasks for _, tasks in census) >= late + 2
    young = sum(tasks for started_s, tasks in census if started_s >= before)
    assert late * 0.9 <= young <= late * 1.1 + 2
