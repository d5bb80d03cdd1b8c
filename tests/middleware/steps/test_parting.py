"""Which call and which container of a run was whose, by every mark there is; and what is nobody's."""

from __future__ import annotations

import random

import pytest

from fairtrial.middleware.core.observations import TrialStarted
from fairtrial.middleware.steps.parting import Parting, part
from fairtrial.middleware.steps.run_facts import RunFacts
from tests.middleware.steps.crowd import ROOT, Crowd, box_id
from tests.middleware.steps.story import Story


def parted(crowd: Crowd, *, named: bool = True) -> Parting:
    found = part(crowd.facts(), named=named)
    assert found is not None
    return found


def calls(parting: Parting) -> list[set[str]]:
    return [set(each.calls) for each in parting.parts]


def boxes(parting: Parting) -> list[set[str]]:
    return [set(each.containers) for each in parting.parts]


# --- one trial --------------------------------------------------------------------------------------------------------


def test_one_session_with_title_calls_and_subagents_stays_one_trial() -> None:
    crowd = Crowd()
    crowd.call(1, 0, session="s", tools=None, system="title", first="name this")
    crowd.talk(1.5, 5, session="s")
    crowd.talk(2.2, 3, session="s", agent="helper", first="look", system="sub")
    assert part(crowd.facts(), named=True) is None


def test_without_a_run_name_two_sessions_stay_one_trial() -> None:
    crowd = Crowd(run=None)
    crowd.talk(1, 3, session="a", first="plan")
    crowd.talk(1.3, 3, session="b", first="do")
    assert part(crowd.facts(), named=False) is None


@pytest.mark.parametrize(
    "said, named",
    [
        (TrialStarted(run="nightly"), True),
        (TrialStarted(), False),
        (TrialStarted(run="nightly", task="django-1"), False),
        (TrialStarted(run="nightly", name="try 7"), False),
    ],
)
def test_a_run_name_says_that_there_are_trials_and_a_name_or_a_task_that_there_is_one(
    said: TrialStarted, named: bool
) -> None:
    facts = RunFacts(ROOT)
    facts.take(Story(trial=ROOT).tell(said))
    assert facts.named is named


def test_a_planner_and_an_editor_without_ids_are_two_agents_of_one_trial() -> None:
    crowd = Crowd()
    crowd.talk(1, 4, first="plan", system="planner", tools=None)
    crowd.talk(1.3, 4, first="edit", system="editor", tools=None)
    assert part(crowd.facts(), named=True) is None


def test_a_trial_that_makes_containers_of_its_own_keeps_them() -> None:
    crowd = Crowd(run=None)
    crowd.talk(1, 6, session="a", asks=[("t", "Bash", "docker compose up")])
    crowd.box("a", 2, project="web")
    crowd.box("b", 3, project="database")
    crowd.ran("a", 3.2, "psql")
    assert part(crowd.facts(), named=False) is None


def test_a_tool_that_says_two_names_does_not_part_the_trial_that_runs_it() -> None:
    crowd = Crowd()
    crowd.talk(1, 6, first="task", system="main")
    crowd.call(2.6, 0, named="x", first="x", system="fake")
    crowd.call(3.6, 0, named="y", first="y", system="fake")
    assert part(crowd.facts(), named=True) is None


# --- names, marks and places ------------------------------------------------------------------------------------------


def test_names_in_path_or_header_tell_trials_apart_whatever_else_they_share() -> None:
    crowd = Crowd(run=None)
    one = crowd.talk(1, 3, named="one", session="same")
    two = crowd.talk(1.2, 3, named="two", session="same")
    found = parted(crowd, named=False)
    assert calls(found) == [set(one), set(two)]
    assert [each.name for each in found.parts] == ["one", "two"]
    assert found.stray_calls == {}


