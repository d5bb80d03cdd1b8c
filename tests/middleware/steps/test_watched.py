"""Coverage says what was watched for the whole time, for a part, or not at all, and why."""

import pytest

from fairtrial.middleware.core.observations import CoverageChanged, DoorState, GapSeen, ReplyFacts
from fairtrial.middleware.core.records import Coverage
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import TRIAL, Story


def coverage(told: Story) -> Coverage:
    return assemble(told.observations, TRIAL).trial.coverage


def one_call() -> Story:
    told = Story().begin()
    told.attempt(turns=0)
    return told


def test_a_source_that_was_on_from_before_the_first_call_to_the_end_is_full() -> None:
    told = one_call().end()
    told.tell(CoverageChanged(source="collector.cgroup", families=["memory", "cpu"], state="off"))
    seen = coverage(told)
    assert seen.families["memory"].level == "full"
    assert (seen.families["cpu"].level, seen.families["cpu"].why) == ("full", None)
    assert seen.families["model_api"].level == "full"
    assert seen.families["disk"].level == "none"
    assert seen.families["disk"].why == "no source watched"
    assert (seen.doors, seen.dropped) == ({"model.anthropic": "on"}, 0)


@pytest.mark.parametrize(
    "change",
    [
        CoverageChanged(source="collector.cgroup", families=["cpu"], state="lost", why="unreadable"),
        CoverageChanged(source="collector.cgroup", families=["cpu"], state="off", why="stopped"),
        GapSeen(source="collector.cgroup", families=["cpu"], why="reconnect"),
        GapSeen(source="observer", families=["cpu"], why="restart"),
    ],
)
def test_a_gap_makes_a_family_partial_and_says_why(change: CoverageChanged | GapSeen) -> None:
    told = one_call()
    told.tell(change)
    told.s += 1
    family = coverage(told.end()).families["cpu"]
    assert family.level == "partial"
    assert family.why is not None


def test_a_source_that_came_on_after_the_first_call_is_partial() -> None:
    told = one_call()
    told.tell(CoverageChanged(source="collector.network", families=["network"]))
    assert coverage(told.end()).families["network"].level == "partial"


def test_a_source_that_could_not_begin_is_none_with_its_reason() -> None:
    told = one_call()
    told.tell(CoverageChanged(source="collector.network", families=["network"], state="lost", why="EPERM"))
    family = coverage(told.end()).families["network"]
    assert (family.level, family.why) == ("none", "collector.network lost: EPERM")


def test_one_container_that_went_is_no_gap() -> None:
    told = one_call()
    told.tell(CoverageChanged(source="collector.cgroup", families=["memory"], state="off", container_id="c"))
    told.s += 1
    assert coverage(told.end()).families["memory"].level == "full"


def test_a_door_through_which_nothing_came_covers_nothing() -> None:
    family = coverage(Story().begin().end()).families["model_api"]
    assert (family.level, family.why) == ("none", "no call came through the door")


def test_a_door_that_could_not_be_bound_is_said() -> None:
    told = Story()
    told.tell(DoorState(name="openai", ok=False, why="port in use"))
    assert coverage(told).doors == {"model.openai": "lost: port in use"}


def test_calls_of_an_unknown_dialect_make_the_model_api_partial() -> None:
    told = one_call()
    told.attempt(turns=0, operation="other", body_digest=None, message_digests=[], dialect="unknown")
    family = coverage(told.end()).families["model_api"]
    assert family.level == "partial"


def test_one_family_of_a_container_that_cannot_be_read_leaves_the_others_full() -> None:
    told = Story()
    told.tell(CoverageChanged(source="collector.cgroup", families=["memory"], container_id="c"))
    why = "blkio is not mounted"
    told.tell(CoverageChanged(source="collector.cgroup", families=["disk"], state="off", why=why, container_id="c"))
    told.s += 1
    told.attempt(turns=0)
    families = coverage(told.end()).families
    assert families["memory"].level == "full"
    assert (families["disk"].level, families["disk"].why) == ("none", "collector.cgroup off: blkio is not mounted")


def test_a_source_that_names_a_limit_of_its_own_is_partial() -> None:
    told = one_call()
    why = "partial: the network namespace is shared"
    told.tell(CoverageChanged(source="collector.network", families=["network"], why=why, container_id="own"))
    family = coverage(told.end()).families["network"]
    assert (family.level, family.why) == ("partial", "collector.network: the network namespace is shared")


def test_a_container_that_was_not_watched_is_said_without_its_level_a_second_time() -> None:
    told = one_call()
    why = "partial: container abc was used by several trials"
    change = CoverageChanged(source="collector.vmstat", families=["memory"], why=why, containers_missed=True)
    told.tell(CoverageChanged(source="collector.cgroup", families=["memory"]))
    told.tell(change)
    family = coverage(told.end()).families["memory"]
    assert (family.level, family.why) == ("partial", "container abc was used by several trials")


def test_a_source_that_is_lost_says_so_and_not_only_its_limit() -> None:
    told = one_call()
    told.tell(CoverageChanged(source="collector.network", families=["network"], why="partial: shared"))
    told.tell(CoverageChanged(source="collector.network", families=["network"], state="lost", why="EPERM"))
    told.s += 1
    family = coverage(told.end()).families["network"]
    assert (family.level, family.why) == ("partial", "collector.network lost: EPERM")


def test_a_redirect_makes_the_model_api_partial() -> None:
    told = Story().begin()
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(status=307))
    family = coverage(told.end()).families["model_api"]
    assert (family.level, family.why) == ("partial", "a redirect led past the door")


def test_a_container_that_was_missed_makes_memory_and_node_partial_with_its_reason() -> None:
    told = one_call()
    missed = CoverageChanged(
        source="collector.docker_events", families=["memory"], why="it carries no mark of ours", containers_missed=True
    )
    told.tell(missed)
    families = coverage(told.end()).families
    assert (families["memory"].level, families["memory"].why) == ("partial", "it carries no mark of ours")


@pytest.mark.parametrize("until", [None, 0.5], ids=["never back", "back"])
def test_a_hole_in_the_engines_events_shows_in_every_family_that_they_tell_of(until: float | None) -> None:
    """Each watched container's counters are whole: what the engine would have told of may be another container."""
    told = one_call()
    told.tell(CoverageChanged(source="collector.docker_events", families=["memory", "node"]))
    since = told.wall()
    hole = GapSeen(
        source="collector.docker_events",
        families=["memory", "node"],
        since_ns=since,
        until_ns=None if until is None else since + round(until * 1e9),
        why="the engine was restarted",
    )
    told.tell(hole)
    told.s += 1
    families = coverage(told.end()).families
    why = "collector.docker_events gap: the engine was restarted"
    assert (families["memory"].level, families["memory"].why) == ("partial", why)


def test_a_hole_after_the_commands_end_is_none() -> None:
    told = one_call().end()
    told.s += 1
    told.tell(GapSeen(source="collector.docker_events", families=["memory"], since_ns=told.wall()))
    assert coverage(told).families["memory"].level == "full"
