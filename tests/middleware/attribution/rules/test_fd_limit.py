"""A limit of open files: the model's, the infrastructure's, and nobody's."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import (
    FdLimit,
)
from fairtrial.middleware.core.records import Blame
from tests.middleware.attribution.scene import Scene, ended, summary


def at_fd_limit(*, since_first_reply: bool | None, exit_code: int = 1) -> Scene:
    told = Scene().call()
    seen = FdLimit(
        container_id=told.container, pid=9, comm="node", open_files=64, limit=64, since_first_reply=since_first_reply
    )
    told.tell(seen)
    return told.ran(exit_code).call(tools=0).end(1)


def test_a_leak_of_what_the_model_started_is_the_models() -> None:
    verdict = at_fd_limit(since_first_reply=True).verdict()
    assert summary(verdict) == ("model", "suspected", "container.fd_limit", 1)
    assert ended(verdict) == ("container.fd_limit", "suspected", 1)


def test_a_limit_that_a_process_of_the_harness_reached_is_suspected_of_the_infrastructure() -> None:
    verdict = at_fd_limit(since_first_reply=False).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.fd_limit", 1)


@pytest.mark.parametrize(
    "before, limit, blame",
    [
        (60, 64, Blame.INFRA),
        (32, 64, Blame.INFRA),
        (31, 64, Blame.INDETERMINATE),  # a server that a command of the model's asked again and again
        (60, 1024, Blame.INDETERMINATE),  # `ulimit -n 64` in a shell that was there, or `prlimit` from beside it
        (60, None, Blame.INFRA),
    ],
)
def test_a_process_of_the_harness_that_may_have_been_brought_to_its_limit_blames_nobody(
    before: int, limit: int | None, blame: Blame
) -> None:
    told = Scene().call()
    seen = FdLimit(
        container_id=told.container,
        pid=9,
        open_files=64,
        limit=64,
        since_first_reply=False,
        open_before=before,
        limit_before=limit,
    )
    told.tell(seen)
    verdict = told.ran(1).call(tools=0).end(1).verdict()
    assert verdict.blame is blame
    assert ended(verdict) == ("container.fd_limit", "suspected", 1)


def test_a_process_of_unknown_age_at_its_limit_blames_nobody() -> None:
    assert at_fd_limit(since_first_reply=None).verdict().blame is Blame.INDETERMINATE


def test_a_full_table_of_files_under_a_command_that_ended_well_is_present() -> None:
    verdict = at_fd_limit(since_first_reply=True, exit_code=0).verdict()
    assert (verdict.blame, verdict.cause) == (Blame.MODEL, None)
    assert [row.cause for row in verdict.present] == ["container.fd_limit"]
