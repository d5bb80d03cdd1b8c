"""Side calls are kept out of the steps; steps are never taken for side calls."""

from typing import Any

import pytest

from fairtrial.middleware.core.observations import ReplyFacts
from fairtrial.middleware.steps.roles import assign_roles
from tests.middleware.steps.story import Story
from tests.middleware.steps.test_attempts import folded


def roles(told: Story) -> list[str]:
    return list(assign_roles(folded(told)))


def test_plain_turns_are_steps_with_and_without_tools_and_sessions() -> None:
    variants: list[dict[str, Any]] = [{}, {"has_tools": False}, {"session": None, "session_kind": None}]
    for changes in variants:
        told = Story()
        for turn in range(4):
            told.attempt(turns=turn, **changes)
        assert roles(told) == ["step"] * 4


def test_probes_are_no_steps() -> None:
    told = Story()
    told.attempt(turns=0, operation="hello", body_digest=None)
    told.attempt(turns=0, operation="models", body_digest=None)
    told.attempt(turns=0, max_tokens=1, body_digest="quota")
    told.attempt(turns=0, operation="count_tokens", body_digest="count")
    told.attempt(turns=0)
    assert roles(told) == ["probe"] * 4 + ["step"]


def test_a_call_without_tools_in_a_session_that_has_them_is_a_title() -> None:
    told = Story()
    told.attempt(turns=0, has_tools=False, body_digest="title", first_user_digest="t", history_len=1)
    told.attempt(turns=0)
    told.attempt(turns=1)
    assert roles(told) == ["title", "step", "step"]


def test_another_agent_id_is_a_subagent() -> None:
    told = Story()
    told.attempt(turns=0)
    told.attempt(turns=0, agent="sub", first_user_digest="task", body_digest="s0")
    told.attempt(turns=1, agent="sub", first_user_digest="task", body_digest="s1")
    told.attempt(turns=1)
    assert roles(told) == ["step", "subagent", "subagent", "step"]


def test_the_main_agents_own_id_makes_no_subagent_of_it() -> None:
    told = Story()
    told.attempt(turns=0, agent="main")
    told.attempt(turns=1, agent="main")
    assert roles(told) == ["step", "step"]


def test_a_conversation_inside_another_is_a_subagent() -> None:
    told = Story()
    told.attempt(turns=0)
    told.attempt(turns=0, first_user_digest="sub", message_digests=["sub"], body_digest="s0")
    told.attempt(turns=1)
    assert roles(told) == ["step", "subagent", "step"]


def test_a_summary_without_tools_is_a_compaction_and_what_follows_is_steps() -> None:
    told = Story()
    for turn in range(3):
        told.attempt(turns=turn, tools=((f"t{turn}", "Bash", None),))
    told.attempt(turns=3, has_tools=False, body_digest="summary")
    told.attempt(turns=0, first_user_digest="anew", message_digests=["anew"], body_digest="n0")
    told.attempt(turns=1, first_user_digest="anew", message_digests=["anew", "x", "y"], body_digest="n1")
    assert roles(told) == ["step", "step", "step", "compaction", "step", "step"]


def test_the_last_word_of_a_conversation_that_begins_anew_is_a_compaction_in_a_named_session_only() -> None:
    for session, expected in (("session-1", "compaction"), (None, "step")):
        told = Story()
        for turn in range(2):
            told.attempt(turns=turn, session=session, tools=((f"t{turn}", "Bash", None),))
        told.attempt(turns=2, session=session)
        told.attempt(turns=0, session=session, first_user_digest="anew", message_digests=["anew"], body_digest="n")
        assert roles(told) == ["step", "step", expected, "step"]


def test_a_history_that_falls_back_once_is_a_compaction_and_one_that_goes_on_from_there_is_the_agent() -> None:
    told = Story()
    for turn in (5, 6, 1, 7):
        told.attempt(turns=turn)
    assert roles(told) == ["step", "step", "compaction", "step"]
    told = Story()
    for turn in (5, 6, 2, 3):
        told.attempt(turns=turn)
    assert roles(told) == ["step"] * 4


def test_a_request_that_could_not_be_read_is_never_a_title() -> None:
    told = Story()
    told.attempt(turns=0)
    told.attempt(turns=1, has_tools=None, assistant_turns=None, first_user_digest=None, body_digest=None)
    assert roles(told) == ["step", "step"]


@pytest.mark.parametrize(
    "purpose, role",
    [
        ("compact", "compaction"),
        ("compaction", "compaction"),
        ("prewarm", "probe"),
        ("review", "subagent"),
        ("collab_spawn", "subagent"),
        ("memory", "subagent"),
        (None, "step"),
    ],
)
def test_what_codex_says_that_a_call_is_for_is_its_role(purpose: str | None, role: str) -> None:
    told = Story()
    told.attempt(turns=0)
    told.attempt(turns=1, purpose=purpose)
    told.attempt(turns=2)
    assert roles(told) == ["step", role, "step"]


def test_a_call_without_tools_that_shows_no_turn_of_the_model_is_a_title_however_many_messages_it_has() -> None:
    """opencode 1.18.33: instructions and two messages of the user, before the first step."""
    told = Story()
    bare: dict[str, Any] = {"has_tools": False, "tools_digest": None, "body_digest": "t", "first_user_digest": "t"}
    told.attempt(turns=0, history_len=3, message_digests=["s", "t", "u"], **bare)
    told.attempt(turns=0)
    told.attempt(turns=1)
    told.attempt(turns=1, history_len=4, message_digests=["s", "t", "u", "v"], **bare)
    told.attempt(turns=2)
    assert roles(told) == ["title", "step", "step", "compaction", "step"]


