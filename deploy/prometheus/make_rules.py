"""Writes rules.yml beside this file: `python deploy/prometheus/make_rules.py [--jaeger URL]`; a test compares them.

Four signals share one way of finding drift, so it is written once.  Each signal is compared with the same clock hour of
the last seven days (median, and median absolute deviation), and with the same hour of the week once four weeks exist.
Dependent rules stand in one group and its interval is under Prometheus' look-back of five minutes: in two groups, or at
ten minutes, every derived series would be silently empty.  All of it runs on Prometheus 2.42 and later, and 3.x.

Two traps of counters shape the rates.  `increase` does not see what a counter had counted when it first appeared, and
ours appear with their first event: `_grown` adds that.  It also extrapolates, so a share may be a little above 1 and
its Wilson bound no number, just when everything fails: shares are clamped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

TARGET: Final = Path(__file__).with_name("rules.yml")
RUNBOOK: Final = "docs/alerts.md"
JAEGER: Final = "http://127.0.0.1:16686"
"""Where people reach Jaeger's pages: that of deploy/compose.yaml."""
_DAYS: Final = range(1, 8)
_WEEKS: Final = (7, 14, 21, 28)
_FEW: Final = 2.5
"""One or two events are no rate, whatever the bound says: of one trial it says 20 %.  2.5 is three, extrapolated."""


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
    shown: str = "printf `%.2f`"


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
        "B/s",
        "humanize1024",
    ),
)


def text(jaeger: str = JAEGER) -> str:
    """The whole file; its alerts link to the traces in that Jaeger."""
    lines = [
        "# Written by make_rules.py; change that, then run it.  How to read an alert: docs/alerts.md.",
        "groups:",
        *(line for signal in SIGNALS for line in _drift(signal)),
        *_rates(),
        *_state(),
    ]
    return "\n".join(lines).replace(_HERE, jaeger.rstrip("/")) + "\n"


_HERE: Final = "@jaeger@"


def _search(service: str, tags: Mapping[str, str], least: str = "") -> str:
    """Address of Jaeger's search.  A value of the tags may be a template; `least`: shortest span, a Go duration."""
    written: list[str] = []
    for name, value in tags.items():
        shown = value if value.startswith("{{") else quote(value, safe="")
        written.append(f"%22{quote(name, safe='')}%22%3A%22{shown}%22")
    found = f"{_HERE}/search?service={service}&lookback=6h&limit=200&tags=%7B{'%2C'.join(written)}%7D"
    return f"{found}&minDuration={least}" if least else found


def _record(name: str, expr: str, labels: str = "") -> Iterator[str]:
    yield f"      - record: {name}"
    yield f"        expr: {expr}"
    if labels:
        yield f"        labels: {labels}"


def _alert(
    name: str, expr: str, wait: str, labels: str, summary: str, action: str, traces: str | None = None
) -> Iterator[str]:
    yield f"      - alert: {name}"
    yield "        expr: >-"
    yield from (f"          {line}" for line in expr.splitlines())
    yield f"        for: {wait}"
    yield f"        labels: {labels}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(summary)}"
    yield f"          action: {json.dumps(action)}"
    if traces is not None:
        yield f"          traces: {json.dumps(traces)}"
    yield f'          runbook: "{RUNBOOK}#{name.lower()}"'


def _grown(metric: str, window: str) -> str:
    """What a counter grew by in the window, what it had when it first appeared included.

    A new counter's lowest value is that first one, or, behind a reset, less: never more than it counted.  One that was
    seen within the hour before the window is not new: else a gap of Prometheus itself would count old events again.
    """
    grew = f"increase({metric}[{window}])"
    first = f"(min_over_time({metric}[{window}]) unless last_over_time({metric}[1h] offset {window}))"
    return f"(({grew} + {first}) or {grew})"


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
    usual = f"`{base}:usual`"
    if signal.by:
        matchers = ", ".join(f"{label}=%q" for label in signal.by)
        usual = f"printf `{base}:usual{{{matchers}}}` " + " ".join(f"$labels.{label}" for label in signal.by)
    usual = f"{{{{ with {usual} | query }}}}{{{{ . | first | value | {signal.shown} }}}}{{{{ end }}}}{signal.unit}"
    traces = None
    if signal.by:
        least = "{{ $value | printf `%.1f` }}s" if signal.unit == "s" else ""
        traces = _search("agent-harness", {"gen_ai.request.model": "{{ $labels.model | urlquery }}"}, least)
    name = "Fairtrial" + "".join(part.title() for part in signal.name.split("_")) + "Drift"
    cause = "api_latency" if signal.by else "network_slow"
    yield from _alert(
        name,
        f"{base}:now_1h {compare} {base}:band\nand {base}:now_1h {compare} {ratio} * {base}:usual\n"
        f"and {base}:n_1h >= {signal.least}",
        "20m",
        f"{{severity: warn, cause: {cause}}}",
        f"The {signal.said}{of} is {{{{ $value | {signal.shown} }}}}{signal.unit}; at this hour it usually is {usual}.",
        "Compare with the provider's status page; take trials of this hour as slowed, not as failed by the model."
        if signal.by
        else "Compare with other hosts; take trials of this hour as slowed, not as failed by the model.",
        traces,
    )


def _wilson(bad: str, n: str) -> str:
    """Lower Wilson bound at 95 % of a ratio of two recorded series with equal labels; nothing where `n` is 0."""
    n = f"({n} > 0)"
    share = f"clamp_max({bad} / {n}, 1)"
    root = f"sqrt({share} * (1 - {share}) / {n} + 0.9604 / {n} ^ 2)"
    return f"({share} + 1.9208 / {n} - 1.96 * {root}) / (1 + 3.8416 / {n})"


