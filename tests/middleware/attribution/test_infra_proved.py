"""All ways to `infra`, `proved`, and for each the question: could the agent or its tool have done it alone?

Each row is told as it is proved, and then with the one fact changed that would let the agent, its tool or its client
have brought it about; then it is no longer `infra`, `proved`.  A new way to a proof of infra is a new row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import CgroupReading, ReplyFacts, RequestFacts, ToolUse
from fairtrial.middleware.core.records import Blame, Grade, Victim
from tests.middleware.attribution.scene import MIB, Scene

Told = Callable[[], Scene]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to a proof: `why` the agent cannot have done it alone; `instead`: what it can do, told the same way."""

    cause: str
    why: str
    proved: Told
    instead: tuple[Told, ...]


def started() -> Scene:
    return Scene(user_agent="my-agent/1").call().ran(0)


def junk(told: Scene, **changes: object) -> RequestFacts:
    """A tool's own request with the agent's libraries and key."""
    alone: dict[str, object] = {
        "session": None,
        "first_user_digest": "hello",
        "message_digests": ["hello"],
        "history_len": 1,
        "assistant_turns": 0,
        "body_digest": "hello",
    }
    return told.request(**(alone | changes))  # type: ignore[arg-type]


def junk_call(status: int, **reply: object) -> Told:
    """A tool's own call that the far side refused, as the last one."""

    def tell() -> Scene:
        told = started()
        facts = ReplyFacts(status=status, **reply)  # type: ignore[arg-type]
        return told.attempt(facts, outcome="error", request=junk(told)).end(1)

    return tell


def unfinished(status: int | None) -> Told:
    """The agent's own request, never sent whole."""
    return lambda: (
        started()
        .attempt(ReplyFacts(status=status), outcome="error", request_whole=False, first_failure="upstream")
        .end(1)
    )


def without_head(**facts: object) -> Told:
    told: dict[str, object] = {"first_failure": "upstream", "closed_by": "upstream", "close_kind": "fin"}
    return lambda: started().attempt(ReplyFacts(), outcome="error", **(told | facts)).end(1)  # type: ignore[arg-type]


def refused(status: int, **reply: object) -> Told:
    return lambda: started().refused(status, times=3, **reply).end(1)  # type: ignore[arg-type]


def shared_limit() -> Scene:
    """The agent's own 429 after a tool had called with the same key."""
    told = started()
    told.attempt(ReplyFacts(status=200, terminator=True), request=junk(told))
    return told.refused(429, times=3).end(1)


def killed_before_any_reply(*before: RequestFacts, status: int | None = None) -> Told:
    def tell() -> Scene:
        told = Scene()
        for request in before:
            told.attempt(ReplyFacts(status=200), request=request, method="POST")
        told.attempt(ReplyFacts(status=status), outcome="client_disconnect", first_failure="client")
        return told.oom().gone(137, ended_by="oom").end(137)

    return tell


def node_wide(*, floor: int, beside: int | None) -> Told:
    def tell() -> Scene:
        told = Scene(limit=None, reservation=floor).call()
        told.tell(CgroupReading(container_id="own", memory_peak=beside, oom_kill=0))
        victim = Victim(comm="py", pid=8, rss=MIB)
        told.ran(137, oom=True, memory_peak=40 * MIB, constraint="CONSTRAINT_NONE", victim=victim)
        return told.call(tools=0).end(1)

    return tell


