"""Who of a trial's agents made a call: by the ids that clients send, else by whose tool was at work."""

from __future__ import annotations

from fairtrial.middleware.steps.agents import lineages
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.attempts import MAIN_AGENT, Lineage, fold
from fairtrial.middleware.steps.roles import assign_roles
from tests.middleware.steps.story import TRIAL, Story
from tests.middleware.steps.test_attempts import attempts_of

BASH = (("toolu_1", "Bash", None),)
TASK = (("toolu_2", "Task", None),)


def tree(told: Story) -> list[Lineage]:
    calls = fold(attempts_of(told))
    return lineages(calls, assign_roles(calls))


def sub(told: Story, name: str, turns: int = 0, **more: object) -> str:
    """A call of a subagent with its own first words."""
    words = {"first_user_digest": name, "message_digests": [f"{name}{n}" for n in range(2 * turns + 1)][-8:]}
    return told.attempt(turns=turns, body_digest=f"{name}-{turns}", **(words | more))  # type: ignore[arg-type]


def test_a_subagent_with_an_id_is_the_child_of_the_main_agent_that_set_it_to_work() -> None:
    told = Story()
    told.attempt(turns=0, tools=BASH)
    task = told.attempt(turns=1, tools=TASK)
    one = sub(told, "a", agent="a", tools=BASH)
    sub(told, "a", 1, agent="a")
    told.attempt(turns=2)
    child = Lineage(agent=one, parent=None, spawned_by=task)
    assert tree(told) == [MAIN_AGENT, MAIN_AGENT, child, child, MAIN_AGENT]


def test_a_subagents_subagent_hangs_below_it_when_the_client_names_its_parent() -> None:
    told = Story()
    task = told.attempt(turns=0, tools=TASK)
    one = sub(told, "a", agent="a", tools=TASK)
    two = sub(told, "b", agent="b", parent_agent="a")
    # The main agent's own id, or its session's: Codex calls its first thread by it.
    three = sub(told, "c", agent="c", parent_agent="session-1")
    told.attempt(turns=1)
    assert tree(told)[1:4] == [
        Lineage(agent=one, parent=None, spawned_by=task),
        Lineage(agent=two, parent=one, spawned_by=one),
        Lineage(agent=three, parent=None, spawned_by=task),
    ]


def test_without_ids_the_latest_tool_at_work_tells_the_parent() -> None:
    told = Story()
    task = told.attempt(turns=0, tools=TASK)
    one = sub(told, "a", tools=TASK)
    two = sub(told, "b")
    sub(told, "a", 1)
    told.attempt(turns=1)
    assert tree(told)[1:4] == [
        Lineage(agent=one, parent=None, spawned_by=task),
        Lineage(agent=two, parent=one, spawned_by=one),
        Lineage(agent=one, parent=None, spawned_by=task),
    ]


def test_parallel_subagents_of_one_reply_are_siblings() -> None:
    told = Story()
    task = told.attempt(turns=0, tools=(*TASK, ("toolu_3", "Task", None)))
    one = sub(told, "a", agent="a", seconds=3.0, advance=False)
    told.s += 0.1
    two = sub(told, "b", agent="b", seconds=3.0)
    told.s += 1
    told.attempt(turns=1)
    assert [(kin.agent, kin.parent, kin.spawned_by) for kin in tree(told)[1:3]] == [
        (one, None, task),
        (two, None, task),
    ]


def test_a_subagent_may_begin_a_little_before_the_reply_that_delegated_has_ended() -> None:
    """As Claude Code 2.1.197 does: it acts on a tool's block when that has ended."""
    told = Story()
    task = told.attempt(turns=0, tools=TASK, seconds=2.0, advance=False)
    told.s += 1.9
    one = sub(told, "a", agent="a")
    assert tree(told)[1] == Lineage(agent=one, parent=None, spawned_by=task)


def test_an_agent_that_had_no_tool_at_work_spawned_nobody() -> None:
    told = Story()
    told.attempt(turns=0, tools=BASH, seconds=9.0, advance=False)
    told.s += 1
    one = sub(told, "a", agent="a")
    assert tree(told)[1] == Lineage(agent=one)


def test_a_subagent_that_works_in_the_background_was_spawned_by_the_reply_that_sent_it() -> None:
    """Claude Code 2.1.332: the tool answers at once, and the parent goes on before its child's first call."""
    told = Story()
    task = told.attempt(turns=0, tools=TASK)
    told.attempt(turns=1)
    one = sub(told, "a", agent="a")
    assert tree(told)[2] == Lineage(agent=one, parent=None, spawned_by=task)


def test_a_client_without_ids_sent_nobody_to_the_background() -> None:
    told = Story()
    told.attempt(turns=0, tools=TASK)
    told.attempt(turns=1)
    sub(told, "a")
    assert tree(told)[2].spawned_by is None


def test_the_tree_is_in_the_record_of_the_trial() -> None:
    told = Story().begin()
    told.attempt(turns=0, tools=TASK)
    sub(told, "a", agent="a")
    told.attempt(turns=1)
    trial = assemble(told.end().observations, TRIAL).trial
    (side,) = trial.side_calls
    assert (side.role, side.agent, side.parent_agent) == ("subagent", side.id, None)
    assert side.spawned_by == trial.steps[0].calls[0].id
    assert [call.agent for step in trial.steps for call in step.calls] == [None, None]


def test_a_call_whose_end_was_not_seen_breaks_no_tree() -> None:
    told = Story()
    told.attempt(turns=0, started_only=True)
    one = sub(told, "a", agent="a")
    assert tree(told)[1] == Lineage(agent=one)
