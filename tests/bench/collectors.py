"""What watching costs: 50 real cgroups at 10 Hz (`tests/collectors/bench_cgroups.py`, in a process of its own).

`python -m tests.bench collectors`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tests.bench.observed import ROOT
from tests.bench.rows import Row, spread

ROUND_S: Final = 4.0


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budget of DESIGN section 7."""
    what = "50 cgroups at 10 Hz"
    done = subprocess.run(
        [sys.executable, "-m", "tests.collectors.bench_cgroups", str(0.3 if quick else ROUND_S)],
        capture_output=True, cwd=ROOT, timeout=120, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it failed without a word"])[-1]
        yield Row(what=what, value=None, unit="% of a core", budget=3, how=f"needs root and cgroup v1 or hybrid: {why}")
        return
    said = json.loads(done.stdout)
    shares = [float(share) for share in said["cpu_percent_of_one_core"]]
    value, noise = spread(shares)
    how = f"{len(shares)} rounds; an edge blocks for {said['edge_blocks_ms']} ms"
    yield Row(what=what, value=value, noise=noise, unit="% of a core", budget=3, how=how)
