r"""Server-Sent Events: bytes become frames, however the bytes were cut.

In: body bytes of one response in any pieces.  Out: `Frame`s in order, comments included, because a comment is a sign of
life.  What this module does not do: look into `data` (dialects do), decode characters (a cut may lie inside one), or
keep what it handed out.

The carry is bounded: a frame of more than 1 MiB is skipped up to its end and counted in `skipped`.  `finish` hands out
a last frame that no blank line followed, which browsers drop and model clients do not.

**Source:** WHATWG HTML section 9.2.6, parsed on bytes: only LF, CRLF and CR end a line.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_FRAME_BYTES: Final = 1 << 20

_BOM: Final = b"\xef\xbb\xbf"


class Frame(NamedTuple):
    """One event.  `data` None: the block held comments or unknown fields only, and says no more than "alive"."""

    event: bytes | None
    data: bytes | None


class SseFramer:
    """Incremental; one per response."""

    __slots__ = ("_carry", "_held_cr", "_scanned", "_skipping", "_started", "skipped")

    def __init__(self) -> None:
        self._carry = bytearray()
        self._scanned = 0
        self._held_cr = False
        self._skipping = False
        self._started = False
        self.skipped = 0
        """Frames that were longer than the bound and were not handed out."""

    @property
    def pending(self) -> bool:
        """Whether bytes of an unfinished frame are held (or skipped)."""
        return bool(self._carry) or self._skipping

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes, give the frames that they complete."""
        if self._held_cr or b"\r" in chunk:
            chunk = self._without_cr(chunk)
        if not self._carry and not self._skipping and self._started and chunk[-2:] == b"\n\n":
            # The usual read: whole events, nothing before, nothing left over.
            return self._frames(chunk.split(b"\n\n"))
        carry = self._carry
        carry += chunk
        if not self._started:
            if len(carry) < len(_BOM) and _BOM.startswith(bytes(carry)):
                return []
            self._started = True
            if carry.startswith(_BOM):
                del carry[: len(_BOM)]
        end = carry.rfind(b"\n\n", max(0, self._scanned - 1))
        if end < 0:
            self._bound()
            return []
        parts = bytes(carry[:end]).split(b"\n\n")
        del carry[: end + 2]
        if self._skipping:
            self._skipping = False
            parts = parts[1:]
        frames = self._frames(parts)
        self._bound()
        return frames

    def finish(self) -> list[Frame]:
        """The end of the body: the frame that no blank line followed."""
        last, skipping = bytes(self._carry), self._skipping
        self._carry.clear()
        self._skipping = self._held_cr = False
        return [] if skipping else self._frames([last])

    def _bound(self) -> None:
        carry = self._carry
        if self._skipping or len(carry) > MAX_FRAME_BYTES + 1:
            if not self._skipping:
                self.skipped += 1
            self._skipping = True
            # One byte is enough to know the blank line when it comes.
            del carry[:-1]
        self._scanned = len(carry)

    def _without_cr(self, chunk: bytes) -> bytes:
        if self._held_cr:
            chunk = b"\r" + chunk
        self._held_cr = chunk.endswith(b"\r")
        if self._held_cr:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _frames(self, blocks: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        for block in blocks:
            if len(block) > MAX_FRAME_BYTES:
                self.skipped += 1
            elif block and (frame := _frame(block)) is not None:
                frames.append(frame)
        return frames


def _frame(block: bytes) -> Frame | None:
    event: bytes | None = None
    data: bytes | None = None
    alive = False
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            data = value if data is None else data + b"\n" + value
        elif line.startswith(b"event:"):
            event = line[7:] if line[6:7] == b" " else line[6:]
        elif line:
            alive = True
            if line == b"data":
                data = b"" if data is None else data + b"\n"
    return Frame(event, data) if alive or data is not None or event is not None else None
