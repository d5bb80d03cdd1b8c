"""What Harbor makes of the names of its trials."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.names import project_of


@pytest.mark.parametrize(
    "session, project",
    [
        ("hello-1__AbC1__env", "hello-1__abc1__env"),
        ("a.b c__x__env", "a-b-c__x__env"),
        ("__x", "0__x"),
        ("", "0"),
        ("Ä__env", "0-__env"),
    ],
)
def test_a_session_becomes_a_compose_project(session: str, project: str) -> None:
    assert project_of(session) == project
