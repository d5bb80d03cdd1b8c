"""How rows are packed against earlier rows of their source, and read again.

Most of what a row says the row of the same kind before it said too: the request with one message less, the same
counters a second ago.  So a row is deflated against that one (its *base*), a few rows deep, then one stands for itself
again: a damaged row takes at most `DEPTH` others with it.  What a reader gets is whole, whatever a row was packed with.

`observations.sampled` says with what: 0 nothing but the schema's dictionary, 1 the source's sample, n > 1 the row of
the same source whose number is n - 1 less.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections import OrderedDict
from typing import Final, NamedTuple

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.store.schema import unpack

DEPTH: Final = 15
_LONGEST: Final = 8192
"""Of a body that others are packed against; deflate looks back 32 KiB."""
_BASES: Final = 256
_PLAIN: Final = 512
"""Bodies that a reader keeps: a base was mostly read a moment before."""

_Key = tuple[int, int, str, object]


class Base(NamedTuple):
    """A stored row that the next one may be packed against; `depth` rows stand before it."""

    seq: int
    body: bytes
    depth: int


class Packer:
    """What a writer remembers of the rows that it stored; one for each database and process."""

    def __init__(self) -> None:
        self._bases: OrderedDict[_Key, Base] = OrderedDict()

    def base(self, source: int, trial: int, observation: Observation) -> Base | None:
        """The row that this one is to be packed against; None: it is to stand for itself."""
        base = self._bases.get(_key(source, trial, observation))
        return base if base is not None and base.seq < observation.seq and base.depth < DEPTH else None

    def stored(self, source: int, trial: int, observation: Observation, body: bytes, base: Base | None) -> None:
        """This row is in the database, as it is here (not one with its number that was there before)."""
        if len(body) > _LONGEST:
            return
        key = _key(source, trial, observation)
        self._bases[key] = Base(observation.seq, body, 0 if base is None else base.depth + 1)
        self._bases.move_to_end(key)
        if len(self._bases) > _BASES:
            self._bases.popitem(last=False)


def _key(source: int, trial: int, observation: Observation) -> _Key:
    return source, trial, observation.kind, observation.subject.container_id


class Unpacker:
    """Gives the bodies of rows; raises `zlib.error` for one that is damaged, or whose base is."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._samples: dict[int, bytes] = {}
        self._plain: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def body(self, source: int, seq: int, sampled: int, packed: bytes) -> bytes:
        """The JSON text of one row."""
        try:
            return self._body(source, seq, sampled, packed)
        except TypeError as error:  # SQLite takes any type in any column
            raise zlib.error(str(error)) from error

    def _body(self, source: int, seq: int, sampled: int, packed: bytes) -> bytes:
        chain: list[tuple[int, int, bytes]] = []
        before: bytes | None = None
        while before is None:
            chain.append((seq, sampled, packed))
            if sampled <= 1:
                before = self._sample(source) if sampled == 1 else b""
            else:
                seq -= sampled - 1
                before = self._plain.get((source, seq))
                if before is None:
                    sampled, packed = self._row(source, seq, len(chain))
        for seq, _, packed in reversed(chain):
            before = unpack(packed, before)
            self._plain[source, seq] = before
        while len(self._plain) > _PLAIN:
            self._plain.popitem(last=False)
        return before

    def _row(self, source: int, seq: int, depth: int) -> tuple[int, bytes]:
        row = self._database.execute(
            "SELECT sampled, body FROM observations WHERE source = ? AND seq = ?", (source, seq)
        ).fetchone()
        if row is None or depth > DEPTH:
            raise zlib.error("the row that this one was packed against is gone")
        return row[0], row[1]

    def _sample(self, source: int) -> bytes:
        known = self._samples.get(source)
        if known is None:
            row = self._database.execute("SELECT sample FROM sources WHERE id = ?", (source,)).fetchone()
            known = self._samples[source] = unpack(row[0]) if row is not None and row[0] is not None else b""
        return known
