"""Names for things: trials, observations, traces and spans.

Nothing comes in but the clock and the kernel's randomness; out come fixed-width lower-case hex texts.
`new_id` is a UUIDv7, so ids made later sort later, also as text and as a database key.  Within one process
the order is strict: two ids of the same millisecond are told apart by a counter.  No state leaves this module.

**Source:** RFC 9562 section 5.7 (UUIDv7) and 6.2 method 1 (the counter); W3C Trace Context section 3.2.2.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_COUNTER_BITS: Final = 12
_COUNTER_MAX: Final = (1 << _COUNTER_BITS) - 1
_lock = threading.Lock()
_last_ms = 0
_counter = 0


def new_id() -> str:
    """A UUIDv7 in its canonical 36 characters, greater than every earlier one of this process."""
    global _last_ms, _counter  # noqa: PLW0603 - the order of ids is a property of the process
    now_ms = time.time_ns() // 1_000_000
    tail = os.urandom(9)
    with _lock:
        if now_ms > _last_ms:
            _last_ms = now_ms
            # The upper bit starts at 0, which leaves room to count up within the millisecond.
            _counter = int.from_bytes(tail[:2], "big") & (_COUNTER_MAX >> 1)
        elif _counter < _COUNTER_MAX:
            _counter += 1
        else:
            # The clock stands still, or went back: the id borrows from the next millisecond and stays in order.
            _last_ms += 1
            _counter = 0
        stamp_ms, count = _last_ms, _counter
    random_62 = int.from_bytes(tail[1:], "big") & ((1 << 62) - 1)
    value = (stamp_ms << 80) | (0x7 << 76) | (count << 64) | (0b10 << 62) | random_62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_trace_id() -> str:
    """32 hex digits, never all zero."""
    return _nonzero_hex(16)


def new_span_id() -> str:
    """16 hex digits, never all zero."""
    return _nonzero_hex(8)


def new_token() -> str:
    """An unguessable trial token: 128 random bits as 32 hex digits, safe in a path."""
    return os.urandom(16).hex()


def _nonzero_hex(length_bytes: int) -> str:
    while not any(raw := os.urandom(length_bytes)):
        pass
    return raw.hex()
