"""Writes rules.yml beside this file: `python deploy/prometheus/make_rules.py`; a test holds the two together.

Four signals share one way of finding drift, so it is written once.  Each signal is compared with the same clock hour of
the last seven days (median, and median absolute deviation), and with the same hour of the week once four weeks exist.
Dependent rules stand in one group and its interval is under Prometheus' look-back of five minutes: in two groups, or at
ten minutes, every derived series would be silently empty.  All of it runs on Prometheus 2.42 and later.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).with_name("rules.yml")
RUNBOOK: Final = "docs/alerts.md"
_DAYS: Final = range(1, 8)
_WEEKS: Final = (7, 14, 21, 28)


@dataclass(frozen=True)
class Signal:
    """One histogram whose quantile is watched.  `worse`: which direction is bad; `by`: what keeps its own baseline."""

    name: str
    metric: str
    selector: str
    quantile: float
    worse: str
    by: tuple[str, ...]
    least: int
    said: str
    unit: str


SIGNALS: Final = (
    Signal(
        "ttft",
        "fairtrial_api_ttft_seconds",
        "",
        0.95,
        "higher",
        ("provider", "model"),
        30,
        "time to the first token",
        "s",
    ),
    Signal(
        "duration",
        "fairtrial_api_attempt_duration_seconds",
        '{outcome="ok"}',
        0.95,
        "higher",
        ("provider", "model"),
        30,
        "duration of a call",
        "s",
    ),
    Signal(
        "token_rate",
        "fairtrial_api_output_tokens_per_second",
        "",
        0.5,
        "lower",
        ("provider", "model"),
        30,
        "output tokens per second",
        "/s",
    ),
    Signal(
        "egress_rate",
        "fairtrial_container_egress_rate_bytes_per_second",
        "",
        0.5,
        "lower",
        (),
        30,
        "egress rate of containers",
        " B/s",
    ),
)


def text() -> str:
    """The whole file."""
    lines = [
        "# Written by make_rules.py; change that, then run it.  How to read an alert: docs/alerts.md.",
        "groups:",
        *(line for signal in SIGNALS for line in _drift(signal)),
        *_rates(),
        *_state(),
    ]
    return "\n".join(lines) + "\n"


def _record(name: str, expr: str, labels: str = "") -> Iterator[str]:
    yield f"      - record: {name}"
    yield f"        expr: {expr}"
    if labels:
        yield f"        labels: {labels}"


def _alert(name: str, expr: str, wait: str, labels: str, summary: str, action: str) -> Iterator[str]:
    yield f"      - alert: {name}"
    yield "        expr: >-"
    yield from (f"          {line}" for line in expr.splitlines())
    yield f"        for: {wait}"
    yield f"        labels: {labels}"
    yield "        annotations:"
    yield f'          summary: "{summary}"'
    yield f'          action: "{action}"'
    yield f'          runbook: "{RUNBOOK}#{name.lower()}"'


def _drift(signal: Signal) -> Iterator[str]:
    base = f"fairtrial:{signal.name}"
    labels = ", ".join(signal.by)
    groups = ", ".join(("le", *signal.by))
    on = f"on ({labels}) group_left ()"
    yield f"  - name: fairtrial-drift-{signal.name.replace('_', '-')}"
    yield "    interval: 1m"
    yield "    rules:"
    rate = f"sum by ({groups}) (rate({signal.metric}_bucket{signal.selector}[1h]))"
    yield from _record(f"{base}:now_1h", f"histogram_quantile({signal.quantile}, {rate})")
    yield from _record(f"{base}:n_1h", f"sum by ({labels}) (increase({signal.metric}_count{signal.selector}[1h]))")
    for cycle, lags in (("hod", _DAYS), ("how", _WEEKS)):
        for day in lags:
            past = f"({base}:now_1h offset {day}d) and ({base}:n_1h offset {day}d >= {signal.least})"
            yield from _record(f"{base}:{cycle}_same_hour", past, f'{{lag: "{day}d"}}')
        same = f"{base}:{cycle}_same_hour"
        yield from _record(f"{base}:{cycle}_median", f"quantile without (lag) (0.5, {same})")
        yield from _record(f"{base}:{cycle}_count", f"count without (lag) ({same})")
        yield from _record(
            f"{base}:{cycle}_mad", f"quantile without (lag) (0.5, abs({same} - {on} {base}:{cycle}_median))"
        )
        spread = f"(({base}:{cycle}_mad > 0.05 * {base}:{cycle}_median) or 0.05 * {base}:{cycle}_median)"
        sign = "+" if signal.worse == "higher" else "-"
        yield from _record(
            f"{base}:{cycle}_band",
            f"({base}:{cycle}_median {sign} 3 * 1.4826 * {spread}) and {base}:{cycle}_count >= 4",
        )
    yield from _record(f"{base}:band", f"{base}:how_band or {base}:hod_band")
    yield from _record(
        f"{base}:usual", f"({base}:how_median and {base}:how_band) or ({base}:hod_median and {base}:hod_band)"
    )
    compare, ratio = (">", 1.25) if signal.worse == "higher" else ("<", 0.8)
    of = " of {{ $labels.provider }} {{ $labels.model }}" if signal.by else ""
    name = "Fairtrial" + "".join(part.title() for part in signal.name.split("_")) + "Drift"
    cause = "api_latency" if signal.by else "network_slow"
    yield from _alert(
        name,
        f"{base}:now_1h {compare} {base}:band\nand {base}:now_1h {compare} {ratio} * {base}:usual\n"
        f"and {base}:n_1h >= {signal.least}",
        "20m",
        f"{{severity: warn, cause: {cause}}}",
        f"The {signal.said}{of} is {{{{ $value | printf `%.2f` }}}}{signal.unit}, not what this hour usually is.",
        "Compare with the provider's status page; take trials of this hour as slowed, not as failed by the model.",
    )


def _wilson(bad: str, n: str) -> str:
    """Lower Wilson bound at 95 % of a ratio of two recorded series with equal labels."""
    share = f"({bad} / {n})"
    root = f"sqrt({share} * (1 - {share}) / {n} + 0.9604 / {n} ^ 2)"
    return f"({share} + 1.9208 / {n} - 1.96 * {root}) / (1 + 3.8416 / {n})"


def _rates() -> Iterator[str]:
    failed = 'outcome!~"ok|client_disconnect|proxy_shutdown"'
    yield "  - name: fairtrial-rates"
    yield "    interval: 1m"
    yield "    rules:"
    by = "sum by (provider)"
    yield from _record("fairtrial:attempts_10m", f"{by} (increase(fairtrial_api_attempts_total[10m]))")
    yield from _record(
        "fairtrial:attempts_failed_10m",
        f'{by} (increase(fairtrial_api_attempts_total{{{failed}, status!~"4.."}}[10m])) or 0 * fairtrial:attempts_10m',
    )
    yield from _alert(
        "FairtrialProviderOutage",
        "fairtrial:attempts_failed_10m / fairtrial:attempts_10m > 0.5\nand fairtrial:attempts_10m >= 10",
        "5m",
        "{severity: page, cause: provider_outage}",
        "{{ $value | humanizePercentage }} of the calls to {{ $labels.provider }} end without a usable reply.",
        "Stop or postpone the run: trials that end now are ended by the model API.",
    )
    yield from _record("fairtrial:calls_6h", "sum by (provider, model) (increase(fairtrial_api_attempts_total[6h]))")
    yield from _record(
        "fairtrial:calls_stalled_6h",
        'sum by (provider, model) (increase(fairtrial_api_stalls_total{owner="upstream"}[6h]))'
        " or 0 * fairtrial:calls_6h",
    )
    yield from _record("fairtrial:stalled:wilson_6h", _wilson("fairtrial:calls_stalled_6h", "(fairtrial:calls_6h > 0)"))
    yield from _alert(
        "FairtrialStallRate",
        "fairtrial:stalled:wilson_6h > 0.01",
        "15m",
        "{severity: warn, cause: api_stall}",
        "At least {{ $value | humanizePercentage }} of calls to {{ $labels.provider }} {{ $labels.model }} stall.",
        "Look at the stalled attempts in Jaeger; a client's watchdog may be what ends them.",
    )
    yield from _record("fairtrial:trials_6h", "sum(increase(fairtrial_trials_total[6h]))")
    for name, selector in (("oom", '{cause=~"container.oom_.*|node.oom"}'), ("infra", "")):
        ended = f"sum(increase(fairtrial_trials_terminated_total{selector}[6h])) or 0 * fairtrial:trials_6h"
        yield from _record(f"fairtrial:trials_{name}_6h", ended)
        yield from _record(
            f"fairtrial:{name}:wilson_6h", _wilson(f"fairtrial:trials_{name}_6h", "(fairtrial:trials_6h > 0)")
        )
        yield from _record(
            f"fairtrial:{name}:ratio_1h",
            f"sum(increase(fairtrial_trials_terminated_total{selector}[1h]))"
            " / sum(increase(fairtrial_trials_total[1h]))",
        )
    for alert, name, target, what in (
        ("FairtrialOomRate", "oom", 0.02, "an OOM kill"),
        ("FairtrialInfraEndedRate", "infra", 0.05, "an outside event"),
    ):
        yield from _alert(
            alert,
            f"fairtrial:{name}:wilson_6h > {target}\nand fairtrial:{name}:ratio_1h > {target}",
            "10m",
            f"{{severity: warn, cause: {name}_rate}}",
            f"At least {{{{ $value | humanizePercentage }}}} of the trials of the last six hours were ended by {what}.",
            "Search the traces by fairtrial.terminated_by; do not publish this run's score as it is.",
        )


def _state() -> Iterator[str]:
    yield "  - name: fairtrial-state"
    yield "    interval: 1m"
    yield "    rules:"
    yield from _alert(
        "FairtrialHungTrial",
        "fairtrial_longest_silent_trial_seconds > 1200\nand fairtrial_open_trials > 0",
        "10m",
        "{severity: warn, cause: hung_trial}",
        "A trial on {{ $labels.instance }} was not heard of for {{ $value | humanizeDuration }}.",
        "fairtrial trials shows it; its last step says what it waits for.",
    )
    yield from _alert(
        "FairtrialNoCalls",
        "sum by (instance) (fairtrial_open_trials) > 0\n"
        "unless on (instance) sum by (instance) (increase(fairtrial_api_attempts_total[30m])) > 0",
        "30m",
        "{severity: warn, cause: no_calls}",
        "Trials are open on {{ $labels.instance }} and no call passed for half an hour.",
        "Check that the agents' base URL is the door's.",
    )
    yield from _alert(
        "FairtrialOwnLosses",
        "sum by (instance, what) (increase(fairtrial_own_dropped_total[15m])) > 0",
        "0m",
        "{severity: warn, cause: fairtrial}",
        "fairtrial on {{ $labels.instance }} lost {{ $labels.what }}: the coverage of these trials has gaps.",
        "See the limits in docs/serve.md.",
    )
    yield from _alert(
        "FairtrialOwnLag",
        "histogram_quantile(0.99, sum by (le, instance) (rate(fairtrial_own_loop_lag_seconds_bucket[15m]))) > 0.25",
        "15m",
        "{severity: warn, cause: fairtrial}",
        "The relay on {{ $labels.instance }} is {{ $value | humanizeDuration }} late: it may be part of what is slow.",
        "Give it a core of its own, or fewer trials.",
    )
    yield from _alert(
        "FairtrialDown",
        'up{job="fairtrial"} == 0',
        "5m",
        "{severity: page, cause: fairtrial}",
        "The observer of fairtrial on {{ $labels.instance }} does not answer; the relay may go on without it.",
        "GET /healthz of that host says which of the two processes is down.",
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TARGET.read_text() != text())
    TARGET.write_text(text())
