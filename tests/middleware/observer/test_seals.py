"""Seals: which of the rows that come back are the ones that were written."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.observer.seals import Compared, Seals


def row(seq: int, text: str = "x", source: str = "door.model/1") -> Observation:
    return Observation(
        id=f"{source}-{seq}", source="door.model", source_id=source, seq=seq, wall_ns=seq, mono_ns=seq,
        kind="trial.note", value={"text": text, "seconds": 1.5, "many": 2**53 + 1, "none": None},
    )  # fmt: skip


ROWS = [row(1), row(2), row(3), row(1, source="observer/1")]


def seals(rows: list[Observation]) -> Seals:
    made = Seals()
    for each in rows:
        made.add(each)
    return made


def told(compared: Compared) -> tuple[list[str], int, int]:
    return sorted(o.id for o in compared.genuine), compared.changed, compared.added


def test_what_the_store_gives_back_is_what_was_written() -> None:
    made = seals(ROWS)
    back = [msgspec.json.decode(msgspec.json.encode(o), type=Observation) for o in reversed(ROWS)]
    assert told(made.compare(back, made.mark())) == (sorted(o.id for o in ROWS), 0, 0)


@pytest.mark.parametrize(
    "tamper, changed, added, genuine",
    [
        (lambda rows: rows[1:], 1, 0, 3),
        (lambda rows: [row(1, "forged"), *rows[1:]], 1, 0, 3),
        (lambda rows: [*rows, row(1)], 0, 0, 4),
        (lambda rows: [*rows, row(9, "forged")], 0, 1, 4),
        (lambda rows: [*rows, row(0, "forged"), row(-1), row(2**62)], 0, 3, 4),
        (lambda rows: [*rows, row(1, source="mine/1")], 0, 1, 4),
        (lambda rows: [rows[1], *rows[1:]], 1, 0, 3),
        (lambda rows: [], 4, 0, 0),
    ],
    ids=["removed", "overwritten", "twice", "added", "odd-numbers", "another-source", "copied-over", "all-gone"],
)
def test_who_changes_a_row_is_found_out(
    tamper: Callable[[list[Observation]], list[Observation]], changed: int, added: int, genuine: int
) -> None:
    made = seals(ROWS)
    compared = made.compare(tamper(ROWS), made.mark())
    assert (compared.changed, compared.added, len(compared.genuine)) == (changed, added, genuine)


def test_rows_that_are_still_under_way_are_not_missed_and_not_foreign() -> None:
    made = seals(ROWS)
    upto = made.mark()
    made.add(row(4))
    assert told(made.compare(ROWS, upto))[1:] == (0, 0)
    assert told(made.compare([*ROWS, row(4)], upto))[1:] == (0, 0)


def test_the_first_row_with_a_number_counts_as_in_the_store() -> None:
    made = seals([row(1), row(1, "again")])
    assert told(made.compare([row(1)], made.mark())) == (["door.model/1-1"], 0, 0)


def test_a_number_far_out_costs_no_memory_and_is_known_again() -> None:
    made = seals([row(1), row(2**62)])
    assert told(made.compare([row(1), row(2**62)], made.mark()))[1:] == (0, 0)
    assert told(made.compare([row(1)], made.mark()))[1:] == (1, 0)
