"""Coverage: gaps, counters, and who watched what."""

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.coverage import Watch
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import CoverageChanged, KernelOomKill
from fairtrial.middleware.core.records import Victim
from tests.middleware.attribution.scene import BOX, Scene, model_failed


def watch(told: Scene) -> Watch:
    return Watch(Case(told.assembly()), DEFAULT_THRESHOLDS)


def test_a_gap_counts_from_its_begin_to_its_end_only() -> None:
    told = model_failed()
    told.gap(since=1.0, until=2.0)
    seen = watch(told)
    assert seen.door_gap(told.wall(0.5)) is not None
    assert seen.door_gap(told.wall(1.9)) is not None
    assert seen.door_gap(told.wall(2.1)) is None


def test_a_gap_after_the_commands_end_is_none() -> None:
    told = model_failed()
    told.gap(since=told.s + 1, until=told.s + 2)
    assert watch(told).blind == []


def test_a_source_that_was_lost_is_blind_until_it_is_back() -> None:
    told = Scene().call()
    lost = told.wall()
    told.tell(CoverageChanged(source="door.model.anthropic", families=["model_api"], state="lost"), told.door)
    told.waited(5).tell(CoverageChanged(source="door.model.anthropic", families=["model_api"]), told.door)
    back = told.wall()
    seen = watch(told.waited(5).end(1))
    assert [(b.since_ns, b.until_ns) for b in seen.blind] == [(lost, back)]


def test_a_collector_that_leaves_one_container_that_is_gone_is_not_blind() -> None:
    told = Scene().call()
    told.tell(CoverageChanged(source="collector.cgroup", families=["memory"], state="off", container_id=BOX))
    assert watch(told.waited(9).end(1)).blind == []


def test_a_counter_read_after_a_gap_makes_the_gap_harmless_for_kills() -> None:
    told = Scene(vmstat=False).call().ran(1)
    told.gap(since=0.2, until=1.0, source="collector.cgroup", families=["memory"])
    assert watch(told.call(tools=0).end(1)).memory().seen


def test_a_counter_that_was_not_read_at_the_end_could_have_missed_a_kill() -> None:
    told = Scene(vmstat=False).call().ran(1)
    told.counters = False
    seen = watch(told.waited(60).end(1)).memory()
    assert not seen.seen
    assert seen.why_not is not None
    assert "b0b0" in seen.why_not


def test_the_commands_own_cgroup_needs_two_readings_since_it_is_older_than_the_trial() -> None:
    told = Scene(box=False, vmstat=False, counters=False).call().waited()
    told.counters = True
    assert not watch(told.end(1)).memory().seen
    assert watch(model_failed(box=False, vmstat=False)).memory().seen


def test_families_are_none_in_part_or_whole() -> None:
    told = Scene(families=("memory", "network")).call()
    told.gap(since=0.2, until=1.0, source="collector.cgroup", families=["network"])
    seen = watch(told.end(1))
    assert seen.unwatched == ["cpu", "disk", "node"]
    assert seen.partly == ["network"]


def test_a_kill_on_the_host_while_a_container_was_not_watched_could_be_ours() -> None:
    """Another trial used the engine, so a container was not joined, and the host counted a kill: no clearing."""
    told = Scene(box=False).call()
    told.tell(CoverageChanged(source="collector.docker_events", families=["memory"], containers_missed=True))
    told.node_kills += 1
    seen = watch(told.waited().call(tools=0).end(1)).memory()
    assert not seen.seen
    assert seen.why_not is not None
    assert "was not watched" in seen.why_not


def test_a_container_that_was_not_watched_does_not_matter_while_the_hosts_counter_stands_still() -> None:
    told = Scene(box=False).call()
    told.tell(CoverageChanged(source="collector.docker_events", families=["memory"], containers_missed=True))
    assert watch(told.waited().call(tools=0).end(1)).memory().seen


def stray(cgroup: str) -> Scene:
    """A command without a container: the node counted a kill, and the kernel told of it in another cgroup."""
    told = Scene(box=False).call(tools=1).waited()
    told.node_kills += 1
    told.tell(KernelOomKill(victim=Victim(comm="tail", pid=9), oom_memcg=cgroup, task_memcg=cgroup))
    return told.waited().call(tools=0).end(1)


def test_a_kill_in_a_cgroup_that_was_not_watched_clears_nobody() -> None:
    """The command had gone to a cgroup of its own, and was dead before anybody looked there."""
    seen = watch(stray("/made-by-the-command")).memory()
    assert not seen.seen
    assert seen.why_not is not None
    assert "killed tail for memory in a cgroup that was not watched" in seen.why_not


def test_a_kill_in_another_container_is_anothers() -> None:
    assert watch(stray("/docker/" + "d" * 64)).memory().seen


def test_the_commands_own_counter_must_have_been_read_before_its_first_work() -> None:
    told = Scene(box=False, counters=False).call(tools=1).waited()
    told.counters = True
    told.node_kills += 1
    assert not watch(told.read().waited().call(tools=0).end(1)).memory().seen


def test_a_late_look_at_the_commands_own_counter_does_not_matter_where_every_kill_is_known_to_be_anothers() -> None:
    told = Scene(box=False, counters=False).call(tools=1).waited()
    told.counters = True
    told.node_kills += 1
    other = "/docker/" + "d" * 64
    told.tell(KernelOomKill(victim=Victim(comm="tail", pid=9), oom_memcg=other, task_memcg=other))
    assert watch(told.read().waited().call(tools=0).end(1)).memory().seen


def holed(*, vmstat: bool = True, others: int = 0) -> Scene:
    """The engine's events were not seen for a while, and the node's kernel killed something."""
    told = Scene(vmstat=vmstat).call().ran(1)
    told.node_kills = 1
    told.gap(since=0.2, until=1.0, source="collector.docker_events", families=["memory", "node"])
    for pid in range(others):
        memcg = f"/docker/{'cd' * 32}"
        told.tell(KernelOomKill(victim=Victim(comm="x", pid=pid), container_id=None, task_memcg=memcg), told.cgroup)
    return told.call(tools=0).end(1)


def test_a_hole_in_the_engines_events_may_hide_a_container_and_its_kill() -> None:
    for vmstat in (True, False):
        seen = watch(holed(vmstat=vmstat)).memory()
        assert not seen.seen
        assert seen.why_not is not None
        assert "engine's events were not seen" in seen.why_not


def test_a_hole_hides_nothing_where_each_kill_of_the_node_has_its_place() -> None:
    assert watch(holed(others=1)).memory().seen


def test_a_hole_hides_nothing_where_the_node_killed_nothing() -> None:
    quiet = Scene().call().ran(1)
    quiet.gap(since=0.2, until=1.0, source="collector.docker_events", families=["memory", "node"])
    assert watch(quiet.call(tools=0).end(1)).memory().seen
