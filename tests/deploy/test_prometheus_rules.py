"""The alerting rules wake somebody when they should and at no other time; each guard is needed.

promtool evaluates the shipped rules over synthetic weeks.  Each mutant takes one guard away and must be noticed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deploy.series import at, changed, daily, day_of, histogram, hour_of, when

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yml"
DRIFT = "FairtrialTtftDrift"
STEPS = at(8, 16)
BOUNDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 12.0, 40.0)
"""Fewer than are shipped: promtool's time goes with them."""
Alerts = list[dict[str, object]]

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="not installed: promtool (Debian: apt-get install prometheus)"
)


def model(name: str) -> dict[str, str]:
    return {"provider": "p", "model": name}


def promtool(folder: Path, rules: str, series: object, alerts: Alerts) -> subprocess.CompletedProcess[str]:
    """Run one unit test of the rules; their interval is the series' own, so that nine days take seconds."""
    folder.mkdir(exist_ok=True)
    (folder / "rules.yml").write_text(rules.replace("interval: 1m", "interval: 10m"))
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "10m",
        "tests": [{"interval": "10m", "input_series": series, "alert_rule_test": alerts}],
    }
    (folder / "test.yml").write_text(json.dumps(test))
    return subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def only(rules: str, *groups: str) -> str:
    """The rules with these groups alone: the others cost time and say nothing here."""
    head, *parts = rules.split("  - name: ")
    kept = [part for part in parts if part.split("\n", 1)[0] in groups]
    assert len(kept) == len(groups), groups
    return head + "".join("  - name: " + part for part in kept)


def firing(alert: str, moment: str, *labels: dict[str, str]) -> dict[str, object]:
    """Exactly these fire at this moment; annotations are compared as well, so they are left to `summaries`."""
    return {"eval_time": moment, "alertname": alert, "exp_alerts": [{"exp_labels": each} for each in labels]}


def labels_of(output: str) -> str:
    return output[-3000:]


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
    return {"exp_labels": {**model(name), "severity": "warn", "cause": "api_latency"}, "exp_annotations": ANNOTATIONS}


ANNOTATIONS = {
    "summary": "The time to the first token of p drift is 4.80s, not what this hour usually is.",
    "action": "Compare with the provider's status page; take trials of this hour as slowed, not as failed by the model.",  # noqa: E501
    "runbook": "docs/alerts.md#fairtrialttftdrift",
}


def test_drift_wakes_once_and_only_where_it_is(rules: str, tmp_path: Path) -> None:
    due = drift_alerts([(when(8, 4), "drift")])
    done = promtool(tmp_path / "t", only(rules, "fairtrial-drift-ttft"), nine_days(), due)
    assert done.returncode == 0, labels_of(done.stdout + done.stderr)


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
    mutant = shipped = only(rules, "fairtrial-drift-ttft")
    for old, new in changes:
        assert old in mutant, old
        mutant = mutant.replace(old, new)
    due = drift_alerts([(when(8, 4), "drift")] if world == "drift" else [])
    told = promtool(tmp_path / "shipped", shipped, nine_days(world), due)
    assert told.returncode == 0, labels_of(told.stdout + told.stderr)
    assert promtool(tmp_path / "mutant", mutant, nine_days(world), due).returncode != 0, f"{guard} is not needed"


@pytest.mark.parametrize("weeks", [True, False], ids=["hour of the week", "without it"])
def test_a_weekly_pattern_is_usual_once_four_weeks_exist(rules: str, tmp_path: Path, weeks: bool) -> None:
    """Every seventh day is slow: by the hour of the day alone that is drift, each week anew."""
    plain = daily(1.2)

    def weekly(step: int) -> float:
        return plain(step) * (1.8 if day_of(step) % 7 == 0 and 2 <= hour_of(step) < 6 else 1.0)

    series = histogram("fairtrial_api_ttft_seconds", model("weekly"), BOUNDS, at(28, 5), 12, weekly)
    chosen = only(rules, "fairtrial-drift-ttft")
    if not weeks:
        chosen = chosen.replace("how_count >= 4", "how_count >= 9")
    alerts: Alerts = [{"eval_time": when(28, 4), "alertname": DRIFT, "exp_alerts": []}]
    done = promtool(tmp_path / "t", chosen, series, alerts)
    assert (done.returncode == 0) is weeks, labels_of(done.stdout + done.stderr)


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
        assert (done.returncode != 0) is fires, labels_of(done.stdout + done.stderr)
        assert (f'cause="{cause}"' in done.stdout + done.stderr) is fires


def counter(name: str, labels: str, per_step: Sequence[int]) -> dict[str, str]:
    total, values = 0, []
    for step in per_step:
        total += step
        values.append(str(total))
    return {"series": f"{name}{{{labels}}}", "values": " ".join(values)}


