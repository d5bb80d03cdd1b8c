"""A tool that sends a request in the agent's name is known by its process; nobody else is doubted for it."""

import pytest

from fairtrial.middleware.core.observations import ReplyFacts, Sender
from tests.middleware.attribution.scene import Scene, ended, summary

LAUNCHER, AGENT, SHELL, TOOL = 50, 100, 200, 201
ME = Sender(pid=AGENT, start_ticks=10, parents=[LAUNCHER])
MY_TOOL = Sender(pid=TOOL, start_ticks=90, parents=[SHELL, AGENT, LAUNCHER])
LOOSE = Sender(pid=0, start_ticks=0, parents=[])
ANOTHERS_TOOL = Sender(pid=301, start_ticks=95, parents=[300, LAUNCHER])
NEXT = Sender(pid=120, start_ticks=95, parents=[LAUNCHER])


def asked_by(told: Scene, sender: Sender | None) -> Scene:
    """The last attempt's connection was opened by this process."""
    if sender is not None:
        last = next(o for o in reversed(told.observations) if o.kind == "attempt.ended")
        last.value["sender"] = {"pid": sender.pid, "start_ticks": sender.start_ticks, "parents": sender.parents}
    return told


def forged(sender: Sender | None, times: int = 2, status: int = 500) -> Scene:
    """The agent's own next request, its session and its pending tool result in it, refused, and then the end."""
    told = asked_by(Scene().call(), ME).ran(None, seconds=0.1)
    for _ in range(times):
        told.attempt(ReplyFacts(status=status, provider_id=True), outcome="error")
        asked_by(told, sender).waited(0.2)
    return told


@pytest.mark.parametrize("status", [429, 500, 529])
def test_what_a_tool_sent_in_the_agents_name_is_never_infra(status: int) -> None:
    verdict = forged(MY_TOOL, status=status).end(None, signal=9).verdict()
    assert verdict.blame not in {"infra", "operator"}
    assert ended(verdict) is None
    assert verdict.present == []


def test_a_tools_call_beside_a_trial_that_went_on_is_said_and_is_the_models() -> None:
    verdict = asked_by(asked_by(forged(MY_TOOL).call(), ME).ran(1).call(tools=0), ME).end(1).verdict()
    assert verdict.blame == "model"
    assert verdict.present == []


def test_a_tools_own_step_is_said_of_a_trial_that_went_on() -> None:
    told = forged(MY_TOOL)
    told.turns += 1
    verdict = asked_by(asked_by(told.call(), ME).ran(1).call(tools=0), ME).end(1).verdict()
    assert verdict.blame == "model"
    assert "1 call at the door came from a process that the agent had started" in verdict.sentence


def test_a_tools_failed_call_as_the_last_word_leaves_the_trial_open() -> None:
    """It may have been a part of the agent, which it had started to do its work."""
    assert forged(MY_TOOL).end(1).verdict().blame == "indeterminate"


def test_the_same_of_the_agents_own_process_is_proved() -> None:
    assert summary(forged(ME).end(1).verdict()) == ("infra", "proved", "model_api.server_error", 2)


def test_the_next_process_of_the_same_launcher_is_the_agent() -> None:
    """Near-miss: a harness that starts a process per step."""
    assert summary(forged(NEXT).end(1).verdict()) == ("infra", "proved", "model_api.server_error", 2)


def test_a_tool_of_another_agent_of_the_same_launcher_proves_nothing() -> None:
    """Several trials in one run: one trial's tool sends a request in the name of another's agent."""
    verdict = forged(ANOTHERS_TOOL).end(1).verdict()
    assert verdict.grade != "proved"
    assert ended(verdict) == ("model_api.server_error", "suspected", 2)


def test_a_process_that_cut_itself_loose_leaves_the_blame_open() -> None:
    verdict = forged(LOOSE).end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "is none of the run's" in verdict.sentence
    assert ended(verdict) == ("model_api.server_error", "suspected", 2)


@pytest.mark.parametrize("sender", [LOOSE, ME])
def test_an_agent_outside_of_the_run_is_not_told_from_a_tool_that_cut_itself_loose(sender: Sender) -> None:
    """A harness that starts its agent by tmux: what fails there is suspected, whoever asked."""
    told = asked_by(Scene().call(), LOOSE).ran(None, seconds=0.1)
    for _ in range(2):
        asked_by(told.attempt(ReplyFacts(status=500, provider_id=True), outcome="error"), sender).waited(0.2)
    assert summary(told.end(1).verdict())[:2] == ("infra", "suspected")


def test_a_sender_that_was_not_looked_at_proves_nothing_where_the_agents_is_known() -> None:
    """A tool may open so many connections that the next is not looked at."""
    assert summary(forged(None).end(1).verdict()) == ("infra", "suspected", "model_api.server_error", 2)


def test_where_no_sender_was_seen_nothing_is_told() -> None:
    """Innocent, and the hole that is left: said in the module."""
    told = Scene().call().ran(None, seconds=0.1)
    for _ in range(2):
        told.attempt(ReplyFacts(status=500, provider_id=True), outcome="error").waited(0.2)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.server_error", 2)


def test_one_attempt_that_is_surely_the_agents_speaks_for_the_call() -> None:
    told = asked_by(Scene().call(), ME).ran(0)
    for sender in (None, ME, None):
        told.attempt(ReplyFacts(status=529, provider_id=True), outcome="error")
        asked_by(told, sender).waited(0.2)
    assert summary(told.end(1).verdict()) == ("infra", "proved", "model_api.overloaded", 2)


@pytest.mark.parametrize("sender", [LOOSE, None])
def test_attempts_of_nobody_known_prove_nothing_beside_one_that_the_agent_itself_ended(sender: Sender | None) -> None:
    """A tool that cut itself loose sends the agent's very next request; the agent then asks, and gives up by itself."""
    told = asked_by(Scene().call(), ME).ran(0)
    for _ in range(2):
        told.attempt(ReplyFacts(status=529, provider_id=True), outcome="error")
        asked_by(told, sender).waited(0.2)
    told.attempt(ReplyFacts(), outcome="client_disconnect", closed_by="client", seconds=1.5)
    verdict = asked_by(told, ME).end(1).verdict()
    assert verdict.grade != "proved"
    assert (told_end := ended(verdict)) is None or told_end[1] == "suspected"


def test_a_process_of_the_agents_pid_that_was_born_later_is_another() -> None:
    again = Sender(pid=AGENT, start_ticks=99, parents=[])
    assert forged(again).end(1).verdict().grade == "suspected"


def test_the_agents_own_failure_beside_a_tools_in_one_call_stays_its_own() -> None:
    told = asked_by(Scene().call(), ME).ran(0)
    for sender in (MY_TOOL, ME, ME):
        told.attempt(ReplyFacts(status=529, provider_id=True), outcome="error")
        asked_by(told, sender).waited(0.2)
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.overloaded", 2)
    assert "2 attempts" in verdict.sentence
