"""Observations that real runs of scenarios left, kept for tests that need a trial and no machine.

In: a scenario's name.  Out: its observations, as the store gave them back.  Each is one gzip file of JSON lines under
tests/data/matrix; `make matrix ARGS=--record` writes them anew from real runs.  Nothing in them is written by hand.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import Observation

FOLDER: Final = Path(__file__).resolve().parents[1] / "data" / "matrix"
RECORDED: Final = (
    "overloaded",
    "cut-fin",
    "stalled-mid-stream",
    "recovered-529-then-fails",
    "fell-back",
    "bad-key",
)
"""Scenarios whose observations are kept: one of each way a trial can go, small."""

_DECODER: Final = msgspec.json.Decoder(Observation)


def write(name: str, observations: Sequence[Observation]) -> Path:
    """Keep them.  The same observations give the same bytes."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.jsonl.gz"
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in observations)
    path.write_bytes(gzip.compress(lines, mtime=0))
    return path


def read(name: str) -> list[Observation]:
    """The observations of one scenario.  Raises FileNotFoundError."""
    lines = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [_DECODER.decode(line) for line in lines]
