"""What part a container plays, by the labels of compose and by where the agent works."""

from __future__ import annotations

import pytest

from fairtrial.collectors.docker_joins import Joins, compose_role
from fairtrial.collectors.docker_telling import Teller
from fairtrial.collectors.parse.docker import ContainerFacts
from tests.collectors.keep import Kept


def labels(service: str, project: str = "task", **more: str) -> dict[str, str]:
    return {"com.docker.compose.project": project, "com.docker.compose.service": service, **more}


@pytest.mark.parametrize(
    "given, role",
    [
        ({}, "main"),
        (labels("main"), "main"),
        (labels("client"), "main"),
        (labels("db"), "service"),
        (labels("db", **{"com.docker.compose.oneoff": "True"}), "main"),
        (labels("db", **{"com.docker.compose.oneoff": "False"}), "service"),
    ],
)
def test_a_role_by_labels(given: dict[str, str], role: str) -> None:
    assert compose_role(given) == role


async def nobody(_: str) -> object:
    return None


@pytest.fixture
def joins() -> Joins:
    teller = Teller(Kept().source("collector.docker_events"), trial_id="t", local=True)
    return Joins(
        teller,
        ask=nobody,
        engine="unix:///nowhere",
        trial_id="t",
        started_ns=0,
        others_at_start=0,
        on_count=lambda _: None,
    )


def facts(container_id: str, service: str, project: str = "task") -> ContainerFacts:
    return ContainerFacts(id=container_id, labels=labels(service, project))


def test_in_a_project_with_a_named_place_a_command_in_a_service_changes_nothing(joins: Joins) -> None:
    box, db = facts("a", "main"), facts("b", "db")
    assert [joins.role_of(one) for one in (box, db)] == ["main", "service"]
    assert not joins.works_in(db)
    assert joins.role_of(db) == "service"


def test_in_a_project_without_one_the_agent_is_where_its_first_command_runs(joins: Joins) -> None:
    app, db = facts("a", "app"), facts("b", "db")
    assert [joins.role_of(one) for one in (app, db)] == ["service", "service"]
    assert joins.works_in(app)
    assert not joins.works_in(db)
    assert [joins.role_of(one) for one in (app, db)] == ["main", "service"]


def test_projects_are_apart(joins: Joins) -> None:
    assert joins.works_in(facts("a", "app", "one"))
    assert joins.works_in(facts("b", "app", "two"))
    assert not joins.works_in(ContainerFacts(id="c"))
