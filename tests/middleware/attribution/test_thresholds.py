"""Thresholds are named, bounded and printable."""

import pytest

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, as_record, load
from fairtrial.middleware.core.errors import ConfigError
from tests.middleware.attribution.scene import full_tmpfs


def test_a_changed_threshold_is_printed_and_used() -> None:
    changed = load({"headroom_k": 2.0})
    verdict = full_tmpfs().verdict(thresholds=changed)
    assert verdict.thresholds["headroom_k"] == 2.0
    assert "128 MiB" in verdict.sentence


def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="headroom_k"):
        load({"headrom_k": 2.0})


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_number_that_cannot_be_is_an_error(value: float) -> None:
    with pytest.raises(ConfigError):
        load({"stall_s": value})


def test_the_record_holds_every_leaf() -> None:
    assert as_record(DEFAULT_THRESHOLDS)["watchdog_unknown_s"] == 90.0
