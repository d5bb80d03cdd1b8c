"""The rules of drift wake somebody when they should and at no other time; each guard is needed.

promtool evaluates the shipped rules over synthetic weeks.  Each mutant takes one guard away and must be noticed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deploy.series import (
    at,
    changed,
    daily,
    day_of,
    histogram,
    hour_of,
    restarted,
    unseen,
    when,
)
from tests.deploy.tools import NO_PROMTOOL, PROMTOOLS, RULES, Alerts, last_words, only, promtool

DRIFT = "FairtrialTtftDrift"
GROUP = "fairtrial-drift-ttft"
STEPS = at(8, 16)
BOUNDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 12.0, 40.0)
"""Fewer than are shipped: promtool's time goes with them."""

pytestmark = pytest.mark.skipif(not PROMTOOLS, reason=NO_PROMTOOL)


def model(name: str) -> dict[str, str]:
    return {"provider": "p", "model": name}


@pytest.fixture(scope="module")
def rules() -> str:
    return RULES.read_text()


def nine_days(*names: str) -> list[dict[str, str]]:
    """What the drift rules are judged by; see each name."""
    worlds = {
        "drift": (12, changed(changed(daily(1.2), 1.8, 8, 2, 6), 10, 5, 2, 6)),
        "steady": (12, daily(1.2)),
        "quiet": (1, changed(daily(1.2), 1.8, 8, 2, 6)),
        "early": (12, changed(daily(1.2), 1.8, 1, 2, 6)),
        "slight": (12, changed(daily(1.2, jitter=0), 1.235, 8, 2, 6)),
    }
    return [
        line
        for name in names or worlds
        for line in histogram("fairtrial_api_ttft_seconds", model(name), BOUNDS, STEPS, *worlds[name])
    ]


def drift_alerts(firing_now: Sequence[tuple[str, str]]) -> Alerts:
    """One row per moment that matters; a moment without a name must be silent."""
    moments = {
        when(8, 4): "four hours of 1.8 times what this hour is",
        when(8, 1.5): "before",
        when(8, 8): "after",
        when(8, 15): "the daily peak",
        when(1, 4): "a second day has no history",
    }
    return [
        {
            "eval_time": moment,
            "alertname": DRIFT,
            "exp_alerts": [expected(name) for at_moment, name in firing_now if at_moment == moment],
        }
        for moment in moments
    ]


def expected(name: str) -> dict[str, object]:
    return {"exp_labels": {**model(name), "severity": "warn", "cause": "api_latency"}, "exp_annotations": SAID[name]}


def as_read(name: str, now: float, usual: float, least: float) -> dict[str, str]:
    """As people read them."""
    return {
        "summary": f"The time to the first token of p {name} is {now:.2f}s; at this hour it usually is {usual:.2f}s.",
        "action": "Compare with the provider's status page;"
        " take trials of this hour as slowed, not as failed by the model.",
        "traces": "http://127.0.0.1:16686/search?service=agent-harness&lookback=6h&limit=200"
        f"&tags=%7B%22gen_ai.request.model%22%3A%22{name}%22%7D&minDuration={least}s",
        "runbook": "docs/alerts.md#fairtrialttftdrift",
    }


SAID = {"drift": as_read("drift", 4.80, 2.20, 4.8)}


@pytest.mark.parametrize("version", PROMTOOLS)
def test_drift_wakes_once_and_only_where_it_is(rules: str, tmp_path: Path, version: str) -> None:
    due = drift_alerts([(when(8, 4), "drift")])
    done = promtool(tmp_path / "t", only(rules, GROUP), nine_days(), due, program=PROMTOOLS[version])
    assert done.returncode == 0, last_words(done)


def split(*, night_too: bool = True, hidden_days: int = 0) -> list[dict[str, str]]:
    """Two instances, neither with calls enough; one is restarted at half past three, each night.

    `night_too`: whether there were calls before the last day; `hidden_days`: the last ones that were not scraped.
    """
    shift = changed(daily(1.2), 1.8, 8, 2, 6)
    series: list[dict[str, str]] = []
    for instance in ("a", "b"):
        labels = {**model("split"), "instance": instance}
        name, steps = "fairtrial_api_ttft_seconds", STEPS
        made = histogram(name, labels, BOUNDS, steps, 3, shift, when=None if night_too else lambda s: day_of(s) == 8)
        if instance == "b":
            made = restarted(made, [at(day, 3.5) for day in range(9)])
        series += unseen(made, [step for day in range(8 - hidden_days, 8) for step in range(at(day, 3), at(day, 5))])
    return series


@pytest.mark.parametrize("version", PROMTOOLS)
def test_instances_count_together_and_a_restart_is_no_drift(rules: str, tmp_path: Path, version: str) -> None:
    """Once, and at no other moment; the figures differ a little, since windows of 3.x leave out their first moment."""
    done = promtool(tmp_path / "t", only(rules, GROUP), split(), drift_alerts([]), program=PROMTOOLS[version])
    told = done.stdout + done.stderr
    assert re.findall(r"time: (\w+)", told) == ["8d4h"], last_words(done)
    assert told.count('model="split"') == 1, last_words(done)


@pytest.mark.parametrize("hidden, fires", [(3, True), (4, False)])
def test_four_of_the_seven_days_must_have_been_seen(rules: str, tmp_path: Path, hidden: int, fires: bool) -> None:
    silent: Alerts = [{"eval_time": when(8, 4), "alertname": DRIFT, "exp_alerts": []}]
    done = promtool(tmp_path / "t", only(rules, GROUP), split(hidden_days=hidden), silent)
    assert (done.returncode != 0) is fires, last_words(done)


