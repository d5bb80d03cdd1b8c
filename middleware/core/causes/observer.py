"""Causes: fairtrial itself.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import DOOR, PROVED, F, cause

OBSERVER: Final = (
    cause(
        "observer.relay_fault",
        "observer",
        (F,),
        PROVED,
        "fairtrial's own relay broke {attempts} to get step {step}'s reply ({failure}).",
        "Leave this trial out of every score, and report it to fairtrial's authors.",
        sources=DOOR,
        built=True,
    ),
    cause(
        "observer.lag",
        "observer",
        (F,),
        PROVED,
        "fairtrial's own relay held step {step}'s reply back for {lag}, and the client gave up.",
        "Leave this trial out of every score, and run it again on a less loaded machine.",
        note="suspected: a process of the same user can stop fairtrial",
        sources=DOOR,
        built=True,
    ),
    cause(
        "observer.door_unreachable",
        "observer",
        (F,),
        PROVED,
        "fairtrial's model door was not open ({failure}), and no model call came through it.",
        "Leave this trial out of every score; free the port or the socket, and run it again.",
        note="suspected: the command may not have tried",
        sources=DOOR,
        built=True,
    ),
    cause(
        "observer.limit",
        "observer",
        (F,),
        PROVED,
        "fairtrial ran into a limit of its own process ({failure}) at the call for step {step}'s reply.",
        "Leave this trial out of every score, raise the limit of open files, and run it again.",
        sources=DOOR,
        built=True,
    ),
)
