"""The closed table of causes: what fairtrial may say ended or distorted a trial, and what follows from it.

In: nothing.  Out: `CAUSES`, one row per cause of this ruleset, and `answers`, what a harness may do next.
What this module does not do: decide whether a cause holds (`attribution/rules/`).

A prefix does not imply the blame: `may_blame` does.  `best` is the best grade that the cause's own evidence can reach
without a counterfactual.  A row with `built` False has no source in this version: no rule may report it and no
hand-written observation stands for it; the docs page marks it "no source yet".
A cause read from a newer store that is not in the table is shown as it is.
One file holds the rows of one family; this one joins them.  `docs/causes.md` is generated from this table
(`python -m fairtrial.middleware.attribution.causes_page`).

Templates are sentences with named places; a value that was not observed is put in as "an unknown …" by
`attribution/sentences.py`, so a template names only nouns that read well after it.
**Source:** design page RECORDS.md, section Causes; facts per cause: reference page taxonomy.md section 5.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fairtrial.middleware.core.causes.answers import answers
from fairtrial.middleware.core.causes.clock import CLOCK
from fairtrial.middleware.core.causes.container_life import CONTAINER_LIFE
from fairtrial.middleware.core.causes.container_limits import CONTAINER_LIMITS
from fairtrial.middleware.core.causes.container_memory import CONTAINER_MEMORY
from fairtrial.middleware.core.causes.container_start import CONTAINER_START
from fairtrial.middleware.core.causes.harness import HARNESS
from fairtrial.middleware.core.causes.model_api import MODEL_API
from fairtrial.middleware.core.causes.network import NETWORK
from fairtrial.middleware.core.causes.node import NODE
from fairtrial.middleware.core.causes.observer import OBSERVER
from fairtrial.middleware.core.causes.operator import OPERATOR
from fairtrial.middleware.core.causes.row import Cause
from fairtrial.middleware.core.causes.task import TASK
from fairtrial.middleware.core.causes.unknown import UNKNOWN

__all__ = ["CAUSES", "Cause", "answers"]

_FAMILIES: Final = (
    MODEL_API,
    CONTAINER_MEMORY,
    CONTAINER_LIFE,
    CONTAINER_LIMITS,
    CONTAINER_START,
    NODE,
    NETWORK,
    CLOCK,
    HARNESS,
    OPERATOR,
    TASK,
    OBSERVER,
    UNKNOWN,
)

CAUSES: Final[MappingProxyType[str, Cause]] = MappingProxyType(
    {cause.name: cause for family in _FAMILIES for cause in family}
)
"""Every cause of this ruleset by name, in the order of RECORDS.md."""
