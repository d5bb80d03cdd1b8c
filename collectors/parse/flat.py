"""The two plainest shapes of kernel files: one number, and `key value` lines.

In: the bytes of one file.  Out: ints.  Used by every other parser of this folder.
"""

from __future__ import annotations


def parse_count(raw: bytes) -> int:
    """One non-negative number; raises ValueError on anything else."""
    value = int(raw)
    if value < 0:
        raise ValueError(f"a count cannot be {value}")
    return value


def parse_count_or_max(raw: bytes) -> int | None:
    """One number, or None for the word `max` (cgroup v2: no limit)."""
    return None if raw.strip() == b"max" else parse_count(raw)


def parse_flat(raw: bytes) -> dict[str, int]:
    """`key value` lines as a mapping; lines of another shape are skipped (newer kernels add such lines)."""
    out: dict[str, int] = {}
    for line in raw.splitlines():
        key, _, value = line.partition(b" ")
        try:
            out[key.decode("ascii", "replace")] = int(value)
        except ValueError:
            continue
    return out


def find_flat(raw: bytes, key: bytes) -> int | None:
    """The value of one key of such a file, without building the mapping: the path of the 10 Hz sampler."""
    at = 0 if raw.startswith(key + b" ") else raw.find(b"\n" + key + b" ") + 1
    if at == 0 and not raw.startswith(key + b" "):
        return None
    start = at + len(key) + 1
    end = raw.find(b"\n", start)
    return int(raw[start:end] if end >= 0 else raw[start:])
