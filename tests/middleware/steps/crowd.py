"""A run with many conversations and containers, told as doors and collectors would write it; times are seconds."""

from __future__ import annotations

from collections.abc import Sequence

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    DoorContainer,
    DoorExec,
    DoorState,
    ExecEnded,
    ExecStarted,
    HarnessOutcome,
    Host,
    HostCounters,
    KernelOomKill,
    Note,
    Observation,
    OomKill,
    ReplyFacts,
    RequestFacts,
    Sender,
    ToolUse,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import Outcome, Trust, Victim
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.booked import CONTROL
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.steps.words import ABOUT, AT, MARK, NAME

ROOT = "0197bbbb-0000-7000-8000-000000000001"
EPOCH_NS = 1_790_000_000_000_000_000


def _ns(s: float) -> int:
    return EPOCH_NS + round(s * 1e9)


def box_id(letter: str) -> str:
    return letter * 64


class Crowd:
    """Tells what happened in a run; `facts` is what the parting gets."""

    def __init__(self, *, run: str | None = "nightly") -> None:
        self.observations: list[Observation] = []
        host = Host(name="node-1", boot_id="boot")
        self._sources = {
            name: Source(name, self.observations.append, host=host, trial=ROOT)
            for name in (
                "observer",
                "door.model",
                "door.docker",
                "collector.cgroup",
                "collector.docker_events",
                CONTROL,
            )
        }
        self._sources |= {
            name: Source(f"collector.{name}", self.observations.append, host=host, trial=ROOT)
            for name in ("vmstat", "kernel_log")
        }
        self._attempts = 0
        self.tell("observer", 0, TrialStarted(command=["harness"], run=run))
        self.tell("observer", 0, DoorState(door="model", name="anthropic", upstream_host="api.test"))
        for name in ("cgroup", "docker_events", "kernel_log", "vmstat"):
            families = ["memory", "node"]
            self.tell("observer", 0, CoverageChanged(source=f"collector.{name}", families=families))
        self.host(0, 7)

    def tell(self, source: str, s: float, value: Value) -> Observation:
        at_ns = EPOCH_NS + round(s * 1e9)
        return self._sources[source].emit(value, wall_ns=at_ns, mono_ns=at_ns - EPOCH_NS)

    def host(self, s: float, oom_kill: int) -> None:
        self.tell("vmstat", s, HostCounters(oom_kill=oom_kill))

    def end(self, s: float, *, oom_kill: int = 7, exit_code: int = 0) -> None:
        self.host(s, oom_kill)
        self.tell("observer", s, TrialEnded(exit_code=exit_code))

    def box(
        self,
        letter: str,
        s: float,
        *,
        until: float | None = None,
        project: str | None = None,
        mark: str | None = None,
        name: str | None = None,
    ) -> str:
        """A container from `s` on."""
        box = box_id(letter)
        seen = ContainerSeen(
            container_id=box,
            name=name or f"box-{letter}",
            labels={} if project is None else {"com.docker.compose.project": project},
            trial_mark=mark,
            memory_limit=64 << 20,
            started_wall_ns=EPOCH_NS + round(s * 1e9),
        )
        self.tell("collector.docker_events", s, seen)
        self.tell("collector.cgroup", s, CgroupReading(container_id=box, edge="baseline", oom_kill=0))
        if until is not None:
            self.tell("collector.cgroup", until, CgroupReading(container_id=box, edge="last", oom_kill=0))
            self.tell("collector.docker_events", until, ContainerGone(container_id=box, exit_code=0, ended_by="exit"))
        return box

    def ran(self, letter: str, s: float, text: str, *, exit_code: int = 0) -> None:
        """A command in a container, for 0.1 s."""
        self._attempts += 1
        box, exec_id = box_id(letter), f"exec-{self._attempts}"
        started = ExecStarted(container_id=box, exec_id=exec_id, text_digest=text, plumbing=False)
        self.tell("collector.docker_events", s, started)
        ended = ExecEnded(container_id=box, exec_id=exec_id, exit_code=exit_code)
        self.tell("collector.docker_events", s + 0.1, ended)

    def asked(self, letter: str, s: float, text: str, *, typed: str | None = None) -> None:
        """The same through the Docker door, which tells of it when it is over; `typed`: keys for a terminal."""
        self.ran(letter, s, text)
        seen = DoorExec(
            exec_id=f"exec-{self._attempts}",
            container_id=box_id(letter),
            started_wall_ns=EPOCH_NS + round(s * 1e9),
            duration=0.1,
            plumbing=True,
            typed_digest=typed,
        )
        self.tell("door.docker", s + 0.1, seen)

    def killed(self, letter: str, s: float, *, logged: bool = True) -> None:
        """An OOM kill in a container."""
        box = box_id(letter)
        self.tell("collector.cgroup", s, OomKill(container_id=box, delta=1, memory_limit=64 << 20))
        self.tell("collector.cgroup", s, CgroupReading(container_id=box, edge="change", oom_kill=1))
        if logged:
            kill = KernelOomKill(victim=Victim(comm="python3", pid=5), container_id=box, task_memcg=f"/docker/{box}")
            self.tell("kernel_log", s, kill)

    def stopped(self, name: str, s: float) -> None:
        """The harness's client stops a container by name."""
        self.tell("door.docker", s, DoorContainer(action="stop", container_named=name, status=204))

    def said(self, s: float, about: str | None, *, outcome: str | None = None, at: float | None = None) -> None:
        """A word of the control API: a mark, or an outcome.  `at`: the moment that the mark tells."""
        value: Value
        if outcome is None:
            told = {NAME: "sample.end", ABOUT: about, AT: None if at is None else _ns(at)}
            fields: dict[str, object] = {name: each for name, each in told.items() if each is not None}
            value = Note(event=MARK, text="over", fields=fields)
        else:
            label = about or ROOT
            value = HarnessOutcome(
                harness=CONTROL, identity=f"control/{label}", label=label, about=about, outcome=Outcome(outcome)
            )
        self._sources[CONTROL].emit(value, wall_ns=_ns(s), mono_ns=round(s * 1e9), trust=Trust.INSIDE)

    def call(
        self,
        s: float,
        turns: int,
        *,
        first: str = "task",
        session: str | None = None,
        agent: str | None = None,
        parent: str | None = None,
        system: str | None = "system",
        tools: str | None = "tools",
        inside: str | None = None,
        named: str | None = None,
        asks: Sequence[tuple[str | None, str, str | None]] = (),
        keys: Sequence[str] = (),
        brings: Sequence[str] = (),
        ok: bool = True,
        lasts: float = 0.5,
        history: str | None = None,
        pids: Sequence[int] = (),
    ) -> str:
        """One attempt.  `inside`: the container that it came from; `asks`: the reply's tool calls as (id, name, text);
        `keys`: what its words ask to be typed;
        `history` tells twins' answers apart; `pids`: the process that makes it, and its parents."""
        self._attempts += 1
        attempt = f"attempt-{self._attempts:04d}"
        container = None if inside is None else box_id(inside)
        middle = [f"{history or first}-m{i}" for i in range(1, 2 * turns + 1)]
        request = RequestFacts(
            operation="chat",
            model="claude-test",
            history_len=2 * turns + 1,
            assistant_turns=turns,
            has_tools=tools is not None,
            system_digest=system,
            tools_digest=tools,
            first_user_digest=first,
            message_digests=[first, *middle][-8:],
            body_digest=f"{first}-{turns}-{history}",
            tool_result_ids=list(brings),
            session_kind=None if session is None else "x-claude-code-session-id",
            session=session,
            agent=agent,
            parent_agent=parent,
        )
        self.tell(
            "door.model",
            s,
            AttemptStarted(
                attempt=attempt, dialect="anthropic_messages", request=request, container_id=container, named=named
            ),
        )
        uses = [ToolUse(id=use, name=name, text_digest=text) for use, name, text in asks]
        begin_ns = round(s * 1e9)
        self.tell(
            "door.model",
            s + lasts,
            AttemptEnded(
                attempt=attempt,
                dialect="anthropic_messages",
                request=request,
                container_id=container,
                named=named,
                reply=ReplyFacts(
                    status=200 if ok else 529,
                    error_type=None if ok else "overloaded_error",
                    provider_id=True,
                    tool_calls=uses,
                    typed_digests=list(keys),
                    stop_reason="tool_use" if uses else "end_turn",
                    terminator=ok,
                ),
                outcome="ok" if ok else "error",
                sender=Sender(pid=pids[0], start_ticks=1, parents=list(pids[1:])) if pids else None,
                first_failure=None if ok else "upstream",
                started_ns=begin_ns,
                started_wall_ns=EPOCH_NS + begin_ns,
                ended_ns=begin_ns + round(lasts * 1e9),
                duration=lasts,
            ),
        )
        return attempt

    def talk(self, s: float, turns: int, *, every: float = 1.0, **more: object) -> list[str]:
        """A conversation of so many turns."""
        return [self.call(s + n * every, n, **more) for n in range(turns)]  # type: ignore[arg-type]

    def facts(self, observations: Sequence[Observation] | None = None) -> RunFacts:
        facts = RunFacts(ROOT)
        for observation in self.observations if observations is None else observations:
            facts.take(observation)
        return facts
