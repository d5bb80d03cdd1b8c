"""The case: what the rules are given."""

import msgspec

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.core.observations import ContainerEvent, OomKill, ReplyFacts
from fairtrial.middleware.core.records import Trust
from tests.middleware.attribution.scene import BOX, Scene, model_failed, storm


def test_kills_of_one_container_and_step_are_one_group_however_many_told_of_them() -> None:
    told = Scene().call().ran(137, oom=True)
    for _ in range(40):
        told.tell(ContainerEvent(container_id=BOX, action="oom"), told.events)
    case = Case(told.end(1).assembly())
    assert [(g.container, g.step, g.kills) for g in case.kills] == [(BOX, 1, 1)]
    assert len(case.kills[0].ids) < 10


def rung(*, delta: int = 0) -> Scene:
    """The runtime tells of an OOM in the box; its counter is read again afterwards."""
    told = Scene().call().runtime("oom").waited()
    told.kills += delta
    return told.read("change").ran(0).call(tools=0).end(1)


def test_an_oom_that_the_runtime_told_of_while_the_boxs_own_counter_stood_still_was_next_door() -> None:
    assert Case(rung().assembly()).kills == []
    assert rung().verdict().blame == "model"


def test_an_oom_that_the_runtime_told_of_is_kept_where_the_counter_moved_or_was_not_read_again() -> None:
    assert len(Case(rung(delta=1).assembly()).kills) == 1
    unread = Scene()
    unread.counters = False
    assert len(Case(unread.call().runtime("oom").waited().ran(137).call(tools=0).end(1).assembly()).kills) == 1


def test_what_the_agent_could_write_is_left_out() -> None:
    told = Scene().call().ran(1)
    told.tell(OomKill(container_id=BOX, delta=1), trust=Trust.INSIDE)
    assert Case(told.end(1).assembly()).kills == []


def test_a_failed_call_of_a_client_that_never_completed_one_is_a_stranger_where_others_did() -> None:
    told = Scene().call()
    junk = msgspec.structs.replace(told.request(), user_agent="curl/8", session=None)
    told.attempt(ReplyFacts(status=401), outcome="error", request=junk)
    case = Case(told.call(tools=0).end(1).assembly())
    assert [c.request.user_agent for c in case.strangers] == ["curl/8"]
    assert all(c.completed for c in case.main_calls)


def test_a_client_of_which_no_call_ever_completed_anywhere_is_no_stranger() -> None:
    case = Case(Scene().refused(529, times=2).end(1).assembly())
    assert case.strangers == []
    assert len(case.main_calls) == 1


def test_the_last_word_is_known_by_its_stop_reason_and_its_lack_of_tools() -> None:
    assert Case(model_failed().assembly()).finished_in_words
    assert not Case(storm().assembly()).finished_in_words
    assert not Case(Scene().call().ran(0).end(1).assembly()).finished_in_words


def test_an_attempt_of_which_only_the_start_was_seen_keeps_its_call_open() -> None:
    case = Case(Scene().call().ran(0).attempt_begun().end(1).assembly())
    assert [len(c.open_attempts) for c in case.main_calls] == [0, 1]
    assert case.main_calls[1].ended_ns is None