def test_a_turn_asked_again_in_other_words_before_a_history_is_rewritten_is_a_compaction() -> None:
    """As Claude Code 2.1.197 does on /compact: the same tools and turns, another last message; then a new beginning
    that shows more turns than the old one had."""
    told = Story()
    told.attempt(turns=0, tools=(("toolu_1", "Bash", None),))
    told.attempt(turns=1)
    summary: dict[str, Any] = {"message_digests": ["m0", "m1", "sum it up"], "body_digest": "compact"}
    told.attempt(turns=1, **summary)
    rewritten: dict[str, Any] = {"first_user_digest": "summary", "body_digest": "r"}
    told.attempt(turns=2, message_digests=["summary", "a", "b", "c", "d"], **rewritten)
    assert roles(told) == ["step", "step", "compaction", "step"]


def test_a_summary_that_was_asked_for_twice_is_two_compactions() -> None:
    """As Claude Code 2.1.332 does when the first reply holds no summary: with still other words."""
    told = Story()
    told.attempt(turns=0, tools=(("toolu_1", "Bash", None),))
    told.attempt(turns=1)
    for words in ("sum it up", "sum it up, in tags"):
        told.attempt(turns=1, message_digests=["m0", "m1", words], body_digest=words)
    told.attempt(turns=1, message_digests=["summary", "a", "b"], first_user_digest="summary", body_digest="r")
    assert roles(told) == ["step", "step", "compaction", "compaction", "step"]


def refused(*names: str) -> dict[str, Any]:
    """A 400 whose error speaks of these things."""
    facts = ReplyFacts(status=400, error_type="invalid_request_error", error_names=list(names))
    return {"outcome": "error", "reply": facts}


def cut_short(told: Story, *words: str, turns: int = 1, **more: Any) -> None:
    """A request whose history begins with other words; the model's last turn is the same."""
    more = {"first_user_digest": "cut", "body_digest": "-".join(words), **more}
    told.attempt(turns=turns, message_digests=["cut", "m1", *words], **more)


@pytest.mark.parametrize("succeeds", [True, False])
def test_what_sums_up_after_a_prompt_too_long_is_a_compaction_whether_it_succeeds_or_not(succeeds: bool) -> None:
    """As Claude Code 2.1.332 does: the beginning cut away, the same turn asked for in other words, the same again."""
    told = Story()
    told.attempt(turns=0, tools=(("toolu_1", "Bash", None),))
    told.attempt(turns=1, **refused("context"))
    cut_short(told, "sum it up", **({} if succeeds else refused("context")))
    cut_short(told, "sum it up", "moved", **({} if succeeds else refused("context")))
    if succeeds:
        told.attempt(turns=0, message_digests=["summary"], first_user_digest="summary", body_digest="n0")
        told.attempt(turns=1, message_digests=["summary", "x", "y"], first_user_digest="summary", body_digest="n1")
    assert roles(told) == ["step", "step", "compaction", "compaction", *(["step", "step"] if succeeds else [])]


@pytest.mark.parametrize(
    "why",
    ["refused for something else", "no session", "asked as before", "a tool call", "a further turn", "its last word"],
)
def test_what_the_agent_itself_asks_after_a_prompt_too_long_is_a_step(why: str) -> None:
    """A history that the agent cuts short to go on is no summary: near-misses of the rule above."""
    told = Story()
    named: dict[str, Any] = {"session": None, "session_kind": None} if why == "no session" else {}
    told.attempt(turns=0, tools=(("toolu_1", "Bash", None),), **named)
    told.attempt(turns=1, **refused(*([] if why == "refused for something else" else ["context"])), **named)
    words = "m2" if why == "asked as before" else "shorter now"
    if why == "a tool call":
        cut_short(told, words, tools=(("toolu_2", "Bash", None),))
        told.attempt(turns=0, message_digests=["anew"], first_user_digest="anew", body_digest="n0")
    elif why == "a further turn":
        cut_short(told, words)
        cut_short(told, words, "a2", "u3", turns=2, **refused("context"))
    else:
        cut_short(told, words, **named, **({} if why == "its last word" else refused("context")))
    assert set(roles(told)) == {"step"}, roles(told)


def test_a_turn_asked_again_in_other_words_that_goes_on_is_a_step() -> None:
    told = Story()
    told.attempt(turns=0)
    told.attempt(turns=1)
    told.attempt(turns=1, message_digests=["m0", "m1", "other"], body_digest="other")
    told.attempt(turns=2)
    assert roles(told) == ["step"] * 4


def test_a_conversation_that_goes_on_after_a_prompt_too_long_is_no_summary_however_few_its_turns() -> None:
    """What begins anew has fewer turns than what was refused, and grows: its work, but perhaps its last word."""
    told = Story()
    for turn in range(5):
        told.attempt(turns=turn)
    told.attempt(turns=5, **refused("context"))
    for turn in range(3):
        anew = ["anew", *(f"n{n}" for n in range(1, 2 * turn + 1))]
        told.attempt(turns=turn, message_digests=anew, first_user_digest="anew", body_digest=f"anew-{turn}")
    told.attempt(turns=0, message_digests=["third"], first_user_digest="third", body_digest="third")
    assert roles(told)[6:8] == ["step"] * 2, roles(told)


def test_a_text_agents_single_turn_after_a_prompt_too_long_is_its_work() -> None:
    """Without tools in any request a reply acts in words: nothing tells a summary from a step."""
    told = Story()
    told.attempt(turns=0, has_tools=False)
    told.attempt(turns=1, has_tools=False, **refused("context"))
    cut_short(told, "go on from here", has_tools=False)
    told.attempt(turns=0, has_tools=False, message_digests=["n"], first_user_digest="n", body_digest="n0")
    assert roles(told) == ["step"] * 4, roles(told)
