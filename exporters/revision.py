"""What a revised verdict, or evidence that came late, adds to a trace that was already sent.

In: the trial as it is now, as it was when it was sent, and the span ids that are used up.  Out: spans with new ids
only, in the same trace: one `verdict` span with the whole summary, linked to the trial's and to the guilty one; spans
that did not exist before (marked `fairtrial.late`); and for each sent span whose figures changed a `late_evidence` span
below it that carries what changed.  A sent span is never sent again, so its old figures stay:
`fairtrial.verdict.revision` tells which verdict is the newest.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from fairtrial.exporters.spans import Link, Span, span_id
from fairtrial.exporters.trace_layout import SHORTEST_NS, YES, spans_of, verdict_attributes, verdict_error
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Trial


def added_spans(
    trial: Trial,
    before: Trial | None,
    used: Container[str],
    *,
    root_span_id: str | None = None,
    parent_span_id: str | None = None,
    profile: semconv.GenAiProfile = semconv.GENAI_PROFILES[semconv.GENAI_NEWEST],
) -> list[Span]:
    """Only spans whose id (16 hex digits) is not in `used`.  `before` None: only the ids of what was sent are known."""
    now = spans_of(trial, root_span_id=root_span_id, parent_span_id=parent_span_id, profile=profile)
    if not now:
        return []
    then = spans_of(before, root_span_id=root_span_id, parent_span_id=parent_span_id, profile=profile) if before else []
    revision = trial.verdict.revision if trial.verdict else 0
    root, old = now[0], {span.span_id: span for span in then}
    traces = {span.span_id: span.trace_id for span in then if span.span_id in used}
    added: list[Span] = []
    for span in now:
        if span.span_id not in used:
            added.append(_late(span, root, traces))
            traces[span.span_id] = added[-1].trace_id
        elif span is not root and (sent := old.get(span.span_id)) is not None:
            added += _changed(trial, sent, span, revision)
    added.insert(0, _verdict(trial, root, traces, revision))
    return [span for span in added if span.span_id not in used]


def _verdict(trial: Trial, root: Span, traces: dict[str, str], revision: int) -> Span:
    guilty = [replace(link, trace_id=traces.get(link.span_id, root.trace_id)) for link in root.links]
    identity = {
        key: root.attributes[key]
        for key in (semconv.TRIAL, semconv.RUN, semconv.TASK, semconv.OUTCOME)
        if key in root.attributes
    }
    return Span(
        service=root.service,
        name=semconv.SPAN_VERDICT,
        kind="internal",
        trace_id=root.trace_id,
        span_id=span_id(trial.trial, "verdict", revision),
        parent_id=root.span_id,
        start_ns=root.end_ns - SHORTEST_NS,
        end_ns=root.end_ns,
        attributes=identity | verdict_attributes(trial),
        links=(root.link, *guilty),
        error=verdict_error(trial),
    )


def _late(span: Span, root: Span, traces: dict[str, str]) -> Span:
    parent = span.parent_id if span.parent_id in traces else root.span_id
    trace = traces.get(parent or "", root.trace_id)
    return replace(span, trace_id=trace, parent_id=parent, attributes=span.attributes | {semconv.LATE: YES})


def _changed(trial: Trial, sent: Span, span: Span, revision: int) -> list[Span]:
    changed = {key: value for key, value in span.attributes.items() if sent.attributes.get(key) != value}
    if not changed and span.error == sent.error:
        return []
    return [
        replace(
            span,
            name=semconv.SPAN_LATE_EVIDENCE,
            kind="internal",
            trace_id=sent.trace_id,
            span_id=span_id(trial.trial, "late", revision, span.span_id),
            parent_id=sent.span_id,
            start_ns=sent.end_ns - SHORTEST_NS,
            end_ns=sent.end_ns,
            attributes=changed | {semconv.LATE: YES},
            events=(),
            links=(Link(sent.trace_id, sent.span_id),),
            error=span.error if span.error != sent.error else None,
        )
    ]
