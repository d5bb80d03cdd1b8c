"""Observations that real runs of scenarios left, kept for tests that need a trial and no machine.

In: a scenario's name.  Out: its observations, as the store gave them back.  Each is one gzip file of JSON lines under
tests/data/matrix; `make matrix ARGS=--record` writes them anew from real runs.  Nothing in them is written by hand.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import Observation

FOLDER: Final = Path(__file__).resolve().parents[1] / "data" / "matrix"
RECORDED: Final = (
    "overloaded",
    "server-error-never-ran",
    "cut-fin",
    "cut-and-went-on",
    "stalled-mid-stream",
    "recovered-529-then-fails",
    "fell-back",
    "bad-key",
    "agent-killed",
    "client-timeout",
    "junk-at-the-door",
    "forged-calls-recovered",
    "oom",
    "oom-residual",
    "oom-before-any-reply",
    "oom-from-above",
    "oom-recovered-then-fails",
    "killed-from-outside",
    "engine-killed-under-a-command",
    "box-own-kill-9",
)
"""Scenarios whose observations are kept: one of each way a trial can go, a few kilobytes each."""

_MACHINE: Final = (
    (rb"/tmp/ft-mx-[^/\"]+/[^/\"]+", b"/trial"),
    (rb"/tmp/ft-[^/\"]+/s", b"/engine"),
    (rb"/tmp/fairtrial-\d+/[0-9a-f]+", b"/run"),
    (re.escape(sys.executable).encode(), b"python"),
    (re.escape(str(FOLDER.parents[1])).encode(), b"tests"),
    (re.escape(os.uname().nodename).encode(), b"host"),
    (re.escape(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).encode(), b"boot"),
    *(
        (re.escape(cgroup), b"/agent")
        for cgroup in {line.rpartition(b":")[2] for line in Path("/proc/self/cgroup").read_bytes().splitlines()}
        - {b"/"}
    ),
)
"""What is this machine's, as patterns, and what is written instead."""

_DECODER: Final = msgspec.json.Decoder(Observation)


def write(name: str, observations: Sequence[Observation]) -> Path:
    """Keep them, without what names this machine or its folders."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.jsonl.gz"
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in observations)
    for told, instead in _MACHINE:
        lines = re.sub(told, instead, lines)
    path.write_bytes(gzip.compress(lines, mtime=0))
    return path


def read(name: str) -> list[Observation]:
    """The observations of one scenario.  Raises FileNotFoundError."""
    lines = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [_DECODER.decode(line) for line in lines]
