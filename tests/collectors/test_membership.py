"""Which containers are a trial's."""

import pytest

from fairtrial.collectors.membership import Refused, judge
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


@pytest.mark.parametrize("last_seen_ns, ours", [(START - 10 * 10**9, True), (START, False), (START + 9 * 10**9, False)])
def test_a_container_made_while_another_trial_was_there_stays_nobodys_when_that_one_is_gone(
    last_seen_ns: int, ours: bool
) -> None:
    """The other one's container may be judged after its trial ended: the time when it was made decides."""
    answer = judge(facts(), trial_id="t", started_ns=START, others=0, others_until_ns=last_seen_ns)
    assert (answer == "started_after") is ours
    assert isinstance(answer, str) or answer.ambiguous


def test_only_what_may_be_ours_is_ambiguous() -> None:
    before = judge(facts(created_ns=START - 1, started_ns=None), trial_id="t", started_ns=START, others=2)
    assert isinstance(before, Refused)
    assert not before.ambiguous
