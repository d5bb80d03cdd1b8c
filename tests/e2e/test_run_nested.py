"""A run inside a run joins the outer door: no call is relayed twice, and the outer one judges."""

from pathlib import Path

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e.demo_agent import GOOD, OVERLOAD, STORM, agent_command, agent_environment, recorded
from tests.e2e.under import missed, passed, run_command, run_under


def test_a_run_inside_a_run_joins_the_outer_door_and_no_call_is_relayed_twice(
    home: Path, project: Path, tmp_path: Path
) -> None:
    inner_record, store = tmp_path / "inner.json", tmp_path / "store.db"
    inner = run_command(agent_command(), store, inner_record)
    with running_standin(GOOD) as server:
        environment = agent_environment(home, server.url)
        under = run_under(inner, environment, project, kept=tmp_path / "kept", store=store)
        calls = server.calls
    assert under.outcome.returncode == 0, under.told()
    assert [call.step for call in calls] == [0, 1]
    assert not (told := missed(under, passed())), told
    assert len(under.trial.steps) == 2
    within = recorded(inner_record, under.told())
    assert within.trial != under.trial.trial
    assert within.verdict is not None
    assert within.verdict.blame in {Blame.NONE, Blame.INDETERMINATE}, within.verdict
    assert "environment ANTHROPIC_BASE_URL" not in {each.what for each in within.mutations}


def test_a_nested_run_that_fails_is_judged_by_the_outer_one(home: Path, project: Path, tmp_path: Path) -> None:
    inner_record, store = tmp_path / "inner.json", tmp_path / "store.db"
    inner = run_command(agent_command(), store, inner_record)
    with running_standin(GOOD, OVERLOAD) as server:
        environment = agent_environment(home, server.url)
        under = run_under(inner, environment, project, kept=tmp_path / "kept", store=store)
    assert not (told := missed(under, STORM)), told
    within = recorded(inner_record, under.told())
    assert within.verdict is not None
    assert within.verdict.blame is Blame.INDETERMINATE, within.verdict
