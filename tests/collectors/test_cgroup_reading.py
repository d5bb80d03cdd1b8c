"""One row of counters."""

from __future__ import annotations

from fairtrial.collectors.cgroup_files import Counters
from fairtrial.collectors.cgroup_reading import reading
from fairtrial.middleware.core.observations import encode_value


def test_what_was_not_read_is_left_out_and_never_zero() -> None:
    value = reading(
        Counters(usage_bytes=5),
        container_id="c",
        edge="change",
        peak=(None, None),
        sampled_peak=None,
        kills=None,
        traffic=None,
        rate=None,
        tcp=(None, None),
    )
    assert encode_value(value) == {"container_id": "c", "edge": "change", "memory_current": 5}
