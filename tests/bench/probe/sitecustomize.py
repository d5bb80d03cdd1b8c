"""Lets the soak count what lives in the relay's and the observer's process; found by Python through PYTHONPATH.

In: `FAIRTRIAL_BENCH_PROBE`, a folder.  Out: a unix socket `<pid>` there; whoever connects gets a JSON object:
`objects`, class name → how many of it live, after a full collection; `free_bytes`, what the C library holds and nobody
uses (null where it does not tell).  The thread takes no signal: the run process waits for them in its own way.
"""

from __future__ import annotations

import os

_OURS = ("fairtrial.", "asyncio", "_asyncio", "uvloop", "socket", "ssl", "_ssl", "opentelemetry.sdk.trace")


def _free_bytes() -> int | None:
    """What was freed below something that is still in use, and so stays resident.  **Source:** mallinfo(3)."""
    import ctypes

    class Mallinfo2(ctypes.Structure):
        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # no glibc, or one before 2.33
        return None
    mallinfo2.restype = Mallinfo2
    return int(mallinfo2().fordblks)


def _serve(path: str) -> None:
    import gc
    import json
    import signal
    import socket
    from collections import Counter

    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        asker, _ = listener.accept()
        gc.collect()
        counts: Counter[str] = Counter()
        for found in gc.get_objects():
            kind = type(found)
            module = kind.__module__
            if isinstance(module, str) and module.startswith(_OURS):
                counts[f"{module}.{kind.__qualname__}"] += 1
        asker.sendall(json.dumps({"objects": counts, "free_bytes": _free_bytes()}).encode())
        asker.close()


if os.environ.get("FAIRTRIAL_BENCH_PROBE") and __name__ == "sitecustomize":
    import threading

    _PATH = os.path.join(os.environ["FAIRTRIAL_BENCH_PROBE"], str(os.getpid()))
    threading.Thread(target=_serve, args=(_PATH,), name="probe", daemon=True).start()
