"""Edges: few pass at once, a storm is thinned, and the last of it is never lost."""

from __future__ import annotations

from fairtrial.collectors.edges import CallEdge, Edges
from tests.collectors.keep import eventually


async def test_a_storm_is_thinned_and_its_last_edge_is_kept() -> None:
    told: list[CallEdge] = []
    edges = Edges(told.append)
    for _ in range(200):
        edges.take("call_started")
    edges.take("call_ended")
    assert len(told) < 40
    await eventually(lambda: told[-1] == "call_ended")


async def test_what_waits_is_dropped_at_the_end() -> None:
    told: list[CallEdge] = []
    edges = Edges(told.append)
    for _ in range(30):
        edges.take("call_started")
    count = len(told)
    edges.close()
    edges.close()
    assert len(told) == count
