"""What several trials share, counted: each rule with a positive, a near-miss and an innocent run."""

import pytest

from fairtrial.middleware.attribution.across import across
from fairtrial.middleware.core.records import Blame, Grade, Outcome, Trial
from tests.middleware.attribution.runs import MIB, failed_at, trial, whole_at

INFRA, PROVED, SUSPECTED = Blame.INFRA, Grade.PROVED, Grade.SUSPECTED
LIMITED = "model_api.rate_limited"


# --- one key --------------------------------------------------------------------------------------------------------


def limited(name: str, *, key: str = "k1", at: float = 10.0, per_key: bool | None = True) -> Trial:
    attempts = [failed_at(at, status=429, key=key, per_key=per_key)]
    return trial(name, blame=INFRA, cause=LIMITED, attempts=attempts)


@pytest.mark.parametrize("per_key, blame, grade", [(True, Blame.OPERATOR, PROVED), (None, INFRA, SUSPECTED)])
def test_a_limit_that_a_runs_own_width_spent_is_the_operators_where_the_provider_names_the_key(
    per_key: bool | None, blame: Blame, grade: Grade
) -> None:
    run = [limited("a", per_key=per_key), trial("b", outcome=Outcome.PASSED, attempts=[whole_at(12, key="k1")])]
    moved = across(run).adjusted["a"]
    assert (moved.blame, moved.grade, moved.cause) == (blame, grade, LIMITED)
    assert "2 trials used one API key, and 1 of them met its rate limit" in moved.why
    assert moved.was == "infra, proved (model_api.rate_limited)"


@pytest.mark.parametrize("key, at", [("k2", 12.0), ("k1", 500.0)])
def test_another_key_or_another_time_spent_nothing_of_it(key: str, at: float) -> None:
    run = [limited("a"), trial("b", outcome=Outcome.PASSED, attempts=[whole_at(at, key=key)])]
    assert across(run).adjusted == {}


def test_a_key_that_one_trial_alone_used_is_its_own() -> None:
    assert across([limited("a"), trial("b")]).adjusted == {}


# --- one body -------------------------------------------------------------------------------------------------------


def refused(name: str, *, body: str = "poison", status: int = 500, times: int = 2) -> Trial:
    attempts = [failed_at(n, status=status) for n in range(times)]
    return trial(name, blame=INFRA, cause="model_api.server_error", attempts=attempts, body=body)


def passed(name: str = "p", *, body: str = "fine") -> Trial:
    return trial(name, outcome=Outcome.PASSED, attempts=[whole_at(5)], body=body)


def test_one_body_that_always_fails_while_others_pass_is_at_fault_itself() -> None:
    found = across([refused("a"), refused("b"), passed()])
    moved = {t: (m.blame, m.grade, m.cause) for t, m in found.adjusted.items()}
    assert moved == dict.fromkeys(("a", "b"), (INFRA, SUSPECTED, "model_api.poison_request"))
    assert "all 4 times in 2 trials" in found.findings[0].what


@pytest.mark.parametrize(
    "run",
    [
        [refused("a"), refused("b")],  # nobody passed: an outage
        [refused("a"), passed()],  # one trial alone
        [refused("a"), refused("b"), passed(body="poison")],  # it passed once
        [refused("a", status=529), refused("b", status=529), passed()],  # overloaded
        [refused("a", body="x"), refused("b", body="y"), passed()],  # two bodies
    ],
)
def test_an_outage_a_single_trial_and_a_body_that_passed_once_are_no_poison(run: list[Trial]) -> None:
    assert across(run).adjusted == {}


# --- memory ---------------------------------------------------------------------------------------------------------


def killed(limit: int = 512) -> Trial:
    return trial(
        "killed",
        task="t",
        blame=INFRA,
        grade=SUSPECTED,
        cause="container.oom_kill",
        peak=limit * MIB,
        limit=limit * MIB,
    )


def needed(name: str, peak: int, *, outcome: Outcome = Outcome.PASSED, task: str = "t") -> Trial:
    return trial(name, task=task, outcome=outcome, peak=peak * MIB, limit=4096 * MIB)


