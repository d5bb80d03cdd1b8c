"""Files that others write, read within bounds: whole, cut off, huge, foreign or gone, never with an exception.

In: a path and, for JSON, the type that is wanted.  Out: a `Read`: the value or None, and a sentence for people where it
was not read whole.  What this module does not do: know any harness.

Types that are wanted name only the fields that are used, so a document of a gigabyte would cost little more than its
bytes; `MAX_BYTES` bounds those.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from fairtrial.middleware.harnesses.salvage import closed

MAX_BYTES: Final = 256 << 20
"""Of one document; logs of lines are read line by line and may be longer."""
MAX_LINE_BYTES: Final = 32 << 20
MAX_FILES: Final = 200_000
"""Of one folder and what lies below it."""

LATEST_S: Final = 9_000_000_000
"""Times after this, in 2255, are none: the store's clock counts ns in 63 bits."""

T = TypeVar("T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Generic[T]):
    """`trouble`: why there is no value, or not all of it."""

    value: T | None = None
    trouble: str | None = None
    foreign: bool = False
    """It could be read and is something else."""

    @property
    def whole(self) -> bool:
        return self.value is not None and self.trouble is None


def read_bytes(path: Path, most: int = MAX_BYTES) -> Read[bytes]:
    """The first `most` bytes of a regular file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return Read(trouble=f"could not be read: {error.strerror or error}")
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return Read(trouble="is no regular file")
        with os.fdopen(os.dup(file), "rb") as opened:
            content = opened.read(most + 1)
    except OSError as error:
        return Read(trouble=f"could not be read: {error.strerror or error}")
    finally:
        os.close(file)
    if len(content) > most:
        return Read(value=content[:most], trouble=f"is larger than {most >> 20} MiB; the rest was not read")
    return Read(value=content)


def parse_json(content: bytes, wanted: type[T]) -> Read[T]:
    """A JSON document as `wanted`; one that was cut off gives what stood before the cut."""
    if not content.strip():
        return Read(trouble="is empty")
    try:
        return Read(value=msgspec.json.decode(content, type=wanted, strict=False))
    except msgspec.ValidationError as error:
        return Read(trouble=f"has another form than expected ({error})", foreign=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    left = closed(content)
    if left is None:
        return Read(trouble="is no JSON", foreign=True)
    try:
        value = msgspec.json.decode(left, type=wanted, strict=False)
    except msgspec.ValidationError as error:
        return Read(trouble=f"is cut off or damaged, and what is left has another form than expected ({error})")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Read(trouble="is no JSON, or damaged", foreign=True)
    return Read(value=value, trouble=f"is cut off or damaged after {len(content)} bytes; what stood before was read")


def read_json(path: Path, wanted: type[T]) -> Read[T]:
    """A JSON file as `wanted`."""
    content = read_bytes(path)
    if content.value is None:
        return Read(trouble=content.trouble)
    found = parse_json(content.value, wanted)
    if content.trouble is not None:
        return Read(value=found.value, trouble=content.trouble, foreign=found.foreign)
    return found


@dataclass(slots=True)
class Lines:
    """A file of JSON lines, read as it is iterated; afterwards `good`, `bad` and `trouble` tell how it went."""

    path: Path
    good: int = 0
    bad: int = 0
    trouble: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Each line that is not empty, without its end."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.trouble = f"could not be read: {error.strerror or error}"
            return
        with os.fdopen(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                self.trouble = "is no regular file"
                return
            try:
                yield from self._lines(opened.readline)
            except OSError as error:
                self.trouble = f"could not be read to its end: {error.strerror or error}"

    def _lines(self, readline: object) -> Iterator[bytes]:
        assert callable(readline)
        too_long = False
        while line := readline(MAX_LINE_BYTES):
            assert isinstance(line, bytes)
            if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                too_long = True
                continue
            if too_long:  # the end of a line that was skipped
                too_long = False
                self.bad += 1
                continue
            if line.strip():
                yield line.rstrip(b"\r\n")

    def told(self) -> str | None:
        """What was lost, in a sentence; None: nothing."""
        if self.trouble is not None:
            return self.trouble
        if self.bad:
            return f"{self.bad} of {self.good + self.bad} lines could not be read (cut off or damaged)"
        return None if self.good else "holds no line"


def below(folder: Path, name: str) -> list[Path]:
    """Files of that name in the folder and below it, in order; links are not followed."""
    found: list[Path] = []
    seen = 0
    for place, folders, files in os.walk(folder):
        folders.sort()
        seen += len(files)
        if seen > MAX_FILES:
            break
        found += [Path(place) / file for file in sorted(files) if file == name]
    return found


def wall_ns(text: object) -> int | None:
    """An ISO 8601 time as ns since 1970; one without a zone is UTC; None for what is none, or lies in no such time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return since // timedelta(microseconds=1) * 1000 if 0 <= since.total_seconds() < LATEST_S else None


def from_seconds(value: object) -> int | None:
    """Seconds since 1970 as ns; None for what is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LATEST_S:
        return None
    return round(value * 1e9)


def shown(path: Path, top: Path) -> str:
    """A path as it is said and stored: below what was imported, never the machine's."""
    try:
        relative = path.relative_to(top)
    except ValueError:
        return path.name
    return str(relative) if str(relative) != "." else path.name