def test_one_that_sends_anothers_session_id_gets_nothing_of_it() -> None:
    """Its own calls bear its name; a call with the borrowed id and no name could be either's."""
    crowd = Crowd()
    one = crowd.talk(1, 3, named="one", session="s1")
    two = [*crowd.talk(1.2, 3, named="two", session="s2"), crowd.call(5, 3, named="two", session="s1")]
    unsure = crowd.call(6, 4, session="s1")
    found = parted(crowd)
    assert calls(found) == [set(one), set(two)]
    assert found.stray_calls == {unsure: "contested"}


def test_the_container_that_a_call_came_from_says_more_than_the_name_in_its_header() -> None:
    crowd = Crowd(run=None)
    a = crowd.box("a", 0.5)
    b = crowd.box("b", 0.5, mark="victim")
    one = crowd.talk(1, 3, inside="a", session="s1", first="one")
    one.append(crowd.call(5, 3, inside="a", named="victim", session="s1", first="one"))
    two = crowd.talk(1.2, 3, inside="b", session="s2", first="two")
    found = parted(crowd, named=False)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [{a}, {b}])
    assert [each.name for each in found.parts] == [None, "victim"]


def test_a_harness_container_with_two_named_trials_in_it_belongs_to_neither() -> None:
    crowd = Crowd(run=None)
    a = crowd.box("a", 0.5)
    one = crowd.talk(1, 3, inside="a", named="one")
    two = crowd.talk(1.3, 3, inside="a", named="two")
    unsure = crowd.call(8, 0, inside="a")
    found = parted(crowd, named=False)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [set(), set()])
    assert found.stray_containers == {a: frozenset({0, 1})}
    assert found.stray_calls == {unsure: "contested"}


def test_containers_of_one_compose_project_are_one_trials() -> None:
    crowd = Crowd()
    for letter, project, start in (("a", "one__env", 1.0), ("c", "two__env", 1.3)):
        crowd.box(letter, 0.5, project=project)
        crowd.box(chr(ord(letter) + 1), 0.6, project=project)
        crowd.talk(start, 3, first=project, asks=[(None, "bash", f"make {project}")])
        crowd.ran(letter, start + 0.7, f"make {project}")
    found = parted(crowd)
    assert boxes(found) == [{box_id("a"), box_id("b")}, {box_id("c"), box_id("d")}]
    assert [each.name for each in found.parts] == ["one", "two"]


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [1.3, 30.0], ids=["at the same time", "one after another"])
def test_under_a_run_name_each_session_is_a_trial_with_its_subagents(second: float) -> None:
    crowd = Crowd()
    one = crowd.talk(1, 3, session="a", first="one") + crowd.talk(2, 2, session="a", agent="x", first="look")
    two = crowd.talk(second, 3, session="b", first="two") + crowd.talk(second + 1, 2, session="c", parent="b")
    assert calls(parted(crowd)) == [set(one), set(two)]


def test_a_session_inside_an_agent_tool_of_one_other_is_its_subagent() -> None:
    crowd = Crowd()
    main = [crowd.call(1, 0, session="a", asks=[("t", "task", None)]), crowd.call(9, 1, session="a", brings=["t"])]
    inside = crowd.talk(2, 3, session="child", first="look")
    other = crowd.talk(1.2, 3, session="b", first="two")
    found = calls(parted(crowd))
    assert found == [{*main, *inside}, set(other)]


def nested(crowd: Crowd, *, inner: tuple[int, ...]) -> tuple[list[str], list[str], list[str]]:
    """A session whose second turn runs a tool for long, another one beside it, and one that begins meanwhile."""
    main = [
        crowd.call(1, 0, session="a", pids=(10, 2), asks=[("t1", "Bash", "ls")]),
        crowd.call(2, 1, session="a", pids=(10, 2), brings=["t1"], asks=[("t2", "Bash", "claude -p look")]),
        crowd.call(9, 2, session="a", pids=(10, 2), brings=["t2"]),
    ]
    other = crowd.talk(1.2, 3, session="b", first="two", pids=(20, 2), asks=[(None, "Bash", "make")])
    return main, other, crowd.talk(3, 3, session="c", first="look", pids=inner)


