"""Agent trajectories in ATIF (Agent Trajectory Interchange Format), v1.0 to v1.8: what joins, and the sums.

In: a `trajectory.json`.  Out: `Trajectory` with session and tool-call ids, model calls and tokens.  An agent inside the
task's container wrote it, so it suggests and joins, and books nothing.
Between the versions only fields were added (`llm_call_count` in 1.7, `trajectory_id` and subagents in 1.7, audio in
1.8); a later minor version is read the same way, another major one is foreign.
**Source:** Harbor 0.26.0, harbor/models/trajectories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.harnesses.files import Read, read_json, wall_ns

_VERSION: Final = re.compile(r"ATIF-v1\.\d+")


class _Call(msgspec.Struct):
    tool_call_id: str | None = None


class _Metrics(msgspec.Struct):
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    cost_usd: float | None = None


class _Step(msgspec.Struct):
    source: str | None = None
    timestamp: str | None = None
    model_name: str | None = None
    tool_calls: list[_Call] | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None


class _Agent(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    model_name: str | None = None


class _Final(msgspec.Struct):
    total_prompt_tokens: float | None = None
    total_completion_tokens: float | None = None
    total_cost_usd: float | None = None


class _Document(msgspec.Struct):
    schema_version: str = ""
    session_id: str | None = None
    agent: _Agent = msgspec.field(default_factory=_Agent)
    steps: list[_Step] = []
    final_metrics: _Final | None = None
    subagent_trajectories: list[_Document] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One trajectory, its subagents' included."""

    version: str
    agent: str | None
    model: str | None
    sessions: frozenset[str]
    tool_calls: frozenset[str]
    model_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    started_ns: int | None
    ended_ns: int | None


def read_trajectory(path: Path) -> Read[Trajectory]:
    """One ATIF file."""
    read = read_json(path, _Document)
    if read.value is None:
        return Read(trouble=read.trouble, foreign=read.foreign)
    document = read.value
    if not _VERSION.fullmatch(document.schema_version):
        said = document.schema_version[:40] or "no schema_version"
        return Read(trouble=f"is no ATIF trajectory of version 1 ({said})", foreign=True)
    return Read(value=_summed(document), trouble=read.trouble)


def _summed(document: _Document) -> Trajectory:
    sessions: set[str] = set()
    tools: set[str] = set()
    times: list[int] = []
    calls = 0
    every = list(_all(document))
    for each in every:
        if each.session_id:
            sessions.add(each.session_id)
        for step in each.steps:
            moment = wall_ns(step.timestamp)
            if moment is not None and not step.is_copied_context:
                times.append(moment)
            tools.update(call.tool_call_id for call in step.tool_calls or [] if call.tool_call_id)
            if step.source == "agent" and not step.is_copied_context:
                calls += 1 if step.llm_call_count is None else step.llm_call_count
    final = document.final_metrics or _Final()
    return Trajectory(
        version=document.schema_version,
        agent=document.agent.name,
        model=document.agent.model_name,
        sessions=frozenset(sessions),
        tool_calls=frozenset(tools),
        model_calls=calls,
        input_tokens=_whole(final.total_prompt_tokens),
        output_tokens=_whole(final.total_completion_tokens),
        cost_usd=final.total_cost_usd,
        started_ns=min(times, default=None),
        ended_ns=max(times, default=None),
    )


def _all(document: _Document) -> list[_Document]:
    found, open_ones = list[_Document](), [document]
    while open_ones:
        each = open_ones.pop()
        found.append(each)
        open_ones += each.subagent_trajectories or []
    return found


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
