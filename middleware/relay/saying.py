"""The one way in which the run process speaks: whole lines on stderr.

In: a text, perhaps with parts that others wrote.  Out: one line without control characters and without anything that
has the shape of a key: the system's own errors repeat names and addresses that they were given.
"""

from __future__ import annotations

import sys

from fairtrial.middleware.core.masking import mask_text


def say(text: str, *, prefix: str = "fairtrial: ") -> None:
    """Write one line; a stderr that is closed or cannot be written is no reason to stop."""
    line = mask_text("".join(char if char.isprintable() else " " for char in text))
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{prefix}{line}\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        return