def rates(rules: str, folder: Path, series: list[dict[str, str]], alert: str, moment: str) -> str:
    """What fires, as promtool prints it; "" for nothing."""
    silent: Alerts = [{"eval_time": moment, "alertname": alert, "exp_alerts": []}]
    done = promtool(folder, only(rules, "fairtrial-rates", "fairtrial-state"), series, silent)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def trials(ended: int, of: int) -> list[dict[str, str]]:
    """So many of so many trials were ended by an OOM, evenly over six hours."""
    steps = 36
    spread = [of * (n + 1) // steps - of * n // steps for n in range(steps)]
    bad = [ended * (n + 3) // steps - ended * (n + 2) // steps for n in range(steps)]
    zero = [0]
    return [
        counter("fairtrial_trials_total", 'outcome="failed",blame="infra",grade="proved",cause="x"', zero + spread),
        counter("fairtrial_trials_terminated_total", 'cause="container.oom_kill",grade="proved"', zero + bad),
    ]


def test_twelve_of_a_hundred_wake_and_one_of_twelve_does_not(rules: str, tmp_path: Path) -> None:
    assert "oom_rate" in rates(rules, tmp_path / "a", trials(12, 100), "FairtrialOomRate", "6h")
    assert rates(rules, tmp_path / "b", trials(1, 12), "FairtrialOomRate", "6h") == ""
    blunt = rules.replace("fairtrial:oom:wilson_6h > 0.02", "fairtrial:trials_oom_6h / fairtrial:trials_6h > 0.02")
    assert blunt != rules
    assert "oom_rate" in rates(blunt, tmp_path / "c", trials(1, 12), "FairtrialOomRate", "6h"), (
        "the bound is not needed"
    )


def test_infra_that_ends_trials_has_a_higher_target(rules: str, tmp_path: Path) -> None:
    assert "infra_rate" in rates(rules, tmp_path / "a", trials(12, 100), "FairtrialInfraEndedRate", "6h")
    assert rates(rules, tmp_path / "b", trials(6, 100), "FairtrialInfraEndedRate", "6h") == ""


def attempts(ok: int, failed: int, status: str = "529") -> list[dict[str, str]]:
    name = "fairtrial_api_attempts_total"
    return [
        counter(name, 'provider="p",model="m",status="200",outcome="ok"', [0, *[ok] * 12]),
        counter(name, f'provider="p",model="m",status="{status}",outcome="error"', [0, *[failed] * 12]),
    ]


def test_an_outage_needs_traffic_and_a_failing_majority_of_the_providers_making(rules: str, tmp_path: Path) -> None:
    def fires(series: list[dict[str, str]], name: str) -> bool:
        return "provider_outage" in rates(rules, tmp_path / name, series, "FairtrialProviderOutage", "110m")

    assert fires(attempts(10, 30), "out")
    assert fires(attempts(10, 30, "none"), "no head")
    assert not fires(attempts(30, 10), "most are well")
    assert not fires(attempts(1, 4), "too few")
    assert not fires(attempts(10, 30, "400"), "the client's own")


def test_stalls_of_the_upstream_count_and_those_of_a_slow_client_do_not(rules: str, tmp_path: Path) -> None:
    def fires(owner: str) -> bool:
        stalled = counter("fairtrial_api_stalls_total", f'provider="p",model="m",owner="{owner}"', [0, *[1] * 12])
        series = [*attempts(20, 0), stalled]
        return "api_stall" in rates(rules, tmp_path / owner, series, "FairtrialStallRate", "110m")

    assert fires("upstream")
    assert not fires("client")


def test_hung_trials_silence_our_own_losses_and_our_death_are_said(rules: str, tmp_path: Path) -> None:
    here = 'instance="h:1",job="fairtrial"'
    sick = [
        {"series": f"fairtrial_longest_silent_trial_seconds{{{here}}}", "values": "1500+0x20"},
        {"series": f"fairtrial_open_trials{{{here}}}", "values": "2+0x20"},
        {"series": f'fairtrial_own_dropped_total{{{here},what="records"}}', "values": "0+5x20"},
        {"series": f"up{{{here}}}", "values": "0+0x20"},
    ]
    for alert in ("FairtrialHungTrial", "FairtrialNoCalls", "FairtrialOwnLosses", "FairtrialDown"):
        assert alert in rates(rules, tmp_path / alert, sick, alert, "150m"), alert
    well = [
        {"series": f"fairtrial_longest_silent_trial_seconds{{{here}}}", "values": "60+0x20"},
        {"series": f"fairtrial_open_trials{{{here}}}", "values": "2+0x20"},
        {
            "series": f'fairtrial_api_attempts_total{{{here},provider="p",model="m",status="200",outcome="ok"}}',
            "values": "0+9x20",
        },
        {"series": f'fairtrial_own_dropped_total{{{here},what="records"}}', "values": "5+0x20"},
        {"series": f"up{{{here}}}", "values": "1+0x20"},
    ]
    for alert in ("FairtrialHungTrial", "FairtrialNoCalls", "FairtrialOwnLosses", "FairtrialDown"):
        assert rates(rules, tmp_path / f"well-{alert}", well, alert, "150m") == "", alert


def test_a_late_loop_is_said(rules: str, tmp_path: Path) -> None:
    bounds = (0.001, 0.02, 0.1, 0.25, 0.5, 1.0)
    for fires in (True, False):
        series = histogram(
            "fairtrial_own_loop_lag_seconds",
            {"instance": "h"},
            bounds,
            20,
            6,
            (lambda _: 0.4) if fires else lambda _: 0.01,
        )
        assert bool(rates(rules, tmp_path / f"{fires}", series, "FairtrialOwnLag", "150m")) is fires


def test_the_file_is_what_its_maker_writes_and_promtool_accepts_it(repo_root: Path) -> None:
    maker = repo_root / "deploy" / "prometheus" / "make_rules.py"
    assert subprocess.run([sys.executable, str(maker), "--check"], check=False, timeout=60).returncode == 0
    assert subprocess.run(["promtool", "check", "rules", str(RULES)], check=False, timeout=60).returncode == 0
