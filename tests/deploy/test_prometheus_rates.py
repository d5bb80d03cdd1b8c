"""Rates, hung trials and our own troubles: who is woken, who is not, and by what trap of counters that would be wrong.

promtool evaluates the shipped rules over synthetic hours, a sample each five minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deploy.series import histogram
from tests.deploy.tools import NO_PROMTOOL, PROMTOOLS, RULES, Alerts, last_words, only, promtool

STEP_MIN = 5
HOUR = 60 // STEP_MIN
GROUPS = ("fairtrial-rates", "fairtrial-state")
Series = list[dict[str, str]]

pytestmark = pytest.mark.skipif(not PROMTOOLS, reason=NO_PROMTOOL)


@pytest.fixture(scope="module")
def rules() -> str:
    return RULES.read_text()


def without(rules: str, guard: str, instead: str = "") -> str:
    """A mutant."""
    assert guard in rules, guard
    return rules.replace(guard, instead)


def summed(per_step: Sequence[int | None]) -> str:
    """Values of a counter; None: the step has no sample."""
    total, values = 0, []
    for step in per_step:
        total += step or 0
        values.append("_" if step is None else str(total))
    return " ".join(values)


def counter(name: str, labels: str, per_step: Sequence[int | None]) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}", "values": summed(per_step)}


def woken(
    rules: str, folder: Path, series: Series, alert: str, moment: str, *, step: str = "5m", program: str | None = None
) -> str:
    """What fires, as promtool prints it, annotations included; "" for nothing."""
    silent: Alerts = [{"eval_time": moment, "alertname": alert, "exp_alerts": []}]
    done = promtool(folder, only(rules, *GROUPS), series, silent, step=step, program=program)
    told = done.stdout + done.stderr
    assert (done.returncode != 0) is ("got:[" in told), last_words(done)
    assert "<error" not in told
    assert "%!" not in told
    assert "<no value>" not in told
    return told if done.returncode else ""


def spread(count: int, shift: int = 0) -> list[int]:
    """So many events, evenly over six hours."""
    steps = 6 * HOUR
    return [0, *(count * (n + 1 + shift) // steps - count * (n + shift) // steps for n in range(steps))]


def trials(ended: int, of: int, more: str = "") -> Series:
    """So many of so many trials of six hours were ended by an OOM kill."""
    return [
        counter("fairtrial_trials_total", f'outcome="failed",blame="infra",grade="proved",cause="x"{more}', spread(of)),
        counter(
            "fairtrial_trials_terminated_total",
            f'cause="container.oom_kill",grade="proved"{more}',
            spread(ended, shift=HOUR // 2),
        ),
    ]


@pytest.mark.parametrize("version", PROMTOOLS)
def test_twelve_of_a_hundred_wake_and_say_what_it_was(rules: str, tmp_path: Path, version: str) -> None:
    series = trials(12, 100)
    told = woken(rules, tmp_path / "a", series, "FairtrialOomRate", "6h", program=PROMTOOLS[version])
    assert re.search(r"At least [67]\.\d+%", told)
    assert "ended by an OOM kill, most often container.oom_kill." in told
    assert "tags=%7B%22fairtrial.terminated_by%22%3A%22container.oom_kill%22%7D" in told


def test_a_share_of_few_is_noise(rules: str, tmp_path: Path) -> None:
    assert woken(rules, tmp_path / "a", trials(3, 60), "FairtrialOomRate", "6h") == ""
    blunt = without(rules, "fairtrial:oom:wilson_6h > 0.02", "fairtrial:trials_oom_6h / fairtrial:trials_6h > 0.02")
    assert woken(blunt, tmp_path / "b", trials(3, 60), "FairtrialOomRate", "6h"), "the bound is not needed"


@pytest.mark.parametrize("ended, of", [(1, 3), (2, 5)])
def test_one_or_two_are_no_rate(rules: str, tmp_path: Path, ended: int, of: int) -> None:
    assert woken(rules, tmp_path / "a", trials(ended, of), "FairtrialOomRate", "6h") == ""
    blunt = without(rules, "fairtrial:trials_oom_6h > 2.5", "fairtrial:trials_oom_6h > 0")
    last_hour = without(blunt, "fairtrial:trials_oom_1h / fairtrial:trials_1h > 0.02", "fairtrial:trials_6h > 0")
    assert woken(last_hour, tmp_path / "b", trials(ended, of), "FairtrialOomRate", "6h"), "the guard is not needed"


def test_when_everything_fails_the_bound_is_still_a_number(rules: str, tmp_path: Path) -> None:
    """Extrapolated, sixty are ended of fifty: without the clamp that is the root of something negative."""
    assert "100%" not in (told := woken(rules, tmp_path / "a", trials(60, 50), "FairtrialOomRate", "6h"))
    assert "oom_rate" in told
    share = "fairtrial:trials_oom_6h / (fairtrial:trials_6h > 0)"
    loose = without(rules, f"clamp_max({share}, 1)", f"({share})")
    assert woken(loose, tmp_path / "b", trials(60, 50), "FairtrialOomRate", "6h") == ""


def test_no_trials_are_no_rate_and_no_number(rules: str, tmp_path: Path) -> None:
    none: Alerts = [
        {"expr": f"fairtrial:{name}:wilson_6h", "eval_time": "6h", "exp_samples": list[object]()}
        for name in ("oom", "infra")
    ]
    done = promtool(tmp_path / "t", only(rules, *GROUPS), trials(0, 0), [], step="5m", expressions=none)
    assert done.returncode == 0, last_words(done)


def test_instances_are_added_and_restarts_lose_nothing(rules: str, tmp_path: Path) -> None:
    """200 trials of two hosts; one host's observer is started anew halfway, its counters at 0."""
    whole = trials(6, 100, ',instance="a"')
    anew = trials(6, 100, ',instance="b"')
    for one in anew:
        counts = [int(value) for value in one["values"].split()]
        half = len(counts) // 2
        one["values"] = " ".join(str(c if n < half else c - counts[half - 1]) for n, c in enumerate(counts))
    about: Alerts = [
        {"expr": f"({name} > bool {least}) * ({name} < bool {most})", "eval_time": "6h", "exp_samples": [{"value": 1}]}
        for name, least, most in (("fairtrial:trials_6h", 195, 210), ("fairtrial:trials_oom_6h", 11.5, 12.6))
    ]
    done = promtool(tmp_path / "t", only(rules, *GROUPS), [*whole, *anew], [], step="5m", expressions=about)
    assert done.returncode == 0, last_words(done)


