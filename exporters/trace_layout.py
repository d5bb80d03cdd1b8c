"""A trial as spans: what they are called, what they carry, who is whose child.

In: a `Trial` record with its verdict.  Out: `Span` shapes, parents before children, with deterministic ids, so the same
trial always gives the same spans.  Pure: no OpenTelemetry import, no I/O.  `rotation.py` cuts a long trial into several
traces, `revision.py` says what a revised verdict adds, `pipeline.py` sends; every name is of `core/semconv.py`.

Layout (DESIGN section 6): `trial` → `phase` → `step` → `chat {model}` (one CLIENT child per attempt) and
`execute_tool {tool}` → `exec`; an OOM kill is a short child span of its step.  Numbers on the step are deltas of that
step.  Names are of low cardinality: which step it is stands in an attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fairtrial.exporters.rotation import MAX_SPANS, rotated
from fairtrial.exporters.spans import Attributes, Event, Kind, Link, Span, present, span_id
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Attempt, Blame, Call, ContainerUse, Step, Tool, Trial, Trust

ATTEMPT_SPANS: Final = 20
"""Of a call with more attempts the first and the last ten become spans; how many are left out is on the call."""
STALL_EVENT_S: Final = 30.0
"""A silence of the upstream of at least this long is an event on its call."""
NAME_CHARS: Final = 64
"""Of a model's or tool's name in a span name: both come from the agent."""
SHORTEST_NS: Final = 1000
"""A moment is the last microsecond before it: viewers count in those, and warn of a span without length, or of one that
ends after its parent."""
YES: Final = "yes"


def spans_of(
    trial: Trial,
    *,
    root_span_id: str | None = None,
    parent_span_id: str | None = None,
    profile: semconv.GenAiProfile = semconv.GENAI_PROFILES[semconv.GENAI_NEWEST],
    max_spans: int = MAX_SPANS,
) -> list[Span]:
    """All spans of one trial; empty when it has no trace id or no start.  At most `max_spans` of them share a trace."""
    started = wall_ns_of(trial.started)
    if trial.trace_id is None or started is None:
        return []
    root_id = root_span_id or span_id(trial.trial, "root")
    layout = _Layout(trial, trial.trace_id, started, root_id, parent_span_id, profile)
    return rotated(layout.trial_span(), layout.groups(), max_spans=max_spans)


def verdict_attributes(trial: Trial) -> Attributes:
    """The summary of the verdict as short strings that every Jaeger back end finds; empty without one."""
    verdict = trial.verdict
    if verdict is None:
        return {}
    return present(
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


def verdict_error(trial: Trial) -> str | None:
    """What the status of the trial's span says; None when nothing is to blame."""
    verdict = trial.verdict
    if verdict is not None and verdict.blame is not Blame.NONE:
        return verdict.sentence
    return None


