"""The persisted records: `fairtrial.trial/1`, `fairtrial.run/1` and everything inside them.

What comes in: values that `steps/` and `attribution/` computed.  What goes out: JSON by `msgspec`.
This file holds shapes only, no rules.  The facts they are computed from are in `observations.py`, the
closed set of causes in `causes/`.

Times are RFC 3339 UTC with microseconds (`str`), durations are seconds, sizes bytes.  `None` means *not
observed*, never 0 or "".  Fields may be added within a schema number, never changed or removed.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import msgspec

TRIAL_SCHEMA: Final = "fairtrial.trial/1"
RUN_SCHEMA: Final = "fairtrial.run/1"
RULESET: Final = "2026.11"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every persisted record: frozen, keyword-only, unknown fields of newer writers are skipped."""


class Blame(StrEnum):
    """Who a failure is put on."""

    INFRA = "infra"
    MODEL = "model"
    HARNESS = "harness"
    OPERATOR = "operator"
    TASK = "task"
    FAIRTRIAL = "fairtrial"
    NONE = "none"
    INDETERMINATE = "indeterminate"


class Grade(StrEnum):
    """How well a blame is supported."""

    PROVED = "proved"
    SUSPECTED = "suspected"


class Answer(StrEnum):
    """An answer to one of the three questions, or to retry / grade / reward-valid."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Trust(StrEnum):
    """Who could have forged an observation."""

    HOST = "host"
    SAME_UID = "same_uid"
    INSIDE = "inside"


class Outcome(StrEnum):
    """What was booked for the trial."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNKNOWN = "unknown"


class PhaseName(StrEnum):
    """The part of a trial that an observation belongs to."""

    BUILD = "build"
    SETUP = "setup"
    AGENT = "agent"
    VERIFY = "verify"
    TEARDOWN = "teardown"


class EndedAs(StrEnum):
    """The mechanism by which the trial came to its end."""

    AGENT_FINISHED = "agent.finished"
    AGENT_GAVE_UP = "agent.gave_up"
    AGENT_CRASHED = "agent.crashed"
    STEP_LIMIT = "step_limit"
    HARNESS_TIMEOUT = "harness.timeout"
    HARNESS_INNER_TIMEOUT = "harness.inner_timeout"
    HARNESS_KILLED = "harness.killed"
    HARNESS_CRASHED = "harness.crashed"
    KILLED = "killed"
    NEVER_RAN = "never_ran"
    UNKNOWN = "unknown"


Closed = Literal["normal", "recovered", "incomplete"]
CallOutcome = Literal["ok", "error", "truncated", "client_disconnect", "proxy_shutdown"]
CallRole = Literal["step", "title", "compaction", "probe", "subagent"]
PeakKind = Literal["exact", "rose_in_step", "at_most", "sampled", "shared"]
ContainerRole = Literal["main", "service", "verifier", "own"]
Level = Literal["full", "partial", "none"]
ClosedBy = Literal["client", "upstream", "fairtrial"]


class Phase(Record, frozen=True, kw_only=True):
    """One phase with its limits in time."""

    name: PhaseName
    started: str | None = None
    ended: str | None = None
    outcome: str | None = None
    source: str | None = None


class Environment(Record, frozen=True, kw_only=True):
    """Where the trial ran."""

    runtime: str | None = None
    node: str | None = None
    node_boot_id: str | None = None
    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container_ids: list[str] = []
    image_digest: str | None = None
    qos_class: str | None = None
    region: str | None = None
    cpu_model: str | None = None
    cores: int | None = None
    kernel: str | None = None
    cgroup: str | None = None
    concurrency_at_start: int | None = None
    hour_of_week: int | None = None


class MemoryLimits(Record, frozen=True, kw_only=True):
    """Bytes; floor is guaranteed, ceiling kills."""

    declared: int | None = None
    floor: int | None = None
    ceiling: int | None = None
    swap: int | None = None
    oom_group: bool | None = None
    floor_guaranteed: bool | None = None


class CpuLimits(Record, frozen=True, kw_only=True):
    """Cores."""

    declared: float | None = None
    floor: float | None = None
    ceiling: float | None = None


class TimeLimits(Record, frozen=True, kw_only=True):
    """Seconds, as the harness declared them."""

    agent: float | None = None
    tool: float | None = None
    verifier: float | None = None
    setup: float | None = None
    multiplier: float | None = None
    source: str | None = None


