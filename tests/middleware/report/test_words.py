"""Durations, sizes, counts and phrases as a person reads them."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.report.words import called, plural, seconds, size, verdict_phrase, wrapped


@pytest.mark.parametrize(
    "value, text", [(0.0031, "3 ms"), (1.24, "1.2 s"), (119.9, "119.9 s"), (250, "4 min 10 s"), (0, "0 ms")]
)
def test_durations_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize("value, text", [(0, "0 B"), (1023, "1023 B"), (64 << 20, "64 MiB"), (3 << 30, "3.0 GiB")])
def test_sizes_for_people(value: int, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize("count, text", [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_counts_for_people(count: int, text: str) -> None:
    assert plural(count, "step") == text


def test_a_verdict_has_one_spelling() -> None:
    assert (
        verdict_phrase("infra", "proved", "model_api.overloaded", 2) == "infra, proved · model_api.overloaded in step 2"
    )
    assert verdict_phrase("model", "suspected", None, None) == "model, suspected"
    assert verdict_phrase("none", None, None, None) == "nothing to blame"


def test_lines_are_broken_between_words_and_hang() -> None:
    assert wrapped("one two three", 9, hang="    ") == ["  one two", "    three"]
    assert wrapped("an-unbreakable-long-word\x1b", 9) == ["  an-unbreakable-long-word"]


def test_a_trial_is_called_by_its_task_and_by_its_own_name_too_where_others_have_that_task() -> None:
    trials = [
        Trial(trial="1", task="solo", name="solo__xyz"),
        Trial(trial="2", task="job", name="a"),
        Trial(trial="3", task="job", name="b"),
        Trial(trial="4" * 20, task="job"),
        Trial(trial="5", task="again", try_=1),
        Trial(trial="6", task="again", try_=2),
        Trial(trial="7" * 20),
    ]
    names = ["solo", "job: a", "job: b", f"job: {'4' * 12}", "again", "again", "7" * 12]
    assert list(called(trials).values()) == names