def _rates() -> Iterator[str]:
    failed = 'outcome!~"ok|client_disconnect|proxy_shutdown"'
    yield "  - name: fairtrial-rates"
    yield "    interval: 1m"
    yield "    rules:"
    by = "sum by (provider)"
    attempts = "fairtrial_api_attempts_total"
    yield from _record("fairtrial:attempts_10m", f"{by} ({_grown(attempts, '10m')})")
    unusable = f'{attempts}{{{failed}, status!~"4.."}}'
    # A client that gives up before any head came: what a provider looks like that accepts calls and says nothing.
    silent = f'{attempts}{{outcome="client_disconnect", status="none"}}'
    yield from _record(
        "fairtrial:attempts_failed_10m",
        f"{by} ({_grown(unusable, '10m')} or {_grown(silent, '10m')}) or 0 * fairtrial:attempts_10m",
    )
    yield from _alert(
        "FairtrialProviderOutage",
        "fairtrial:attempts_failed_10m / fairtrial:attempts_10m > 0.5\nand fairtrial:attempts_10m >= 10",
        "5m",
        "{severity: page, cause: provider_outage}",
        "{{ $value | humanizePercentage }} of the calls to {{ $labels.provider }} end without a usable reply.",
        "Stop or postpone the run: trials that end now are ended by the model API.",
        _search("model-api", {"fairtrial.call.outcome": "error"}),
    )
    yield from _record("fairtrial:calls_6h", f"sum by (provider, model) ({_grown(attempts, '6h')})")
    stalls = 'fairtrial_api_stalls_total{owner="upstream"}'
    yield from _record(
        "fairtrial:calls_stalled_6h",
        f"sum by (provider, model) ({_grown(stalls, '6h')}) or 0 * fairtrial:calls_6h",
    )
    yield from _record("fairtrial:stalled:wilson_6h", _wilson("fairtrial:calls_stalled_6h", "fairtrial:calls_6h"))
    yield from _alert(
        "FairtrialStallRate",
        f"fairtrial:stalled:wilson_6h > 0.01\nand fairtrial:calls_stalled_6h > {_FEW}",
        "15m",
        "{severity: warn, cause: api_stall}",
        "At least {{ $value | humanizePercentage }} of calls to {{ $labels.provider }} {{ $labels.model }} stall.",
        "Look at the stalled attempts in Jaeger; a client's watchdog may be what ends them.",
        _search("agent-harness", {"gen_ai.request.model": "{{ $labels.model | urlquery }}"}, "90s"),
    )
    trials, ended = "fairtrial_trials_total", "fairtrial_trials_terminated_total"
    for window in ("6h", "1h"):
        yield from _record(f"fairtrial:trials_{window}", f"sum({_grown(trials, window)})")
        yield from _record(f"fairtrial:trials_ended_{window}", f"sum by (cause) ({_grown(ended, window)})")
    for name, selector in (("oom", '{cause=~"container.oom_.*|node.oom"}'), ("infra", "")):
        for window in ("6h", "1h"):
            yield from _record(
                f"fairtrial:trials_{name}_{window}",
                f"sum(fairtrial:trials_ended_{window}{selector}) or 0 * fairtrial:trials_{window}",
            )
        yield from _record(f"fairtrial:{name}:wilson_6h", _wilson(f"fairtrial:trials_{name}_6h", "fairtrial:trials_6h"))
    for alert, name, target, what, causes in (
        ("FairtrialOomRate", "oom", 0.02, "an OOM kill", '{cause=~"container.oom_.*|node.oom"}'),
        ("FairtrialInfraEndedRate", "infra", 0.05, "an outside event", ""),
    ):
        most = f"with query `topk(1, fairtrial:trials_ended_6h{causes})`"
        first = f"{{{{ {most} }}}}{{{{ . | first | label `cause` }}}}{{{{ end }}}}"
        yield from _alert(
            alert,
            f"fairtrial:{name}:wilson_6h > {target}\nand fairtrial:trials_{name}_6h > {_FEW}\n"
            f"and fairtrial:trials_{name}_1h / fairtrial:trials_1h > {target}",
            "10m",
            f"{{severity: warn, cause: {name}_rate}}",
            f"At least {{{{ $value | humanizePercentage }}}} of the trials of the last six hours were ended by {what},"
            f" most often {first}.",
            "Search the traces by fairtrial.terminated_by; do not publish this run's score as it is.",
            _search("agent-harness", {"fairtrial.terminated_by": first}),
        )


def _state() -> Iterator[str]:
    yield "  - name: fairtrial-state"
    yield "    interval: 1m"
    yield "    rules:"
    yield from _alert(
        "FairtrialHungTrial",
        # Silent within a call: a trial without one may simply be over, since nobody tells `serve` so.
        "fairtrial_longest_silent_trial_seconds > 900\nand fairtrial_open_trials > 0",
        "5m",
        "{severity: warn, cause: hung_trial}",
        "A call of a trial on {{ $labels.instance }} is open and silent for {{ $value | humanizeDuration }}.",
        "fairtrial trials shows it; its last step says what it waits for.",
    )
    yield from _alert(
        "FairtrialOwnLosses",
        f"sum by (instance, what) ({_grown('fairtrial_own_dropped_total', '15m')}) > 0",
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


def main() -> int:
    """Write the file; with --check only say by the exit status whether it is what would be written."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--jaeger", default=JAEGER, help="where people reach Jaeger's pages")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return int(TARGET.read_text() != text(options.jaeger))
    TARGET.write_text(text(options.jaeger))
    return 0


if __name__ == "__main__":
    sys.exit(main())
