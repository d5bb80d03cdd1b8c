"""A model's text that comes in pieces: its digest, its length, and the keys that it asks to be typed.

In: pieces of text.  Out: digests and counts, on a `Tally`.  What this module does not do: keep a text that asks for no
keys, or know an API (the dialects do).

An agent without tool calls writes its commands into its words.  Harbor's terminus-2 asks for `{"keystrokes": "..."}` in
JSON, or `<keystrokes>...</keystrokes>`, and sends just these to tmux: their digests tell whose terminal it was.
**Source:** Harbor 0.26.0, terminus_json_plain_parser.py and terminus_xml_plain_parser.py (as it was seen to send them).
"""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec

from fairtrial.middleware.core.commands import MAX_TYPED
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.redact import digest

_KEPT_CHARS: Final = 256 << 10
_COST_OF_A_PIECE: Final = 16
"""Characters that a piece weighs besides its own: a reply of many tiny pieces stays in bounds as well."""
_MARK: Final = "keystrokes"
_JSON_KEYS: Final = re.compile(r'"keystrokes"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)
_XML_OPENS: Final = re.compile(r"<keystrokes(?:\s[^>]{0,200})?>")
_XML_ENDS: Final = "</keystrokes>"


class TextDigest:
    """Digest and length of a text that comes in pieces, without white space at its ends: clients trim it."""

    __slots__ = ("_chars", "_held", "_state")

    def __init__(self) -> None:
        self._state = blake2b(digest_size=16)
        self._chars = 0
        self._held = ""

    def add(self, piece: str) -> None:
        """Take the next piece; nothing of it is kept but white space that may be the end."""
        if not self._chars:
            piece = piece.lstrip()
        body = piece.rstrip()
        if body:
            text = self._held + body
            self._state.update(text.encode("utf-8", "surrogatepass"))
            self._chars += len(text)
            self._held = piece[len(body) :]
        elif self._chars:
            # Long runs of white space are no text of a model: bounded, at the price of a digest that then differs.
            self._held = (self._held + piece)[:65536]

    def result(self) -> tuple[str | None, int | None]:
        """(digest, characters); (None, None) when there was no text."""
        return (self._state.hexdigest(), self._chars) if self._chars else (None, None)


class ReplyText(TextDigest):
    """The text of one reply.  From the first mention of keys on it is kept until `note`, in bounds."""

    __slots__ = ("_kept", "_kept_chars", "_tail")

    def __init__(self) -> None:
        super().__init__()
        self._tail = ""
        self._kept: list[str] | None = None
        self._kept_chars = 0

    def add(self, piece: str) -> None:
        """Take the next piece."""
        super().add(piece)
        if self._kept is not None:
            if self._kept_chars < _KEPT_CHARS:
                self._kept.append(piece)
                self._kept_chars += len(piece) + _COST_OF_A_PIECE
            return
        text = self._tail + piece
        at = text.find(_MARK)
        if at < 0:
            self._tail = text[-len(_MARK) :]
            return
        self._kept = [text[max(0, at - 1) :]]
        self._kept_chars = len(text)
        self._tail = ""

    def note(self, tally: Tally) -> None:
        """The text is over: digest, length and keys go to the tally, the text itself goes nowhere."""
        tally.text_digest, tally.text_chars = self.result()
        if self._kept is not None and self._kept_chars < _KEPT_CHARS:
            tally.typed_digests = typed_digests("".join(self._kept))
        self._kept = None


def typed_digests(text: str) -> list[str]:
    """Digests of the keys that a text asks to be typed, in order, as `core.commands.typed_text` tells them."""
    found: list[str] = []
    for match in islice(_JSON_KEYS.finditer(text), MAX_TYPED):
        try:
            found.append(msgspec.json.decode(match[1], type=str))
        except (msgspec.DecodeError, UnicodeError):
            continue  # not JSON after all
    for match in islice(_XML_OPENS.finditer(text), MAX_TYPED):
        end = text.find(_XML_ENDS, match.end())
        if end < 0:
            break
        found.append(text[match.end() : end])
    return [digest(keys) for keys in found if keys.strip()][:MAX_TYPED]
