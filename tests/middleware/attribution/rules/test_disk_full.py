"""A full disk: the model's, the infrastructure's, and nobody's."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import (
    ContainerSeen,
    DiskFull,
    ExecEnded,
    ExecStarted,
    ToolUse,
)
from fairtrial.middleware.core.records import Blame, Grade
from tests.middleware.attribution.scene import BOX, MIB, Scene, ended, summary

TEXT = "d" * 32


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
    other_ways: bool | None = None,
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
            other_ways=other_ways,
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


@pytest.mark.parametrize("layer, blame", [(0, Blame.INDETERMINATE), (390 * MIB, Blame.MODEL)])
def test_what_a_command_may_have_written_to_a_volume_blames_nobody(layer: int, blame: Blame) -> None:
    """A bound folder leads to the disk of the layers: what the command wrote there is in no layer."""
    assert full(asked(), layer=layer, other_ways=True).call(tools=0).end(1).verdict().blame is blame


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
