"""Ids are unique, ordered and well-formed."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from fairtrial.middleware.core import ids


def test_an_id_is_a_uuid_of_version_7() -> None:
    parsed = uuid.UUID(ids.new_id())
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


def test_ids_sort_in_the_order_they_were_made_even_within_a_millisecond() -> None:
    made = [ids.new_id() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_of_several_threads_never_collide() -> None:
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: [ids.new_id() for _ in range(2_000)], range(8)))
    assert len({name for batch in batches for name in batch}) == 16_000


def test_trace_and_span_ids_have_the_width_of_w3c_trace_context() -> None:
    assert len(ids.new_trace_id()) == 32
    assert len(ids.new_span_id()) == 16
    assert int(ids.new_trace_id(), 16) != 0
    assert int(ids.new_span_id(), 16) != 0


def test_a_token_carries_128_bits_and_is_safe_in_a_path() -> None:
    token = ids.new_token()
    assert len(bytes.fromhex(token)) == 16
    assert token != ids.new_token()