def test_a_session_of_a_process_that_anothers_tool_started_is_no_trial_of_its_own() -> None:
    crowd = Crowd()
    main, other, inside = nested(crowd, inner=(31, 30, 10, 2))
    assert calls(parted(crowd)) == [{*main, *inside}, set(other)]


def test_a_session_of_a_process_beside_the_others_is_a_trial_though_a_tool_is_at_work() -> None:
    crowd = Crowd()
    main, other, third = nested(crowd, inner=(30, 2))
    assert calls(parted(crowd)) == [set(main), set(other), set(third)]


def test_trials_whose_harness_asks_the_model_itself_are_not_its_subagents() -> None:
    """A judge in the harness's own process: it runs no tool, whatever descends from it."""
    crowd = Crowd()
    judge = crowd.talk(0.5, 3, session="judge", first="judge", tools=None, every=3, pids=(2,))
    one = crowd.talk(1, 3, session="a", first="one", pids=(10, 2))
    two = crowd.talk(1.2, 3, session="b", first="two", pids=(20, 2))
    assert {frozenset(each) for each in calls(parted(crowd))} >= {frozenset(one), frozenset(two)}
    assert all(not set(judge) & each for each in calls(parted(crowd)) if each & {*one, *two})


# --- conversations ----------------------------------------------------------------------------------------------------


def test_under_a_run_name_conversations_of_one_agent_with_different_tasks_are_trials() -> None:
    crowd = Crowd()
    told = [crowd.talk(1 + n / 10, 3, first=f"task {n}") for n in range(4)]
    title = crowd.call(1.15, 0, first="name this", system="title", tools=None)
    found = parted(crowd)
    assert calls(found) == [set(each) for each in told]
    assert found.stray_calls == {title: "no_identity"}


def test_two_trials_with_the_same_words_and_no_mark_are_given_to_none() -> None:
    crowd = Crowd()
    told = [crowd.talk(1, 3, first="task 0"), crowd.talk(1.1, 3, first="task 1")]
    twins = {*crowd.talk(1.2, 3, first="twin"), *crowd.talk(1.3, 3, first="twin")}
    found = parted(crowd)
    assert calls(found) == [set(each) for each in told]
    assert set(found.stray_calls) == twins
    assert set(found.stray_calls.values()) <= {"twins", "fork"}


def test_two_trials_with_the_same_words_are_told_by_their_own_containers_and_the_servers_ids() -> None:
    crowd = Crowd(run=None)
    told: dict[str, list[str]] = {}
    for letter, start in (("a", 1.0), ("b", 1.2)):
        crowd.box(letter, 0.5)
        told[letter] = []
        for turn in range(3):
            brings = [f"{letter}{turn - 1}"] if turn else []
            # The first command is the same; then they go different ways.
            text = "ls" if turn == 0 else f"{letter} {turn}"
            asks = [(f"{letter}{turn}", "bash", text)]
            told[letter].append(crowd.call(start + turn, turn, history=letter, asks=asks, brings=brings))
            crowd.ran(letter, start + turn + 0.6, text)
    found = parted(crowd, named=False)
    assert calls(found) == [set(told["a"]), set(told["b"])]
    assert boxes(found) == [{box_id("a")}, {box_id("b")}]


def test_a_retry_that_starts_anew_with_the_same_words_is_no_part_of_the_first_try() -> None:
    crowd = Crowd()
    for letter, start in (("a", 1.0), ("b", 20.0)):
        crowd.box(letter, start - 0.5, until=start + 5)
        for turn in range(2):
            crowd.call(start + turn, turn, asks=[(None, "bash", f"step {turn}")])
            crowd.ran(letter, start + turn + 0.6, f"step {turn}")
    found = parted(crowd)
    assert [len(each.calls) for each in found.parts] == [2, 2]
    assert boxes(found) == [{box_id("a")}, {box_id("b")}]


