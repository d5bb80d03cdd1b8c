"""The store's secret: with it API keys become digests that tell them apart and that nobody can look up.

In: the store's path.  Out: 32 random bytes, kept in a file beside it that only its owner may read; None where none can
be kept.  Trials of one store can so be seen to share a key; trials of two stores cannot.
What this module does not do: digest anything (`wire/session.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

SECRET_BYTES: Final = 32


def secret_of(store: Path) -> bytes | None:
    """The secret of a store, made when it has none.  Two that make it at the same moment get the same one."""
    path = store.with_name(store.name + ".secret")
    with suppress(OSError):
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        if not path.exists():
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(SECRET_BYTES))
            with suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink(missing_ok=True)
        kept = path.read_bytes()
        return kept if len(kept) == SECRET_BYTES else None
    return None
