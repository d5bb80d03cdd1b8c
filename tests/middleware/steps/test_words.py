"""Of whom a word of the control API is: by every name that a trial has, and of nobody where a name fits two."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.commands import text_digest
from fairtrial.middleware.core.observations import Note
from fairtrial.middleware.core.records import Trust
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.parting import Parting, part
from fairtrial.middleware.steps.words import MARK, word_about
from tests.middleware.steps.crowd import EPOCH_NS, ROOT, Crowd, box_id


def parted(crowd: Crowd) -> Parting:
    found = part(crowd.facts(), named=True)
    assert found is not None
    return found


def two_in_harbor(crowd: Crowd) -> None:
    """Two environments with an agent inside each, as Harbor names them."""
    for letter, name in (("a", "hello-1__AbCdEf1"), ("b", "hello.2__GhIjKl2")):
        project = f"{name.lower().replace('.', '-')}__env"
        crowd.box(letter, 0.5, project=project, name=f"{project}-main-1")
        crowd.talk(1, 3, inside=letter, first=name)


@pytest.mark.parametrize(
    "name, index",
    [
        ("hello-1__AbCdEf1", 0),
        ("hello.2__GhIjKl2", 1),
        ("hello-1__abcdef1__env", 0),
        ("hello-1__abcdef1__env-main-1", 0),
        (box_id("b"), 1),
        (box_id("b")[:12], 1),
    ],
)
def test_a_trial_of_harbor_is_known_by_its_name_its_project_and_its_container(name: str, index: int) -> None:
    crowd = Crowd()
    two_in_harbor(crowd)
    crowd.said(5, name)
    found = parted(crowd)
    assert (found.words, found.stray_words) == ({name: index}, {})


@pytest.mark.parametrize("name", ["hello-1", "hello-1__AbCdEf", "box", "main", box_id("b")[:11], "hello-1__AbCdEf1 "])
def test_a_name_that_only_resembles_one_is_nobodys(name: str) -> None:
    crowd = Crowd()
    two_in_harbor(crowd)
    crowd.said(5, name)
    found = parted(crowd)
    assert (found.words, found.stray_words) == ({}, {name: "unknown"})


def test_the_attempts_of_a_trial_of_harbor_are_one_trial_with_one_name() -> None:
    crowd = Crowd()
    two_in_harbor(crowd)
    crowd.box("c", 10, project="hello-1__abcdef1__env", name="hello-1__abcdef1__env-main-1")
    crowd.talk(11, 3, inside="c", first="hello-1__AbCdEf1")
    for s in (5, 15):
        crowd.said(s, "hello-1__AbCdEf1", outcome="errored")
    found = parted(crowd)
    assert found.words == {"hello-1__AbCdEf1": 0}
    assert [sorted(each.containers) for each in found.parts] == [[box_id("a"), box_id("c")], [box_id("b")]]


def test_two_names_that_harbor_makes_one_of_are_nobodys() -> None:
    crowd = Crowd()
    two_in_harbor(crowd)
    crowd.said(5, "hello-1__AbCdEf1")
    crowd.said(5, "hello-1__abCDEf1")
    found = parted(crowd)
    assert (found.words, set(found.stray_words.values())) == ({}, {"contested"})


def test_a_name_told_by_a_client_a_mark_or_a_session_is_the_trials() -> None:
    crowd = Crowd()
    crowd.talk(1, 3, named="told", first="one")
    crowd.box("a", 1, mark="marked")
    crowd.talk(1, 3, inside="a", first="two")
    crowd.talk(1, 3, session=text_digest("3f0e-session"), first="three")
    crowd.talk(1, 3, session=text_digest("tb__agent"), first="four")
    for name in ("told", "marked", "3f0e-session", "tb"):
        crowd.said(5, name, outcome="passed")
    found = parted(crowd)
    assert found.stray_words == {}
    firsts = [{crowd.facts().calls[call].request.first_user_digest for call in each.calls} for each in found.parts]
    assert {name: firsts[n] for name, n in found.words.items()} == {
        "told": {"one"},
        "marked": {"two"},
        "3f0e-session": {"three"},
        "tb": {"four"},
    }


def test_a_name_that_two_trials_bear_is_nobodys() -> None:
    crowd = Crowd()
    two_in_harbor(crowd)
    crowd.talk(1, 3, named="hello-1__AbCdEf1", first="liar")
    crowd.said(5, "hello-1__AbCdEf1", outcome="passed")
    assert parted(crowd).stray_words == {"hello-1__AbCdEf1": "contested"}


def test_a_name_as_long_as_names_are_kept_may_be_the_begin_of_two() -> None:
    crowd = Crowd()
    for name in ("x" * 128, "y" * 127):
        crowd.talk(1, 3, named=name, first=name)
        crowd.said(5, name)
    found = parted(crowd)
    assert (set(found.words), set(found.stray_words)) == ({"y" * 127}, {"x" * 128})


def test_a_word_of_the_runs_own_id_is_no_trials() -> None:
    crowd = Crowd()
    two_in_harbor(crowd)
    crowd.said(5, None, outcome="passed")
    crowd.said(5, None)
    found = parted(crowd)
    assert (found.words, found.stray_words) == ({}, {"": "run"})
    assert crowd.facts().words == {"": 2}


def test_words_tell_no_trials_apart_and_lengthen_none() -> None:
    crowd = Crowd()
    crowd.talk(1, 3)
    for name in ("a", "b"):
        crowd.said(2, name, outcome="passed")
    assert part(crowd.facts(), named=True) is None
    crowd = Crowd()
    two_in_harbor(crowd)
    before = parted(crowd).parts
    crowd.said(500, "hello-1__AbCdEf1")
    assert parted(crowd).parts == before


def test_only_what_came_through_the_control_api_is_a_word() -> None:
    note = Note(event=MARK, fields={"name": "x", "trial": "t"})
    kept = [
        Source(name, lambda _: None, host=this_host(), trial=ROOT).emit(note, trust=trust)
        for name, trust in (("control", Trust.INSIDE), ("control", Trust.HOST), ("observer", Trust.INSIDE))
    ]
    assert [word_about(each, note) for each in kept] == ["t", None, None]


# --- moments in a record ----------------------------------------------------------------------------------------------


def test_a_mark_stands_at_its_moment_and_in_its_step_and_moves_nothing() -> None:
    crowd, silent = Crowd(), Crowd()
    for each in (crowd, silent):
        each.talk(1, 3)
    crowd.said(9.5, "late", at=2.25)
    crowd.said(0.5, None)
    for each in (crowd, silent):
        each.end(10)
    crowd.said(400, "late")
    trial, without = assemble(crowd.observations, ROOT).trial, assemble(silent.observations, ROOT).trial
    told = [(mark.step, mark.about, mark.at[17:23], mark.told[17:23]) for mark in trial.marks]
    base = EPOCH_NS // 10**9 % 60
    at = [f"{base + s:06.3f}" for s in (0.5, 2.25, 9.5)]
    late = f"{(base + 400) % 60:06.3f}"
    assert told == [
        (None, None, at[0], at[0]),
        (2, "late", at[1], at[2]),
        (None, "late", late, late),
    ]
    assert (trial.phases, trial.ended, trial.outcome) == (without.phases, without.ended, without.outcome)
    assert [(step.started, step.ended) for step in trial.steps] == [
        (step.started, step.ended) for step in without.steps
    ]
