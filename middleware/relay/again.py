"""A request head that is said again: bytes that were judged once need no second judgement, nor a second rewriting.

In: a head that was judged, and what went upstream for it.  Out: for the next read, the bytes to send, if it is the
same head with a Content-Length that fits; else None, and the general way decides.  An SDK says the same head for each
call of a conversation, but for the length.  Pure; `coupled.py` remembers one per connection.
"""

from __future__ import annotations

from fairtrial.middleware.relay.heads import Body, RequestHead


class Said:
    """A head taken apart around the digits of its Content-Length, as it came and as it went upstream."""

    __slots__ = (
        "_before", "_behind", "_digits_end", "_digits_start", "_out_before", "_out_behind", "_verbatim", "generation",
        "head_bytes", "method", "trial",
    )  # fmt: skip

    def __init__(self, head: RequestHead, sent: bytes, trial: str | None, generation: int) -> None:
        """`head` was sent as `sent`; see `can_be_said_again`."""
        raw = head.raw
        start, end = _digits(raw)
        out_start, out_end = _digits(sent)
        self.head_bytes = len(raw)
        self.method = head.method
        self.trial = trial
        self.generation = generation
        """Of the tokens that the trial was read from."""
        self._digits_start, self._digits_end = start, end
        self._before, self._behind = raw[:start], raw[end:]
        self._out_before, self._out_behind = sent[:out_start], sent[out_end:]
        self._verbatim = self._out_behind == self._behind

    def again(self, data: bytes) -> bytes | None:
        """What goes upstream for `data`, if that is this head and the whole body that it announces; else None."""
        start, end = self._digits_start, self._digits_end
        digits = data[start:end]
        if not (
            data.startswith(self._before)
            and data.startswith(self._behind, end)
            and digits.isdigit()
            and int(digits) == len(data) - self.head_bytes > 0
        ):
            return None
        if self._verbatim:
            return self._out_before + data[start:]
        return self._out_before + digits + self._out_behind + data[self.head_bytes :]


def can_be_said_again(head: RequestHead) -> bool:
    """Whether a head is of the kind that `Said` knows: one length, and nothing that a tunnel could follow."""
    return head.body is Body.LENGTH and not head.may_tunnel


def _digits(raw: bytes) -> tuple[int, int]:
    """Where the number of the only Content-Length stands."""
    start = raw.lower().find(b"\r\ncontent-length:") + 17
    while raw[start] in b" \t":
        start += 1
    end = start
    while raw[end] in b"0123456789":
        end += 1
    return start, end
