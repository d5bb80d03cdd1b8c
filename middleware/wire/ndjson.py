"""Newline-delimited JSON: bytes become lines, however the bytes were cut.

In: body bytes of one response in any pieces.  Out: the bytes of each line that is not blank, without its end.  What
this module does not do: decode the JSON (dialects do).  Only LF ends a line; a CR before it goes.

The carry is bounded: a line of more than 1 MiB is skipped up to its end and counted in `skipped`.  `finish` hands out a
last line that no LF followed.

**Source:** the ndjson specification 1.0; Ollama API reference (reference page model-api.md section 1.3).
"""

from __future__ import annotations

from typing import Final

MAX_LINE_BYTES: Final = 1 << 20


class LineFramer:
    """Incremental; one per response."""

    __slots__ = ("_carry", "_skipping", "skipped")

    def __init__(self) -> None:
        self._carry = bytearray()
        self._skipping = False
        self.skipped = 0
        """Lines that were longer than the bound and were not handed out."""

    @property
    def pending(self) -> bool:
        """Whether a line is half there."""
        return bool(self._carry) or self._skipping

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes, give the lines that they complete."""
        *whole, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for piece in whole:
            self._keep(piece)
            lines += self._take()
        self._keep(rest)
        return lines

    def finish(self) -> list[bytes]:
        """The end of the body: the line that no LF followed."""
        return self._take()

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._carry) + len(piece) > MAX_LINE_BYTES:
            self._skipping = True
            self._carry.clear()
            self.skipped += 1
        else:
            self._carry += piece

    def _take(self) -> list[bytes]:
        line = bytes(self._carry).strip(b"\r\t ")
        self._carry.clear()
        self._skipping = False
        return [line] if line else []
