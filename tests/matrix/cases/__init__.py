"""All scenarios of the matrix, family by family: a family is one file and one line here."""

from __future__ import annotations

from typing import Final

from tests.matrix.cases import box_look_alikes, containers, look_alikes, memory, model_api, sides
from tests.matrix.scenario import Scenario, check

ALL: Final[list[Scenario]] = check(
    [
        *model_api.SCENARIOS,
        *sides.SCENARIOS,
        *look_alikes.SCENARIOS,
        *memory.SCENARIOS,
        *containers.SCENARIOS,
        *box_look_alikes.SCENARIOS,
    ]
)
