"""The node's counters."""

from pathlib import Path

from fairtrial.collectors.host import HostProbe
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import CoverageChanged, Host, HostCounters, Observation
from fairtrial.middleware.core.sink import Source
from tests.collectors.keep import Kept


def test_an_edge_writes_what_the_node_says(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 12\nother 3\n")
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 250 0 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 1024 kB\n")
    (tmp_path / "loadavg").write_text("1.25 0 0 1/2 3\n")
    (tmp_path / "pressure" / "memory").write_text("some avg10=0 avg60=0 avg300=0 total=2500000\n")
    kept = Kept()
    probe = HostProbe(kept.source("collector.vmstat"), tmp_path)
    probe.cover(clock.now())
    probe.edge("call_started")
    probe.close()
    (value,) = kept.of(HostCounters)
    assert value.edge == "call_started"
    assert (value.oom_kill, value.memory_available, value.load1, value.psi_memory) == (12, 1 << 20, 1.25, 2.5)
    assert value.steal_s is not None
    assert value.steal_s > 0
    assert value.psi_cpu is None  # its file is not there: not observed, not zero
    assert kept.of(CoverageChanged)[0].state == "on"


def test_without_the_counter_the_coverage_is_off_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 1\n")
    kept = Kept()
    probe = HostProbe(kept.source("collector.vmstat"), tmp_path)
    probe.cover(clock.now())
    probe.edge("end")
    probe.close()
    (coverage,) = kept.of(CoverageChanged)
    assert coverage.state == "off"
    assert coverage.why == "/proc/vmstat: it has no oom_kill line"
    assert kept.of(HostCounters)[0].oom_kill is None


def test_the_count_from_before_the_command_is_the_baseline_and_stands_at_the_start(tmp_path: Path) -> None:
    """The observer comes up late: a kill before that must show as a difference."""
    (tmp_path / "vmstat").write_text("oom_kill 8\n")
    kept: list[Observation] = []
    probe = HostProbe(Source("collector.vmstat", kept.append, host=Host()), tmp_path)
    probe.begin(7, clock.Instant(wall_ns=1000, mono_ns=10))
    probe.edge("last")
    probe.close()
    counts = [(o.wall_ns == 1000, o.value.get("oom_kill")) for o in kept if o.kind == "host.counters"]
    assert counts == [(True, 7), (False, 8)]
    assert [o.wall_ns for o in kept if o.kind == "coverage"] == [1000]
