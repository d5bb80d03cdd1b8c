"""Numbers and key-value lines."""

import pytest

from fairtrial.collectors.parse.flat import find_flat, parse_count, parse_count_or_max, parse_flat


def test_the_word_max_is_no_limit_and_not_a_number() -> None:
    assert parse_count_or_max(b"max\n") is None
    assert parse_count_or_max(b"67108864\n") == 67108864


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be -1"):
        parse_count(b"-1\n")


def test_lines_of_another_shape_are_skipped() -> None:
    assert parse_flat(b"a 1\nsomething new here\nb 2\n") == {"a": 1, "b": 2}


def test_one_key_is_found_first_last_and_in_the_middle_and_never_by_its_suffix() -> None:
    raw = b"oom 1\noom_kill 2\noom_group_kill 3"
    assert find_flat(raw, b"oom") == 1
    assert find_flat(raw, b"oom_kill") == 2
    assert find_flat(raw, b"oom_group_kill") == 3
    assert find_flat(raw, b"kill") is None
    assert find_flat(b"", b"oom") is None
    assert find_flat(b"nr_oom 4\n", b"oom") is None
