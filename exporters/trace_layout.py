"""A trial as spans: what they are called, what they carry, who is whose child.

In: a `Trial` record with its verdict.  Out: `Span` shapes in order of depth, with deterministic ids, so the same
trial always gives the same spans and none is ever invented twice.  Pure: no OpenTelemetry import, no I/O.
The counterpart that sends them is `otlp.py`; every name comes from `middleware/core/semconv.py`.

Layout (DESIGN section 6): `trial` → `phase` → `step` → `chat {model}` (one CLIENT child per attempt) and
`execute_tool {tool}`; an OOM kill is a short child span of its step.  Numbers on the step are deltas of that step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Attempt, Blame, Call, ContainerUse, Step, Tool, Trial

AttributeValue = str | bool | int | float | list[str]
MAX_TEXT: Final = 256
"""Characters of any text attribute: every Jaeger back end can search it, and a span stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A moment on a span."""

    name: str
    at_ns: int
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span; ids are hex (32 and 16 digits), times ns since the epoch.  `links`: span ids of the same trace."""

    service: str
    name: str
    kind: Literal["internal", "client"]
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue]
    events: tuple[Event, ...] = ()
    links: tuple[str, ...] = ()
    error: str | None = None


def span_id(*parts: object) -> str:
    """A span id made from what the span is about: stable over restarts and replays."""
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def spans_of(trial: Trial, *, root_span_id: str | None = None, parent_span_id: str | None = None) -> list[Span]:
    """All spans of one trial, parents before children; empty when the trial has no trace id or no start."""
    started = wall_ns_of(trial.started)
    if trial.trace_id is None or started is None:
        return []
    layout = _Layout(trial, trial.trace_id, started, root_span_id or span_id(trial.trial, "root"), parent_span_id)
    return list(layout.spans())


