"""A silence is the upstream's only as far as we read and were on time."""

import pytest

from fairtrial.middleware.wire.stalls import Stalls

S = 1_000_000_000


def asked_at_one() -> Stalls:
    stalls = Stalls(0)
    stalls.asked(1 * S)
    return stalls


def test_pings_end_a_silence_of_bytes_and_none_of_words() -> None:
    stalls = asked_at_one()
    for at, spoken in ((2, True), (5, False), (8, False), (9, True)):
        stalls.came(at * S, spoken=spoken)
    assert (stalls.max_gap_with_pings_s, stalls.max_gap_s) == (3.0, 7.0)
    assert (stalls.upstream_gap_with_pings_s, stalls.upstream_gap_s) == (3.0, 7.0)


def test_the_wait_for_the_first_byte_is_the_upstreams_from_the_requests_end() -> None:
    stalls = asked_at_one()
    stalls.came(5 * S, spoken=True)
    assert (stalls.max_gap_s, stalls.upstream_gap_s, stalls.upstream_gap_with_pings_s) == (0.0, 4.0, 4.0)


def test_nothing_at_all_is_a_silence_up_to_the_end() -> None:
    stalls = asked_at_one()
    stalls.broke_off(31 * S)
    assert (stalls.max_gap_s, stalls.upstream_gap_s) == (None, 30.0)


@pytest.mark.parametrize("whose", ["client", "ours"])
@pytest.mark.parametrize(
    "pause, proved",
    [
        ((3, 10), 1.0),  # bytes were there as soon as we read: all behind the pause's begin may be it
        ((3, 7), 8.0),  # we read again for three seconds, and nothing had come meanwhile either
        ((1, 12), 0.0),
        ((11, 12), 8.0),
        ((0, 1), 8.0),
    ],
    ids=str,
)
def test_a_pause_takes_from_a_silence_only_if_it_reaches_its_end(
    whose: str, pause: tuple[int, int], proved: float
) -> None:
    stalls = asked_at_one()
    stalls.came(2 * S, spoken=True)
    stalls.came(10 * S, spoken=True)
    since, until = pause
    if whose == "client":
        stalls.client_blocked(since * S, until * S, counted=(0, 20 * S))
    else:
        stalls.lagged(until * S, float(until - since))
    assert stalls.max_gap_s == 8.0
    assert stalls.upstream_gap_s == proved


def test_pauses_that_touch_are_one() -> None:
    stalls = asked_at_one()
    stalls.came(2 * S, spoken=True)
    stalls.client_blocked(3 * S, 6 * S, counted=(0, 20 * S))
    stalls.lagged(10 * S, 4.0)
    stalls.came(10 * S, spoken=True)
    assert stalls.upstream_gap_s == 1.0
    assert (stalls.blocked_ns, stalls.lag_s) == (3 * S, 4.0)


def test_the_next_longest_silence_counts_when_the_longest_was_ours() -> None:
    stalls = asked_at_one()
    for at in (2, 10, 15, 16):
        stalls.came(at * S, spoken=True)
    stalls.lagged(10 * S, 8.0)
    assert (stalls.max_gap_s, stalls.upstream_gap_s) == (8.0, 5.0)


def test_only_what_lies_within_the_exchange_is_added_up() -> None:
    stalls = Stalls(10 * S)
    stalls.client_blocked(5 * S, 12 * S, counted=(10 * S, 11 * S))
    stalls.upstream_blocked(5 * S, 12 * S, counted=(10 * S, 12 * S))
    assert (stalls.blocked_ns, stalls.upload_blocked_ns) == (1 * S, 2 * S)


def test_what_is_kept_is_bounded_and_the_longest_stay() -> None:
    stalls = asked_at_one()
    at_ns = 2 * S
    stalls.came(at_ns, spoken=True)
    for n in range(10_000):
        at_ns += (n % 100 + 1) * 30_000_000
        stalls.came(at_ns, spoken=True)
        stalls.client_blocked(0, 1, counted=(0, 1))
    assert stalls.upstream_gap_s == stalls.max_gap_s == 3.0
    assert len(stalls._any.kept) <= 32
    assert len(stalls._pauses) <= 64


def test_the_client_was_not_reading_at_the_end_though_it_read_on_after_it() -> None:
    stalls = Stalls(0)
    stalls.client_blocked(2 * S, 9 * S, counted=(0, 20 * S))
    for n in range(200):
        stalls.client_blocked(10 * S + n * 1000, 10 * S + n * 1000 + 500, counted=(0, 20 * S))
    assert stalls.blocked_before_s(0, 8 * S) == 6.0
    assert stalls.blocked_before_s(4 * S, 8 * S) == 4.0
    assert stalls.blocked_before_s(0, 9 * S + S // 2) == 0.0


@pytest.mark.parametrize(
    "now, connection, lag, proved",
    [(5.0, 5.0, 5.0, 3.0), (None, 5.0, 5.0, 3.0), (None, 2.0, 0.0, 8.0), (None, None, 0.0, 8.0), (1.0, 2.0, 1.0, 7.0)],
)
def test_a_lag_that_only_the_end_tells_of_takes_from_the_last_silence(
    now: float | None, connection: float | None, lag: float, proved: float
) -> None:
    stalls = Stalls(0, lag_before_s=2.0)
    stalls.came(2 * S, spoken=True)
    stalls.ended_late(10 * S, now_s=now, connection_s=connection)
    stalls.broke_off(10 * S)
    assert (stalls.lag_s, stalls.upstream_gap_s) == (lag, proved)
