"""Loads asyncio and uvloop without OpenSSL, which is 4 MB and 15 ms that a run needs only if a call goes out by TLS.

Out: the two packages in `sys.modules`, as anybody imports them, but for their own TLS, which this process does not use:
the relay has its own (`tls.py`), and the first connection at a door to https loads `ssl` for it, in a thread.
Whoever loaded `ssl` or asyncio before, as every test has, finds nothing changed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Final

_NAMED_BY_UVLOOP: Final = (
    "SSLContext",
    "MemoryBIO",
    "SSLError",
    "SSLWantReadError",
    "SSLSyscallError",
    "SSLZeroReturnError",
    "CertificateError",
    "create_default_context",
)


def load() -> None:
    """Call it before anything imports asyncio."""
    if not {"ssl", "asyncio", "uvloop"}.isdisjoint(sys.modules):
        return
    try:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # an import of it fails, which asyncio is built for
        import_module("asyncio")

        sys.modules["ssl"] = _stand_in()
        import_module("uvloop")
    except (ImportError, AttributeError):
        # No uvloop, or one that wants more: it is imported again where it is needed, and then finds the real one.
        sys.modules.pop("uvloop", None)
    finally:
        del sys.modules["ssl"]


def _stand_in() -> ModuleType:
    """What uvloop reads of `ssl` while it is loaded; none of it is of a kind that anything ever is."""
    made = ModuleType("ssl")
    for name in _NAMED_BY_UVLOOP:
        setattr(made, name, type(name, (Exception,), {}))
    made.__dict__.update(SSL_ERROR_WANT_READ=2, SSL_ERROR_WANT_WRITE=3, SSL_ERROR_SYSCALL=5)
    return made