def test_a_trial_that_never_got_an_answer_is_one_of_its_kind() -> None:
    """The one worth finding: overloaded for ever, so no command ever told whose container it was."""
    crowd = Crowd()
    told = [crowd.talk(1 + n / 10, 3, first=f"task {n}") for n in range(2)]
    dead = [crowd.call(1.5 + n, 0, first="task 9", ok=False) for n in range(3)]
    assert calls(parted(crowd)) == [*(set(each) for each in told), set(dead)]


# --- containers by commands -------------------------------------------------------------------------------------------


def two_agents(crowd: Crowd) -> None:
    for letter, start in (("a", 1.0), ("b", 1.1)):
        crowd.box(letter, 0.5)
        for turn in range(3):
            crowd.call(start + turn, turn, first=f"task {letter}", asks=[(None, "bash", f"{letter} {turn}")])
            crowd.ran(letter, start + turn + 0.6, f"{letter} {turn}")


def test_two_conversations_of_one_agent_with_containers_of_their_own_are_two_trials_without_a_run_name() -> None:
    crowd = Crowd(run=None)
    two_agents(crowd)
    assert boxes(parted(crowd, named=False)) == [{box_id("a")}, {box_id("b")}]


def test_a_container_that_two_trials_used_is_nobodys() -> None:
    crowd = Crowd()
    two_agents(crowd)
    shared = crowd.box("c", 0.5)
    for letter, at in (("a", 5.0), ("b", 6.0)):
        crowd.call(at, 3, first=f"task {letter}", asks=[(None, "bash", f"shared {letter}")])
        crowd.ran("c", at + 0.6, f"shared {letter}")
    found = parted(crowd)
    assert boxes(found) == [{box_id("a")}, {box_id("b")}]
    assert found.stray_containers == {shared: frozenset({0, 1})}


def test_a_container_whose_commands_anybody_could_have_asked_for_is_nobodys() -> None:
    crowd = Crowd()
    told = [crowd.talk(1 + n / 10, 3, first=f"task {n}", asks=[(None, "bash", "ls")]) for n in range(2)]
    crowd.box("a", 0.5)
    crowd.ran("a", 1.7, "ls")
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(each) for each in told], [set(), set()])
    assert found.stray_containers == {box_id("a"): frozenset({0, 1})}


def test_environments_of_a_harness_are_trials_even_when_no_model_call_is_theirs() -> None:
    crowd = Crowd(run=None)
    crowd.box("a", 1, until=9, project="hello__x1__env")
    crowd.box("b", 1, until=9, project="hello__x2__env")
    found = parted(crowd, named=False)
    assert [(each.name, each.how) for each in found.parts] == [("hello__x1", "container"), ("hello__x2", "container")]


def test_an_environment_and_a_conversation_alone_with_each_other_belong_together() -> None:
    """Harbor's terminus-2 one trial after another: its commands are words in a reply, so no text joins them."""
    crowd = Crowd()
    one, two = crowd.talk(2, 3, first="one", tools=None), crowd.talk(22, 3, first="two", tools=None)
    crowd.box("a", 1, until=9, project="one__env")
    crowd.box("b", 21, until=29, project="two__env")
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [{box_id("a")}, {box_id("b")}])


@pytest.mark.parametrize("suffix", ["", "__agent"])
def test_an_environment_that_harbor_named_after_a_trial_is_that_of_the_calls_that_bear_its_name(suffix: str) -> None:
    """terminus-2 twice at one task, the same words, its session in our header: nothing else tells."""
    crowd = Crowd()
    for letter in ("a", "b"):
        crowd.box(letter, 1, until=9, project=f"task__{letter}x1__env")
    one = crowd.talk(2, 3, named=f"task__Ax1{suffix}", tools=None)
    two = crowd.talk(2, 3, named=f"task__bX1{suffix}", tools=None)
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [{box_id("a")}, {box_id("b")}])
    assert [each.name for each in found.parts] == ["task__Ax1", "task__bX1"]
    assert found.stray_calls == {} and found.stray_containers == {}


