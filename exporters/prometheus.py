"""Metrics for Prometheus: counted as observations pass, and once more when a trial is closed; names from `semconv`.

In: observations (`take`), trials that opened and closed, and our own counters (`own`).  Out: one page of text, in
OpenMetrics with exemplars where the scraper asks for it.  Counting never raises; what it could not count is itself
counted.

Labels are bounded: no ids; a model's name is the client's text, so the first `max_values` names of each label are kept
and the rest are one, `other`.  An exemplar carries the trial's trace id, by which the trace is found in Jaeger.

What it cannot see: a process of its own has no memory of the one before it; counters start at 0 with the process, as
Prometheus expects.  **Source:** prometheus-client 0.26 `choose_encoder`; OpenMetrics 1.0, exemplars (128 characters).
"""

from __future__ import annotations

import time
from collections import Counter as Counting
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    Observation,
    OomKill,
    TrialStarted,
    decode,
)
from fairtrial.middleware.core.records import Blame, ContainerUse, Trial

WAIT_BUCKETS: Final = (
    0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 40.0, 82.0, 164.0, 328.0, 656.0,
    1311.0,
)  # fmt: skip
"""Close together where times to a first token lie: the distance of the bounds is the error of a quantile."""
_RATE_BUCKETS: Final = (
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    65.0,
    80.0,
    100.0,
    130.0,
    160.0,
    200.0,
    300.0,
)
_RATIO_BUCKETS: Final = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_BYTE_RATE_BUCKETS: Final = tuple(float(1 << shift) for shift in range(10, 33, 2))
_LAG_BUCKETS: Final = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MIN_TOKENS: Final = 16
"""Fewer tokens say nothing about a rate."""
_MAX_TRACES: Final = 4096
_MAX_LABEL_CHARS: Final = 80
OTHER: Final = "other"
UNKNOWN: Final = "unknown"


