"""One member put into a JSON text, every other character left as it was.

In: a text, the way to an object in it, a member.  Out: the text with that member added, or replaced where it was ours.
Numbers keep their digits, texts their escapes, objects their order and white space: nothing is decoded and written
anew.  What this module does not do: read files, or touch a member that somebody else put there.

**Source:** RFC 8259.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Way = tuple[str | int, ...]
"""Names of members and numbers of elements, from the outermost value to the object that gets the member."""

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


class NotSpliced(Exception):
    """Why nothing was changed; the text continues a sentence that begins with the file's name."""


@dataclass(frozen=True, slots=True)
class _Object:
    """`members`: where each value begins and ends; `first`: the first thing behind the brace; `last`: the last value's
    end, the place for another one."""

    members: dict[str, tuple[int, int]]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Change:
    begin: int
    end: int
    text: str


def put(text: str, name: str, members: Iterable[tuple[Way, dict[str, object]]]) -> tuple[str, list[bool]]:
    """The text with the member `name` in each object that a way leads to, and whether each of them was news.

    `null` on the way, or nothing, becomes an object.  Raises `NotSpliced` when the text is no JSON, a way meets
    something else than an object, or a member of that name is there whose `schema` is not that of the new one.
    """
    try:
        begin = _past_space(text, 0)
        _, end = _DECODER.raw_decode(text, begin)
        if _past_space(text, end) != len(text):
            raise NotSpliced("is no JSON, or damaged")
        walk = _Walk(text)
        changes = [walk.change(begin, (*way, name), value) for way, value in members]
    except (ValueError, RecursionError, IndexError) as error:
        raise NotSpliced("is no JSON, or damaged") from error
    pieces: list[str] = []
    at = 0
    for change in sorted((change for change in changes if change is not None), key=lambda change: change.begin):
        pieces += (text[at : change.begin], change.text)
        at = change.end
    return "".join((*pieces, text[at:])), [change is not None for change in changes]


class _Walk:
    """Ways through one text; each object and list on them is looked through once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._objects: dict[int, _Object] = {}
        self._lists: dict[int, list[int]] = {}

    def change(self, at: int, way: Way, value: dict[str, object]) -> _Change | None:
        """What is to be done for the value at `at`; None: it stands there already."""
        text, step, rest = self._text, way[0], way[1:]
        if isinstance(step, int):
            return self.change(self._list(at)[step], rest, value)
        there = self._object(at)
        found = there.members.get(step)
        if found is None:
            space = text[at + 1 : there.first] if there.members else ""
            comma = "," if there.members else ""
            return _Change(there.last, there.last, f"{comma}{space}{json.dumps(step)}: {_nested(rest, value)}")
        begin, end = found
        if text.startswith("null", begin):
            return _Change(begin, end, _nested(rest, value))
        if rest:
            if isinstance(rest[0], str) and text[begin] != "{":
                raise NotSpliced(f"has a `{step}` that is no object")
            return self.change(begin, rest, value)
        old = _DECODER.raw_decode(text, begin)[0]
        if not isinstance(old, dict) or old.get("schema") != value.get("schema"):
            raise NotSpliced(f"has a `{step}` that fairtrial did not write")
        return None if old == value else _Change(begin, end, _nested((), value))

    def _object(self, at: int) -> _Object:
        text = self._text
        if at in self._objects:
            return self._objects[at]
        if text[at] != "{":
            raise NotSpliced("has another form than expected (no object)")
        members: dict[str, tuple[int, int]] = {}
        first = place = _past_space(text, at + 1)
        last = at + 1
        while text[place] != "}":
            key, end = _DECODER.raw_decode(text, place)
            if key in members:
                raise NotSpliced(f"names `{key}` twice in one object")
            begin = _past_space(text, _past_space(text, end) + 1)
            _, last = _DECODER.raw_decode(text, begin)
            members[key] = (begin, last)
            place = _past_comma(text, last)
        self._objects[at] = _Object(members, first, last)
        return self._objects[at]

    def _list(self, at: int) -> list[int]:
        text = self._text
        if at in self._lists:
            return self._lists[at]
        if text[at] != "[":
            raise NotSpliced("has another form than expected (no list)")
        found: list[int] = []
        place = _past_space(text, at + 1)
        while text[place] != "]":
            found.append(place)
            _, end = _DECODER.raw_decode(text, place)
            place = _past_comma(text, end)
        self._lists[at] = found
        return found


def _nested(rest: Way, value: dict[str, object]) -> str:
    whole: object = value
    for step in reversed(rest):
        whole = {step: whole}
    return json.dumps(whole)


def _past_comma(text: str, at: int) -> int:
    at = _past_space(text, at)
    return _past_space(text, at + 1) if text[at] == "," else at


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
