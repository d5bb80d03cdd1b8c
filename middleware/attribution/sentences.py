"""Words: how numbers and outside values are written into the sentences of a verdict.

In: numbers and strings as observed.  Out: plain English for somebody who is tired.  Values that came from outside
(names of processes, containers, hosts, error types) lose their control characters and are cut short, so that no process
can write escape codes into somebody's terminal.  What this module does not do: choose what is said.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

UNKNOWN_WORDS: Final[dict[str, str]] = {
    "victim": "a process",
    "container": "a container of the trial",
    "limit": "an unknown size",
    "peak": "not read",
    "kills": "an unknown number of kills",
    "ceiling": "a higher ceiling",
    "statuses": "no status",
    "attempts": "an unknown number of attempts",
    "seconds": "an unknown time",
    "step": "an unknown number",
    "what": "the command",
    "upstream": "an unknown address",
    "failure": "for an unknown reason",
    "silence": "an unknown time",
    "times": "an unknown number of times",
    "watchdog": "unknown time",
    "length": "an unknown time",
    "lag": "an unknown time",
    "signal": "an unknown signal",
    "at": "not known",
    "bytes_down": "an unknown number of bytes",
    "error_type": "no error type",
    "lost": "an unknown time",
    "tasks": "an unknown number of tasks",
    "hits": "an unknown number of forks",
    "mount": "a file system",
    "size": "an unknown size",
    "room": "nothing free",
    "residue": "what",
    "writer": "an unknown number",
    "quiet": "an unknown time",
    "need": "an unknown time",
    "elapsed": "an unknown time",
    "source": "nobody knows whose",
    "code": "an unknown one",
    "later": "later steps",
    "why": "without end",
    "charged": "an unknown time",
    "did": "stopped",
}
"""What stands in a sentence for a value that was not observed."""

SIGNAL_NAMES: Final[dict[int, str]] = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    6: "SIGABRT",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}

_LONGEST: Final = 80


def clean(text: str, longest: int = _LONGEST) -> str:
    """An outside value fit for a terminal and a sentence: no control or format characters, at most `longest` long."""
    kept = "".join(" " if c in "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029" else c for c in text if _printable(c))
    kept = " ".join(kept.split())
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def _printable(c: str) -> bool:
    if c in "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029":
        return True
    return unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn"}


def fill(template: str, facts: Mapping[str, str]) -> str:
    """The template with its places filled; a place without a fact gets its words for *unknown*."""
    places = {name for _, name, _, _ in string.Formatter().parse(template) if name}
    return template.format_map({name: facts.get(name) or UNKNOWN_WORDS.get(name, "unknown") for name in places})


def capital(text: str) -> str:
    """The sentence with a capital first letter, all else as it is."""
    return text[:1].upper() + text[1:]


def size(count: int | None) -> str | None:
    """Bytes in binary units as people set them: 64 MiB, 1.5 GiB."""
    if count is None:
        return None
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return _short(amount, unit)
        amount /= 1024
    return _short(amount, "TiB")


def _short(amount: float, unit: str) -> str:
    text = f"{amount:.1f}".removesuffix(".0") if amount < 100 else f"{amount:.0f}"
    return f"{text} {unit}"


def seconds(length_s: float | None) -> str | None:
    """A length of time: 45 ms, 2.5 s, 72 s, 12 min 5 s."""
    if length_s is None:
        return None
    if length_s < 0.0995:
        return f"{length_s * 1000:.0f} ms"
    if length_s < 9.95:
        return f"{length_s:.1f} s"
    if length_s < 300:
        return f"{length_s:.0f} s"
    minutes, rest = divmod(round(length_s), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def count(number: int, noun: str) -> str:
    """`1 kill`, `3 kills`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def steps(numbers: Iterable[int]) -> str:
    """Step numbers as people write them: `step 3`, `steps 2-4`, `steps 2, 5 and 7-9`."""
    ordered = sorted(set(numbers))
    spans: list[tuple[int, int]] = []
    for n in ordered:
        if spans and spans[-1][1] == n - 1:
            spans[-1] = (spans[-1][0], n)
        else:
            spans.append((n, n))
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    return ("step " if len(ordered) == 1 else "steps ") + listed(parts)


def listed(parts: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; `last`: another word before the last."""
    known = list(parts)
    if len(known) <= 1:
        return "".join(known)
    return f"{', '.join(known[:-1])} {last} {known[-1]}"


def statuses(codes: Iterable[int | None]) -> str | None:
    """HTTP status codes with how often each came, in order of first appearance: `HTTP 529 x 9`, `HTTP 500, no reply`.

    None when not one attempt brought a status.
    """
    tally: dict[int | None, int] = {}
    for code in codes:
        tally[code] = tally.get(code, 0) + 1
    if not any(code is not None for code in tally):
        return None
    told = [("no reply" if code is None else str(code), n) for code, n in tally.items()]
    return "HTTP " + ", ".join(f"{word} x {n}" if n > 1 else word for word, n in told)


def often(number: int) -> str:
    """`once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def signal_name(number: int | None) -> str | None:
    """SIGKILL for 9; a number without a name of ours is shown as `signal 42`."""
    if number is None:
        return None
    return SIGNAL_NAMES.get(number, f"signal {number}")