def test_what_a_counter_shows_first_counts(rules: str, tmp_path: Path) -> None:
    """Our counters appear with their first event; `increase` sees none of it."""
    lost: Series = [counter("fairtrial_own_dropped_total", 'instance="h",what="records"', [None] * 6 + [500] + [0] * 9)]
    assert "lost records" in woken(rules, tmp_path / "a", lost, "FairtrialOwnLosses", "40m")
    assert woken(rules, tmp_path / "b", lost, "FairtrialOwnLosses", "70m") == ""
    plain = without(rules, "+ (min_over_time(", "+ (0 * min_over_time(")
    assert woken(plain, tmp_path / "c", lost, "FairtrialOwnLosses", "40m") == ""


def test_what_was_counted_before_a_gap_of_prometheus_is_not_counted_again(rules: str, tmp_path: Path) -> None:
    old: Series = [
        counter("fairtrial_own_dropped_total", 'instance="h",what="records"', [500] + [0] * 20 + [None] * 6 + [0] * 9)
    ]
    assert woken(rules, tmp_path / "a", old, "FairtrialOwnLosses", "140m") == ""
    short = without(rules, "fairtrial_own_dropped_total[1h] offset", "fairtrial_own_dropped_total[1s] offset")
    assert woken(short, tmp_path / "b", old, "FairtrialOwnLosses", "140m"), "the longer look is not needed"


def test_infra_that_ends_trials_has_a_higher_target(rules: str, tmp_path: Path) -> None:
    assert "infra_rate" in woken(rules, tmp_path / "a", trials(12, 100), "FairtrialInfraEndedRate", "6h")
    assert woken(rules, tmp_path / "b", trials(6, 100), "FairtrialInfraEndedRate", "6h") == ""


def attempts(ok: int, failed: int, status: str = "529", *, outcome: str = "error", steps: int = 2 * HOUR) -> Series:
    """So many in each step."""
    name = "fairtrial_api_attempts_total"
    return [
        counter(name, 'provider="p",model="m",status="200",outcome="ok"', [0, *[ok] * steps]),
        counter(name, f'provider="p",model="m",status="{status}",outcome="{outcome}"', [0, *[failed] * steps]),
    ]


