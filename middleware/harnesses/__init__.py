"""Readers of a harness's own result files, one file per harness, and the table that names them.

A reader turns files into outcomes (`base.Booked`); `join.py` says which observed trial each belongs to; `keep.py` saves
files that a harness deletes.  None of them judges, none believes what an agent wrote beyond using its ids to join.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.harnesses import (
    claude_code,
    exit_code,
    harbor,
    inspect_ai,
    junit,
    mini_swe_agent,
    swebench,
)
from fairtrial.middleware.harnesses.base import Adapter

ADAPTERS: Final[dict[str, Adapter]] = {
    adapter.name: adapter
    for adapter in (
        harbor.ADAPTER,
        swebench.ADAPTER,
        mini_swe_agent.ADAPTER,
        inspect_ai.ADAPTER,
        claude_code.ADAPTER,
        junit.ADAPTER,
        exit_code.ADAPTER,
    )
}
