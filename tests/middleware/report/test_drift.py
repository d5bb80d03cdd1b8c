"""One line a series, those that drift first and drawn."""

from fairtrial.middleware.report.drift import Row, drift_lines, plot


def row(**more: object) -> Row:
    facts: dict[str, object] = {
        "provider": "p",
        "model": "m",
        "signal": "ttft",
        "state": "steady",
        "since": None,
        "ratio": 1.0,
        "by": "hour of the day",
        "calls": 40,
        "points": [(1.0, 1.0)] * 4,
        **more,
    }
    return Row(**facts)  # type: ignore[arg-type]  # a test's keywords


def test_a_steady_series_is_one_line() -> None:
    assert drift_lines([row()], width=80, hours=24) == [
        "  p m  first token: steady; 1s, usually 1s (hour of the day) 40 calls"
    ]


def test_what_drifts_comes_first_with_its_begin_its_size_and_a_plot() -> None:
    drifting = row(
        model="slow\x1b[31m",
        state="drifting",
        since=1_795_996_800,
        ratio=1.8,
        points=[(1.0, 1.0)] * 8 + [(2.0, 1.0)] * 8,
    )
    lines = drift_lines([row(), drifting], width=40, hours=24)
    assert lines[0].startswith("► p slow")
    assert "\x1b" not in lines[0]
    assert "drifting since 11-30 00:00 UTC: 1.80 times what is usual; 2s, usually 1s" in lines[0]
    assert lines[1].strip() == "▅" * 8 + "█" * 8
    assert lines[2].startswith("  p m")
    assert "half of what is usual" in lines[-1]


def test_the_plot_folds_to_the_width_and_shows_what_is_missing() -> None:
    assert plot([(None, 1.0), (0.25, 1.0), (1.0, 1.0), (9.0, 1.0)], 40) == "·▁▅█"
    assert plot([(1.0, 1.0)] * 100, 10) == "▅" * 10
    assert plot([], 10) == ""


def test_without_calls_there_are_no_figures() -> None:
    assert drift_lines([row(state="too few calls", points=[(None, None)], calls=2, ratio=None)], width=80, hours=1) == [
        "  p m  first token: too few calls; 2 calls"
    ]