@pytest.mark.parametrize("version", PROMTOOLS)
def test_an_outage_needs_traffic_and_a_failing_majority_of_the_providers_making(
    rules: str, tmp_path: Path, version: str
) -> None:
    def told(series: Series, name: str) -> str:
        program = PROMTOOLS[version]
        return woken(rules, tmp_path / name, series, "FairtrialProviderOutage", "110m", program=program)

    assert "75% of the calls to p end without a usable reply." in told(attempts(5, 15), "out")
    assert "provider_outage" in told(attempts(5, 15, "none"), "no head")
    assert "provider_outage" in told(attempts(5, 15, "none", outcome="client_disconnect"), "says nothing")
    assert not told(attempts(5, 15, "200", outcome="client_disconnect"), "the client ends streams")
    assert not told(attempts(15, 5), "most are well")
    assert not told(attempts(1, 3), "too few")
    assert not told(attempts(5, 15, "400"), "the client's own")
    assert not told(attempts(0, 0), "nobody calls: the share is no number")
    assert not told(attempts(5, 15, steps=HOUR), "it is no longer called")
    gone = [{**one, "values": " ".join(one["values"].split()[: HOUR + 1])} for one in attempts(5, 15)]
    assert not told(gone, "its series have ended")


def test_stalls_of_the_upstream_count_and_those_of_a_slow_client_do_not(rules: str, tmp_path: Path) -> None:
    def told(owner: str, stalls: int = 24) -> str:
        per_step = [0, *[0] * (24 - stalls), *[1] * stalls]
        stalled = counter("fairtrial_api_stalls_total", f'provider="p",model="m",owner="{owner}"', per_step)
        series = [*attempts(20, 0), stalled]
        return woken(rules, tmp_path / f"{owner}{stalls}", series, "FairtrialStallRate", "110m")

    assert "minDuration=90s" in told("upstream")
    assert not told("client")
    assert not told("upstream", 2)


HERE = 'instance="h:1",job="fairtrial"'
CALLS = f'{HERE},provider="p",model="m",status="200",outcome="ok"'


def host(*, silent_s: str, calls: str | None, lost: str, up: str) -> Series:
    """What one host says of itself."""
    series = [
        {"series": f"fairtrial_longest_silent_trial_seconds{{{HERE}}}", "values": silent_s},
        {"series": f"fairtrial_open_trials{{{HERE}}}", "values": "2+0x40"},
        {"series": f'fairtrial_own_dropped_total{{{HERE},what="records"}}', "values": lost},
        {"series": f"up{{{HERE}}}", "values": up},
    ]
    return (
        series if calls is None else [*series, {"series": f"fairtrial_api_attempts_total{{{CALLS}}}", "values": calls}]
    )


def test_hung_trials_silence_our_own_losses_and_our_death_are_said(rules: str, tmp_path: Path) -> None:
    sick = host(silent_s="1500+0x40", calls=None, lost="0+5x40", up="0+0x40")
    well = host(silent_s="60+0x40", calls="0+9x40", lost="5+0x40", up="1+0x40")
    for alert in ("FairtrialHungTrial", "FairtrialOwnLosses", "FairtrialDown"):
        assert "h:1" in woken(rules, tmp_path / alert, sick, alert, "150m"), alert
        assert woken(rules, tmp_path / f"well-{alert}", well, alert, "150m") == "", alert


def test_a_silent_trial_is_said_before_it_is_closed_for_its_silence(rules: str, tmp_path: Path) -> None:
    """`serve.idle_s` is 30 minutes: after that the trial is over, and there is nobody to be woken for."""
    minutes = " ".join([*(str(60 * n) for n in range(30)), *["0"] * 10])
    calls = " ".join(["1", *["2"] * 39])
    series = host(silent_s=minutes, calls=calls, lost="0+0x40", up="1+0x40")
    series[1]["values"] = "1+0x29 0+0x10"
    alert = "FairtrialHungTrial"
    assert woken(rules, tmp_path / "early", series, alert, "14m", step="1m") == ""
    assert woken(rules, tmp_path / "due", series, alert, "23m", step="1m")
    assert woken(rules, tmp_path / "over", series, alert, "32m", step="1m") == ""
    slow = without(rules, "for: 5m", "for: 15m")
    assert woken(slow, tmp_path / "slow", series, "FairtrialHungTrial", "29m", step="1m") == ""


def test_a_late_loop_is_said(rules: str, tmp_path: Path) -> None:
    bounds = (0.001, 0.02, 0.1, 0.25, 0.5, 1.0)
    for fires in (True, False):
        centre = {True: lambda _: 0.4, False: lambda _: 0.01}[fires]
        series = histogram("fairtrial_own_loop_lag_seconds", {"instance": "h"}, bounds, 40, 6, centre)
        assert bool(woken(rules, tmp_path / f"{fires}", series, "FairtrialOwnLag", "150m")) is fires
