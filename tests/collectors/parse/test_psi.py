"""Pressure files."""

import pytest

from fairtrial.collectors.parse.psi import parse_pressure


def test_totals_are_read_and_averages_are_not() -> None:
    pressure = parse_pressure(
        b"some avg10=9.00 avg60=0.50 avg300=0.10 total=1200345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=345\n"
    )
    assert (pressure.some_us, pressure.full_us) == (1200345, 345)


def test_cpu_pressure_of_an_older_kernel_has_no_full_line() -> None:
    assert parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n").full_us is None


def test_an_empty_file_is_not_zero_pressure() -> None:
    with pytest.raises(ValueError, match="total"):
        parse_pressure(b"")
