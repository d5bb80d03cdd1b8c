"""How many bytes an object holds on to, all that hangs on it included: for tests that promise a bound.

In: an object of ours.  Out: the bytes of the texts, buffers and containers that it reaches.  Modules, functions,
sockets, loops and whatever is none of ours are not followed; nor are the types that the caller leaves out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

_ENTRY_BYTES = 8
"""What one place in a container costs at least."""


def held_bytes(root: object, *, without: tuple[type, ...] = ()) -> int:
    """Bytes that `root` holds; each object counts once."""
    seen: set[int] = set()
    waiting: list[object] = [root]
    total = 0
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, without):
            continue
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray | str):
            total += len(thing)
        elif isinstance(thing, memoryview):
            total += thing.nbytes
        elif isinstance(thing, Mapping):
            total += 2 * _ENTRY_BYTES * len(thing)
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset | deque):
            total += _ENTRY_BYTES * len(thing)
            waiting += thing
        elif type(thing).__module__.startswith(("fairtrial.", "wsproto.")):
            waiting += _parts(thing)
    return total


def _parts(thing: object) -> Iterable[object]:
    names = [*getattr(thing, "__dict__", ()), *getattr(type(thing), "__struct_fields__", ())]
    for kind in type(thing).__mro__:
        slots: object = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots) if isinstance(slots, Iterable) else []
    missing = object()
    values = [getattr(thing, name, missing) for name in names]
    return [value for value in values if value is not missing]
