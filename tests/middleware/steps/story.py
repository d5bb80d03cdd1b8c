"""Observations as doors and collectors would write them, told on a clock that the test moves."""

from __future__ import annotations

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerEvent,
    ContainerSeen,
    CoverageChanged,
    DoorState,
    ExecEnded,
    ExecStarted,
    Host,
    KernelOomKill,
    Observation,
    OomKill,
    ReplyFacts,
    RequestFacts,
    Subject,
    ToolUse,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import CallOutcome, Victim
from fairtrial.middleware.core.sink import Source

TRIAL = "0197aaaa-0000-7000-8000-000000000001"
EPOCH_NS = 1_790_000_000_000_000_000
BOX = "c" * 64


class Story:
    """Tells a trial; `s` is seconds since its start."""

    def __init__(self, *, trial: str = TRIAL, host: str = "node-1") -> None:
        self.trial = trial
        self.observations: list[Observation] = []
        self.s = 0.0
        self._attempts = 0
        sink = self.observations.append
        where = Host(name=host, boot_id="boot")
        self.door = Source("door.model.anthropic", sink, host=where, trial=trial)
        self.collector = Source("collector.cgroup", sink, host=where, trial=trial)
        self.runner = Source("run", sink, host=where, trial=trial)

    def wall(self, s: float | None = None) -> int:
        return EPOCH_NS + round((self.s if s is None else s) * 1e9)

    def tell(
        self, value: Value, *, s: float | None = None, source: Source | None = None, u: float = 0.0
    ) -> Observation:
        at = self.wall(s)
        return (source or self.collector).emit(value, wall_ns=at, mono_ns=at - EPOCH_NS, uncertainty_s=u)

    def begin(self, command: list[str] | None = None) -> Story:
        self.tell(TrialStarted(command=command or ["agent"], kernel="6.1", cores=2), source=self.runner)
        self.tell(DoorState(door="model", name="anthropic", upstream_host="api.test"), source=self.door)
        for name, families in (("cgroup", ["memory", "cpu"]), ("docker_events", ["memory"])):
            self.tell(CoverageChanged(source=f"collector.{name}", families=families))
        self.s += 0.1
        return self

    def end(self, exit_code: int | None = 0, signal: int | None = None) -> Story:
        self.tell(TrialEnded(exit_code=exit_code, signal=signal), source=self.runner)
        return self

    def box(self, *, container: str = BOX, memory_limit: int = 64 << 20) -> Story:
        self.tell(
            ContainerSeen(
                container_id=container, name="box", memory_limit=memory_limit, init_pid=100, started_wall_ns=self.wall()
            )
        )
        self.read("baseline", container=container)
        return self

    def read(self, edge: str = "change", *, container: str = BOX, **counters: object) -> Story:
        fields: dict[str, object] = {"oom_kill": 0, "cpu_used": self.s, "container_id": container, "edge": edge}
        self.tell(CgroupReading(**(fields | counters)))  # type: ignore[arg-type]
        return self

    def attempt(
        self,
        *,
        turns: int,
        seconds: float = 1.0,
        outcome: CallOutcome = "ok",
        tools: tuple[tuple[str, str, str | None], ...] = (),
        reply: ReplyFacts | None = None,
        trial: str | None = "",
        started_only: bool = False,
        advance: bool = True,
        dialect: str = "anthropic_messages",
        container: str | None = None,
        **request: object,
    ) -> str:
        """One attempt that asks for the turn after `turns` assistant messages; `tools` are (id, name, digest).

        `container`: where its client is.
        """
        self._attempts += 1
        name = f"attempt-{self._attempts:05d}"
        facts = request_facts(turns, **request)
        subject = Subject(trial=self.trial if trial == "" else trial)
        begin = self.wall()
        self.door.emit(
            AttemptStarted(attempt=name, dialect=dialect, request=facts, container_id=container),
            subject=subject,
            wall_ns=begin,
            mono_ns=begin - EPOCH_NS,
        )
        if started_only:
            return name
        if reply is None:
            uses = [ToolUse(id=i, name=n, text_digest=d) for i, n, d in tools]
            reply = ReplyFacts(status=200 if outcome == "ok" else 529, tool_calls=uses, output_tokens=10)
        end = self.wall(self.s + seconds)
        self.door.emit(
            AttemptEnded(
                attempt=name,
                dialect=dialect,
                container_id=container,
                parse="none" if dialect == "unknown" else "full",
                request=facts,
                reply=reply,
                outcome=outcome,
                started_ns=begin - EPOCH_NS,
                started_wall_ns=begin,
                ended_ns=end - EPOCH_NS,
                duration=seconds,
                ttfb=seconds / 2,
                first_token=seconds / 2,
            ),
            subject=subject,
            wall_ns=end,
            mono_ns=end - EPOCH_NS,
        )
        if advance:
            self.s += seconds
        return name

    def ran(self, exec_id: str, *, digest: str | None = None, seconds: float = 0.5, exit_code: int | None = 0) -> Story:
        self.tell(ExecStarted(container_id=BOX, exec_id=exec_id, pid=200, text_digest=digest))
        self.s += seconds
        self.tell(ExecEnded(container_id=BOX, exec_id=exec_id, exit_code=exit_code, bytes_out=7))
        return self

    def killed(self, *, s: float | None = None, u: float = 0.0, delta: int = 1, comm: str | None = None) -> Story:
        self.tell(OomKill(container_id=BOX, delta=delta, memory_limit=64 << 20), s=s, u=u)
        if comm is not None:
            self.tell(
                KernelOomKill(victim=Victim(comm=comm, pid=200, rss=60 << 20), container_id=BOX, parents=["bash"]), s=s
            )
        return self

    def event(self, action: str, **fields: object) -> Story:
        self.tell(ContainerEvent(container_id=BOX, action=action, **fields))  # type: ignore[arg-type]
        return self


def request_facts(turns: int, **changes: object) -> RequestFacts:
    """What a tool-using client sends after `turns` assistant messages; the history grows by two messages per turn."""
    messages = [f"m{i}" for i in range(2 * turns + 1)]
    fields: dict[str, object] = {
        "operation": "chat",
        "model": "claude-test",
        "stream": True,
        "max_tokens": 32000,
        "history_len": len(messages),
        "assistant_turns": turns,
        "has_tools": True,
        "tool_count": 3,
        "body_digest": f"body-{turns}",
        "raw_digest": f"raw-{turns}",
        "tools_digest": "tools",
        "first_user_digest": "m0",
        "message_digests": messages[-8:],
        "session_kind": "x-claude-code-session-id",
        "session": "session-1",
    }
    return RequestFacts(**(fields | changes))  # type: ignore[arg-type]


def three_steps() -> Story:
    """Three turns with one exec each, an OOM kill in the second, and a `docker stop` at the end."""
    told = Story().begin().box()
    for turn in range(3):
        results = [f"toolu_{turn - 1}"] if turn else []
        told.attempt(turns=turn, tools=((f"toolu_{turn}", "Bash", f"cmd-{turn}"),), tool_result_ids=results)
        told.read("call_ended", oom_kill=int(turn > 1))
        told.s += 0.01
        told.ran(f"exec-{turn}", digest=f"cmd-{turn}", exit_code=137 if turn == 1 else 0)
        if turn == 1:
            told.killed(comm="python3")
        told.s += 0.05
    told.s += 0.1
    told.event("kill", signal=15)
    told.s += 10
    told.event("die", exit_code=137)
    return told.end()
