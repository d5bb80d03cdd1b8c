"""What trials say together is told once, below what each says itself."""

from fairtrial.middleware.report.together import run_lines, trial_lines

MOVED = ("abc", "infra, suspected (network.dns)", "infra, proved (network.dns)", "8 trials had it within 57 s.")


def test_nothing_is_said_where_nothing_is_shared() -> None:
    assert trial_lines(None, [], off=None, width=80) == []
    assert run_lines([], [], off=None, width=80) == []


def test_a_moved_verdict_is_shown_beside_the_stored_one() -> None:
    said = "\n".join(trial_lines(MOVED, ["8 trials had it"], off=None, width=120))
    assert "infra, suspected (network.dns) → infra, proved (network.dns): 8 trials had it within 57 s." in said


def test_what_is_shared_and_moves_nothing_is_told_and_so_is_what_was_not_tested() -> None:
    assert "8 trials had it" in "\n".join(trial_lines(None, ["8 trials had it"], off="off", width=80))
    assert "not tested" in "\n".join(trial_lines(None, [], off="not tested", width=80))


def test_a_run_lists_findings_and_moves_and_counts_the_rest() -> None:
    said = "\n".join(run_lines([MOVED] * 10, ["8 trials had it"], off="not tested", width=120))
    assert said.count("abc:") == 8
    assert "and 2 more verdicts moved" in said
    assert said.endswith("not tested")