def test_a_ceiling_below_what_passed_trials_of_the_task_needed_was_at_fault() -> None:
    run = [killed(), needed("a", 700), needed("b", 900), needed("c", 800)]
    moved = across(run).adjusted["killed"]
    assert (moved.blame, moved.grade) == (INFRA, PROVED)
    assert "3 trials of task t that passed used 700 MiB or more" in moved.why
    assert "Run it again with 1.5 GiB" in moved.why


@pytest.mark.parametrize(
    "others",
    [
        [needed("a", 700), needed("b", 900)],  # two
        [needed("a", 700), needed("b", 900), needed("c", 400)],  # one below the ceiling
        [needed("a", 700), needed("b", 900), needed("c", 9000)],  # one above three times of it
        [needed("a", 700), needed("b", 900), needed("c", 800, outcome=Outcome.FAILED)],  # one failed
        [needed("a", 700), needed("b", 900), needed("c", 800, task="u")],  # one of another task
    ],
)
def test_fewer_than_three_such_trials_decide_nothing(others: list[Trial]) -> None:
    assert across([killed(), *others]).adjusted == {}


# --- a neighbour ----------------------------------------------------------------------------------------------------


def node_killed(name: str, peak: int, *, at: float = 0.0, node: str = "node-1") -> Trial:
    return trial(
        name, at_s=at, node=node, blame=INFRA, grade=SUSPECTED, cause="node.oom", peak=peak * MIB, limit=2048 * MIB
    )


def test_of_trials_that_one_shortage_killed_the_small_one_was_not_the_hog() -> None:
    moved = across([node_killed("small", 200), node_killed("hog", 1800, at=2.0)]).adjusted
    assert list(moved) == ["small"]
    assert (moved["small"].blame, moved["small"].grade) == (INFRA, PROVED)


@pytest.mark.parametrize("at, node, peak", [(90.0, "node-1", 1800), (2.0, "node-2", 1800), (2.0, "node-1", 300)])
def test_another_time_another_node_or_an_equal_clears_nobody(at: float, node: str, peak: int) -> None:
    run = [node_killed("small", 200), node_killed("other", peak, at=at, node=node)]
    assert across(run).adjusted == {}


# --- the task -------------------------------------------------------------------------------------------------------


def test_a_task_whose_own_solution_fails_is_suspected_and_not_its_models() -> None:
    run = [trial("o", task="t", harness="oracle"), trial("a", task="t"), trial("b", task="u")]
    moved = across(run).adjusted
    assert list(moved) == ["a"]
    assert (moved["a"].blame, moved["a"].grade, moved["a"].cause) == (Blame.TASK, SUSPECTED, "task.broken")


def test_a_solution_that_passed_or_was_ended_by_infra_clears_the_task() -> None:
    solved = trial("o", task="t", harness="oracle", outcome=Outcome.PASSED)
    struck = trial("o", task="t", harness="oracle", blame=INFRA, cause="model_api.overloaded")
    for oracle in (solved, struck):
        assert across([oracle, trial("a", task="t")]).adjusted == {}


# --- one length -----------------------------------------------------------------------------------------------------


def unexplained(name: str, lasted: float, task: str | None = None) -> Trial:
    return trial(name, lasted_s=lasted, blame=Blame.INDETERMINATE, grade=None, task=task)


def test_trials_of_many_tasks_that_end_at_one_length_show_a_timer() -> None:
    run = [unexplained("a", 180.0), unexplained("b", 180.4), unexplained("c", 180.9), unexplained("d", 300.0)]
    moved = across(run).adjusted
    assert sorted(moved) == ["a", "b", "c"]
    assert {m.cause for m in moved.values()} == {"harness.inner_timeout"}


@pytest.mark.parametrize("lengths", [(180.0, 180.2), (180.0, 190.0, 200.0), (3.0, 3.0, 3.0)])
def test_two_ends_many_lengths_and_short_ones_are_no_timer(lengths: tuple[float, ...]) -> None:
    assert across([unexplained(str(n), s) for n, s in enumerate(lengths)]).adjusted == {}


def test_one_task_may_take_one_time() -> None:
    assert across([unexplained(str(n), 180.0, task="t") for n in range(5)]).adjusted == {}