def test_a_client_in_one_environment_that_calls_itself_by_anothers_name_gets_nothing_of_that() -> None:
    crowd = Crowd()
    a, b = crowd.box("a", 1, until=9, project="task__a__env"), crowd.box("b", 1, until=9, project="task__b__env")
    thief = crowd.talk(2, 3, inside="b", named="task__a", tools=None)
    found = parted(crowd)
    told = {(part.calls, part.containers) for part in found.parts}
    assert told == {(frozenset(), frozenset({a})), (frozenset(thief), frozenset({b}))}


def test_two_names_that_harbor_would_make_one_of_get_no_environment_by_it() -> None:
    crowd = Crowd()
    crowd.box("a", 1, until=9, project="task__a__env")
    crowd.talk(2, 3, named="task__a", tools=None)
    crowd.talk(2.2, 3, named="task__A", tools=None)
    found = parted(crowd)
    assert [len(part.calls) for part in found.parts if part.calls] == [3, 3]
    assert all(not part.containers for part in found.parts if part.calls)


def side_by_side(crowd: Crowd, *, moments: tuple[float, float]) -> list[list[str]]:
    """Harbor's terminus-2 twice: calls of 0.5 s, a command of each `moments` seconds into each turn."""
    told = []
    for letter, start, moment in (("a", 2.0, moments[0]), ("b", 2.4, moments[1])):
        crowd.box(letter, 1, until=9, project=f"{letter}__env")
        told.append(crowd.talk(start, 4, first=f"task {letter}", tools=None))
        for turn in range(4):
            crowd.asked(letter, start + turn + moment, "tmux send-keys")
    return told


def test_an_environment_belongs_to_the_conversation_that_never_waited_for_the_model_while_it_worked() -> None:
    crowd = Crowd()
    one, two = side_by_side(crowd, moments=(0.6, 0.7))
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [{box_id("a")}, {box_id("b")}])


def test_an_environment_that_is_told_is_no_choice_for_the_others() -> None:
    """One moment tells the first; the other conversation's is what is left."""
    crowd = Crowd()
    one, two = side_by_side(crowd, moments=(0.95, 0.55))
    crowd.asked("a", 2.6, "tmux capture-pane")
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [{box_id("a")}, {box_id("b")}])


def test_environments_that_either_conversation_may_have_worked_in_are_not_guessed() -> None:
    crowd = Crowd()
    one, two = side_by_side(crowd, moments=(0.95, 0.55))
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [set(), set()])
    assert set(found.stray_containers) == {box_id("a"), box_id("b")}


def in_step(crowd: Crowd, keys: dict[str, list[str]], *, ok: bool = True) -> list[list[str]]:
    """Harbor's terminus-2 twice, turn by turn at the same time: what each reply asks for is typed in its own box.

    A harness's own keys come before the first turn and behind the last.
    """
    told: list[list[str]] = []
    for letter, asked in keys.items():
        crowd.box(letter, 1, until=9, project=f"{letter}__env")
        crowd.asked(letter, 1.5, "tmux send-keys", typed="clear")
        told.append([])
        for turn, key in enumerate(asked):
            now = [key] if key else []
            told[-1].append(crowd.call(2.0 + turn, turn, first=f"task {letter}", tools=None, keys=now, ok=ok))
            if key:
                crowd.asked(letter, 2.6 + turn, "tmux send-keys", typed=key)
            crowd.asked(letter, 2.8 + turn, "tmux capture-pane")
        crowd.asked(letter, 8.5, "tmux send-keys", typed="clear")
    return told


