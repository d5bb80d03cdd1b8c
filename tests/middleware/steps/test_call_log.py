"""What is told of model calls is kept small, whole, and whatever order it came in."""

from __future__ import annotations

import gc
import random
import sys

import pytest

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    Observation,
    ReplyFacts,
    RequestFacts,
    Sender,
    ToolUse,
    decode,
)
from fairtrial.middleware.steps import run_facts
from fairtrial.middleware.steps.call_log import CallFacts, CallLog
from fairtrial.middleware.steps.parting import part
from fairtrial.middleware.steps.run_facts import RunFacts
from tests.middleware.steps.crowd import EPOCH_NS, ROOT, Crowd, box_id
from tests.middleware.steps.story import Story


def digest(of: object) -> str:
    return f"{random.Random(str(of)).getrandbits(128):032x}"


def kept(observations: list[Observation]) -> CallLog:
    log = CallLog()
    for observation in observations:
        value = decode(observation)
        assert isinstance(value, AttemptStarted | AttemptEnded)
        log.take(observation, value)
    return log


class Talks:
    """Conversations of 50 turns as real clients have them: no digest and no id comes twice by chance."""

    def __init__(self) -> None:
        self._story = Story(trial=ROOT)
        self._turns = 0

    def turn(self) -> list[Observation]:
        number, self._turns = self._turns, self._turns + 1
        talk, turn = divmod(number, 50)
        attempt = digest(f"attempt {number}")
        request = RequestFacts(
            operation="chat",
            model="claude-test",
            history_len=2 * turn + 1,
            assistant_turns=turn,
            has_tools=True,
            body_digest=digest(f"body {number}"),
            tools_digest=digest("tools"),
            system_digest=digest("system"),
            first_user_digest=digest(f"{talk} first"),
            message_digests=[digest(f"{talk} {each}") for each in range(2 * turn + 1)][-8:],
            last_assistant_digest=digest(f"text {number - 1}") if turn else None,
            tool_result_ids=[f"toolu_{digest(f'use {number - 1}')[:24]}"] if turn else [],
            session=digest(f"session {talk}"),
        )
        reply = ReplyFacts(
            status=200,
            tool_calls=[ToolUse(id=f"toolu_{digest(f'use {number}')[:24]}", name="Bash", text_digest=digest(number))],
            text_digest=digest(f"text {number}"),
        )
        told = [
            self._story.tell(AttemptStarted(attempt=attempt, request=request)),
            self._story.tell(AttemptEnded(attempt=attempt, request=request, reply=reply)),
        ]
        self._story.observations.clear()  # what is counted is what the facts keep
        return told


def live() -> int:
    gc.collect()
    return sum(isinstance(each, CallFacts | RequestFacts | ReplyFacts | ToolUse) for each in gc.get_objects())


def test_a_call_costs_some_hundred_bytes_and_no_object_while_the_run_goes_on() -> None:
    """As objects a call took some 2.5 kB in some 30 blocks of memory."""
    talks, facts = Talks(), RunFacts(ROOT)
    objects, blocks = live(), sys.getallocatedblocks()
    for _ in range(2000):
        for observation in talks.turn():
            facts.take(observation)
    assert live() - objects < 100
    assert sys.getallocatedblocks() - blocks < 2000
    assert facts.told.kept_bytes < 2000 * 300
    assert len(facts.calls) == 2000


def test_one_trial_that_no_name_and_no_place_can_part_is_not_unpacked_to_know_it() -> None:
    talks, facts = Talks(), RunFacts(ROOT)
    for _ in range(500):
        for observation in talks.turn():
            facts.take(observation)
    objects = live()
    assert part(facts, named=False) is None
    assert live() - objects < 100


@pytest.mark.parametrize("seed", range(5))
def test_each_call_and_each_row_is_there_whatever_order_they_came_in(seed: int) -> None:
    crowd = Crowd()
    crowd.call(1, 3, session="s", agent="a", parent="p", named="n", inside="b", brings=["t1"], pids=[7, 5, 1])
    crowd.call(2, 0, tools=None, system=None, ok=False)
    for n in range(200):
        crowd.call(3 + n, n % 9, first=digest(n), asks=[("t", "Bash", digest(n)), (None, "task", None)])
    told = [each for each in crowd.observations if each.kind in {AttemptStarted.kind, AttemptEnded.kind}]
    if seed:
        random.Random(seed).shuffle(told)
    log = kept(told)
    assert len(log.calls) == 202
    first, second = log.calls["attempt-0001"], log.calls["attempt-0002"]
    assert first == CallFacts(
        attempt="attempt-0001",
        started_ns=EPOCH_NS + 1_000_000_000,
        ended_ns=EPOCH_NS + 1_500_000_000,
        request=RequestFacts(
            operation="chat",
            history_len=7,
            assistant_turns=3,
            has_tools=True,
            system_digest="system",
            tools_digest="tools",
            first_user_digest="task",
            message_digests=["task", *(f"task-m{n}" for n in range(1, 7))],
            tool_result_ids=["t1"],
            session="s",
            agent="a",
            parent_agent="p",
        ),
        reply=ReplyFacts(),
        ok=True,
        container=box_id("b"),
        named="n",
        sender=Sender(pid=7, start_ticks=1, parents=[5, 1]),
    )
    assert (second.ok, second.request.has_tools, second.request.system_digest, second.sender) == (
        False,
        False,
        None,
        None,
    )
    last = log.calls["attempt-0202"].reply
    assert last is not None
    assert last.tool_calls == [
        ToolUse(id="t", name="Bash", text_digest=digest(199)),
        ToolUse(id=None, name="task", text_digest=None),
    ]
    rows = {(decode(each).attempt, each.source_id, each.seq) for each in told}  # type: ignore[union-attr]  # only those
    assert {(attempt, *row) for attempt, found in log.rows().items() for row in found} == rows
    assert not log.more_than(202)
    assert log.more_than(201)


def test_a_call_that_goes_on_has_no_reply_and_one_whose_begin_nobody_told_is_known_by_its_end() -> None:
    crowd = Crowd()
    crowd.call(1, 0, named="begun")
    crowd.call(2, 0, named="ended")
    begun, _, _, ended = [each for each in crowd.observations if each.source == "door.model"]
    log = kept([begun, ended])
    assert log.placed
    one, other = log.calls.values()
    assert (one.named, one.ended_ns, one.reply, one.ok) == ("begun", None, None, False)
    assert (other.named, other.started_ns, other.ok) == ("ended", EPOCH_NS + 2_000_000_000, True)
    assert [len(rows) for rows in log.rows().values()] == [1, 1]


def test_more_calls_than_the_bound_are_too_many_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_facts, "MAX_CALLS", 10)
    crowd = Crowd()
    crowd.talk(1, 10, named="one")
    assert not crowd.facts().too_many
    assert not crowd.facts(crowd.observations[::-1]).too_many, "an end that comes before its begin is one call"
    crowd.call(99, 0, named="two")
    facts = crowd.facts()
    assert facts.too_many
    assert not facts.calls
    assert not list(facts.rows())
