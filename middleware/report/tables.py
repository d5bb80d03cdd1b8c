"""Rows as aligned lines: any table, and the table of a trial's steps.

In: cells, or a trial's steps.  Out: lines, no wider than asked where a width is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from fairtrial.middleware.core.records import Attempt, Call, Connection, ContainerUse, Step, Tool, Trial
from fairtrial.middleware.report.words import printable, seconds, size

PEAK_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "at_most": ("≤", "at most this"),
    "sampled": ("≥", "at least this"),
    "shared": ("~", "of a group that other processes share"),
}
"""`memory_peak_kind` of a peak that is not exact -> the sign before it, and what that sign means."""

_BROKEN_OFF: Final[Mapping[str | None, str]] = {
    "client": "exec left by its client",
    "engine": "exec broken off by the engine",
    "fairtrial": "exec ended by fairtrial",
}


def table_lines(rows: Sequence[Sequence[str]], *, width: int | None) -> list[str]:
    """Rows as aligned lines, the last column ragged; cut to `width` columns of a terminal, or whole for a pipe."""
    columns = [max(len(cell) for cell in column) for column in zip(*(row[:-1] for row in rows), strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, columns, strict=False)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        lines.append(line if width is None or len(line) <= width else f"{line[: width - 1]}…")
    return lines


def steps_table(trial: Trial, *, width: int | None) -> list[str]:
    """One row a step, the step of the verdict marked."""
    if not trial.steps:
        return ["  none: no model call reached a door"]
    head, *rows = step_rows(trial)
    return table_lines([(f"  {head[0]}", *head[1:]), *rows], width=width)


def step_rows(trial: Trial) -> list[tuple[str, ...]]:
    """The cells of that table, its head first."""
    guilty = trial.verdict.step if trial.verdict else None
    said = Counter(mark.step for mark in trial.marks)
    head = ("step", "call", "tools", "memory peak/ceiling", "events")
    return [head, *(_row(step, guilty, said[step.index]) for step in trial.steps)]


def connection_rows(connections: Sequence[Connection]) -> list[tuple[str, ...]]:
    """The connections of `--via connect`, the head first."""
    rows: list[tuple[str, ...]] = [
        ("  host", "name", "connect", "TLS", "up", "down", "longest wait", "longest gap", "took", "end")
    ]
    for one in connections:
        times = [_time_cell(value) for value in (one.dns, one.connect, one.tls)]
        sizes = ["-" if value is None else size(value) for value in (one.bytes_up, one.bytes_down)]
        waits = [_time_cell(value) for value in (one.max_wait, one.max_gap, one.duration)]
        rows.append((f"  {printable(one.host)}:{one.port}", *times, *sizes, *waits, _end_cell(one)))
    return rows


def _time_cell(value: float | None) -> str:
    return "-" if value is None else seconds(value)


def _end_cell(one: Connection) -> str:
    if not one.ok:
        return printable(f"never stood: {one.stage or 'dial'}{f', {one.error}' if one.error else ''}")
    cut = ", without close_notify" if one.cut else ""
    return f"{one.closed_by or '?'} {one.close_kind or '?'}{cut}"


def _row(step: Step, guilty: int | None, marks: int) -> tuple[str, ...]:
    mark = "►" if step.index == guilty else " "
    calls = "; ".join(_call_cell(call) for call in step.calls) or "-"
    tools = ", ".join(_tool_cell(tool) for tool in step.tools) or "-"
    # The command's own cgroup is often shared with half the machine; beside a container it tells nothing.
    uses = [use for use in step.containers if use.memory_peak_kind != "shared"] or step.containers
    memory = "; ".join(cell for use in uses if (cell := _memory_cell(use))) or "-"
    return f" {mark}{step.index:>4}", _cut(calls, 44), _cut(tools, 24), _cut(memory, 32), _events_cell(step, marks)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _call_cell(call: Call) -> str:
    folded = "→".join(_runs([_attempt_word(attempt) for attempt in call.attempts]))
    took = f" {seconds(call.duration)}" if call.duration is not None else ""
    stop = f" {printable(call.stop_reason)}" if call.stop_reason else ""
    back = f" fell back: {call.fell_back}" if call.fell_back else ""
    return f"{folded}{took}{stop}{back}"


def _attempt_word(attempt: Attempt) -> str:
    if attempt.outcome in (None, "ok"):
        return str(attempt.status or "?")
    if attempt.status is not None and attempt.status >= 400:
        return str(attempt.status)
    return f"{attempt.status or 'no reply'} {attempt.outcome}"


def _runs(words: list[str]) -> list[str]:
    folded: list[tuple[str, int]] = []
    for word in words:
        if folded and folded[-1][0] == word:
            folded[-1] = (word, folded[-1][1] + 1)
        else:
            folded.append((word, 1))
    return [word if count == 1 else f"{word}×{count}" for word, count in folded]


def _tool_cell(tool: Tool) -> str:
    # A command without a tool call is the harness's own: a check, a clean-up.
    name = tool.name or ("exec" if tool.exec_id else "docker run" if tool.container_id else "?")
    return f"{printable(name)}{'' if tool.exit_code is None else f' ({tool.exit_code})'}"


def _memory_cell(use: ContainerUse) -> str:
    if use.memory_peak is None:
        return ""
    ceiling = f"/{size(use.memory_limit)}" if use.memory_limit is not None else ""
    sign, _ = PEAK_MARKS.get(use.memory_peak_kind or "", ("", ""))
    return f"{sign}{size(use.memory_peak)}{ceiling}"


def _events_cell(step: Step, marks: int) -> str:
    words: list[str] = []
    for use in step.containers:
        if use.oom_kills:
            victims = ", ".join(printable(v.comm or "?") for v in use.oom_victims[:3])
            words.append(f"OOM kill ×{use.oom_kills}{f' ({victims})' if victims else ''}")
        if use.pids_max_hits:
            words.append(f"pids limit ×{use.pids_max_hits}")
        if use.cpu_throttled and use.cpu_throttled >= 0.1:
            words.append(f"throttled {seconds(use.cpu_throttled)}")
    words.extend(_BROKEN_OFF[tool.ended_by] for tool in step.tools if tool.ended_by in _BROKEN_OFF)
    if marks:
        # Their names stand below: what was only said is not to look like what was seen.
        words.append(f"said from inside ×{marks}")
    return ", ".join(words)
