"""What waits for an observer that does not keep up, in mappings of its own.

In: pieces of whole records.  Out: the same bytes as one piece, in order.  `feed.py` sets aside here what the socket
refused.  On the heap each record would be two small objects between those of the traffic: once they are sent, the C
library can give nothing back that lies below what the traffic still holds, and a backlog of an instant is resident for
as long as the run.  A mapping goes with its last reference.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Sequence
from typing import Final

_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Backlog:
    """First in, first out.  `waiting_bytes`: what is in it."""

    __slots__ = ("_pieces", "waiting_bytes")

    def __init__(self) -> None:
        self._pieces: deque[tuple[memoryview, int]] = deque()
        self.waiting_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, pieces: Sequence[bytes], size: int, records: int) -> None:
        """Copy so many bytes that are so many records.  Raises OSError where no mapping can be had."""
        held = mmap.mmap(-1, size, flags=_FLAGS)
        for piece in pieces:
            held.write(piece)
        self._pieces.append((memoryview(held), records))
        self.waiting_bytes += size

    def take(self) -> tuple[memoryview, int]:
        """The oldest bytes, and how many records they are; who lets go of them frees them."""
        piece, records = self._pieces.popleft()
        self.waiting_bytes -= len(piece)
        return piece, records

    def clear(self) -> None:
        """Let go of all."""
        self._pieces.clear()
        self.waiting_bytes = 0
