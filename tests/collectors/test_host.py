"""The node's counters."""

from pathlib import Path

from fairtrial.collectors.host import HostProbe
from fairtrial.middleware.core.observations import CoverageChanged, HostCounters
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
    probe.cover()
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
    probe.cover()
    probe.edge("end")
    probe.close()
    (coverage,) = kept.of(CoverageChanged)
    assert coverage.state == "off"
    assert coverage.why == "/proc/vmstat: it has no oom_kill line"
    assert kept.of(HostCounters)[0].oom_kill is None
