"""Properties over what the runtime tells: order and repeats, the table of causes, and words from inside."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import DoorImage
from fairtrial.middleware.core.records import Blame, Grade, Trust
from tests.middleware.attribution.boxes import SERVICE, asked, engine, event, failed, gone, inside, seen
from tests.middleware.attribution.scene import Scene, ended, model_failed, summary

Told = Callable[[], Scene]


def restarted() -> Scene:
    told = inside(seen(Scene(), tmpfs=["/work"])).call()
    gone(event(told, "kill", signal=15), code=143, by="runtime_kill:15")
    return failed(inside(seen(event(event(told, "start"), "restart"), tmpfs=["/work"]).waited()))


def service_died() -> Scene:
    told = inside(seen(seen(Scene()), SERVICE, role="service", name="db-1")).call()
    return failed(inside(gone(event(told, "kill", SERVICE, signal=9), SERVICE, by="runtime_kill:9"), exit_code=1))


def struck() -> Scene:
    return failed(gone(inside(inside(seen(Scene())), ends=False), init_signal=9))


def engine_went() -> Scene:
    return failed(engine(engine(inside(seen(Scene())).call(), "lost"), "back", restarted=True))


def not_started() -> Scene:
    return asked(Scene(box=False), "start", status=500, error="runtime_gone").end(1)


def not_pulled() -> Scene:
    told = Scene(box=False)
    told.tell(DoorImage(image="task:1", status=200, error="registry_error"), told.events)
    return told.waited().end(1)


def own_stop() -> Scene:
    told = asked(inside(inside(seen(Scene())), ends=False), "kill")
    return failed(gone(event(told, "kill", signal=9), by="runtime_kill:9"))


SCENES: list[Told] = [restarted, service_died, struck, engine_went, not_started, not_pulled, own_stop]


@given(st.sampled_from(SCENES), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_order_and_repeats_do_not_matter(build: Told, seed: int) -> None:
    told = build()
    assert msgspec.json.encode(told.verdict(told.shuffled(seed))) == msgspec.json.encode(told.verdict())


@pytest.mark.parametrize("build", SCENES)
def test_a_verdict_keeps_to_the_table_and_to_its_grades(build: Told) -> None:
    verdict = build().verdict()
    assert verdict.cause is not None
    cause = CAUSES[verdict.cause]
    assert cause.built
    assert verdict.blame in cause.may_blame
    assert verdict.grade is Grade.SUSPECTED
    assert verdict.sentence.endswith(".")
    assert "unknown" not in verdict.sentence, "every place of its template has a fact"


@pytest.mark.parametrize("build", SCENES)
def test_what_was_told_from_inside_is_not_believed(build: Told) -> None:
    """The same words, written by something that the agent can reach, beside a model that failed."""
    whole = model_failed()
    told = build()
    forged = [
        msgspec.structs.replace(o, id=f"{o.id}-forged", source_id="agent", seq=n, trust=Trust.INSIDE)
        for n, o in enumerate(told.observations)
        if o.source == "collector.docker_events"
    ]
    after = whole.verdict([*whole.observations, *forged])
    assert (summary(after), ended(after)) == (summary(whole.verdict()), ended(whole.verdict()))


@given(st.sampled_from(SCENES), st.data())
@settings(max_examples=120, deadline=None)
def test_no_observation_taken_away_makes_a_proof_of_infra(build: Told, data: st.DataObject) -> None:
    told = build()
    taken = data.draw(st.lists(st.sampled_from(told.observations), min_size=1, max_size=4, unique_by=id))
    verdict = told.verdict([o for o in told.observations if o not in taken])
    assert (verdict.blame, verdict.grade) != (Blame.INFRA, Grade.PROVED)


def test_taking_away_what_the_door_saw_is_the_only_way_from_ones_own_stop_to_infra() -> None:
    told = own_stop()
    for taken in told.observations:
        verdict = told.verdict([o for o in told.observations if o is not taken])
        if verdict.blame is Blame.INFRA:
            assert taken.kind == "door.container"
