"""Which containers are this trial's: made through its door, by its mark, else started while nobody else could have.

In: a container's facts, the trial's id and start, and whether another fairtrial trial uses the same engine.
Out: how it was joined, or why not.  Nothing joins by name.

`started_after` can be wrong: on a shared engine someone without fairtrial may start a container meanwhile.  That is
said in the coverage, and costs at most a container too many in the record.  A container that ran before is never ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fairtrial.collectors.parse.docker import TRIAL_LABEL, ContainerFacts

Join = Literal["door", "env", "label", "started_after"]
_OVERLAP_NS: Final = 2_000_000_000
"""A container made this soon after another trial was last seen may still be that trial's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not ours, and why; `ambiguous`: it may be all the same."""

    why: str
    ambiguous: bool = False


def judge(
    facts: ContainerFacts,
    *,
    trial_id: str,
    started_ns: int,
    others: int,
    others_until_ns: int | None = None,
    skew_ns: int = 0,
    made_here: bool = False,
    made_elsewhere: bool = False,
) -> Join | Refused:
    """`started_ns` is our wall clock, `skew_ns` the engine's minus ours; `others`: other trials on this engine now,
    `others_until_ns`: when one was last seen; `made_here`, `made_elsewhere`: it passed our Docker door, or another
    trial's."""
    if made_here:
        return "door"
    label = facts.labels.get(TRIAL_LABEL)
    if facts.trial_in_env == trial_id:
        return "env"
    if label == trial_id:
        return "label"
    if facts.trial_in_env is not None or label is not None:
        return Refused(why="it is marked as another trial's")
    if made_elsewhere:
        return Refused(why="it was made through another trial's Docker door")
    since_ns = started_ns + skew_ns
    if facts.created_ns is None:
        return Refused(why="the engine does not say when it was created")
    if facts.created_ns < since_ns:
        restarted = (facts.restarts or 0) > 0
        if facts.started_ns is None or facts.started_ns < since_ns or restarted:
            return Refused(why="it was there before this trial")
    if others > 0:
        return Refused(why=f"{others} other trial(s) use this engine and it carries no mark of ours", ambiguous=True)
    if others_until_ns is not None and facts.created_ns <= others_until_ns + skew_ns + _OVERLAP_NS:
        return Refused(
            why="another trial used this engine when it was made and it carries no mark of ours", ambiguous=True
        )
    return "started_after"
