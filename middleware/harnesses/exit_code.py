"""A plain exit code in a file: the oldest result of all.

In: a file that holds one number (`echo $? > name.status`), or lines `NAME CODE`; or a folder of such files.  Out: one
`Booked` per number, joined by name: the file's (without its ending), or the line's.  0 means that a command ended, not
that a task was solved, so nothing is `scored`.
What this module does not do: tell who sent the signal behind 128 + n.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fairtrial.middleware.core.observations import BookedError, HarnessOutcome
from fairtrial.middleware.core.records import EndedAs, Outcome
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import read_bytes, shown
from fairtrial.middleware.wire.redact import digest

HARNESS: Final = "exit-code"
_ALONE: Final = re.compile(r"-?\d{1,3}")
_LINE: Final = re.compile(r"(?P<name>[\w./@+\-]+)(?:[ \t]+|[=:][ \t]*)(?P<code>-?\d{1,3})")
_MOST_BYTES: Final = 16 << 20
_MOST_LINES: Final = 200_000


def read(path: Path) -> Reading:
    """A file, or a folder of them (those that hold a number)."""
    reading = Reading()
    if not path.is_dir():
        _file(path, path.name, reading)
        return reading
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    for file in files:
        _file(file, shown(file, path), reading)
    if not files:
        reading.note(path.name, "foreign", "holds no file")
    return reading


def _file(file: Path, name: str, reading: Reading) -> None:
    content = read_bytes(file, _MOST_BYTES)
    if content.value is None:
        reading.note(name, "unreadable", content.trouble or "could not be read")
        return
    text = content.value.decode("utf-8", "replace").strip()
    if not text:
        reading.note(name, "unreadable", "is empty: the command has not ended, or its status was not written")
        return
    if _ALONE.fullmatch(text):
        reading.booked.append(_booked(file.stem, int(text), name, file))
        reading.note(name, "whole", "")
        return
    good: list[Booked] = []
    lines = [line.strip() for line in text.splitlines()[:_MOST_LINES] if line.strip()]
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is not None:
            good.append(_booked(match.group("name"), int(match.group("code")), name, file))
    if not good or 2 * len(good) < len(lines):
        reading.note(name, "foreign", "holds no exit code (one number, or lines of NAME CODE)")
        return
    bad = len(lines) - len(good)
    reading.booked += good
    reading.note(name, "partial" if bad else "whole", f"{bad} of {len(lines)} lines hold no exit code" if bad else "")


def _booked(label: str, code: int, name: str, file: Path) -> Booked:
    signal = code - 128 if 128 < code <= 192 else (-code if code < 0 else None)
    told = HarnessOutcome(
        harness=HARNESS,
        identity=digest(f"{HARNESS}/{label}/{file.resolve()}"),
        label=label,
        outcome=Outcome.PASSED if code == 0 else Outcome.FAILED,
        exit_status=str(code),
        ended_as=EndedAs.KILLED if signal in {9, 15} else (EndedAs.AGENT_FINISHED if code == 0 else None),
        errors=[BookedError(type="NonZeroExit", exit_code=code)] if code else [],
        files=[name],
    )
    return Booked(outcome=told, keys=Keys(names=frozenset({label})))


ADAPTER: Final = Adapter(name=HARNESS, takes="a file with an exit code, or lines of NAME CODE", read=read)