class _Layout:
    """Walks one trial; keeps what every span of it shares."""

    def __init__(
        self,
        trial: Trial,
        trace_id: str,
        started: int,
        root: str,
        parent: str | None,
        profile: semconv.GenAiProfile,
    ) -> None:
        self.trial = trial
        self.trace_id = trace_id
        self.started = started
        self.ended = max(wall_ns_of(trial.ended) or started, started)
        self.root = root
        self.parent = parent
        self.profile = profile
        self.whole = trial.closed == "normal"
        self.guilty = self._guilty_id()
        self.marks = self._marks()

    def groups(self) -> Iterator[list[Span]]:
        """What belongs together in one trace: all phases, then each step with its children, then each side call."""
        phases = {p.name: span_id(self.trial.trial, "phase", p.name) for p in self.trial.phases if p.started}
        yield [
            self._span(
                semconv.SPAN_PHASE,
                phases[phase.name],
                self.root,
                start,
                wall_ns_of(phase.ended),
                present({semconv.PHASE: phase.name.value, semconv.OUTCOME: phase.outcome}),
            )
            for phase in self.trial.phases
            if (start := wall_ns_of(phase.started)) is not None
        ]
        for step in self.trial.steps:
            yield list(self._step(step, phases.get(step.phase, self.root)))
        for call in self.trial.side_calls:
            yield list(self._call(call, self.root))

    def _span(
        self,
        name: str,
        own_id: str,
        parent: str | None,
        start: int,
        end: int | None,
        attributes: Attributes,
        *,
        service: str = semconv.SERVICE_HARNESS,
        kind: Kind = "internal",
        events: tuple[Event, ...] = (),
        links: tuple[Link, ...] = (),
        error: str | None = None,
    ) -> Span:
        """`end` None: not observed; the span then ends with the trial and, where that was cut off, is incomplete."""
        attributes = {self.profile.renamed.get(key, key): value for key, value in attributes.items()}
        if own_id == self.guilty:
            attributes[semconv.GUILTY] = YES
        if end is None and not self.whole:
            attributes[semconv.INCOMPLETE] = YES
            error = error or "still open when fairtrial was cut off"
        return Span(
            service=service,
            name=name,
            kind=kind,
            trace_id=self.trace_id,
            span_id=own_id,
            parent_id=parent,
            start_ns=start,
            end_ns=max(start + SHORTEST_NS, end if end is not None else self.ended),
            attributes=attributes,
            events=events,
            links=links,
            error=error,
        )

    def trial_span(self) -> Span:
        """The root, which says it all: what the trial was, how it ended, whose fault that was."""
        trial = self.trial
        attributes = present(
            {
                semconv.TRIAL: trial.trial,
                semconv.NAME: trial.name,
                semconv.RUN: trial.run,
                semconv.TASK: trial.task,
                semconv.TRY: trial.try_,
                semconv.HARNESS: trial.harness,
                semconv.OUTCOME: trial.outcome.value,
                semconv.CLOSED: trial.closed,
                semconv.EXIT_CODE: trial.exit_code,
                semconv.STEPS: len(trial.steps),
                semconv.INCOMPLETE: None if self.whole else YES,
            }
        )
        return self._span(
            semconv.SPAN_TRIAL,
            self.root,
            self.parent,
            self.started,
            # The command's end ends the trial; what is torn down after it still is within.
            max(self.ended, *(wall_ns_of(phase.ended) or 0 for phase in trial.phases), 0),
            attributes | verdict_attributes(trial),
            events=self.marks.get(None, ()),
            links=() if self.guilty is None else (Link(self.trace_id, self.guilty),),
            error=verdict_error(trial) or (None if self.whole else "fairtrial was cut off before the trial ended"),
        )

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

    def _marks(self) -> dict[int | None, tuple[Event, ...]]:
        """What was told from inside, by the step that went on; None: no step that has a span."""
        spans = {step.index for step in self.trial.steps if step.started is not None}
        told: dict[int | None, tuple[Event, ...]] = {}
        for mark in self.trial.marks:
            if (at_ns := wall_ns_of(mark.at)) is None:
                continue
            attributes = {
                semconv.MARK_NAME: mark.name,
                semconv.MARK_TEXT: mark.text,
                semconv.MARK_TRUST: Trust.INSIDE.value,
            }
            event = Event(name=semconv.EVENT_MARK, at_ns=at_ns, attributes=present(attributes))
            step = mark.step if mark.step in spans else None
            told[step] = (*told.get(step, ()), event)
        return told

    def _step_id(self, step: Step) -> str:
        return span_id(self.trial.trial, "step", step.index)

    def _step(self, step: Step, parent: str) -> Iterator[Span]:
        start = wall_ns_of(step.started)
        if start is None:
            return
        own = self._step_id(step)
        attributes: Attributes = {semconv.STEP_INDEX: step.index, **step_numbers(step)}
        events = tuple(
            Event(name=semconv.EVENT_THROTTLED, at_ns=start, attributes={semconv.STEP_THROTTLED: use.cpu_throttled})
            for use in step.containers
            if use.cpu_throttled
        )
        events += self.marks.get(step.index, ())
        yield self._span(semconv.SPAN_STEP, own, parent, start, wall_ns_of(step.ended), attributes, events=events)
        for call in step.calls:
            yield from self._call(call, own)
        for number, tool in enumerate(step.tools):
            yield from self._tool(tool, step, number, own)
        for use in step.containers:
            if use.oom_kills:
                yield self._oom(use, step, own)

    def _call(self, call: Call, parent: str) -> Iterator[Span]:
        starts = [ns for attempt in call.attempts if (ns := wall_ns_of(attempt.started)) is not None]
        if not starts:
            return
        own = call.span_id or span_id(self.trial.trial, "call", call.id)
        end = max(ns + int((a.duration or 0.0) * 1e9) for ns, a in zip(starts, call.attempts, strict=False))
        chat = semconv.SPAN_CHAT
        shown = _ends_of(call.attempts, ATTEMPT_SPANS)
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
                semconv.CALL_LEFT_OUT: len(call.attempts) - len(shown) or None,
                semconv.CALL_FELL_BACK: call.fell_back,
                semconv.CONTAINER_ID: call.container_id,
                semconv.MAX_GAP: call.max_gap,
                semconv.MAX_GAP_WITH_PINGS: call.max_gap_with_pings,
            }
        )
        stalled = call.max_gap is not None and call.max_gap >= STALL_EVENT_S
        # When within the call it was silent is not in the record; its end is when the silence was known.
        gap: Attributes = present({semconv.MAX_GAP: call.max_gap})
        events = (Event(name=semconv.EVENT_STALLED, at_ns=end, attributes=gap),) if stalled else ()
        error = None if call.outcome in (None, "ok") else f"{call.outcome} after {len(call.attempts)} attempt(s)"
        name = f"{chat} {(call.model or 'unknown')[:NAME_CHARS]}"
        known_end = None if call.outcome is None and not self.whole else end
        yield self._span(name, own, parent, min(starts), known_end, attributes, events=events, error=error)
        for number, attempt in shown:
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
            semconv.SPAN_ATTEMPT,
            span_id(self.trial.trial, "attempt", call.id, number),
            parent,
            start,
            None if attempt.duration is None and not self.whole else start + int((attempt.duration or 0.0) * 1e9),
            attributes,
            service=semconv.SERVICE_MODEL_API,
            kind="client",
            error=f"{error_type or attempt.outcome}" if failed else None,
        )

    def _tool(self, tool: Tool, step: Step, number: int, parent: str) -> Iterator[Span]:
        start = wall_ns_of(tool.started)
        if start is None:
            return
        own = span_id(self.trial.trial, "tool", step.index, number)
        end = wall_ns_of(tool.ended)
        attributes = present(
            {
                semconv.OPERATION: semconv.SPAN_EXECUTE_TOOL,
                semconv.TOOL_NAME: tool.name,
                semconv.TOOL_CALL_ID: tool.call_id,
            }
        )
        name = f"{semconv.SPAN_EXECUTE_TOOL} {(tool.name or 'unknown')[:NAME_CHARS]}"
        yield self._span(name, own, parent, start, end, attributes)
        if tool.exec_id is None and tool.exit_code is None and tool.container_id is None:
            return
        exec_attributes = present(
            {
                semconv.PROCESS_EXIT_CODE: tool.exit_code,
                semconv.PROCESS_COMMAND_ARGS: tool.command,
                semconv.EXEC_ID: tool.exec_id,
                semconv.EXEC_VIA: tool.exec_via,
                semconv.EXEC_JOIN: tool.join,
                semconv.EXEC_SIGNAL: tool.signal,
                semconv.EXEC_TIMED_OUT_BY: tool.timed_out_by,
                semconv.EXEC_BYTES_OUT: tool.bytes_out,
                semconv.EXEC_BYTES_ERR: tool.bytes_err,
                semconv.EXEC_BYTES_IN: tool.bytes_in,
                semconv.EXEC_DURATION: tool.exec_duration,
                semconv.EXEC_DISPATCH_DELAY: tool.dispatch_delay,
                semconv.EXEC_ENDED_BY: tool.ended_by,
                semconv.CONTAINER_ID: tool.container_id,
            }
        )
        yield self._span(
            semconv.SPAN_EXEC,
            span_id(self.trial.trial, "exec", step.index, number),
            own,
            start,
            end,
            exec_attributes,
            service=semconv.SERVICE_CONTAINER,
        )

    def _oom(self, use: ContainerUse, step: Step, parent: str) -> Span:
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
        return self._span(
            semconv.SPAN_OOM_KILL,
            span_id(self.trial.trial, "oom", step.index, use.id),
            parent,
            end - SHORTEST_NS,
            end,
            attributes,
            service=semconv.SERVICE_CONTAINER,
            error=f"{use.oom_kills} process(es) killed at a ceiling of {use.memory_limit} bytes",
        )


def _ends_of(attempts: list[Attempt], most: int) -> list[tuple[int, Attempt]]:
    """Attempts with their numbers; of very many the first and the last."""
    numbered = list(enumerate(attempts))
    return numbered if len(numbered) <= most else numbered[: most // 2] + numbered[-(most // 2) :]


def step_numbers(step: Step) -> Attributes:
    """The step's figures over all its containers: the highest peak, sums of the rest; unobserved ones are absent.

    The peak of a cgroup that others share (the command's own, often half the machine) gives way to a container's.
    """
    peaks = [use for use in step.containers if use.memory_peak is not None]
    peaks = [use for use in peaks if use.memory_peak_kind != "shared"] or peaks
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
