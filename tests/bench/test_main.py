"""The tables that `make bench` prints, and that every part of it still works; nothing here is about time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import HEADER, PARTS, markdown_head, markdown_line, plain_line
from tests.bench.relay_proxies import NGINX_PATH
from tests.bench.rows import Row, percentile, spread

HELD = Row(what="`a` | b", value=0.1234567, unit="s", budget=0.4, how="median of 15")
BROKEN = Row(what="rate", value=0.5, unit="x", budget=0.6, sense="at least", how="over nginx's")
ABSENT = Row(what="rate", value=None, unit="x", budget=0.6, how="nginx is not installed")

# Rows that may be without a figure, by part: what they need is not everywhere.
MAY_BE_ABSENT = {
    "relay": () if NGINX_PATH else ("nginx",),
    "collectors": ("50 cgroups",),
    "spikes": ("spikes",),
    "churn": ("cgroups made", "containers of"),
    "start_end": (() if os.environ.get("FAIRTRIAL_TEST_DOCKER") else ("no engine is named",)),
    "docker": (() if os.environ.get("FAIRTRIAL_TEST_DOCKER") else ("no engine is named",)),
    "missing": ("",),
}


def test_a_row_of_markdown_has_the_cells_of_the_head_and_no_stray_bar() -> None:
    assert markdown_line(HELD) == "| `a` / b | 0.1235 s | at most 0.4 s | ok | median of 15 |"
    head, rule = markdown_head().splitlines()
    assert head.count("|") == rule.count("|") == markdown_line(HELD).count("|") == len(HEADER) + 1


def test_a_broken_budget_and_a_figure_that_is_missing_are_said() -> None:
    assert "| 0.5 x | at least 0.6 x | BROKEN |" in markdown_line(BROKEN)
    assert "| not measured | at most 0.6 x | - | nginx is not installed |" in markdown_line(ABSENT)
    assert plain_line(BROKEN).startswith("  BROKEN rate")


@pytest.mark.parametrize(
    "value, noise, said", [(0.4, 0.0, "ok"), (0.41, 0.0, "BROKEN"), (0.41, 0.02, "noise"), (0.43, 0.02, "BROKEN")]
)
def test_a_miss_within_the_noise_is_neither_kept_nor_broken(value: float, noise: float, said: str) -> None:
    row = Row(what="x", value=value, unit="s", budget=0.4, noise=noise)
    assert plain_line(row).split()[0] == said


def test_the_noise_is_half_the_distance_of_the_quartiles() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == (3.0, 1.5)
    assert spread([7.0]) == (7.0, 0.0)
    assert percentile(range(1, 101), 0.99) == 100


@pytest.mark.parametrize("part", PARTS)
def test_every_part_works(part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--quick", part],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [line[2:].split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert rows
    allowed = MAY_BE_ABSENT.get(part, ())
    absent = [row[1] for row in rows if "not measured" in row[1] and not any(word in row[1] for word in allowed)]
    assert absent == []