def test_hours_without_a_call_are_no_history(rules: str, tmp_path: Path) -> None:
    """The quantile of nothing is no number: it must not come into a median."""
    alerts: Alerts = [{"eval_time": when(8, 4), "alertname": DRIFT, "exp_alerts": []}]
    none: Alerts = [
        {"expr": "fairtrial:ttft:hod_same_hour", "eval_time": when(8, 4), "exp_samples": []},
        {"expr": "fairtrial:ttft:band", "eval_time": when(8, 4), "exp_samples": []},
    ]
    series = split(night_too=False)
    done = promtool(tmp_path / "t", only(rules, GROUP), series, alerts, expressions=none)
    assert done.returncode == 0, last_words(done)


MUTANTS = {
    "traffic": ("quiet", [("n_1h >= 30", "n_1h >= 0"), (">= 30)", ">= 0)")]),
    "ratio": ("slight", [("1.25 * fairtrial:ttft:usual", "1.0 * fairtrial:ttft:usual")]),
    "day": ("drift", [(f"offset {day}d", f"offset {day}h") for day in range(1, 8)]),
    "history": ("early", [("hod_count >= 4", "hod_count >= 1")]),
    "median": (
        "drift",
        [
            (
                "quantile without (lag) (0.5, fairtrial:ttft:hod_same_hour)",
                "avg without (lag) (fairtrial:ttft:hod_same_hour)",
            )
        ],
    ),
    "patience": ("drift", [("for: 20m", "for: 6h")]),
}
"""Guard -> (the world that shows it, what is taken away)."""


@pytest.mark.parametrize("guard", MUTANTS)
def test_each_guard_of_drift_is_needed(rules: str, tmp_path: Path, guard: str) -> None:
    world, changes = MUTANTS[guard]
    mutant = shipped = only(rules, GROUP)
    for old, new in changes:
        assert old in mutant, old
        mutant = mutant.replace(old, new)
    due = drift_alerts([(when(8, 4), "drift")] if world == "drift" else [])
    told = promtool(tmp_path / "shipped", shipped, nine_days(world), due)
    assert told.returncode == 0, last_words(told)
    assert promtool(tmp_path / "mutant", mutant, nine_days(world), due).returncode != 0, f"{guard} is not needed"


@pytest.mark.parametrize("weeks", [True, False], ids=["hour of the week", "without it"])
def test_a_weekly_pattern_is_usual_once_four_weeks_exist(rules: str, tmp_path: Path, weeks: bool) -> None:
    """Every seventh day is slow: by the hour of the day alone that is drift, each week anew."""
    plain = daily(1.2)

    def weekly(step: int) -> float:
        return plain(step) * (1.8 if day_of(step) % 7 == 0 and 2 <= hour_of(step) < 6 else 1.0)

    series = histogram("fairtrial_api_ttft_seconds", model("weekly"), BOUNDS, at(28, 5), 12, weekly)
    chosen = only(rules, GROUP)
    if not weeks:
        chosen = chosen.replace("how_count >= 4", "how_count >= 9")
    alerts: Alerts = [{"eval_time": when(28, 4), "alertname": DRIFT, "exp_alerts": []}]
    done = promtool(tmp_path / "t", chosen, series, alerts)
    assert (done.returncode == 0) is weeks, last_words(done)


@pytest.mark.parametrize(
    "metric, labels, extra, alert, cause",
    [
        ("fairtrial_api_output_tokens_per_second", model("m"), {}, "FairtrialTokenRateDrift", "api_latency"),
        ("fairtrial_container_egress_rate_bytes_per_second", {}, {}, "FairtrialEgressRateDrift", "network_slow"),
        (
            "fairtrial_api_attempt_duration_seconds",
            model("m"),
            {"outcome": "ok"},
            "FairtrialDurationDrift",
            "api_latency",
        ),
    ],
)
def test_the_other_signals_drift_in_their_own_direction(
    rules: str,
    tmp_path: Path,
    metric: str,
    labels: dict[str, str],
    extra: dict[str, str],
    alert: str,
    cause: str,
) -> None:
    group = {
        "FairtrialTokenRateDrift": "fairtrial-drift-token-rate",
        "FairtrialEgressRateDrift": "fairtrial-drift-egress-rate",
        "FairtrialDurationDrift": "fairtrial-drift-duration",
    }[alert]
    bounds = BOUNDS if extra else tuple(float(2**n) for n in range(3, 20))
    base, worse, better = (2.0, 2.0, 0.4) if extra else (2000.0, 0.2, 4.0)
    for factor, fires in ((worse, True), (better, False)):
        series = histogram(metric, {**labels, **extra}, bounds, STEPS, 12, changed(daily(base), factor, 8, 2, 6))
        silent: Alerts = [{"eval_time": when(8, 4), "alertname": alert, "exp_alerts": []}]
        done = promtool(tmp_path / f"{fires}", only(rules, group), series, silent)
        assert (done.returncode != 0) is fires, last_words(done)
        assert (f'cause="{cause}"' in done.stdout + done.stderr) is fires


def test_the_file_is_what_its_maker_writes_and_promtool_accepts_it(repo_root: Path) -> None:
    maker = repo_root / "deploy" / "prometheus" / "make_rules.py"
    assert subprocess.run([sys.executable, str(maker), "--check"], check=False, timeout=60).returncode == 0
    elsewhere = [sys.executable, str(maker), "--check", "--jaeger", "https://jaeger.example"]
    assert subprocess.run(elsewhere, check=False, timeout=60).returncode == 1
    for program in PROMTOOLS.values():
        assert subprocess.run([program, "check", "rules", str(RULES)], check=False, timeout=60).returncode == 0