class Limits(Record, frozen=True, kw_only=True):
    """What the trial was allowed."""

    memory: MemoryLimits = MemoryLimits()
    cpu: CpuLimits = CpuLimits()
    pids: int | None = None
    disk: int | None = None
    egress_rate: float | None = None
    time: TimeLimits = TimeLimits()
    headroom: float | None = None
    enforced_by: str | None = None


class Mutation(Record, frozen=True, kw_only=True):
    """Something that fairtrial changed in the experiment."""

    what: str
    old: str | None = None
    new: str | None = None
    why: str | None = None
    side_effects: str | None = None


class Attempt(Record, frozen=True, kw_only=True):
    """One HTTP request of a call.  Durations in seconds from the request's first byte unless named otherwise."""

    status: int | None = None
    error_type: str | None = None
    outcome: CallOutcome | None = None
    started: str | None = None
    wait_before: float | None = None
    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    ttfb: float | None = None
    first_token: float | None = None
    duration: float | None = None
    retry_after: float | None = None
    """What this reply asked to wait."""
    retry_after_obeyed: bool | None = None
    """Whether this attempt waited as long as the reply before it asked; None where none was asked."""
    request_id: str | None = None
    framing_cut: ClosedBy | None = None
    """Of a reply that was whole: who cut the framing behind its end mark."""
    first_failure: ClosedBy | None = None
    """Who failed first, of an attempt that failed."""
    errno: str | None = None
    closed_by: ClosedBy | None = None
    close_kind: str | None = None
    via_proxy: str | None = None
    remote: str | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    observation: str | None = None
    """Id of the `attempt.ended` observation that this row was made from."""
    key: str | None = None
    """Digest of the API key that it carried, keyed with a secret of the store's: tells keys apart and nothing else."""
    per_key: bool | None = None
    """Whether its refusal named a limit per key."""


class Call(Record, frozen=True, kw_only=True):
    """One logical model call: its attempts folded."""

    id: str
    span_id: str | None = None
    role: CallRole = "step"
    dialect: str | None = None
    provider: str | None = None
    upstream_host: str | None = None
    model: str | None = None
    stream: bool | None = None
    outcome: CallOutcome | None = None
    ttft: float | None = None
    duration: float | None = None
    max_gap: float | None = None
    max_gap_with_pings: float | None = None
    downstream_blocked: float | None = None
    our_lag: float | None = None
    upstream_gap: float | None = None
    """The longest silence that is proved to be the upstream's: pings do not count as bytes, the wait for the first byte
    counts, s.  `max_gap` is the longest whoever's it was, between bytes."""
    upstream_gap_with_pings: float | None = None
    """The same with pings counted as bytes, s."""
    backoff: float | None = None
    """The waits between its attempts, s."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    stop_reason: str | None = None
    fell_back: str | None = None
    """What the client gave up after errors: non_streaming, model, max_tokens, capability; joined by commas."""
    duplicate_of: str | None = None
    """The call that asked the same and had been answered whole: this one is no retry, it samples again."""
    concurrent_duplicate: str | None = None
    """The call that asked the same and was in flight when this one began: hedging."""
    agent: str | None = None
    """Of a subagent's call: the subagent, called by its first call's id; None is the main agent."""
    parent_agent: str | None = None
    """Of a subagent's call: the agent that started it; None is the main agent."""
    body_digest: str | None = None
    """Of its request's body, without the keys that clients flip on a retry."""
    spawned_by: str | None = None
    """Of a subagent's call: the parent's call whose reply set the tool to work that the subagent runs in."""
    container_id: str | None = None
    """The container that its client is in, as the engine told; None: the host, or not known."""
    attempts: list[Attempt] = []


class Connection(Record, frozen=True, kw_only=True):
    """One connection through the connect door (`--via connect`): what can be known of it without reading it.

    `tls` is the first wait of the handshake; `max_wait` from a byte of the client to the upstream's next, `max_gap`
    between two of the upstream; `silent` from the last byte to the end.  `cut`: the upstream ended it first, and
    without TLS's close_notify.
    """

    host: str
    port: int | None = None
    provider: str | None = None
    started: str | None = None
    ok: bool = False
    stage: str | None = None
    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    via_proxy: str | None = None
    remote: str | None = None
    duration: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    max_wait: float | None = None
    max_gap: float | None = None
    silent: float | None = None
    closed_by: ClosedBy | None = None
    close_kind: str | None = None
    cut: bool | None = None
    errno: str | None = None
    error: str | None = None


