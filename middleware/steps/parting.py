"""Whether a run held several trials, and which call and which container was whose.

In: the `RunFacts` of one run.  Out: a `Parting`, or None where it stays one trial.  Pure: the same facts give the same
answer, whatever order they came in.  What this module does not do: write anything, or judge.

What places a call, the strongest first; what contradicts a stronger mark counts for nothing:
1. the container that it came from, by the engine's word; the mark (`FAIRTRIAL_TRIAL`, label) that its maker gave;
2. the name that the client gave, in the path, a header or baggage.  A name that belongs to another container is none;
3. the client's session, with its subagents;
4. the conversation (`chains.py`).
A container belongs to the trial whose calls came from it, whose name it bears (also as Harbor writes it, where that
trial has no other container and no nameless conversation can be meant), whose compose project it shares, or to the one
trial that can have asked for all the commands that ran in it (same text, behind the reply, before the next turn); the
environment of a harness also to the only conversation that never waited for the model while a command was started
there, or that was alone with it. One that two trials used is nobody's.

Several trials there are only when two of them are *sure*: two names; two conversations with containers of their own and
the same agent (system prompt and tools); two environments of a harness.  With `named` (`--run NAME` says: this command
runs trials) also two sessions, or two conversations of the same agent that begin with different words.  A conversation
inside an agent tool of another (`task`, `agent`) is its subagent, and so is one of a process that another's tool
started.  All else is given to none, and counted.

How it can be wrong: with `--run`, one trial whose parts speak in sessions of their own is parted; a subagent with the
prompt of the main agent, started by a tool that is not called an agent, is taken for a trial.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.names import AGENT, ENVIRONMENT, project_of
from fairtrial.middleware.steps.call_log import CallFacts
from fairtrial.middleware.steps.chains import chains
from fairtrial.middleware.steps.run_facts import OWN, AskedFor, BoxFacts, RunFacts
from fairtrial.middleware.steps.units import (
    Group,
    Unit,
    agent_windows,
    asked,
    descends,
    is_main,
    keys_asked,
    one_by_one,
    sessions_of,
    tool_windows,
    typed_otherwise,
    within,
)
from fairtrial.middleware.steps.words import told_apart

SLACK_NS: Final = 50_000_000
"""The engine's clock and ours, and the time from a reply's last byte to its command."""
_HARNESS_BOX: Final = re.compile(r"(?P<harbor>.+)__env\Z|inspect-.+-.+|minisweagent-[0-9a-f]{8}\Z")
"""A compose project, or a container's name, that a known harness gives to the environment of one trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One trial of the run; wall ns.  `how`: what told it, as in `core.claims.Assigned.how`."""

    name: str | None
    how: str
    calls: frozenset[str]
    containers: frozenset[str]
    started_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The trials in order of their begin, and what was given to none."""

    parts: tuple[Part, ...]
    stray_calls: dict[str, str]
    """attempt → why: no_identity | twins | fork | contested."""
    stray_containers: dict[str, frozenset[int]]
    """container → the parts that it may belong to (empty: any)."""
    words: dict[str, int] = field(default_factory=dict[str, int])
    """Name that the control API was told → the part that it fits (`words.py`)."""
    stray_words: dict[str, str] = field(default_factory=dict[str, str])
    """Name → why: unknown | contested | run."""


def part(facts: RunFacts, *, named: bool) -> Parting | None:
    """Tell the trials of a run apart; None: it is one, or nothing tells."""
    if facts.too_many:
        return None
    return _Parter(facts, named=named).part()


class _Parter:
    def __init__(self, facts: RunFacts, *, named: bool) -> None:
        self._facts = facts
        self._named = named
        self._boxes: dict[Group, list[BoxFacts]] = {}
        for box in sorted(facts.boxes.values(), key=lambda each: (each.since_ns, each.id)):
            if box.id != OWN:
                self._boxes.setdefault(_box_group(box), []).append(box)
        self._units: dict[Group, Unit] = {}
        self._owner: dict[Group, Group] = {}
        """box → unit."""
        self._shared: dict[Group, frozenset[Group]] = {}
        """A box that several used → who."""
        self._strays: dict[str, str] = {}

    def part(self) -> Parting | None:
        if not self._named and len(self._boxes) < 2 and not self._facts.told.placed:
            return None  # nothing that `_worth_it` looks for, and no need to unpack every call for it
        calls = sorted(self._facts.calls.values(), key=lambda each: (each.started_ns, each.attempt))
        if not self._worth_it(calls):
            return None
        self._place(calls)
        self._adopt_subagents()
        self._join_names()
        self._join_commands()
        self._join_names()
        self._join_turns()
        self._join_alone()
        chosen = self._choose()
        return None if len(chosen) < 2 else self._parting(chosen)

    def _worth_it(self, calls: list[CallFacts]) -> bool:
        """Most runs are one trial: one session and no name, or one container and few calls, need no look."""
        if len(self._boxes) > 1 or any(call.named or call.container for call in calls):
            return True
        return self._named and len(calls) > 1

    # --- 1 to 4: calls --------------------------------------------------------------------------------------------

    def _place(self, calls: list[CallFacts]) -> None:
        tops = self._tops(calls)
        session_of, top_of_session = sessions_of(calls, tops)
        rest: list[CallFacts] = []
        for call in calls:
            top, session = tops.get(call.attempt), session_of.get(call.attempt)
            if call.attempt in self._strays:
                continue
            if top is None and session is not None:
                heads = top_of_session[session]
                if len(heads) > 1:
                    self._strays[call.attempt] = "contested"
                    continue
                top = next(iter(heads), ("session", session))
            if top is None:
                rest.append(call)
            else:
                self._units.setdefault(top, Unit()).calls.append(call)
        found, strays = chains(rest)
        self._strays |= strays
        for chain in found:
            self._units["chain", chain.calls[0].attempt] = Unit(calls=chain.calls, chain=chain)

    def _tops(self, calls: list[CallFacts]) -> dict[str, Group]:
        """Attempt → the name or box that places it; boxes get their owner, or are known to have several."""
        marks = {group: {box.mark for box in boxes if box.mark} for group, boxes in self._boxes.items()}
        home: dict[str, set[Group]] = {}
        """name → boxes that it belongs to, or was said from."""
        for group, said in marks.items():
            for mark in said:
                home.setdefault(mark, set()).add(group)
        marked = frozenset(home)
        places = {call.attempt: self._from(call) for call in calls}
        for call in calls:
            if call.named and (place := places[call.attempt]) is not None and call.named not in marked:
                home.setdefault(call.named, set()).add(place)
        said_in: dict[Group, set[str]] = {group: set(found) for group, found in marks.items() if found}
        for call in calls:
            place = places[call.attempt]
            if place is not None and call.named and not marks[place] and home[call.named] == {place}:
                said_in.setdefault(place, set()).add(call.named)
        for group, names in said_in.items():
            if len(names) == 1:
                self._owner[group] = ("name", next(iter(names)))
            else:
                self._shared[group] = frozenset(("name", name) for name in names)
        tops: dict[str, Group] = {}
        for call in calls:
            place = places[call.attempt]
            if place is None:
                if call.named:
                    tops[call.attempt] = ("name", call.named)
            elif call.named and call.named in said_in.get(place, ()):
                tops[call.attempt] = ("name", call.named)
            elif place in self._shared:
                self._strays[call.attempt] = "contested"
            else:
                tops[call.attempt] = self._owner.setdefault(place, place)
        return tops

    def _from(self, call: CallFacts) -> Group | None:
        """The box that the call came from."""
        box = self._facts.boxes.get(call.container or "")
        return None if box is None or box.id == OWN else _box_group(box)

    # --- conversations inside others -------------------------------------------------------------------------------

    def _adopt_subagents(self) -> None:
        """A conversation that lies within one agent tool of one other trial is its subagent; so is one whose process
        descends from the other's, begun while a tool of that one was at work."""
        working = {key: found for key, unit in self._units.items() if (found := tool_windows(unit))}
        pids = {key: {c.sender.pid for c in self._units[key].chats if c.sender is not None} for key in working}
        windows = {key: inner for key, unit in self._units.items() if (inner := agent_windows(unit))}
        for key in sorted(self._units, key=lambda each: self._units[each].span, reverse=True):
            unit = self._units[key]
            if key[0] not in {"session", "chain"}:
                continue
            since, until = unit.span
            parents = [
                other
                for other, spans in windows.items()
                if other != key and other in self._units and any(a <= since and until <= b for a, b in spans)
            ]
            began_in = [
                other
                for other, open_until in working.items()
                if other != key
                and other in self._units
                and any(a <= since and (b is None or since <= b) for a, b in open_until)
            ]
            above = [other for other in began_in if descends(unit, pids[other])]
            parents = above if len(above) == 1 else parents
            if len(parents) == 1:
                self._units[parents[0]].calls += unit.calls
                del self._units[key]

    # --- containers -------------------------------------------------------------------------------------------------

    def _join_names(self) -> None:
        """Harbor's environment of a trial whose calls from the host bear the trial's name, or its agent's session.

        A tool can say any name: beside a conversation that bears none and has no environment, it may be that one's.
        """
        housed = set(self._owner.values())
        bare = self._bare()
        called: dict[str, list[Group]] = {}
        for key in self._units:
            if key[0] == "name" and key not in housed:
                called.setdefault(_harbors(key[1]), []).append(key)
        for group in self._boxes:
            keys = called.get(group[1], []) if group[0] == "project" and self._free(group) else []
            if len(keys) == 1 and not self._beside(group, bare):
                self._own(group, keys[0])

    def _join_commands(self) -> None:
        """A box belongs to the one unit that can have asked for every command in it that anybody asked for."""
        wanted: dict[str, list[tuple[int, int | None, Group]]] = {}
        for key, unit in self._units.items():
            for since, until, digest in asked(unit):
                wanted.setdefault(digest, []).append((since, until, key))
        group_of = {box.id: group for group, boxes in self._boxes.items() for box in boxes}
        may: dict[Group, list[set[Group]]] = {}
        for ran in self._facts.ran:
            group = group_of.get(ran.container)
            who = {
                key
                for since, until, key in wanted.get(ran.text_digest, ())
                if since - SLACK_NS <= ran.at_ns and (until is None or ran.at_ns <= until + SLACK_NS)
            }
            if group is not None and who and group not in self._owner and group not in self._shared:
                may.setdefault(group, []).append(who)
        for group, sets in may.items():
            common = set.intersection(*sets)
            if len(common) == 1:
                self._own(group, next(iter(common)))
            else:
                self._shared[group] = frozenset(set.union(*sets))

    def _own(self, group: Group, key: Group) -> None:
        self._owner[group] = key
        self._units[key].boxes.add(group)

    def _join_turns(self) -> None:
        """A harness whose agent either waits for the model or works: a conversation that had a call open while its
        client started a command in a box does not own that box, nor does one that had asked for other keys than were
        typed there.  Where that leaves one for a box, it is the owner.
        """
        group_of = {box.id: group for group, boxes in self._boxes.items() for box in boxes}
        worked: dict[Group, list[AskedFor]] = {}
        for asked_for in self._facts.asked_for:
            group = group_of.get(self._facts.execs.get(asked_for.exec_id, ""))
            if group is not None and self._free(group) and self._is_harness(group):
                worked.setdefault(group, []).append(asked_for)
        bare = {k: u for k, u in self._units.items() if not u.boxes and k[0] in {"session", "chain"} and is_main(u)}
        open_calls = {key: one_by_one(unit) for key, unit in bare.items()}
        keys_of = {key: keys_asked(unit) for key, unit in bare.items()}
        left: dict[Group, list[Group]] = {}
        for group, execs in worked.items():
            begin, end = self._life(group)
            left[group] = []
            others = typed_otherwise(keys_of, execs)
            for key, spans in open_calls.items():
                since, until = bare[key].span
                if since < begin or (end is not None and until > end):
                    continue
                waited = spans is not None and any(within(spans, each.at_ns) for each in execs)
                if not waited and key not in others:
                    left[group].append(key)
        # As many boxes as conversations: each has its own, so one that is found is nobody else's.
        each_has_one = len(left) == len(bare)
        while single := next((group for group, keys in left.items() if len(keys) == 1), None):
            key = left.pop(single)[0]
            rivals = [group for group, keys in left.items() if key in keys]
            contested = any(len(left[group]) == 1 for group in rivals)
            for group in rivals:
                left[group].remove(key)
            if open_calls[key] is not None and not contested and (each_has_one or not rivals):
                self._own(single, key)

    def _join_alone(self) -> None:
        """One environment of a harness, and one conversation, alone with each other from begin to end."""
        free = {g: self._life(g) for g in self._boxes if self._free(g) and self._is_harness(g)}
        bare = {k: u.span for k, u in self._units.items() if not u.boxes and k[0] in {"session", "chain"}}
        for group, (since, until) in free.items():
            beside = [k for k, (a, b) in bare.items() if b >= since and (until is None or a <= until)]
            if len(beside) != 1:
                continue
            a, b = bare[beside[0]]
            rivals = [g for g, (s, e) in free.items() if g != group and s <= b and (e is None or e >= a)]
            if not rivals and since <= a and (until is None or b <= until):
                self._own(group, beside[0])

    def _life(self, group: Group) -> tuple[int, int | None]:
        boxes = self._boxes[group]
        ends = [end for box in boxes if (end := self._facts.over_ns(box.id)) is not None]
        return min(box.since_ns for box in boxes), max(ends) if len(ends) == len(boxes) else None

    def _bare(self) -> list[tuple[int, int]]:
        """The spans of the conversations that have neither a name nor an environment."""
        return [u.span for k, u in self._units.items() if not u.boxes and k[0] in {"session", "chain"} and is_main(u)]

    def _beside(self, group: Group, spans: list[tuple[int, int]]) -> bool:
        """Whether one of these went on while the environment was there."""
        begin, end = self._life(group)
        return any(until >= begin and (end is None or since <= end) for since, until in spans)

    def _free(self, group: Group) -> bool:
        return group not in self._owner and group not in self._shared

    def _is_harness(self, group: Group) -> bool:
        text = group[1] if group[0] == "project" else self._boxes[group][0].name or ""
        return _HARNESS_BOX.match(text) is not None

    # --- the decision -----------------------------------------------------------------------------------------------

    def _choose(self) -> set[Group]:
        """The units that are trials; fewer than two: nothing is sure enough."""
        for group, owner in self._owner.items():
            self._units.setdefault(owner, Unit()).boxes.add(group)
        bare = self._bare()
        for group in self._boxes:
            # Where a conversation without an environment went on beside it, the two may be one trial.
            if self._free(group) and self._is_harness(group) and not self._beside(group, bare):
                self._units[group] = Unit(boxes={group})
        names = {key for key in self._units if key[0] == "name"}
        placed = {key for key, unit in self._units.items() if unit.boxes and (unit.chats or key[0] != "name")}
        alone = {key for key in placed if any(self._is_harness(group) for group in self._units[key].boxes)}
        sure = names | placed
        alike = Counter(s for key in placed for s in self._units[key].scaffolds)
        several = len(names) > 1 or len(alone) > 1 or any(count > 1 for count in alike.values())
        if not several and not self._named:
            return set()
        known = {s for key in sure for s in self._units[key].scaffolds}
        sessions = {key for key, unit in self._units.items() if key[0] == "session" and is_main(unit)}
        open_chains = {
            key
            for key, unit in self._units.items()
            if unit.chain is not None and key not in sure and not unit.chain.twins and is_main(unit)
        }
        if several or sure or sessions:
            known |= {s for key in sessions for s in self._units[key].scaffolds}
            chosen = sure | sessions | {key for key in open_chains if self._units[key].scaffolds & known}
            # A tool can say any name: names alone tell trials apart where every conversation bears one.
            return chosen if chosen - names or not self._nameless(chosen) else set()
        frames = Counter(s for key in open_chains for s in self._units[key].scaffolds)
        if not frames:
            return set()
        most = max(frames.values())
        if most < 2:
            return set()  # two agents of one trial: a planner and its editor
        return {key for key in open_chains if any(frames[s] == most for s in self._units[key].scaffolds)}

    def _nameless(self, chosen: set[Group]) -> bool:
        return any(key not in chosen and is_main(unit) for key, unit in self._units.items())

    def _parting(self, chosen: set[Group]) -> Parting:
        lives: list[tuple[int, Group]] = []
        for key in chosen:
            starts = [call.started_ns for call in self._units[key].calls]
            starts += [box.since_ns for group in self._units[key].boxes for box in self._boxes[group]]
            lives.append((min(starts), key))
        order = [key for _, key in sorted(lives)]
        strays = dict(self._strays)
        for key, unit in self._units.items():
            if key not in chosen:
                why = "twins" if unit.chain is not None and unit.chain.twins else "no_identity"
                strays |= {call.attempt: why for call in unit.calls}
        chats = {call.attempt for call in self._facts.calls.values() if call.chat}
        stray_boxes: dict[str, frozenset[int]] = {}
        for group, boxes in self._boxes.items():
            if self._owner.get(group, group) not in chosen:
                users = frozenset(order.index(k) for k in self._shared.get(group, ()) if k in chosen)
                stray_boxes |= {box.id: users for box in boxes}
        parts = tuple(self._part(key) for key in order)
        words, stray_words = told_apart(self._facts.words, parts, self._facts)
        return Parting(
            parts=parts,
            stray_calls={attempt: why for attempt, why in strays.items() if attempt in chats},
            stray_containers=stray_boxes,
            words=words,
            stray_words=stray_words,
        )

    def _part(self, key: Group) -> Part:
        unit = self._units[key]
        boxes = [box for group in unit.boxes for box in self._boxes[group]]
        ends = [call.ended_ns or call.started_ns for call in unit.calls]
        ends += [self._facts.heard_ns.get(box.id, box.since_ns) for box in boxes]
        starts = [call.started_ns for call in unit.calls] + [box.since_ns for box in boxes]
        name = key[1] if key[0] == "name" else _name_of(boxes)
        if name is not None and any(box.project == _harbors(name) for box in boxes):
            name = name.removesuffix(AGENT)
        return Part(
            name=name,
            how={"name": "name", "session": "session", "chain": "history"}.get(key[0], "container"),
            calls=frozenset(call.attempt for call in unit.calls),
            containers=frozenset(box.id for box in boxes),
            started_ns=min(starts),
            ended_ns=max(ends),
        )


def _box_group(box: BoxFacts) -> Group:
    return ("project", box.project) if box.project else ("box", box.id)


def _harbors(name: str) -> str:
    """The compose project that Harbor gives to the environment of the trial of this name."""
    return project_of(name.removesuffix(AGENT) + ENVIRONMENT)


def _name_of(boxes: list[BoxFacts]) -> str | None:
    """What the harness called the trial, as far as its environment tells; for people."""
    projects = sorted({box.project for box in boxes if box.project})
    if len(projects) != 1:
        return None
    found = _HARNESS_BOX.match(projects[0])
    return found["harbor"] if found is not None and found["harbor"] else projects[0]
