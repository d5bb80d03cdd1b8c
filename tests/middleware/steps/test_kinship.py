"""Kinship: the agent's own calls are known by what they share, and a tool's by what they do not."""

from typing import Any

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.steps.kinship import Asked, Kin, kinship

_S = 1_000_000_000


def own(turns: int, **changes: Any) -> RequestFacts:
    messages = [f"m{i}" for i in range(2 * turns + 1)]
    fields: dict[str, Any] = {
        "operation": "chat",
        "history_len": len(messages),
        "assistant_turns": turns,
        "has_tools": True,
        "message_digests": messages[-8:],
        "first_user_digest": "m0",
        "system_digest": "prompt",
        "tools_digest": "tools",
    }
    return RequestFacts(**(fields | changes))


def other(name: str = "x", **changes: Any) -> RequestFacts:
    return own(
        0,
        **(
            {"first_user_digest": name, "message_digests": [name], "system_digest": None, "tools_digest": None}
            | changes
        ),
    )


def at(
    start_s: float, request: RequestFacts, *, completed: bool = True, acts: bool = True, length_s: float = 1
) -> Asked:
    begin = round(start_s * _S)
    return Asked(
        request=request,
        started_ns=begin,
        answered_ns=begin + _S // 10 if completed else None,
        ended_ns=begin + round(length_s * _S),
        completed=completed,
        acts=acts,
    )


def test_one_conversation_is_all_the_agents_own() -> None:
    assert kinship([at(n, own(n)) for n in range(20)]) == [Kin.OWN] * 20


def test_what_began_before_any_reply_could_set_a_tool_to_work_is_the_agents_own() -> None:
    calls = [at(0, other("title"), acts=False), at(0.05, own(0), completed=False), at(2, own(0))]
    assert kinship(calls) == [Kin.OWN] * 3


def test_where_nothing_ever_completed_nobody_is_a_stranger() -> None:
    assert kinship([at(0, own(0), completed=False), at(5, other(), completed=False)]) == [Kin.OWN] * 2


def test_a_conversation_that_began_while_a_tool_was_at_work_is_a_strangers_though_its_first_call_completed() -> None:
    calls = [at(0, own(0)), at(2, other()), at(4, other(), completed=False), at(9, own(1))]
    assert kinship(calls) == [Kin.OWN, Kin.STRANGER, Kin.STRANGER, Kin.OWN]


def test_a_call_of_a_background_process_that_never_completed_is_a_strangers() -> None:
    calls = [at(0, own(0)), at(2, own(1), length_s=5), at(3, other(), completed=False), at(9, own(2))]
    assert kinship(calls) == [Kin.OWN, Kin.OWN, Kin.STRANGER, Kin.OWN]


def test_the_clients_own_session_or_agent_id_makes_kin_of_another_conversation() -> None:
    for same in ({"session": "s", "session_kind": "header"}, {"agent": "a"}):
        calls = [at(0, own(0, **same)), at(2, other(**same), completed=False)]
        assert kinship(calls) == [Kin.OWN, Kin.OWN]
    other_session = [at(0, own(0, session="s")), at(2, other(session="t"), completed=False)]
    assert kinship(other_session) == [Kin.OWN, Kin.STRANGER]


def test_a_history_that_lost_its_beginning_is_still_the_agents_own() -> None:
    shortened = own(3, first_user_digest="m2", message_digests=["m2", "m3", "m4"], history_len=3)
    assert kinship([at(0, own(0)), at(2, own(2)), at(4, shortened, completed=False)]) == [Kin.OWN] * 3


def test_the_same_prompt_and_tools_in_another_conversation_are_alike_and_no_more() -> None:
    anew = other(system_digest="prompt", tools_digest="tools")
    assert kinship([at(0, own(0)), at(2, anew, completed=False)]) == [Kin.OWN, Kin.ALIKE]
    half = other(system_digest="prompt", tools_digest="few")
    assert kinship([at(0, own(0)), at(2, half, completed=False)]) == [Kin.OWN, Kin.STRANGER]


def test_a_second_conversation_after_the_first_one_said_its_last_word_is_alike_once_it_got_through() -> None:
    first = [at(0, own(0)), at(2, own(1), acts=False)]
    assert kinship([*first, at(5, other()), at(7, other(), completed=False)])[2:] == [Kin.ALIKE, Kin.ALIKE]
    assert kinship([*first, at(5, other(), completed=False)])[2:] == [Kin.STRANGER]


def test_a_request_that_could_not_be_seen_whole_is_nobodys_proof_and_nobodys_junk() -> None:
    unseen = RequestFacts(operation="chat", unreadable="too large", unseen=True)
    junk = RequestFacts(operation="chat", unreadable="DecodeError")
    for request, kin in ((unseen, Kin.ALIKE), (junk, Kin.STRANGER)):
        assert kinship([at(0, own(0)), at(2, request, completed=False)]) == [Kin.OWN, kin]
