"""Evidence and the answers that rest on it, in short.

In: placed observations, ids.  Out: `Evidence` rows and `Question`s.  What this module does not do: decide an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.records import Answer, Evidence, Question
from fairtrial.middleware.steps.placed import Placed


def evidence(placed: Placed, claim: str) -> Evidence:
    """One claim with the observation that it rests on."""
    return Evidence(
        id=placed.id,
        at=rfc3339(placed.at_ns),
        step=placed.step,
        phase=placed.phase,
        source=placed.observation.source,
        trust=placed.observation.trust,
        claim=claim,
    )


def yes(by: Iterable[str]) -> Question:
    return Question(answer=Answer.YES, by=list(dict.fromkeys(by)))


def no(by: Iterable[str] = ()) -> Question:
    return Question(answer=Answer.NO, by=list(dict.fromkeys(by)))


def unknown(by: Iterable[str] = ()) -> Question:
    return Question(answer=Answer.UNKNOWN, by=list(dict.fromkeys(by)))
