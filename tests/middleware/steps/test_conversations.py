"""Conversations without ids are followed by their histories, and never further than they can be told apart."""

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.steps.conversations import MAX_ALL, MAX_THREADS, Conversations
from tests.middleware.steps.story import request_facts

TENANT = ("key", "peer")


def words(first: str, turns: int = 0, **more: object) -> RequestFacts:
    said = {"first_user_digest": first, "message_digests": [f"{first}{n}" for n in range(2 * turns + 1)][-8:]}
    return request_facts(turns, **(said | more))


def test_the_longest_conversation_that_a_request_continues_is_its_own() -> None:
    talks: Conversations[str] = Conversations()
    for turns, owner in ((1, "short"), (3, "long")):
        talks.begin(words("a", turns), TENANT, owner, 0)
    place = talks.find(words("a", 4), TENANT, 1)
    assert place.thread is not None
    assert place.thread.owner == "long"


def test_nothing_is_read_from_a_request_without_a_readable_history() -> None:
    talks: Conversations[str] = Conversations()
    assert talks.find(RequestFacts(operation="chat"), TENANT, 0).why == "no_identity"
    assert talks.follow(RequestFacts(operation="chat"), TENANT, "a", 0) is None
    assert len(talks) == 0


def test_a_history_that_grew_beyond_what_is_known_of_it_is_of_the_only_one_it_can_be_of_or_of_none() -> None:
    talks: Conversations[str] = Conversations()
    talks.begin(words("a", 1), TENANT, "x", 0)
    grown = words("a", 9)
    place = talks.find(grown, TENANT, 1)
    assert place.thread is not None
    assert place.thread.owner == "x"
    talks.begin(words("a", 2, message_digests=["a0", "b1", "b2", "b3", "b4"]), TENANT, "y", 2)
    assert talks.find(grown, TENANT, 3).why == "fork"


def test_a_count_of_tokens_begins_no_conversation_and_moves_none() -> None:
    talks: Conversations[str] = Conversations()
    counted = words("a", 2, operation="count_tokens")
    assert talks.find(counted, TENANT, 0).why == "no_identity"
    talks.begin(words("a", 1), TENANT, "x", 0)
    place = talks.find(counted, TENANT, 1)
    assert place.thread is not None
    place.thread.advance(counted)
    assert place.thread.last.assistant_turns == 1


def test_another_tenants_words_are_another_conversation() -> None:
    talks: Conversations[str] = Conversations()
    talks.begin(words("a"), TENANT, "x", 0)
    assert talks.find(words("a", 1), ("other", "peer"), 1).thread is None


def test_first_words_that_nobody_repeats_are_forgotten() -> None:
    talks: Conversations[str] = Conversations()
    talks.begin(words("a"), TENANT, "x", 10)
    talks.begin(words("b"), TENANT, "x", 20)
    talks.expire(15)
    assert len(talks) == 1
    assert talks.find(words("b", 1), TENANT, 21).thread is not None
    assert talks.find(words("a", 1), TENANT, 21).thread is None


def test_an_owner_that_is_gone_takes_its_conversations_along() -> None:
    talks: Conversations[str] = Conversations()
    owners = ["x", "y"]
    for owner in owners:
        talks.begin(words("a", 1), TENANT, owner, 0)
    talks.drop(owners[0])
    assert len(talks) == 1


def test_what_is_kept_is_bounded_by_words_and_in_all() -> None:
    talks: Conversations[str] = Conversations()
    for n in range(MAX_THREADS * 2):
        talks.begin(words("a", n % 3), TENANT, str(n), 0)
    assert len(talks) == MAX_THREADS
    for n in range(MAX_ALL + 100):
        talks.begin(words(f"w{n}"), TENANT, "x", n)
    assert len(talks) == MAX_ALL
    assert len(talks._roots) == MAX_ALL
    talks.expire(1 << 60)
    assert len(talks) == 0