WAYS = (
    Way(
        cause="model_api.overloaded",
        why="529 to a whole request of the agent's own conversation: only the provider sends it",
        proved=refused(529, error_type="overloaded_error"),
        instead=(
            junk_call(529, error_type="overloaded_error"),
            unfinished(529),
            # The door missed a call before the only one that it saw.
            lambda: Scene(user_agent="my-agent/1").waited().gap(since=0.2, until=0.4).refused(529, times=2).end(1),
            # An attempt whose end the door lost: what it brought is not known.
            lambda: started().attempt_begun().refused(529, times=2, error_type="overloaded_error").end(1),
        ),
    ),
    Way(
        cause="model_api.rate_limited",
        why="429, and nobody else of this trial spent of the limit at the door",
        proved=refused(429),
        instead=(junk_call(429), unfinished(429), shared_limit),
    ),
    Way(
        cause="model_api.server_error",
        why="5xx to a whole request of the agent's own conversation, while no other request passed",
        proved=lambda: started().waited(90).refused(500, times=3).end(1),
        instead=(
            junk_call(500),
            unfinished(500),
            refused(500),
            refused(501),
            refused(505),
            # A tool that calls twice in the agent's name, and then kills the agent.
            lambda: started().waited(90).refused(500, times=2).end(None, signal=9),
            lambda: started().waited(90).refused(500, times=2).end(137),
        ),
    ),
    Way(
        cause="gateway.error",
        why="an answer that the provider did not write, to a whole request",
        proved=lambda: started().waited(90).refused(503, times=3, provider_id=False).end(1),
        instead=(junk_call(503, provider_id=False), unfinished(503), refused(503, provider_id=False)),
    ),
    Way(
        cause="model_api.unreachable",
        why="a connection that was made for a whole request and that the far side then ended without a word",
        proved=without_head(request_whole=True),
        instead=(
            unfinished(None),
            without_head(after_close=True),
            without_head(errno="ENETUNREACH"),
            # A gateway of this machine that a command of the model's ended.
            without_head(request_whole=True, far_listens=False),
            lambda: started().undialled("connect", "OSError: refused", errno="ECONNREFUSED").end(1),
            lambda: started().undialled("dns").end(1),
        ),
    ),
    Way(
        cause="model_api.truncated",
        why="the far side cut a reply that the client was reading, before its stop reason",
        proved=lambda: started().cut(open_tools=1).end(1),
        instead=(
            lambda: started().cut(seconds=70, downstream_blocked=60.0, blocked_before_end=60.0).end(1),
            lambda: started().cut(seconds=70, downstream_blocked=5.0).end(1),
            lambda: started().cut(request_whole=False).end(1),
            lambda: started().cut(errno="ETIMEDOUT").end(1),
            lambda: started().cut(open_tools=1, far_listens=False).end(1),
            lambda: started().cut(close_kind="close_delimited", far_listens=False).end(1),
            lambda: started().cut(our_lag=5.0).end(1),
        ),
    ),
    Way(
        cause="model_api.stalled",
        why="the far side was silent on a connection that had brought bytes, while the client read",
        proved=lambda: started().aborted(silence=120).waited(9).end(1),
        instead=(
            lambda: started().aborted(silence=120, downstream_blocked=110.0).waited(9).end(1),
            lambda: started().aborted(silence=120, request_whole=False).waited(9).end(1),
            lambda: started().aborted(silence=120, ttfb=None, reused=True).waited(9).end(1),
            lambda: started().aborted(silence=5).waited(9).end(1),
        ),
    ),
    Way(
        cause="container.oom_kill",
        why="the agent waited at the door for its first reply and nothing at all had been answered",
        proved=killed_before_any_reply(),
        instead=(
            killed_before_any_reply(RequestFacts(operation="other")),
            killed_before_any_reply(RequestFacts(operation="count_tokens")),
            killed_before_any_reply(status=200),
            lambda: Scene().call().ran(137, oom=True).end(1),
        ),
    ),
    Way(
        cause="node.oom",
        why="all that the trial used, the command itself included, was within what it was guaranteed",
        proved=node_wide(floor=64 * MIB, beside=8 * MIB),
        instead=(
            node_wide(floor=64 * MIB, beside=None),
            node_wide(floor=64 * MIB, beside=60 * MIB),
            node_wide(floor=32 * MIB, beside=MIB),
        ),
    ),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.cause)
def test_what_the_agent_cannot_have_done_alone_is_proved(way: Way) -> None:
    verdict = way.proved().verdict()
    assert (verdict.blame, verdict.grade, verdict.cause) == (Blame.INFRA, Grade.PROVED, way.cause), way.why


@pytest.mark.parametrize(
    "told", [pytest.param(told, id=f"{way.cause}-{n}") for way in WAYS for n, told in enumerate(way.instead)]
)
def test_what_the_agent_its_tool_or_its_client_can_do_alone_is_not(told: Told) -> None:
    verdict = told().verdict()
    assert (verdict.blame, verdict.grade) != (Blame.INFRA, Grade.PROVED), verdict.sentence


def test_every_cause_that_is_built_and_may_be_proved_infra_has_its_row() -> None:
    """What is built and has no row never gives a proof of infra."""
    never = {
        "model_api.poison_request",  # the request itself may be at fault
        "model_api.slow",  # the ledger alone never proves
        "model_api.timeout",  # 408 and 504 may be the client's own slowness
        "container.oom_residual",  # whose writing filled the box is open
        "container.killed",  # nothing says who did
        "container.memory_denied",  # whose demand it was is open
        "container.memory_stall",  # what the command needed without it is not measured
        "container.cpu_throttled",  # the same
        "container.disk_slow",  # the same
        "node.contention",  # the same
        "node.pressure",  # the same
        "container.pids_limit",  # no counter tells which command was refused
        "container.disk_full",  # no counter tells which command was refused
        "container.restarted",  # nothing says who did
        "container.state_lost",  # nothing says who did
        "container.service_died",  # nothing says who did
        "container.start_failed",  # an agent whose calls are unseen could have asked for it
        "container.image_pull",  # the same
        "unknown.outside",  # nobody is known
        "runtime.daemon_fault",  # an agent that reaches the engine can end it
        "container.fd_limit",  # sampled: nothing tells which call was refused
        "network.tls",  # no control vantage
        "network.proxy",  # no control vantage
        "runtime.exec_lost",  # an agent that reaches the engine can end it
        "harness.killed",  # blamed on the harness only
    }
    built = {c.name for c in CAUSES.values() if c.built and Blame.INFRA in c.may_blame}
    assert built - never == {way.cause for way in WAYS}


@pytest.mark.parametrize(
    "told",
    [
        lambda: started().refused(504, times=3).end(1),
        lambda: started().refused(408, times=3).end(1),
        lambda: started().undialled("tls", "SSLEOFError: EOF occurred").end(1),
        lambda: started().undialled("proxy", "refused", proxy_status=502).end(1),
        lambda: started().call().waited().runtime("kill", signal=9).gone(137).waited().call(tools=0).end(1),
    ],
)
def test_the_others_are_at_most_suspected(told: Told) -> None:
    assert told().verdict().grade is not Grade.PROVED


def test_a_reply_that_set_a_tool_to_work_is_needed_before_anybody_can_be_a_stranger() -> None:
    told = Scene(user_agent="my-agent/1")
    told.attempt(ReplyFacts(status=200, terminator=True, tool_calls=[ToolUse(id="t")]))
    told.attempt(ReplyFacts(status=500), outcome="error", request=junk(told))
    assert told.end(1).verdict().blame is Blame.INDETERMINATE