class _Layout:
    """Walks one trial; keeps what every span of it shares."""

    def __init__(self, trial: Trial, trace_id: str, started: int, root: str, parent: str | None) -> None:
        self.trial = trial
        self.trace_id = trace_id
        self.started = started
        self.ended = max(wall_ns_of(trial.ended) or started, started)
        self.root = root
        self.parent = parent

    def spans(self) -> Iterator[Span]:
        guilty = self._guilty_id()
        yield self._root(guilty)
        phases = {phase.name: span_id(self.trial.trial, "phase", phase.name) for phase in self.trial.phases}
        for phase in self.trial.phases:
            start = wall_ns_of(phase.started)
            if start is None:
                continue
            end = wall_ns_of(phase.ended)
            attributes: dict[str, AttributeValue] = {semconv.PHASE: phase.name.value}
            yield self._span(
                f"{semconv.SPAN_PHASE} {phase.name}", phases[phase.name], self.root, start, end, attributes
            )
        for step in self.trial.steps:
            yield from self._step(step, phases.get(step.phase, self.root), guilty)
        for call in self.trial.side_calls:
            yield from self._call(call, self.root, guilty)

    def _span(
        self,
        name: str,
        own_id: str,
        parent: str | None,
        start: int,
        end: int | None,
        attributes: dict[str, AttributeValue],
        *,
        service: str = semconv.SERVICE_HARNESS,
        kind: Literal["internal", "client"] = "internal",
        events: tuple[Event, ...] = (),
        links: tuple[str, ...] = (),
        error: str | None = None,
    ) -> Span:
        return Span(
            service=service,
            name=name,
            kind=kind,
            trace_id=self.trace_id,
            span_id=own_id,
            parent_id=parent,
            start_ns=start,
            end_ns=max(start, end if end is not None else self.ended),
            attributes={key: _short(value) for key, value in attributes.items()},
            events=events,
            links=links,
            error=error,
        )

    def _root(self, guilty: str | None) -> Span:
        trial, verdict = self.trial, self.trial.verdict
        attributes = present(
            {
                semconv.TRIAL: trial.trial,
                semconv.NAME: trial.name,
                semconv.RUN: trial.run,
                semconv.TASK: trial.task,
                semconv.TRY: trial.try_,
                semconv.OUTCOME: trial.outcome.value,
                semconv.CLOSED: trial.closed,
                semconv.EXIT_CODE: trial.exit_code,
                semconv.STEPS: len(trial.steps),
            }
        )
        error = None
        if verdict is not None:
            attributes |= present(
                {
                    semconv.BLAME: verdict.blame.value,
                    semconv.GRADE: verdict.grade.value if verdict.grade else None,
                    semconv.CAUSE: verdict.cause,
                    semconv.TERMINATED_BY: verdict.terminated_by.cause if verdict.terminated_by else None,
                    semconv.ENDED_AS: verdict.ended_as.value,
                    semconv.VERDICT_STEP: verdict.step,
                    semconv.VERDICT_REVISION: verdict.revision,
                    semconv.SENTENCE: verdict.sentence,
                }
            )
            if verdict.blame is not Blame.NONE:
                error = verdict.sentence[:MAX_TEXT]
        links = () if guilty is None else (guilty,)
        name = f"{semconv.SPAN_TRIAL} {trial.task or trial.name or trial.trial}"
        return self._span(name, self.root, self.parent, self.started, self.ended, attributes, links=links, error=error)

    def _guilty_id(self) -> str | None:
        verdict = self.trial.verdict
        if verdict is None or verdict.step is None or verdict.cause is None:
            return None
        step = next((s for s in self.trial.steps if s.index == verdict.step), None)
        if step is None:
            return None
        if verdict.cause.startswith("container.oom"):
            for use in step.containers:
                if use.oom_kills:
                    return span_id(self.trial.trial, "oom", step.index, use.id)
        failed = [call for call in step.calls if call.outcome not in (None, "ok")]
        if failed and not verdict.cause.startswith("container."):
            return failed[-1].span_id or span_id(self.trial.trial, "call", failed[-1].id)
        return self._step_id(step)

    def _step_id(self, step: Step) -> str:
        return span_id(self.trial.trial, "step", step.index)

    def _step(self, step: Step, parent: str, guilty: str | None) -> Iterator[Span]:
        start = wall_ns_of(step.started)
        if start is None:
            return
        own = self._step_id(step)
        attributes: dict[str, AttributeValue] = {semconv.STEP_INDEX: step.index, **step_numbers(step)}
        if own == guilty:
            attributes[semconv.GUILTY] = "yes"
        events = tuple(
            Event(name=semconv.EVENT_THROTTLED, at_ns=start, attributes={semconv.STEP_THROTTLED: use.cpu_throttled})
            for use in step.containers
            if use.cpu_throttled
        )
        yield self._span(
            f"{semconv.SPAN_STEP} {step.index}", own, parent, start, wall_ns_of(step.ended), attributes, events=events
        )
        for call in step.calls:
            yield from self._call(call, own, guilty)
        for number, tool in enumerate(step.tools):
            yield from self._tool(tool, step, number, own)
        for use in step.containers:
            if use.oom_kills:
                yield self._oom(use, step, own, guilty)

    def _call(self, call: Call, parent: str, guilty: str | None) -> Iterator[Span]:
        starts = [ns for attempt in call.attempts if (ns := wall_ns_of(attempt.started)) is not None]
        if not starts:
            return
        own = call.span_id or span_id(self.trial.trial, "call", call.id)
        end = max(ns + int((a.duration or 0.0) * 1e9) for ns, a in zip(starts, call.attempts, strict=False))
        chat = semconv.SPAN_CHAT
        attributes = present(
            {
                semconv.OPERATION: chat,
                semconv.PROVIDER: semconv.PROVIDER_NAMES.get(call.provider or "", call.provider),
                semconv.REQUEST_MODEL: call.model,
                semconv.REQUEST_STREAM: call.stream,
                semconv.SERVER_ADDRESS: call.upstream_host,
                semconv.FINISH_REASONS: [call.stop_reason] if call.stop_reason else None,
                semconv.TIME_TO_FIRST_CHUNK: call.ttft,
                semconv.INPUT_TOKENS: call.input_tokens,
                semconv.OUTPUT_TOKENS: call.output_tokens,
                semconv.CACHE_READ_TOKENS: call.cache_read_tokens,
                semconv.CACHE_WRITE_TOKENS: call.cache_write_tokens,
                semconv.CALL: call.id,
                semconv.CALL_ROLE: call.role,
                semconv.CALL_OUTCOME: call.outcome,
                semconv.CALL_ATTEMPTS: len(call.attempts),
                semconv.CALL_FELL_BACK: call.fell_back,
                semconv.MAX_GAP: call.max_gap,
                semconv.MAX_GAP_WITH_PINGS: call.max_gap_with_pings,
            }
        )
        if own == guilty:
            attributes[semconv.GUILTY] = "yes"
        error = None if call.outcome in (None, "ok") else f"{call.outcome} after {len(call.attempts)} attempt(s)"
        yield self._span(f"{chat} {call.model or 'unknown'}", own, parent, min(starts), end, attributes, error=error)
        for number, attempt in enumerate(call.attempts):
            yield from self._attempt(attempt, call, number, own)

    def _attempt(self, attempt: Attempt, call: Call, number: int, parent: str) -> Iterator[Span]:
        start = wall_ns_of(attempt.started)
        if start is None:
            return
        failed = attempt.outcome not in (None, "ok")
        error_type = attempt.error_type or (str(attempt.status) if (attempt.status or 0) >= 400 else None)
        attributes = present(
            {
                semconv.SERVER_ADDRESS: call.upstream_host,
                semconv.PEER_ADDRESS: attempt.remote,
                semconv.HTTP_STATUS: attempt.status,
                semconv.HTTP_RESEND: number or None,
                semconv.ERROR_TYPE: error_type or (attempt.outcome if failed else None),
                semconv.CALL_OUTCOME: attempt.outcome,
                semconv.REQUEST_ID: attempt.request_id,
                semconv.RETRY_AFTER: attempt.retry_after,
                semconv.WAIT_BEFORE: attempt.wait_before,
                semconv.NET_DNS: attempt.dns,
                semconv.NET_CONNECT: attempt.connect,
                semconv.NET_TLS: attempt.tls,
                semconv.TTFB: attempt.ttfb,
                semconv.TIME_TO_FIRST_CHUNK: attempt.first_token,
                semconv.CLOSED_BY: attempt.closed_by,
                semconv.CLOSE_KIND: attempt.close_kind,
                semconv.BYTES_UP: attempt.bytes_up,
                semconv.BYTES_DOWN: attempt.bytes_down,
            }
        )
        yield self._span(
            f"{semconv.SPAN_ATTEMPT} {number + 1}",
            span_id(self.trial.trial, "attempt", call.id, number),
            parent,
            start,
            start + int((attempt.duration or 0.0) * 1e9),
            attributes,
            service=semconv.SERVICE_MODEL_API,
            kind="client",
            error=f"{error_type or attempt.outcome}" if failed else None,
        )

    def _tool(self, tool: Tool, step: Step, number: int, parent: str) -> Iterator[Span]:
        start = wall_ns_of(tool.started)
        if start is None:
            return
        attributes = present(
            {
                semconv.OPERATION: semconv.SPAN_EXECUTE_TOOL,
                semconv.TOOL_NAME: tool.name,
                semconv.TOOL_CALL_ID: tool.call_id,
                semconv.PROCESS_EXIT_CODE: tool.exit_code,
                semconv.EXEC_ID: tool.exec_id,
                semconv.EXEC_JOIN: tool.join,
            }
        )
        yield self._span(
            f"{semconv.SPAN_EXECUTE_TOOL} {tool.name or 'unknown'}",
            span_id(self.trial.trial, "tool", step.index, number),
            parent,
            start,
            wall_ns_of(tool.ended),
            attributes,
            service=semconv.SERVICE_CONTAINER if tool.exec_id else semconv.SERVICE_HARNESS,
        )

    def _oom(self, use: ContainerUse, step: Step, parent: str, guilty: str | None) -> Span:
        own = span_id(self.trial.trial, "oom", step.index, use.id)
        victim = use.oom_victims[0] if use.oom_victims else None
        end = wall_ns_of(step.ended) or self.ended
        attributes = present(
            {
                semconv.CONTAINER_ID: use.id,
                semconv.CONTAINER_NAME: use.name,
                semconv.STEP_INDEX: step.index,
                semconv.STEP_OOM_KILLS: use.oom_kills,
                semconv.STEP_MEMORY_LIMIT: use.memory_limit,
                semconv.STEP_MEMORY_PEAK: use.memory_peak,
                semconv.OOM_VICTIM: victim.comm if victim else None,
                semconv.OOM_VICTIM_ROLE: victim.role if victim else None,
            }
        )
        if own == guilty:
            attributes[semconv.GUILTY] = "yes"
        return self._span(
            semconv.SPAN_OOM_KILL,
            own,
            parent,
            end,
            end,
            attributes,
            service=semconv.SERVICE_CONTAINER,
            error=f"{use.oom_kills} process(es) killed at a ceiling of {use.memory_limit} bytes",
        )


