"""A request head that is said again: bytes that were judged once need no second judgement, nor a second rewriting.

In: a head that was judged, and what went upstream for it.  Out: for the next read, the bytes to send, if it is the
same head with a Content-Length that fits; else None, and the general way decides.  An SDK says the same head for each
call of a conversation, but for the length, and some for one value that is new each time (`Idempotency-Key`): where two
heads differ in such values alone, of the same size, these are free from then on.  Pure; `upward.py` remembers one head
per connection.
"""

from __future__ import annotations

import re
from typing import Final

from fairtrial.middleware.relay.heads import OWN_HEADER, Body, RequestHead

_MOST_FREE: Final = 3
"""More values that differ are no sign of the same head."""
_FREE: Final = re.compile(rb"[\x21-\x7e]+")
"""What a free value may hold: nothing that could end a line, and nothing that llhttp could take otherwise."""
_NEVER_FREE: Final = (
    b"host:", b"content-length:", b"transfer-encoding:", b"connection:", b"proxy-connection:", b"upgrade:", b"expect:",
    OWN_HEADER,
)  # fmt: skip
"""Lines that say how the message is framed or where it leads, and our own, which are taken out."""


class Said:
    """A head taken apart around the digits of its Content-Length and its free values; and what goes upstream for it."""

    __slots__ = (
        "_digits_end", "_digits_start", "_fixed", "_free", "_out_before", "_out_behind", "_raw", "_tail", "generation",
        "head_bytes", "method", "trial",
    )  # fmt: skip

    def __init__(
        self, head: RequestHead, sent: bytes, trial: str | None, generation: int, before: Said | None = None
    ) -> None:
        """`head` was sent as `sent`; see `can_be_said_again`.  `before`: the head that was said before it, if any."""
        raw = self._raw = head.raw
        start, end = _digits(raw)
        self.head_bytes = len(raw)
        self.method = head.method
        self.trial = trial
        self.generation = generation
        """Of the tokens that the trial was read from."""
        self._digits_start, self._digits_end = start, end
        self._tail = len(raw) - _same_end(raw, sent)
        """From here on a head goes upstream verbatim."""
        if self._tail <= start:
            self._free = () if before is None else tuple(f for f in before.other_values(raw) if f[0] >= self._tail)
            self._out_before, self._out_behind = sent[: len(sent) - len(raw) + self._tail], b""
        else:
            out_start, out_end = _digits(sent)
            self._free = ()
            self._out_before, self._out_behind = sent[:out_start], sent[out_end:]
        edges = [0, *(edge for free in sorted((*self._free, (start, end))) for edge in free), len(raw)]
        self._fixed = tuple((at, raw[at:to]) for at, to in zip(edges[::2], edges[1::2], strict=True))

    def other_values(self, new: bytes) -> list[tuple[int, int]]:
        """Where in `new`, another head, the values stand that differ from this one's; none if it differs in more."""
        old_lines, new_lines = self._raw.split(b"\r\n"), new.split(b"\r\n")
        if len(old_lines) != len(new_lines) or old_lines[0] != new_lines[0]:
            return []
        found: list[tuple[int, int]] = []
        at = 0
        for old, line in zip(old_lines, new_lines, strict=True):
            end = at + len(line)
            if old != line:
                name, _, value = line.partition(b":")
                if old.partition(b":")[0] != name:
                    return []
                start = end - len(value.lstrip(b" \t"))
                if (
                    len(old) == len(line)
                    and not line.lower().startswith(_NEVER_FREE)
                    and _FREE.fullmatch(new, start, end)
                ):
                    found.append((start, end))
            at = end + 2
        return found if len(found) <= _MOST_FREE else []

    def again(self, data: bytes) -> bytes | None:
        """What goes upstream for `data`, if that is this head and the whole body that it announces; else None."""
        for at, fixed in self._fixed:
            if not data.startswith(fixed, at):
                return None
        start = self._digits_start
        digits = data[start : self._digits_end]
        if not (digits.isdigit() and int(digits) == len(data) - self.head_bytes > 0):
            return None
        for at, to in self._free:
            if _FREE.fullmatch(data, at, to) is None:
                return None
        if self._tail <= start:
            return self._out_before + data[self._tail :]
        return self._out_before + digits + self._out_behind + data[self.head_bytes :]


def can_be_said_again(head: RequestHead) -> bool:
    """Whether `Said` knows heads of this kind: one length, nothing that a tunnel could follow, no empty lines first."""
    return head.body is Body.LENGTH and not head.may_tunnel and not head.raw.startswith(b"\r\n")


def _same_end(one: bytes, other: bytes) -> int:
    """How many bytes the two have in common at their ends."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _digits(raw: bytes) -> tuple[int, int]:
    """Where the number of the only Content-Length stands."""
    start = raw.lower().find(b"\r\ncontent-length:") + 17
    while raw[start] in b" \t":
        start += 1
    end = start
    while raw[end] in b"0123456789":
        end += 1
    return start, end
