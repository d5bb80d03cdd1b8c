"""What several trials say together, in lines for a terminal.

In: findings and moved verdicts as plain values.  Out: lines of text.  What this module does not do: look for anything
(`attribution/across.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fairtrial.middleware.report.words import plural, wrapped

Moved = tuple[str, str, str, str]
"""Trial's short id, its stored verdict, what it becomes, why."""
_LISTED = 8


def trial_lines(moved: Moved | None, shared: Sequence[str], *, off: str | None, width: int) -> list[str]:
    """Below one trial: what the others of its run say about it; nothing where they say nothing."""
    if moved is None and not shared and off is None:
        return []
    lines = ["BESIDE THE OTHER TRIALS OF ITS RUN"]
    if moved is not None:
        _, was, now, why = moved
        lines += wrapped(f"{was} → {now}: {why}", width, hang=" " * 6)
    else:
        for what in shared[:_LISTED]:
            lines += wrapped(what, width, hang=" " * 6)
        if not shared and off is not None:
            lines += wrapped(off, width, hang=" " * 6)
    return lines


def run_lines(moved: Sequence[Moved], shared: Sequence[str], *, off: str | None, width: int) -> list[str]:
    """Below a list of trials."""
    if not moved and not shared and off is None:
        return []
    lines = ["TOGETHER"]
    for what in shared[:_LISTED]:
        lines += wrapped(what, width, hang=" " * 6)
    for name, was, now, _ in moved[:_LISTED]:
        lines += wrapped(f"{name}: {was} → {now}", width, hang=" " * 6)
    if len(moved) > _LISTED:
        lines += wrapped(f"and {plural(len(moved) - _LISTED, 'more verdict')} moved", width)
    if off is not None:
        lines += wrapped(off, width, hang=" " * 6)
    return lines