@pytest.mark.parametrize("keys", [{"a": ["ls", "make a", ""], "b": ["ls", "make b", ""]}])
def test_conversations_in_step_are_told_apart_by_the_keys_that_they_asked_for(keys: dict[str, list[str]]) -> None:
    crowd = Crowd()
    one, two = in_step(crowd, keys)
    found = parted(crowd)
    assert (calls(found), boxes(found)) == ([set(one), set(two)], [{box_id("a")}, {box_id("b")}])


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"a": ["ls", "make", ""], "b": ["ls", "make", ""]}, id="both asked for all of it"),
        pytest.param({"a": ["clear", "make", ""], "b": ["ls", "make", "clear"]}, id="a harness's own keys"),
        pytest.param({"a": ["", "", ""], "b": ["", "", ""]}, id="nothing was typed"),
    ],
)
def test_keys_that_tell_nothing_place_no_environment(keys: dict[str, list[str]]) -> None:
    crowd = Crowd()
    in_step(crowd, keys)
    crowd.asked("a", 3.7, "tmux send-keys", typed="the harness's")
    if keys["a"][0] != "clear":
        assert boxes(parted(crowd)) == [set(), set()]
    else:
        assert {box_id("a")} not in boxes(parted(crowd))[1:], "what b asked for is not what was typed in a"


def test_a_reply_that_was_not_read_may_have_asked_for_anything() -> None:
    """Of a no reply is known, and b asked for what was typed in a: that is not enough to give a's box to b."""
    crowd = Crowd()
    for letter, ok in (("a", False), ("b", True)):
        crowd.box(letter, 1, until=9, project=f"{letter}__env")
        for turn in range(3):
            crowd.call(2.0 + turn, turn, first=f"task {letter}", tools=None, keys=["ls"] if ok else [], ok=ok)
            crowd.asked(letter, 2.6 + turn, "tmux send-keys", typed="ls")
    assert boxes(parted(crowd)) == [set(), set()]


# --- the same whatever the order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_observations_come_does_not_matter(seed: int) -> None:
    crowd = Crowd()
    two_agents(crowd)
    crowd.talk(1.2, 3, session="s", first="by session")
    crowd.talk(1.3, 3, named="by name", first="n")
    mixed = list(crowd.observations)
    random.Random(seed).shuffle(mixed)
    assert part(crowd.facts(mixed), named=True) == part(crowd.facts(), named=True)


@pytest.mark.parametrize("session", [None, "two"])
def test_a_tool_on_the_host_that_calls_itself_by_anothers_name_gets_nothing_of_its_environment(
    session: str | None,
) -> None:
    """Two sessions on the host, each with an environment of Harbor's; a tool of the one says the other's name once,
    in a conversation of its own or with its agent's session."""
    crowd = Crowd()
    a, b = crowd.box("a", 1, until=9, project="task__a__env"), crowd.box("b", 1, until=9, project="task__b__env")
    asks = {letter: [(f"toolu_{letter}", "Bash", f"text-{letter}")] for letter in ("a", "b")}
    one = crowd.talk(2, 4, session="one", first="do a", asks=asks["a"])
    two = crowd.talk(2.1, 4, session="two", first="do b", asks=asks["b"])
    for turn in range(3):
        crowd.ran("a", 2.7 + turn, "text-a")
        crowd.ran("b", 2.75 + turn, "text-b")
    thief = crowd.call(3.9, 0, named="task__a", session=session, first="hello", system=None, tools=None)
    told = {frozenset(part.calls): part.containers for part in parted(crowd).parts}
    assert told.get(frozenset(one)) == frozenset({a}), told
    assert told.get(frozenset([*two, *([thief] if session else [])])) == frozenset({b})


def test_a_name_beside_a_nameless_conversation_gets_no_environment_where_no_command_tells() -> None:
    """terminus-2 types into a terminal, so nothing says whose command ran; the tool's name is not proof enough."""
    crowd = Crowd()
    crowd.box("a", 1, until=9, project="task__a__env")
    crowd.box("b", 1, until=9, project="task__b__env")
    one = crowd.talk(2, 4, session="one", first="do a")
    two = crowd.talk(2.1, 4, session="two", first="do b")
    crowd.call(3.9, 0, named="task__a", session="two", first="hello", system=None, tools=None)
    told = {frozenset(part.calls): part.containers for part in parted(crowd).parts}
    assert told[frozenset(one)] == frozenset()
    assert not any(box_id("a") in boxes for calls, boxes in told.items() if calls & set(two)), told
