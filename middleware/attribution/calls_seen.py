"""Model calls as the rules read them: attempts with their times, whole or not, folded into calls.

In: `attempt.ended` values and the assembled trial.  Out: `AttemptSeen` and `CallSeen`.
What this module does not do: say why an attempt failed (`faults.py`) or what became of the call (`calls.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairtrial.middleware.attribution.seen import AttemptSeen, CallSeen
from fairtrial.middleware.core.observations import AttemptEnded
from fairtrial.middleware.core.records import Call, PhaseName
from fairtrial.middleware.steps.kinship import Asked
from fairtrial.middleware.steps.placed import Assembly, Placed


def attempt_seen(placed: Placed, value: AttemptEnded) -> AttemptSeen:
    started = value.started_wall_ns or placed.at_ns
    length = value.ended_ns - value.started_ns if value.ended_ns and value.started_ns else 0
    return AttemptSeen(
        placed=placed,
        value=value,
        started_ns=started,
        ended_ns=started + length if length > 0 else max(started, placed.at_ns),
        whole=_whole(value),
    )


def _whole(value: AttemptEnded) -> bool:
    reply = value.reply
    if reply.error_in_stream or (reply.status is not None and reply.status >= 300):
        return False
    if reply.html and value.request.operation == "chat":
        return False
    return value.outcome == "ok"


def lost_only_its_end(value: AttemptEnded) -> bool:
    """A cut behind the stop reason: no content is missing, though most clients raise all the same."""
    reply = value.reply
    return value.outcome == "truncated" and reply.stop_reason is not None and not reply.open_tool_calls


def take_back(attempts: dict[str, AttemptSeen]) -> None:
    """A reply cut behind its stop reason was whole if the conversation went on from it."""
    cut = [(key, a) for key, a in attempts.items() if lost_only_its_end(a.value) and not _refused(a.value)]
    for key, attempt in cut:
        asked = attempt.value.request
        for other in attempts.values():
            request = other.value.request
            if other.started_ns < attempt.ended_ns or request.first_user_digest != asked.first_user_digest:
                continue
            if (request.assistant_turns or 0) > (asked.assistant_turns or 0):
                attempts[key] = replace(attempt, whole=True)
                break


def _refused(value: AttemptEnded) -> bool:
    return value.reply.error_in_stream or (value.reply.status or 0) >= 300


def calls_seen(assembly: Assembly, ended: dict[str, AttemptSeen], opened: dict[str, Placed]) -> list[CallSeen]:
    """The calls of the trial's record, with the attempts that were folded into each."""
    attempts: dict[str, list[AttemptSeen]] = {}
    still_open: dict[str, list[Placed]] = {}
    for attempt_id, attempt in ended.items():
        attempts.setdefault(assembly.attempt_call.get(attempt_id, attempt_id), []).append(attempt)
    for attempt_id, placed in opened.items():
        if attempt_id not in ended:
            still_open.setdefault(assembly.attempt_call.get(attempt_id, attempt_id), []).append(placed)
    known: list[tuple[Call, int | None, PhaseName]] = [
        (call, step.index, step.phase) for step in assembly.trial.steps for call in step.calls
    ]
    known += [(call, None, PhaseName.AGENT) for call in assembly.trial.side_calls]
    calls: list[CallSeen] = []
    for call, step, phase in known:
        mine = sorted(attempts.get(call.id, ()), key=lambda a: (a.started_ns, a.placed.id))
        mine_open = still_open.get(call.id, [])
        if not mine and not mine_open:
            continue
        place = mine[0].placed if mine else mine_open[0]
        calls.append(
            CallSeen(
                id=call.id,
                role=call.role,
                step=step if step is not None else place.step,
                phase=phase if step is not None else place.phase,
                attempts=tuple(mine),
                open_attempts=tuple(mine_open),
                fell_back=frozenset((call.fell_back or "").split(",")) - {""},
                started_ns=mine[0].started_ns if mine else mine_open[0].at_ns,
                ended_ns=None if mine_open or not mine else mine[-1].ended_ns,
                completed=any(a.whole for a in mine),
                read_whole=any(a.whole and (a.value.parse == "full" or a.value.reply.terminator is True) for a in mine),
            )
        )
    return sorted(calls, key=lambda c: (c.started_ns, c.id))


def asked_of(call: CallSeen) -> Asked:
    replies = [a.value.reply for a in call.attempts]
    answered = [
        a.started_ns + round((a.value.ttfb or 0.0) * 1e9)
        for a in call.attempts
        if a.value.reply.status is not None and a.value.reply.status < 400
    ]
    return Asked(
        request=call.request,
        started_ns=call.started_ns,
        answered_ns=min(answered, default=None),
        ended_ns=call.ended_ns,
        completed=call.completed,
        acts=any(r.tool_calls or r.open_tool_calls for r in replies) or not call.request.has_tools,
    )


def without_strangers(calls: list[CallSeen]) -> tuple[list[CallSeen], list[CallSeen]]:
    """The main calls, and those that the trial's own clients did not make.

    A stranger is a failed call by a user agent that never completed a call, to an upstream where others did: a model
    may send junk to the door (curl), and that must not look like the provider's failure.
    """
    main = [c for c in calls if c.main]
    at_home: dict[str, set[str | None]] = {}
    for call in main:
        if call.completed and call.last is not None:
            at_home.setdefault(upstream(call.last.value), set()).add(call.request.user_agent)
    strangers: list[CallSeen] = []
    for call in main:
        clients = at_home.get(upstream(call.last.value)) if call.last is not None else None
        if clients is not None and not call.completed and call.request.user_agent not in clients:
            strangers.append(call)
    return [c for c in main if c not in strangers] if strangers else main, strangers


def first_heads(attempts: Iterable[AttemptSeen]) -> dict[str, int]:
    """Upstream -> when its first response head came (end time of that attempt)."""
    heads: dict[str, int] = {}
    for attempt in attempts:
        if attempt.value.reply.status is None:
            continue
        name = upstream(attempt.value)
        heads[name] = min(heads.get(name, attempt.ended_ns), attempt.ended_ns)
    return heads


def upstream(value: AttemptEnded) -> str:
    """What identifies the upstream of an attempt."""
    return value.upstream_host or value.door