class Tool(Record, frozen=True, kw_only=True):
    """One tool call of a step."""

    name: str | None = None
    call_id: str | None = None
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    timed_out_by: str | None = None
    exec_id: str | None = None
    exec_via: Literal["docker", "kubernetes", "harness", "inferred"] | None = None
    join: str | None = None
    """text: the command's text is the same; time: nothing else ran meanwhile; inferred: no exec was found."""
    dispatch_delay: float | None = None
    """From the start request to the engine's answer, as the Docker door saw it; without a door from the reply's end to
    the start that the runtime tells."""
    bytes_out: int | None = None
    """What the command wrote, stderr included."""
    bytes_err: int | None = None
    bytes_in: int | None = None
    exec_duration: float | None = None
    """From the start request to the end of its stream."""
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None
    """Who ended its stream: the command itself, a client that left, an engine that broke off, or we."""
    container_id: str | None = None
    """Of a `docker run`: the container that it was."""
    command: list[str] | None = None
    """What ran, as the Docker door saw it: secrets masked, free text as its length unless `privacy.content`."""


class Victim(Record, frozen=True, kw_only=True):
    """A process that the kernel's OOM killer took."""

    comm: str | None = None
    pid: int | None = None
    rss: int | None = None
    role: str | None = None


class ContainerUse(Record, frozen=True, kw_only=True):
    """What one container (or the command's own cgroup) did during one step."""

    id: str
    name: str | None = None
    role: ContainerRole = "main"
    memory_peak: int | None = None
    memory_peak_kind: PeakKind | None = None
    memory_limit: int | None = None
    memory_anon: int | None = None
    memory_shmem: int | None = None
    memory_file: int | None = None
    swap_peak: int | None = None
    memory_max_hits: int | None = None
    memory_high_hits: int | None = None
    memory_ooms: int | None = None
    """cgroup v2: how often its limit left no way but to kill or to refuse; a kill follows most of them."""
    oom_kills: int | None = None
    oom_group_kill: int | None = None
    oom_victims: list[Victim] = []
    cpu_used: float | None = None
    cpu_throttled: float | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    psi_io: float | None = None
    steal: float | None = None
    pids_max_hits: int | None = None
    disk_written: int | None = None
    egress_bytes: int | None = None
    ingress_bytes: int | None = None
    egress_rate_max: float | None = None
    tcp_retrans: int | None = None
    tcp_attempt_fails: int | None = None
    exit_code: int | None = None
    ended_by: str | None = None


class Step(Record, frozen=True, kw_only=True):
    """One completed main-agent model call and the tool work until the next one; indexes count from 1.

    A call that never completed opens the step that it would have become.
    """

    index: int
    phase: PhaseName = PhaseName.AGENT
    started: str | None = None
    ended: str | None = None
    calls: list[Call] = []
    tools: list[Tool] = []
    containers: list[ContainerUse] = []


class TerminatedBy(Record, frozen=True, kw_only=True):
    """The outside event after which no further step ended normally; holds no threshold of ours."""

    cause: str
    grade: Grade
    step: int | None = None
    phase: PhaseName | None = None


class Question(Record, frozen=True, kw_only=True):
    """One answered question with the observations it rests on."""

    answer: Answer = Answer.UNKNOWN
    by: list[str] = []


class Questions(Record, frozen=True, kw_only=True):
    """Did it happen; did it end or distort a step; would the outcome differ without it."""

    happened: Question = Question()
    ended_or_distorted: Question = Question()
    outcome_differs: Question = Question()


class Evidence(Record, frozen=True, kw_only=True):
    """One claim and where it comes from."""

    id: str
    at: str | None = None
    step: int | None = None
    phase: PhaseName | None = None
    source: str
    trust: Trust
    claim: str


class Present(Record, frozen=True, kw_only=True):
    """An outside event that happened and did not matter."""

    cause: str
    step: int | None = None
    why: str


class Ledger(Record, frozen=True, kw_only=True):
    """Time taken by outside intervals against the limit that fired, seconds; the union, never the sum."""

    limit: float | None = None
    elapsed: float | None = None
    need: float | None = None
    infra_seconds: float | None = None
    by_cause: dict[str, float] = {}
    calls_seconds: float | None = None
    """The time that model calls filled."""
    reference: str | None = None
    """By what whole calls were measured; None: by nothing, so what they took was not charged."""
    calls_without_reference: int | None = None
    """Whole calls that were not charged, because the reference knows none of their kind."""
    undecided_seconds: float | None = None
    """The part of `infra_seconds` that only intervals fill of which the trial's own processes may be the reason
    (throttling; an engine that was slow to answer about a busy box).  Nobody is blamed for them.  None: there
    is none."""


