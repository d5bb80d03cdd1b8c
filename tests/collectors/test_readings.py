"""The bound on how often."""

from fairtrial.collectors.readings import Bucket


def test_a_burst_passes_whole_and_a_storm_is_thinned() -> None:
    bucket = Bucket(per_s=0.001, burst=5)
    assert [bucket.take() for _ in range(8)] == [True] * 5 + [False] * 3
    assert bucket.wait_s() > 0
