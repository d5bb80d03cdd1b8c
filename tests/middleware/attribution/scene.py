"""Scenes: trials told as the observations that doors and collectors would have written, on a clock that the test moves.

They go through the real assembler, so a rule is tested on what it will be given.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Literal

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    DoorState,
    ExecEnded,
    ExecStarted,
    GapSeen,
    Host,
    HostCounters,
    KernelOomKill,
    Observation,
    OomKill,
    ReplyFacts,
    RequestFacts,
    ToolUse,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import CallOutcome, Trust, Verdict, Victim
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.placed import Assembly

TRIAL = "0197aaaa-0000-7000-8000-000000000001"
EPOCH_NS = 1_790_000_000_000_000_000
BOX = "b0" * 32
MIB = 1 << 20
CLAUDE = "claude-cli/2.1.197 (external, cli)"
Edge = Literal["baseline", "call_started", "call_ended", "change", "exec", "end", "last"]


class Scene:
    """One trial; `s` is seconds since its start.  `box`: a task container beside the agent, else its own cgroup."""

    def __init__(
        self,
        *,
        box: bool = True,
        limit: int | None = 64 * MIB,
        reservation: int | None = None,
        role: Literal["main", "service"] = "main",
        user_agent: str = CLAUDE,
        families: Iterable[str] = ("memory", "cpu", "network", "node", "disk"),
        counters: bool = True,
        vmstat: bool = True,
    ) -> None:
        self.observations: list[Observation] = []
        self.s = 0.0
        self.turns = 0
        self.limit, self.user_agent, self.counters, self.vmstat = limit, user_agent, counters, vmstat
        self.container = BOX if box else "own"
        self.kills = 0
        self.node_kills = 0
        self.failed_connections = 0
        self.shmem: int | None = None
        self.also: dict[str, object] = {}
        """More counters of the container, in each reading from now on."""
        self.host_also: dict[str, object] = {}
        """More counters of the node."""
        self._names = 0
        self._pending: list[str] = []
        where = Host(name="node-1", boot_id="boot")
        made = {
            n: Source(n, self.observations.append, host=where, trial=TRIAL)
            for n in ("run", "door.model.anthropic", "collector.cgroup", "collector.vmstat", "collector.docker_events")
        }
        self.runner, self.door = made["run"], made["door.model.anthropic"]
        self.cgroup, self.host, self.events = (
            made["collector.cgroup"],
            made["collector.vmstat"],
            made["collector.docker_events"],
        )
        self.tell(TrialStarted(command=["agent"], kernel="6.1", cores=2), self.runner)
        self.tell(DoorState(door="model", name="anthropic", upstream_host="api.test"), self.door)
        self.tell(CoverageChanged(source="door.model.anthropic", families=["model_api"]), self.door)
        if families:
            self.tell(CoverageChanged(source="collector.cgroup", families=list(families)), self.cgroup)
        if box:
            self.tell(
                ContainerSeen(
                    container_id=BOX,
                    name="task-1",
                    role=role,
                    memory_limit=limit,
                    memory_reservation=reservation,
                    init_pid=100,
                    started_wall_ns=self.wall(),
                ),
                self.events,
            )
        self.read("baseline")
        self.s += 0.1

    # --- the bottom --------------------------------------------------------------------------------------------

    def wall(self, s: float | None = None) -> int:
        return EPOCH_NS + round((self.s if s is None else s) * 1e9)

    def tell(self, value: Value, source: Source | None = None, *, trust: Trust = Trust.HOST) -> Observation:
        at = self.wall()
        return (source or self.cgroup).emit(value, wall_ns=at, mono_ns=at - EPOCH_NS, trust=trust)

    def read(self, edge: Edge = "change", **more: object) -> Scene:
        if self.counters:
            fields: dict[str, object] = {
                "container_id": self.container,
                "edge": edge,
                "oom_kill": self.kills,
                "memory_limit": self.limit,
                "memory_shmem": self.shmem,
                "tcp_attempt_fails": self.failed_connections,
            }
            self.tell(CgroupReading(**(fields | self.also | more)))  # type: ignore[arg-type]
        if self.vmstat:
            counted: dict[str, object] = {"edge": edge, "oom_kill": self.kills + self.node_kills}
            self.tell(HostCounters(**(counted | self.host_also)), self.host)  # type: ignore[arg-type]
        return self

    def name(self, of: str) -> str:
        self._names += 1
        return f"{of}-{self._names:04d}"

    # --- model calls -------------------------------------------------------------------------------------------

    def attempt(
        self,
        reply: ReplyFacts,
        *,
        outcome: CallOutcome = "ok",
        seconds: float = 1.0,
        operation: str = "chat",
        begun_only: bool = False,
        request: RequestFacts | None = None,
        **facts: object,
    ) -> Scene:
        attempt = self.name("attempt")
        sent = request or self.request(operation=operation)
        begin = self.wall()
        told = {"attempt": attempt, "door": "anthropic", "provider": "anthropic", "dialect": "anthropic_messages"}
        self.tell(AttemptStarted(**told, upstream_host="api.test", request=sent), self.door)  # type: ignore[arg-type]
        if begun_only:
            self.s += seconds
            return self
        self.s += seconds
        fields: dict[str, object] = {
            **told,
            "upstream_host": "api.test",
            "request": sent,
            "reply": reply,
            "outcome": outcome,
            "started_ns": begin - EPOCH_NS + 1,
            "started_wall_ns": begin,
            "ended_ns": self.wall() - EPOCH_NS + 1,
            "duration": seconds,
        }
        self.tell(AttemptEnded(**(fields | facts)), self.door)  # type: ignore[arg-type]
        return self

    def attempt_begun(self, seconds: float = 1.0) -> Scene:
        """A call of which no end was seen."""
        return self.attempt(ReplyFacts(), begun_only=True, seconds=seconds)

    def request(self, *, operation: str = "chat", **changes: object) -> RequestFacts:
        messages = [f"m{i}" for i in range(2 * self.turns + 1)]
        fields: dict[str, object] = {
            "operation": operation,
            "model": "claude-test",
            "stream": True,
            "max_tokens": 32_000,
            "history_len": len(messages),
            "assistant_turns": self.turns,
            "has_tools": True,
            "body_digest": f"body-{self.turns}",
            "tools_digest": "tools",
            "first_user_digest": "m0",
            "message_digests": messages[-8:],
            "tool_result_ids": list(self._pending),
            "session_kind": "header",
            "session": "session-1",
            "user_agent": self.user_agent,
        }
        return RequestFacts(**(fields | changes))  # type: ignore[arg-type]

    def call(self, *, tools: int = 1, seconds: float = 1.0, lag: float | None = None, **reply: object) -> Scene:
        """A whole reply; with `tools` the model goes on, without it is done.  `lag`: our own, s."""
        self.read("call_started")
        uses = [ToolUse(id=self.name("toolu"), name="bash") for _ in range(tools)]
        fields: dict[str, object] = {
            "status": 200,
            "provider_id": True,
            "stop_reason": "tool_use" if tools else "end_turn",
            "tool_calls": uses,
            "terminator": True,
            "started_content": True,
            "output_tokens": 20,
        }
        self.attempt(ReplyFacts(**(fields | reply)), seconds=seconds, our_lag=lag)  # type: ignore[arg-type]
        self.turns += 1
        self._pending = [use.id or "" for use in uses]
        return self.read("call_ended")

    def refused(
        self, status: int = 529, *, times: int = 1, wait: float = 1.0, seconds: float = 0.2, **reply: object
    ) -> Scene:
        """Attempts of the present turn that the far side answered with an error."""
        fields: dict[str, object] = {"status": status, "provider_id": True, "error_type": None}
        for n in range(times):
            self.s += wait if n else 0.0
            self.attempt(ReplyFacts(**(fields | reply)), outcome="error", seconds=seconds)  # type: ignore[arg-type]
        return self

    def cut(self, *, open_tools: int = 0, stop_reason: str | None = None, **facts: object) -> Scene:
        """A reply that the upstream cut in its middle."""
        reply = ReplyFacts(
            status=200,
            provider_id=True,
            started_content=True,
            terminator=False,
            stop_reason=stop_reason,
            open_tool_calls=open_tools,
            text_digest="partial",
        )
        told: dict[str, object] = {
            "first_failure": "upstream",
            "closed_by": "upstream",
            "close_kind": "fin",
            "bytes_down": 420,
        }
        return self.attempt(reply, outcome="truncated", **(told | facts))  # type: ignore[arg-type]

    def aborted(self, *, silence: float, seconds: float | None = None, **facts: object) -> Scene:
        """A call that the client closed itself after the upstream had been silent for a while."""
        told: dict[str, object] = {
            "first_failure": "client",
            "closed_by": "client",
            "close_kind": "fin",
            "max_gap_with_pings": silence,
            "silence_at_end": silence,
            "ttfb": 0.1,
        }
        reply = ReplyFacts(status=200, provider_id=True, started_content=True, terminator=False)
        length = silence + 1 if seconds is None else seconds
        return self.attempt(reply, outcome="client_disconnect", seconds=length, **(told | facts))  # type: ignore[arg-type]

    def undialled(
        self, stage: str = "dns", error: str = "gaierror: Name or service not known", **facts: object
    ) -> Scene:
        told: dict[str, object] = {
            "dial_stage": stage,
            "dial_error": error,
            "first_failure": "upstream",
            "close_kind": "dial",
        }
        return self.attempt(ReplyFacts(), outcome="error", seconds=0.1, **(told | facts))  # type: ignore[arg-type]

    # --- tools and containers ----------------------------------------------------------------------------------

    def ran(self, exit_code: int | None = 0, *, seconds: float = 0.5, oom: bool = False, **kill: object) -> Scene:
        """A command of the present step in the box, struck by the OOM killer or not."""
        exec_id = self.name("exec")
        self.tell(ExecStarted(container_id=self.container, exec_id=exec_id, pid=200), self.events)
        self.s += seconds
        if oom:
            self.oom(**kill)  # type: ignore[arg-type]
            self.s += 0.05
        self.tell(ExecEnded(container_id=self.container, exec_id=exec_id, exit_code=exit_code), self.events)
        self.s += 0.1
        return self

    def oom(self, *, delta: int = 1, told: bool = True, victim: Victim | None = None, **fields: object) -> Scene:
        """The container's own kill counter rose."""
        self.kills += delta
        constraint = str(fields.pop("constraint", "CONSTRAINT_MEMCG"))
        full = fields.pop("oom_memcg", None)
        lived_s, exec_id = fields.pop("lived_s", None), fields.pop("exec_id", None)
        alone = fields.pop("only_live_exec", False)
        known: dict[str, object] = {
            "container_id": self.container,
            "delta": delta,
            "memory_limit": self.limit,
            "memory_peak": self.limit,
            "memory_shmem": self.shmem,
        }
        self.tell(OomKill(**(known | fields)))  # type: ignore[arg-type]
        if victim is not None:
            record = KernelOomKill(
                victim=victim,
                container_id=self.container,
                constraint=constraint,
                oom_memcg=None if full is None else str(full),
                lived_s=lived_s if isinstance(lived_s, float) else None,
                exec_id=None if exec_id is None else str(exec_id),
                exec_join="only_live_exec" if alone else None,
            )
            self.tell(record, self.cgroup)
        if told and self.container != "own":
            self.tell(ContainerEvent(container_id=self.container, action="oom"), self.events)
        return self

    def waited(self, seconds: float = 1.0) -> Scene:
        """Tool work that the runtime does not see."""
        self.s += seconds
        return self

    def runtime(self, action: str, *, signal: int | None = None) -> Scene:
        self.tell(ContainerEvent(container_id=BOX, action=action, signal=signal), self.events)
        return self

    def gone(self, exit_code: int = 137, *, ended_by: str = "unknown", flag: bool = False) -> Scene:
        self.read("last")
        self.tell(
            ContainerGone(container_id=BOX, exit_code=exit_code, oom_killed_flag=flag, ended_by=ended_by), self.events
        )
        return self

    # --- the end -----------------------------------------------------------------------------------------------

    def gap(
        self, *, since: float, until: float, source: str = "feed", families: Iterable[str] = ("model_api",)
    ) -> Scene:
        told = GapSeen(
            source=source, families=list(families), since_ns=self.wall(since), until_ns=self.wall(until), lost_bytes=99
        )
        self.tell(told, self.runner)
        return self

    def end(self, exit_code: int | None = 1, *, signal: int | None = None, forwarded: Iterable[int] = ()) -> Scene:
        if not any(isinstance(o, Observation) and o.kind == "container.gone" for o in self.observations):
            self.read("end")
        self.tell(TrialEnded(exit_code=exit_code, signal=signal, forwarded_signals=list(forwarded)), self.runner)
        self.s += 1.0
        return self

    def assembly(self, observations: Iterable[Observation] | None = None) -> Assembly:
        return assemble(self.observations if observations is None else observations, TRIAL)

    def verdict(
        self, observations: Iterable[Observation] | None = None, *, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Verdict:
        return judge(self.assembly(observations), thresholds)

    def shuffled(self, seed: int) -> list[Observation]:
        """The same observations in another order, some of them twice."""
        chance = random.Random(seed)
        told = [*self.observations, *chance.sample(self.observations, len(self.observations) // 3)]
        chance.shuffle(told)
        return told


def summary(verdict: Verdict) -> tuple[str, str | None, str | None, int | None]:
    """Blame, grade, cause and step: what most tests claim."""
    return (
        verdict.blame.value,
        verdict.grade.value if verdict.grade is not None else None,
        verdict.cause,
        verdict.step,
    )


def ended(verdict: Verdict) -> tuple[str, str, int | None] | None:
    """What terminated the trial: cause, grade, step."""
    by = verdict.terminated_by
    return None if by is None else (by.cause, by.grade.value, by.step)


# --- scenes that several tests share --------------------------------------------------------------------------------


def model_failed(**scene: object) -> Scene:
    """Two steps with tools that ended well, a last word, and exit 1."""
    return Scene(**scene).call().ran(0).call().ran(1).call(tools=0).end(1)  # type: ignore[arg-type]


def oom_in_last_tool_step() -> Scene:
    """Two commands, the second killed for memory."""
    return Scene().call().ran(0).call().ran(137, oom=True, victim=Victim(comm="python3", pid=8433, rss=60 * MIB))


def full_tmpfs(steps: int = 4) -> Scene:
    """mini-swe-agent in 64 MiB: step 1 fills a tmpfs and is killed, every later command dies too; exit 0."""
    told = Scene(user_agent="OpenAI/Python 3.57.0")
    for _ in range(steps):
        told.call().waited(0.05)
        told.shmem = 63 * MIB
        told.ran(137, oom=True, victim=Victim(comm="dd", pid=8433, rss=2 * MIB))
    return told.end(0)


def storm(times: int = 9) -> Scene:
    """Claude Code against 529 without end, after one good step."""
    return Scene().call().ran(0).refused(529, times=times, error_type="overloaded_error").end(1)