def step_numbers(step: Step) -> dict[str, AttributeValue]:
    """The step's figures over all its containers: the highest peak, sums of the rest; unobserved ones are absent."""
    peaks = [use for use in step.containers if use.memory_peak is not None]
    top = max(peaks, key=lambda use: use.memory_peak or 0, default=None)
    attempts = [attempt for call in step.calls for attempt in call.attempts]
    return present(
        {
            semconv.STEP_MEMORY_PEAK: top.memory_peak if top else None,
            semconv.STEP_MEMORY_PEAK_KIND: top.memory_peak_kind if top else None,
            semconv.STEP_MEMORY_LIMIT: top.memory_limit if top else None,
            semconv.STEP_OOM_KILLS: _sum([use.oom_kills for use in step.containers]),
            semconv.STEP_THROTTLED: _sum([use.cpu_throttled for use in step.containers]),
            semconv.STEP_EGRESS_BYTES: _sum([use.egress_bytes for use in step.containers]),
            semconv.STEP_EGRESS_RATE: max(
                (use.egress_rate_max for use in step.containers if use.egress_rate_max is not None), default=None
            ),
            semconv.STEP_API_SECONDS: _sum([attempt.duration for attempt in attempts]),
            semconv.STEP_WAIT_SECONDS: _sum([attempt.wait_before for attempt in attempts]),
        }
    )


def _sum(values: list[int | None] | list[float | None]) -> float | int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def present(values: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Only what was observed."""
    return {key: value for key, value in values.items() if value is not None}


def _short(value: AttributeValue) -> AttributeValue:
    return value[:MAX_TEXT] if isinstance(value, str) else value
