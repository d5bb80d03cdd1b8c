"""A backlog gives back what was put in it, and its memory to the machine."""

from pathlib import Path

import pytest

from fairtrial.middleware.relay.backlog import Backlog

MB = 1 << 20


def mapped_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize")) * 1024


def test_it_gives_each_piece_once_in_order_with_the_number_of_its_records() -> None:
    backlog = Backlog()
    backlog.put([b"head", b"", b"head", b"body"], 12, 2)
    backlog.put([b"last", b"one"], 7, 1)
    assert (bool(backlog), backlog.waiting_bytes) == (True, 19)
    found = [backlog.take(), backlog.take()]
    assert [(bytes(piece), records) for piece, records in found] == [(b"headheadbody", 2), (b"lastone", 1)]
    assert (bool(backlog), backlog.waiting_bytes) == (False, 0)


def test_a_piece_that_was_taken_is_unmapped_with_the_last_that_refers_to_it() -> None:
    backlog, before = Backlog(), mapped_bytes()
    for _ in range(4):
        backlog.put([bytes(32 * MB)], 32 * MB, 1)
    assert mapped_bytes() - before >= 128 * MB
    piece, _ = backlog.take()
    rest = piece[5:]
    del piece
    assert len(rest) == 32 * MB - 5
    del rest
    assert 96 * MB <= mapped_bytes() - before < 128 * MB
    backlog.clear()
    assert mapped_bytes() - before < 32 * MB
    assert backlog.waiting_bytes == 0


def test_what_cannot_be_mapped_leaves_it_as_it_was() -> None:
    backlog = Backlog()
    with pytest.raises(OSError):
        backlog.put([b"x"], 1 << 60, 1)
    assert (bool(backlog), backlog.waiting_bytes) == (False, 0)