class _Names:
    """The first `limit` values of a label that a stranger chooses; the rest are `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: str | None) -> str:
        if not value:
            return UNKNOWN
        name = "".join(char if char.isprintable() else "?" for char in value[:_MAX_LABEL_CHARS])
        if name not in self._known:
            if len(self._known) >= self._limit:
                return OTHER
            self._known.add(name)
        return name


class Metrics:
    """All metrics of one process.  `stall_s`: from which silence on an attempt counts as stalled; `now`: a clock, s."""

    def __init__(
        self, *, version: str, stall_s: float = 90.0, max_values: int = 100, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self._stall_s = stall_s
        self._now = now
        self._model, self._tool, self._provider = _Names(max_values), _Names(max_values), _Names(max_values)
        self._cause = _Names(max_values)
        self._traces: OrderedDict[str, str] = OrderedDict()
        self._heard: dict[str, float] = {}
        """Open trial -> CLOCK_MONOTONIC of its last observation, s."""
        self._calling: Counting[str] = Counting()
        """Open trial -> its calls that have not ended: one without a call may simply be over, and nobody said so."""
        self._own: dict[tuple[Counter, str], int] = {}
        api = ("provider", "model")

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._ttft = histogram(
            semconv.M_TTFT, "Request to first token, of streamed calls that have one.", api, WAIT_BUCKETS
        )
        self._duration = histogram(
            semconv.M_CALL_DURATION, "One HTTP request of a model call, to its end.", (*api, "outcome"), WAIT_BUCKETS
        )
        self._token_rate = histogram(
            semconv.M_TOKEN_RATE, "Output tokens per second behind the first token.", api, _RATE_BUCKETS
        )
        self._attempts = counter(
            semconv.M_ATTEMPTS,
            "HTTP requests of model calls; status none: no response head.",
            (*api, "status", "outcome"),
        )
        self._tokens = counter(semconv.M_OUTPUT_TOKENS, "Output tokens as the API counted them.", api)
        self._stalls = counter(
            semconv.M_STALLS, "Attempts with a silence of the stall threshold, by whose it was.", (*api, "owner")
        )
        self._tools = histogram(semconv.M_TOOL_DURATION, "Tool work of a step.", ("tool",), WAIT_BUCKETS)
        self._ooms = counter(semconv.M_OOM_KILLS, "OOM kills counted by the cgroups of trials.")
        self._memory = histogram(
            semconv.M_MEMORY_RATIO, "Memory peak of a step over its ceiling, per container.", (), _RATIO_BUCKETS
        )
        self._throttled = counter(semconv.M_THROTTLED, "Time in which containers of trials were throttled.")
        self._egress = counter(semconv.M_EGRESS_BYTES, "Bytes sent by containers of trials.")
        self._egress_rate = histogram(
            semconv.M_EGRESS_RATE, "Highest egress rate of a step, per container.", (), _BYTE_RATE_BUCKETS
        )
        self._open = Gauge(semconv.M_OPEN_TRIALS, "Trials that are open.", registry=registry)
        self._open.set_function(lambda: float(len(self._heard)))
        self._silent = Gauge(
            semconv.M_SILENT_TRIAL,
            "Time since the last observation of the trial that is silent longest with a call open.",
            registry=registry,
        )
        self._silent.set_function(self._longest_silence)
        self._trials = counter(
            semconv.M_TRIALS, "Closed trials by outcome and verdict.", ("outcome", "blame", "grade", "cause")
        )
        self._ended = counter(
            semconv.M_ENDED_BY,
            "Closed trials that an outside event ended; no threshold of ours in it.",
            ("cause", "grade"),
        )
        self._dropped = counter(semconv.M_DROPPED, "What fairtrial itself lost.", ("what",))
        self._unassigned = counter(semconv.M_UNASSIGNED, "Requests that were given to no trial, by why.", ("why",))
        self._errors = counter(semconv.M_ERRORS, "Faults of fairtrial itself that it went on after.", ("where",))
        self._lag = histogram(semconv.M_LAG, "How late the relay's event loop was, of each attempt.", (), _LAG_BUCKETS)
        self._spans = Gauge(semconv.M_SPANS, "Spans by what became of them.", ("state",), registry=registry)
        Gauge(semconv.M_BUILD, "Version.", ("version",), registry=registry).labels(version).set(1)

    # --- what is counted ------------------------------------------------------------------------------------------

    def take(self, observation: Observation) -> None:
        """Count one observation as it passes.  Costs some 20 µs for the end of an attempt, nothing for most others."""
        trial = observation.subject.trial
        if trial in self._heard:
            self._heard[trial] = self._now()
            if observation.kind == AttemptStarted.kind:
                self._calling[trial] += 1
            elif observation.kind == AttemptEnded.kind and self._calling[trial] > 0:
                self._calling[trial] -= 1
        if observation.kind not in (AttemptEnded.kind, OomKill.kind, TrialStarted.kind):
            return
        self._safely("observation", self._count, observation)

    def opened(self, trial: str, trace_id: str | None = None) -> None:
        """A trial is open from now on; its trace is what the exemplars of its calls lead to."""
        self._heard[trial] = self._now()
        if trace_id is not None:
            self._keep_trace(trial, trace_id)

    def closed(self, trial: Trial) -> None:
        """A trial was judged; a revised verdict of it is not counted again."""
        was_open = self._heard.pop(trial.trial, None) is not None
        self._calling.pop(trial.trial, None)
        if was_open or trial.verdict is None or trial.verdict.revision <= 1:
            self._safely("trial", self._count_trial, trial)

    def own(
        self,
        *,
        dropped: Mapping[str, int],
        errors: Mapping[str, int],
        spans: Mapping[str, int],
        unassigned: Mapping[str, int] | None = None,
    ) -> None:
        """Our own counters, as sums since the start of the process."""
        for why, total in (unassigned or {}).items():
            self._raise_to(self._unassigned, why, total)
        for what, total in dropped.items():
            self._raise_to(self._dropped, what, total)
        for where, total in errors.items():
            self._raise_to(self._errors, where, total)
        for state, count in spans.items():
            self._spans.labels(state).set(count)

    def render(self, accept: str) -> tuple[str, bytes]:
        """(content type, page) for an Accept header; OpenMetrics, with exemplars, only to whom asks for it."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self.registry)

    # --- how ------------------------------------------------------------------------------------------------------

    def _safely(self, where: str, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
        except Exception:  # noqa: BLE001 - a metric must never cost an observation
            self._errors.labels(f"metrics.{where}").inc()

    def _count(self, observation: Observation) -> None:
        value = decode(observation)
        if isinstance(value, AttemptEnded):
            self._count_attempt(value, self._exemplar(observation.subject.trial))
        elif isinstance(value, OomKill):
            self._ooms.inc(value.delta, self._exemplar(observation.subject.trial))
        elif isinstance(value, TrialStarted) and value.trace_id is not None and observation.subject.trial is not None:
            self._keep_trace(observation.subject.trial, value.trace_id)

    def _keep_trace(self, trial: str, trace_id: str) -> None:
        self._traces[trial] = trace_id
        if len(self._traces) > _MAX_TRACES:
            self._traces.popitem(last=False)

    def _count_attempt(self, value: AttemptEnded, exemplar: dict[str, str] | None) -> None:
        if value.request.operation not in ("chat", "other") or value.dialect == UNKNOWN:
            return
        labels = (self._provider(value.provider), self._model(value.request.model or value.reply.model))
        status = value.reply.status
        code = str(status) if status is not None and 100 <= status <= 599 else "none"
        self._attempts.labels(*labels, code, value.outcome).inc(exemplar=exemplar)
        if value.duration is not None:
            self._duration.labels(*labels, value.outcome).observe(value.duration, exemplar)
        if value.first_token is not None and value.request.stream:
            self._ttft.labels(*labels).observe(value.first_token, exemplar)
            tokens = value.reply.output_tokens
            if value.outcome == "ok" and tokens is not None and tokens >= _MIN_TOKENS and value.duration is not None:
                spoken = value.duration - value.first_token
                if spoken > 0:
                    self._token_rate.labels(*labels).observe(tokens / spoken, exemplar)
        if value.reply.output_tokens:
            self._tokens.labels(*labels).inc(value.reply.output_tokens)
        for owner, silence in (
            ("upstream", value.upstream_gap_with_pings),
            ("client", value.downstream_blocked),
            ("fairtrial", value.our_lag),
        ):
            if silence is not None and silence >= self._stall_s:
                self._stalls.labels(*labels, owner).inc(exemplar=exemplar)
        if value.our_lag is not None:
            self._lag.observe(value.our_lag)

    def _count_trial(self, trial: Trial) -> None:
        verdict = trial.verdict
        blame, grade, cause, ended = Blame.INDETERMINATE.value, "none", "none", None
        if verdict is not None:
            blame, cause, ended = verdict.blame.value, self._cause(verdict.cause or "none"), verdict.terminated_by
            grade = verdict.grade.value if verdict.grade is not None else "none"
        self._trials.labels(trial.outcome.value, blame, grade, cause).inc()
        if ended is not None:
            self._ended.labels(self._cause(ended.cause), ended.grade.value).inc()
        for step in trial.steps:
            for tool in step.tools:
                seconds = _between(tool.started, tool.ended)
                if seconds is not None:
                    self._tools.labels(self._tool(tool.name)).observe(seconds)
            for use in step.containers:
                self._count_use(use)
        self._traces.pop(trial.trial, None)

    def _count_use(self, use: ContainerUse) -> None:
        if use.memory_peak is not None and use.memory_limit:
            self._memory.observe(use.memory_peak / use.memory_limit)
        if use.cpu_throttled:
            self._throttled.inc(use.cpu_throttled)
        if use.egress_bytes:
            self._egress.inc(use.egress_bytes)
        if use.egress_rate_max is not None:
            self._egress_rate.observe(use.egress_rate_max)

    def _raise_to(self, counter: Counter, label: str, total: int) -> None:
        missing = total - self._own.get((counter, label), 0)
        if missing > 0:
            counter.labels(label).inc(missing)
            self._own[counter, label] = total

    def _exemplar(self, trial: str | None) -> dict[str, str] | None:
        trace = self._traces.get(trial) if trial is not None else None
        return None if trace is None else {"trace_id": trace}

    def _longest_silence(self) -> float:
        now = self._now()
        silent = (now - heard for trial, heard in tuple(self._heard.items()) if self._calling[trial])
        return max(silent, default=0.0)


def _between(since: str | None, until: str | None) -> float | None:
    if since is None or until is None:
        return None
    seconds = (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
    return seconds if seconds >= 0 else None
