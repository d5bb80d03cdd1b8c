"""Markdown for a job summary: the verdict first, within its size, and no text of others is more than text."""

from __future__ import annotations

import re

import msgspec

from fairtrial.middleware.core.records import Blame, Connection, Mark, Outcome
from fairtrial.middleware.report.markdown import MAX_BYTES, escaped, run_markdown, trial_markdown
from tests.middleware.report.trials import EVIL, trial


def test_the_first_line_is_the_verdict() -> None:
    first, _, second, *_ = trial_markdown(trial(text="calm")).splitlines()
    assert first == "## 🟠 failed (exit 1) → **infra, proved** · `model_api.overloaded` in step 1"
    assert second == "The API was overloaded. calm"


def test_what_was_not_watched_and_what_was_changed_are_said() -> None:
    page = trial_markdown(trial(text="calm"))
    assert "- watched: model API, memory; not watched: network, node (nobody looked)" in page
    assert "what fairtrial changed (1)" in page


def test_no_text_of_others_makes_html_a_link_a_mention_or_a_line_of_its_own() -> None:
    page = trial_markdown(trial())
    assert re.findall(r"<(?!/?(?:details|summary)>)", page) == []
    assert re.findall(r"(?<!\\)\[x", page) == []
    assert "@" not in page
    assert "://" not in page
    assert "\x1b" not in page
    assert re.findall(r"^::", page, re.MULTILINE) == []
    assert re.findall(r"(?<!\\)`code", page) == []


def test_a_bar_in_a_cell_adds_no_column() -> None:
    row = next(line for line in trial_markdown(trial()).splitlines() if line.startswith("| 10:00:04"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_a_name_of_snake_case_stays_readable() -> None:
    assert escaped("memory_limit_bytes and _this_") == "memory_limit_bytes and \\_this\\_"


def test_a_trial_with_ten_thousand_pieces_of_evidence_keeps_its_verdict_and_its_size() -> None:
    page = trial_markdown(trial(evidence=10_000, text="w" * 5_000))
    assert len(page.encode()) <= MAX_BYTES
    assert page.startswith("## 🟠 failed (exit 1) → **infra, proved**")
    assert "left out" in page.splitlines()[-1]


def test_ten_thousand_trials_keep_their_counts_and_their_size() -> None:
    page = run_markdown("n" * 400, [trial(n, text="w" * 3_000) for n in range(10_000)])
    assert len(page.encode()) <= MAX_BYTES
    assert "0 of 10000 trials passed" in page.splitlines()[0]
    assert "Of those that did not: 10000 infra." in page
    assert "left out" in page.splitlines()[-1]


def test_outcomes_that_are_not_known_are_counted_as_no_failures() -> None:
    unknown = [trial(n, outcome=Outcome.UNKNOWN, blame=Blame.INDETERMINATE) for n in (1, 2)]
    page = run_markdown("nightly", unknown)
    assert page.splitlines()[0] == "## Run nightly: 2 trials, the outcome is not known"
    assert "`fairtrial import HARNESS PATH`" in page and "Of those that did not" not in page
    mixed = run_markdown("nightly", [*unknown, trial(3), trial(4, outcome=Outcome.PASSED, blame=Blame.NONE)])
    assert mixed.splitlines()[0] == "## Run nightly: 1 of 2 trials passed, the outcome of 2 more is not known"
    assert "Of those that did not: 1 infra." in mixed


def test_a_run_lists_what_failed_before_what_passed() -> None:
    trials = [
        trial(1, outcome=Outcome.PASSED, blame=Blame.NONE, task="good"),
        trial(2, task="bad"),
        trial(3, blame=Blame.MODEL, task="worse"),
    ]
    page = run_markdown("nightly", trials)
    assert page.splitlines()[0] == "## Run nightly: 1 of 3 trials passed"
    assert page.index("| bad |") < page.index("| worse |") < page.index("| good |")
    assert page.count("### ") == 2


def test_a_text_that_is_too_long_is_cut_with_a_mark() -> None:
    assert escaped("x" * 30, 10) == "x" * 9 + "…"
    assert len(escaped(EVIL)) < 300


def test_opaque_connections_are_a_table_to_unfold() -> None:
    page = trial_markdown(msgspec.structs.replace(trial(), connections=[Connection(host="a|b", port=443)]))
    assert "<details><summary>1 connection</summary>" in page
    assert "a\\|b:443" in page


def test_moments_that_were_told_from_inside_are_a_table_to_unfold_that_says_so() -> None:
    at = "2026-11-29T10:00:01.500000Z"
    mark = Mark(at=at, told=at, name="sample.end", text=EVIL, step=1)
    page = trial_markdown(msgspec.structs.replace(trial(), marks=[mark]))
    assert "said from inside, counts for nothing (1)" in page
    assert "| 10:00:01.500Z | 1 | sample.end: " in page
    assert "://" not in page and "@" not in page and "\x1b" not in page
