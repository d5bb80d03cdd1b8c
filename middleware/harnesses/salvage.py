"""A JSON document that was cut off: its longest beginning that is still JSON.

In: bytes of a document whose end is missing.  Out: the same bytes up to the last value that stood whole, with every
open list and object closed.  What this module does not do: mend anything in the middle.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\],]', re.DOTALL)
_CLOSES: Final = {b"{": b"}", b"[": b"]"}


def closed(content: bytes) -> bytes | None:
    """The document closed behind its last whole value; None where not even one bracket was opened."""
    open_brackets: list[bytes] = []
    upto = 0
    for token in _TOKEN.finditer(content):
        text = token.group()
        if text in _CLOSES:
            open_brackets.append(text)
            upto = token.end()
        elif text in {b"}", b"]"}:
            if not open_brackets or _CLOSES[open_brackets.pop()] != text:
                return None
            upto = token.end()
            if not open_brackets:
                break
        elif text == b",":
            upto = token.start()
        elif text == b'"':
            break  # a text without its end
    if not upto:
        return None
    return content[:upto] + b"".join(_CLOSES[bracket] for bracket in reversed(open_brackets))
