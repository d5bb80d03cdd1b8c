"""Which containers are a trial's."""

from pathlib import Path

import pytest

from fairtrial.collectors.membership import Presence, Refused, judge
from fairtrial.collectors.parse.docker import ContainerFacts

START = 1_000_000_000_000


def facts(**changes: object) -> ContainerFacts:
    values: dict[str, object] = {"id": "c" * 64, "created_ns": START + 5, "started_ns": START + 9, **changes}
    return ContainerFacts(**values)  # type: ignore[arg-type]  # the test's own words


def test_our_mark_in_env_or_label_joins_whenever_it_was_started() -> None:
    assert judge(facts(trial_in_env="t", created_ns=1), trial_id="t", started_ns=START, others=3) == "env"
    assert (
        judge(facts(labels={"fairtrial.trial": "t"}, created_ns=1), trial_id="t", started_ns=START, others=3) == "label"
    )


def test_a_container_started_after_us_is_ours_while_we_are_alone() -> None:
    assert judge(facts(), trial_id="t", started_ns=START, others=0) == "started_after"


def test_with_other_trials_on_the_engine_an_unmarked_container_is_nobodys() -> None:
    answer = judge(facts(), trial_id="t", started_ns=START, others=1)
    assert isinstance(answer, Refused)
    assert "1 other" in answer.why


@pytest.mark.parametrize(
    "changes",
    [
        {"created_ns": START - 1, "started_ns": START - 1},
        {"created_ns": START - 1, "started_ns": None},
        {"created_ns": START - 1, "started_ns": START + 9, "restarts": 3},
        {"created_ns": None},
        {"trial_in_env": "another"},
        {"labels": {"fairtrial.trial": "another"}},
    ],
)
def test_what_was_there_before_or_belongs_to_another_trial_is_not_ours(changes: dict[str, object]) -> None:
    assert isinstance(judge(facts(**changes), trial_id="t", started_ns=START, others=0), Refused)


def test_an_old_container_that_was_started_for_us_is_ours() -> None:
    assert judge(facts(created_ns=START - 9), trial_id="t", started_ns=START, others=0) == "started_after"


def test_the_engines_clock_counts_and_not_ours() -> None:
    assert isinstance(judge(facts(), trial_id="t", started_ns=START, others=0, skew_ns=50), Refused)


def test_trials_on_one_engine_see_each_other_and_vanish_with_their_process() -> None:
    proc = Path("/proc")
    ours = Presence(engine_id="test-engine-1", trial_id="a", proc=proc)
    theirs = Presence(engine_id="test-engine-1", trial_id="b", proc=proc)
    elsewhere = Presence(engine_id="test-engine-2", trial_id="c", proc=proc)
    for presence in (ours, elsewhere):
        presence.announce()
    assert ours.others() == 0
    theirs.announce()
    assert ours.others() == 1
    theirs.close()
    assert ours.others() == 0
    ours.close()
    elsewhere.close()
