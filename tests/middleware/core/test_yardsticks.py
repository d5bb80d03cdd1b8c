"""A reference expects what it knows, and nothing of calls that it does not know."""

from fairtrial.middleware.core.yardsticks import Reference, bucket_of


def test_input_sizes_have_buckets() -> None:
    assert [bucket_of(n) for n in (0, 999, 1_000, 300_000)] == [0, 0, 1, 5]


def test_a_call_is_expected_to_take_its_first_token_and_its_output() -> None:
    known = Reference(source="a test", first_token_p95_s={("m", 1): 2.0}, token_rate_p5={"m": 20.0})
    assert known.expected_s("m", 2_000, 40) == 4.0
    assert [
        known.expected_s(*asked) for asked in (("m", 99_000, 40), ("n", 2_000, 40), ("m", None, 40), (None, 1, 1))
    ] == [None] * 4
