"""Limits of tasks and of disk space: the model's, the infrastructure's, and nobody's."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import (
    ContainerSeen,
    DiskFull,
    ExecEnded,
    ExecStarted,
    FdLimit,
    PidsHit,
    ToolUse,
)
from fairtrial.middleware.core.records import Blame, Grade
from tests.middleware.attribution.scene import BOX, MIB, Scene, ended, summary

TEXT = "d" * 32


def hit(
    told: Scene,
    exit_code: int | None = 1,
    *,
    limit: int = 64,
    tasks: int = 64,
    first: int | None = 60,
    last: int | None = 60,
) -> Scene:
    """A command of the present step ran into the limit of tasks."""
    told.also["pids_limit"] = limit
    hits = told.also.get("pids_max_hits") or 0
    assert isinstance(hits, int)
    told.also["pids_max_hits"] = hits + 7
    told.read("change", pids_current=tasks)
    told.tell(
        PidsHit(
            container_id=told.container,
            hits=hits + 7,
            limit=limit,
            tasks=tasks,
            since_first_reply=first,
            since_last_reply=last,
        )
    )
    return told.ran(exit_code)


def begun() -> Scene:
    told = Scene()
    told.also["pids_max_hits"] = 0
    return told.read("baseline").call()


# --- tasks ----------------------------------------------------------------------------------------------------------


def test_a_fork_bomb_of_the_model_is_the_models_and_the_fact_stays() -> None:
    verdict = hit(begun()).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.pids_limit", 1)
    assert ended(verdict) == ("container.pids_limit", "proved", 1)
    assert "60 of the 64 tasks" in verdict.sentence


def test_a_bomb_beside_a_large_harness_is_the_models_all_the_same() -> None:
    """Growth from one command that the model started, however little room the others had left."""
    verdict = hit(begun(), first=20, last=20).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.pids_limit", 1)


def test_a_limit_that_harness_and_services_alone_had_reached_is_infra() -> None:
    told = Scene()
    told.also |= {"pids_max_hits": 3, "pids_limit": 8}
    told.read("change", pids_current=8)
    told.s += 1.0
    verdict = hit(told.call(), limit=8, tasks=8, first=1, last=1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.pids_limit", 1)
    assert "before any reply of the model had arrived" in verdict.sentence


def test_a_bomb_after_harness_and_services_had_once_reached_the_limit_is_the_models_all_the_same() -> None:
    told = Scene()
    told.also |= {"pids_max_hits": 3, "pids_limit": 64}
    told.read("change")
    told.s += 1.0
    verdict = hit(told.call(), first=40, last=40).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.pids_limit", 1)


def test_tasks_that_mostly_others_had_started_are_infra_only_if_no_single_step_brought_the_rest() -> None:
    verdict = hit(begun(), first=20, last=2).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.pids_limit", 1)


@pytest.mark.parametrize(
    "tasks, first, last", [(64, None, None), (64, 40, 10), (3, 1, 1)], ids=["unmeasured", "between", "gone"]
)
def test_what_was_not_measured_or_lies_between_blames_nobody(tasks: int, first: int | None, last: int | None) -> None:
    verdict = hit(begun(), tasks=tasks, first=first, last=last).call(tools=0).end(1).verdict()
    assert summary(verdict)[0] == "indeterminate"
    assert ended(verdict) == ("container.pids_limit", "proved", 1)


def test_refused_forks_of_a_command_that_ended_well_are_present() -> None:
    verdict = hit(begun(), exit_code=0).call(tools=0).end(1).verdict()
    assert verdict.blame is Blame.MODEL
    assert verdict.cause is None
    assert ended(verdict) is None
    assert [(row.cause, row.step) for row in verdict.present] == [("container.pids_limit", 1)]


def test_refused_forks_before_a_later_step_that_ended_well_are_present() -> None:
    verdict = hit(begun()).call().ran(0).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause) == (Blame.MODEL, None)
    assert "step 2 ended normally" in verdict.present[0].why


def test_printed_words_about_forks_move_no_counter() -> None:
    verdict = begun().ran(1).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause, verdict.present) == (Blame.MODEL, None, [])


def test_a_passed_trial_is_not_taken_from_the_model_by_its_own_bomb() -> None:
    verdict = hit(begun()).call(tools=0).end(0).verdict()
    assert verdict.blame is Blame.NONE


# --- disk -----------------------------------------------------------------------------------------------------------


def asked() -> Scene:
    """A reply whose tool call is the text of the command that then runs in the box."""
    told = Scene()
    return told.call(tool_calls=[ToolUse(id="toolu-x", name="bash", text_digest=TEXT)])


def full(
    told: Scene,
    *,
    exit_code: int = 1,
    mount: str = "/",
    grew: int = 400 * MIB,
    layer: int | None = 390 * MIB,
    at_start: bool = False,
) -> Scene:
    told.tell(
        DiskFull(
            container_id=told.container,
            mount=mount,
            fs_type="overlay",
            size=1000 * MIB,
            free=0,
            inodes_free=9,
            used_at_start=600 * MIB,
            used=600 * MIB + grew,
            layer_bytes=layer,
            at_start=at_start,
        )
    )
    exec_id = told.name("exec")
    told.tell(ExecStarted(container_id=told.container, exec_id=exec_id, pid=200, text_digest=TEXT), told.events)
    told.s += 0.5
    told.tell(ExecEnded(container_id=told.container, exec_id=exec_id, exit_code=exit_code), told.events)
    return told


def test_a_disk_that_the_trial_itself_filled_is_the_models() -> None:
    verdict = full(Scene().call()).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.disk_full", 1)
    assert ended(verdict) == ("container.disk_full", "proved", 1)
    assert "390 MiB of the 400 MiB" in verdict.sentence


def test_a_disk_that_others_filled_is_infra_and_never_proved() -> None:
    verdict = full(asked(), layer=40 * MIB).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.disk_full", 1)


def test_a_disk_that_a_tool_on_the_host_may_have_filled_blames_nobody() -> None:
    verdict = full(Scene().call(), layer=40 * MIB).call(tools=0).end(1).verdict()
    assert summary(verdict)[0] == "indeterminate"
    assert ended(verdict) == ("container.disk_full", "proved", 1)


def test_a_disk_that_was_full_before_any_reply_is_infra() -> None:
    told = full(Scene(), at_start=True, layer=None)
    told.s += 1.0
    verdict = told.call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.disk_full", 1)


def test_a_disk_that_was_full_when_a_later_container_began_blames_nobody() -> None:
    """The model may have filled it from the container before."""
    verdict = full(Scene().call(), at_start=True).call(tools=0).end(1).verdict()
    assert summary(verdict)[0] == "indeterminate"


@pytest.mark.parametrize("layer", [None, 250 * MIB])
def test_a_fill_that_was_not_counted_or_lies_between_blames_nobody(layer: int | None) -> None:
    verdict = full(Scene().call(), layer=layer).call(tools=0).end(1).verdict()
    assert summary(verdict)[0] == "indeterminate"


def test_what_another_container_of_the_trial_may_have_written_blames_nobody() -> None:
    told = asked()
    told.tell(ContainerSeen(container_id="c" * 64, role="service"), told.events)
    verdict = full(told, layer=40 * MIB).call(tools=0).end(1).verdict()
    assert summary(verdict)[0] == "indeterminate"


def test_a_full_disk_under_a_command_that_ended_well_is_present() -> None:
    verdict = full(Scene().call(), exit_code=0, layer=0).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause) == (Blame.MODEL, None)
    assert [row.cause for row in verdict.present] == ["container.disk_full"]


def test_words_about_space_are_words() -> None:
    verdict = Scene().call().ran(1).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.grade, verdict.present) == (Blame.MODEL, Grade.PROVED, [])


def test_a_full_file_system_of_the_verifiers_box_explains_nothing_of_the_agent() -> None:
    told = Scene().call().ran(1).call(tools=0)
    told.tell(ContainerSeen(container_id=BOX, role="verifier", name="v"), told.events)
    verdict = full(told).end(1).verdict()
    assert verdict.cause is None


# --- open files -----------------------------------------------------------------------------------------------------


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


def test_a_process_of_unknown_age_at_its_limit_blames_nobody() -> None:
    assert at_fd_limit(since_first_reply=None).verdict().blame is Blame.INDETERMINATE


def test_a_full_table_of_files_under_a_command_that_ended_well_is_present() -> None:
    verdict = at_fd_limit(since_first_reply=True, exit_code=0).verdict()
    assert (verdict.blame, verdict.cause) == (Blame.MODEL, None)
    assert [row.cause for row in verdict.present] == ["container.fd_limit"]
