"""What a first-party address and any other make of Claude Code, for each line that npm offers.

In: a call as the stand-in kept it.  Out: its ways (`ways_of`), and what they were measured to be (`LINES`).
Used by `test_run_claude.py`, where a base URL changes them, and `test_run_connect.py`, where nothing does.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairtrial.middleware.demo.calls import Call


@dataclass(frozen=True, slots=True)
class Line:
    """One line of npm's.

    `core`: the tools that it has in both places; `beside`: what it asks for but calls, in each; `changed`: way ->
    (at its provider's own address, behind a door), and nothing else differs; `told`: that in the words of the
    mutation's side effects.
    """

    version: str
    core: frozenset[str]
    beside: tuple[set[str], set[str]]
    changed: Mapping[str, tuple[object, object]]
    told: tuple[str, ...]


CORE = frozenset({"Agent", "Bash", "Edit", "Read", "ReportFindings", "Skill", "Workflow", "Write"})
DEFERRED = {
    "CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree", "NotebookEdit", "ScheduleWakeup",
    "SendMessage", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "WebFetch", "WebSearch",
}  # fmt: skip
_ASKED: tuple[set[str], set[str]] = ({"GET /api/claude_code/settings", "GET /api/claude_code/policy_limits"}, set())
_SCOPED = "prompt-caching-scope-2026-01-05"
_MARKS = (
    [("system", "global"), ("system", None), ("messages", None)],
    [("system", None), ("system", None), ("messages", None)],
)
LINES: Mapping[str, Line] = {
    "claude": Line(
        version="2.1.197",
        core=CORE,
        beside=_ASKED,
        changed={
            "tools": (CORE | {"ToolSearch"}, CORE | DEFERRED),
            "betas": ({"advanced-tool-use-2025-11-20", _SCOPED}, {_SCOPED}),
            "headers": ({"x-client-request-id"}, set()),
            "names deferred tools": (True, False),
            "checksum": (True, False),
            "system blocks": (4, 3),
            "cache marks": _MARKS,
        },
        told=(
            "16 more tools",
            "no ToolSearch",
            "names no deferred tools",
            "advanced-tool-use",
            "one block less",
            "scope global",
            "cch",
            "x-client-request-id",
            "policy limits",
        ),
    ),
    "claude-newer": Line(
        version="2.1.332",
        core=CORE | {"DeferredToolPlaceholder", "ListAgents", "ScheduleWakeup", "ToolSearch"},
        beside=_ASKED,
        changed={
            "betas": (
                {
                    "advanced-tool-use-2025-11-20",
                    "cache-diagnosis-2026-04-07",
                    "thinking-binding-controls-2026-08-01",
                    "mid-conversation-system-clear-at-2026-08-21",
                    _SCOPED,
                },
                {"advanced-tool-use-2025-11-20"},
            ),
            "headers": (
                {
                    "x-claude-1p-request-class",
                    "x-claude-code-prompt-id",
                    "x-claude-code-request-class",
                    "x-claude-code-sandy-plover",
                    "x-client-request-id",
                },
                set(),
            ),
            "checksum": (True, False),
            "system blocks": (4, 3),
            "cache marks": _MARKS,
            "fields": ({"diagnostics"}, set()),
        },
        told=("2.1.332 (seen) keeps its tools", "four betas", "diagnostics", "five headers", "scope global", "cch"),
    ),
}
"""By the name of its stamp (`tools.sh`)."""


def ways_of(call: Call, body: Mapping[str, Any]) -> dict[str, object]:
    """What a call shows of Claude Code's ways; header names and betas only as far as they are not always there."""
    marks = [
        (part, block["cache_control"].get("scope"))
        for part, blocks in (
            ("system", body["system"]),
            ("messages", [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]),
        )
        for block in blocks
        if "cache_control" in block
    ]
    return {
        "tools": set(call.tools),
        "betas": set((call.header("anthropic-beta") or "").split(",")) - ALWAYS,
        "headers": {name.lower() for name, _ in call.headers} - ALWAYS,
        "names deferred tools": "deferred tools" in json.dumps(body["messages"]),
        "checksum": "cch=" in json.dumps(body["system"]),
        "system blocks": len(body["system"]),
        "cache marks": marks,
        "fields": set(body) & {"diagnostics"},
    }


ALWAYS = {
    "accept", "content-type", "user-agent", "x-claude-code-session-id", "x-stainless-arch", "x-stainless-lang",
    "x-stainless-os", "x-stainless-package-version", "x-stainless-retry-count", "x-stainless-runtime",
    "x-stainless-runtime-version", "x-stainless-timeout", "anthropic-beta", "anthropic-dangerous-direct-browser-access",
    "anthropic-version", "x-api-key", "x-app", "connection", "host", "accept-encoding", "content-length",
    "claude-code-20250219", "context-1m-2025-08-07", "interleaved-thinking-2025-05-14",
    "thinking-token-count-2026-05-13", "context-management-2025-06-27",
    "mid-conversation-system-2026-04-07", "effort-2025-11-24", "per-turn-control-2026-07-01",
    "mid-conversation-tool-changes-2026-07-01",
}  # fmt: skip
