"""Writes fairtrial.json beside this file: `python deploy/grafana/make_dashboard.py`; a test holds the two together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).with_name("fairtrial.json")

PANELS: Final = (
    ("Trials by verdict", "short", ("sum by (blame, grade) (increase(fairtrial_trials_total[$__range]))",)),
    (
        "Ended by infra, share of six hours (lower Wilson bound)",
        "percentunit",
        ("fairtrial:infra:wilson_6h", "fairtrial:oom:wilson_6h"),
    ),
    (
        "Time to first token, p95, beside what is usual",
        "s",
        ("fairtrial:ttft:now_1h", "fairtrial:ttft:usual", "fairtrial:ttft:band"),
    ),
    ("Call duration, p95, beside what is usual", "s", ("fairtrial:duration:now_1h", "fairtrial:duration:usual")),
    ("Output tokens per second, median", "short", ("fairtrial:token_rate:now_1h", "fairtrial:token_rate:usual")),
    ("Attempts by status", "reqps", ("sum by (provider, status) (rate(fairtrial_api_attempts_total[5m]))",)),
    ("Stalls by owner", "short", ("sum by (provider, owner) (increase(fairtrial_api_stalls_total[1h]))",)),
    ("OOM kills", "short", ("sum(increase(fairtrial_container_oom_kills_total[1h]))",)),
    (
        "Memory peak over ceiling, p95 of steps",
        "percentunit",
        ("histogram_quantile(0.95, sum by (le) (rate(fairtrial_container_memory_peak_ratio_bucket[1h])))",),
    ),
    (
        "Open trials, and the longest silence",
        "short",
        ("sum(fairtrial_open_trials)", "max(fairtrial_longest_silent_trial_seconds)"),
    ),
    (
        "fairtrial itself: losses and lag (p99)",
        "short",
        (
            "sum by (what) (increase(fairtrial_own_dropped_total[15m]))",
            "histogram_quantile(0.99, sum by (le) (rate(fairtrial_own_loop_lag_seconds_bucket[15m])))",
        ),
    ),
    ("Spans by what became of them", "short", ("sum by (state) (fairtrial_own_spans)",)),
)


def text() -> str:
    """The whole dashboard."""
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": {"type": "prometheus", "uid": "prometheus"},
            "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + index), "expr": expression, "exemplar": True}
                for index, expression in enumerate(expressions)
            ],
        }
        for number, (title, unit, expressions) in enumerate(PANELS)
    ]
    board = {
        "uid": "fairtrial",
        "title": "fairtrial",
        "tags": ["fairtrial"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TARGET.read_text() != text())
    TARGET.write_text(text())