class Answers(Record, frozen=True, kw_only=True):
    """What a harness asks: retry? grade? is the reward valid?"""

    retry: Answer = Answer.UNKNOWN
    grade: Answer = Answer.UNKNOWN
    reward_valid: Answer = Answer.UNKNOWN


class Verdict(Record, frozen=True, kw_only=True):
    """What the observations add up to."""

    blame: Blame
    grade: Grade | None = None
    cause: str | None = None
    step: int | None = None
    phase: PhaseName | None = None
    sentence: str
    terminated_by: TerminatedBy | None = None
    ended_as: EndedAs = EndedAs.UNKNOWN
    questions: Questions = Questions()
    evidence: list[Evidence] = []
    against: list[Evidence] = []
    present: list[Present] = []
    ledger: Ledger = Ledger()
    thresholds: dict[str, float] = {}
    flips_if: str | None = None
    answers: Answers = Answers()
    revision: int = 1
    final_after: str | None = None


class FamilyCoverage(Record, frozen=True, kw_only=True):
    """How well one family of causes was watched."""

    level: Level = "none"
    why: str | None = None


class Gap(Record, frozen=True, kw_only=True):
    """A time in which a source did not see."""

    source: str
    since: str | None = None
    until: str | None = None
    why: str | None = None


FAMILIES: Final = ("model_api", "memory", "cpu", "disk", "network", "node", "verifier")


class Coverage(Record, frozen=True, kw_only=True):
    """What was watched.  `doors` and `collectors` map a name to on | off | lost: why."""

    doors: dict[str, str] = {}
    collectors: dict[str, str] = {}
    families: dict[str, FamilyCoverage] = {}
    gaps: list[Gap] = []
    dropped: int | None = None


class Booked(Record, frozen=True, kw_only=True):
    """What one harness booked for the trial, beside the verdict and never changed by it."""

    harness: str
    label: str
    """What the harness calls the trial."""
    job: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    scored: bool = False
    """A verifier or scorer said so; else an exit status or the agent program's own word."""
    reward: float | None = None
    reward_valid: bool | None = None
    """The harness's own word on whether the reward counts."""
    exit_status: str | None = None
    error: str | None = None
    """The first failure, by the harness's name for it."""
    marks: list[str] = []
    retried: bool = False
    """An attempt that the harness gave up and tried again: in no score."""
    part_of: str | None = None
    """The observed trial that holds it beside others."""
    joined_by: str | None = None
    """How it was tied to the observed trial; None: to none."""
    complete: bool = True
    """Every file that tells of it could be read whole."""
    model_calls: int | None = None
    inside: bool = False
    """The agent could have written it itself: it counts for nothing."""


class Mark(Record, frozen=True, kw_only=True):
    """A moment that a program of the trial told through the control API: it counts for nothing (trust inside)."""

    at: str
    """When it was, as it said; else when it said so."""
    told: str
    """When it said so, by our clock."""
    name: str
    text: str | None = None
    about: str | None = None
    """What it called the trial; None: by the run's own id."""
    step: int | None = None


class Trial(Record, frozen=True, kw_only=True):
    """`fairtrial.trial/1`: one attempt at one task, as observed."""

    schema: str = TRIAL_SCHEMA
    trial: str
    name: str | None = None
    run: str | None = None
    harness: str | None = None
    task: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    started: str | None = None
    ended: str | None = None
    closed: Closed = "incomplete"
    trace_id: str | None = None
    fairtrial_version: str | None = None
    ruleset: str = RULESET
    command: list[str] = []
    exit_code: int | None = None
    signal: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    outcome_source: str | None = None
    booked: list[Booked] = []
    """By harnesses whose own records were imported, the one that counts first."""
    marks: list[Mark] = []
    """Told from inside through the control API, in order of their moments."""
    phases: list[Phase] = []
    environment: Environment = Environment()
    limits: Limits = Limits()
    mutations: list[Mutation] = []
    verdict: Verdict | None = None
    steps: list[Step] = []
    side_calls: list[Call] = []
    connections: list[Connection] = []
    """Of `--via connect`."""
    unassigned: dict[str, int] = {}
    coverage: Coverage = Coverage()


class Run(Record, frozen=True, kw_only=True):
    """`fairtrial.run/1`: trials under one configuration."""

    schema: str = RUN_SCHEMA
    run: str | None = None
    command: list[str] = []
    exit_code: int | None = None
    counts: dict[str, int] = {}
    coverage: Coverage = Coverage()
    trials: list[Trial] = []
    unassigned: dict[str, int] = {}
