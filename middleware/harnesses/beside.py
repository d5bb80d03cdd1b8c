"""The verdict beside the score in a harness's own files: ATIF's `extra`, the `metadata` of Inspect's samples.

In: a path and, for a booked trial, what to put there.  Out: one `Put` per trial and file.  Only the member `fairtrial`
is added; scores, rewards and all else stay as they were.  A file that is foreign, damaged, a link, still written, or
holds a `fairtrial` of somebody else is left as it was, and said.
A file is written anew beside the old one and takes its place in one step.  In a `.eval` the other members keep their
packed bytes; what a changed sample held before stays in the file unreachable, as with every zip that is appended to.
What this module does not do: know the store, or judge.
**Source:** Harbor 0.26.0, harbor/models/trajectories; inspect-ai 0.3.285, inspect_ai/log/_log.py.
"""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from fairtrial.middleware.core.observations import HarnessOutcome
from fairtrial.middleware.harnesses import harbor, inspect_ai
from fairtrial.middleware.harnesses.atif import read_trajectory
from fairtrial.middleware.harnesses.base import FileNote
from fairtrial.middleware.harnesses.files import MAX_BYTES, read_bytes
from fairtrial.middleware.harnesses.splice import NotSpliced, put
from fairtrial.middleware.harnesses.zipped import UNPACK_ERRORS, unpacked

MEMBER: Final = "fairtrial"
VerdictOf = Callable[[HarnessOutcome], dict[str, object] | str]
"""What to put beside a booked trial's score, or a sentence that says why there is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """What became of one trial in one file.  `same`: it stood there already; `left`: nothing was changed."""

    file: str
    label: str
    state: Literal["written", "same", "left"]
    said: str = ""


class _Id(msgspec.Struct):
    id: str | int | None = None
    epoch: int | None = None


class _Spec(msgspec.Struct):
    eval_id: str | None = None


class _Log(msgspec.Struct):
    eval: _Spec = msgspec.field(default_factory=_Spec)
    samples: list[_Id] = []


def put_beside(path: Path, verdict_of: VerdictOf) -> tuple[list[Put], list[FileNote]]:
    """Write; what became of each trial, and what is to be said of files in which none was found."""
    theirs, inspects = harbor.read(path), inspect_ai.read(path)
    top = path if path.is_dir() else path.parent
    puts: list[Put] = []
    for booked in theirs.booked:
        puts += _harbors(booked.outcome, top, verdict_of)
    by_file: dict[str, dict[str, HarnessOutcome]] = {}
    for booked in inspects.booked:
        by_file.setdefault(booked.outcome.files[0], {})[booked.outcome.identity] = booked.outcome
    troubles = {note.path: note.said for note in inspects.notes if note.state != "whole"}
    for file, outcomes in by_file.items():
        puts += _inspects(file, outcomes, top, verdict_of, troubles.get(file))
    notes = [note for reading in (theirs, inspects) if reading.booked for note in reading.notes if note.said]
    if not puts:
        notes = [note for reading in (theirs, inspects) for note in reading.notes if note.said]
    # Either reader calls the other's files foreign.
    known = {put.file for put in puts}
    both = bool(theirs.booked and inspects.booked)
    return puts, [note for note in notes if note.path not in known and not (both and note.state == "foreign")]


# --- Harbor -----------------------------------------------------------------------------------------------------------


def _harbors(outcome: HarnessOutcome, top: Path, verdict_of: VerdictOf) -> list[Put]:
    files = [file for file in outcome.files if file.rpartition("/")[2] == "trajectory.json"]
    if not files:
        return [Put(file="", label=outcome.label, state="left", said="left no trajectory to write into")]
    verdict = verdict_of(outcome)
    if isinstance(verdict, str):
        return [Put(file=file, label=outcome.label, state="left", said=verdict) for file in files]
    return [_atif(top / file, file, outcome.label, verdict) for file in files]


def _atif(path: Path, file: str, label: str, verdict: dict[str, object]) -> Put:
    found = read_trajectory(path)
    if found.value is None or found.trouble is not None:
        return Put(file=file, label=label, state="left", said=found.trouble or "could not be read")
    try:
        changed = _spliced(path, lambda text: put(text, MEMBER, [(("extra",), verdict)])[0])
    except (OSError, NotSpliced) as error:
        return Put(file=file, label=label, state="left", said=_why(error))
    return Put(file=file, label=label, state="written" if changed else "same")


# --- Inspect ----------------------------------------------------------------------------------------------------------


def _inspects(
    file: str, outcomes: dict[str, HarnessOutcome], top: Path, verdict_of: VerdictOf, trouble: str | None
) -> list[Put]:
    def left(some: dict[str, str]) -> list[Put]:
        return [Put(file=file, label=outcomes[i].label, state="left", said=said) for i, said in some.items()]

    if trouble is not None:
        return left(dict.fromkeys(outcomes, trouble))
    verdicts = {identity: verdict_of(outcome) for identity, outcome in outcomes.items()}
    puts = left({identity: said for identity, said in verdicts.items() if isinstance(said, str)})
    ready = {identity: verdict for identity, verdict in verdicts.items() if isinstance(verdict, dict)}
    if not ready:
        return puts
    path = top / file
    try:
        changed = _eval(path, ready) if zipfile.is_zipfile(path) else _json_log(path, ready)
    except (*UNPACK_ERRORS, msgspec.MsgspecError, NotSpliced) as error:
        return puts + left(dict.fromkeys(ready, _why(error)))
    return puts + [Put(file=file, label=outcomes[i].label, state="written" if i in changed else "same") for i in ready]


def _json_log(path: Path, ready: dict[str, dict[str, object]]) -> set[str]:
    changed: set[str] = set()

    def edit(text: str) -> str:
        log = msgspec.json.decode(text.encode(), type=_Log)
        identities = [inspect_ai.identity_of(log.eval.eval_id, sample.id, sample.epoch) for sample in log.samples]
        meant = [(number, identity) for number, identity in enumerate(identities) if identity in ready]
        members = [(("samples", number, "metadata"), ready[identity]) for number, identity in meant]
        after, news = put(text, MEMBER, members)
        changed.update(identity for (_, identity), new in zip(meant, news, strict=True) if new)
        return after

    _spliced(path, edit)
    return changed


def _eval(path: Path, ready: dict[str, dict[str, object]]) -> set[str]:
    """The samples whose member was changed."""
    before = _regular(path)
    changed: dict[str, tuple[str, str]] = {}
    with zipfile.ZipFile(path) as archive:
        head = msgspec.json.decode(unpacked(archive, "header.json", MAX_BYTES), type=_Log)
        for name in archive.namelist():
            if not (name.startswith("samples/") and name.endswith(".json")):
                continue
            text = unpacked(archive, name, MAX_BYTES + 1).decode()
            sample = msgspec.json.decode(text, type=_Id)
            identity = inspect_ai.identity_of(head.eval.eval_id, sample.id, sample.epoch)
            if identity not in ready:
                continue
            after, news = put(text, MEMBER, [(("metadata",), ready[identity])])
            if any(news):
                changed[name] = (identity, after)
    if not changed:
        return set()

    def write(part: Path) -> None:
        shutil.copyfile(path, part, follow_symlinks=False)
        with zipfile.ZipFile(part, "a", compression=zipfile.ZIP_DEFLATED) as archive:
            for name, (_, after) in changed.items():
                old = archive.NameToInfo.pop(name)
                archive.filelist.remove(old)
                info = zipfile.ZipInfo(name, old.date_time)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, old.external_attr
                archive.writestr(info, after.encode())

    _replaced(path, before, write)
    return {identity for identity, _ in changed.values()}


# --- files ------------------------------------------------------------------------------------------------------------


def _spliced(path: Path, edit: Callable[[str], str]) -> bool:
    """Whether the text of the file was changed."""
    before = _regular(path)
    found = read_bytes(path)
    if found.value is None or found.trouble is not None:
        raise NotSpliced(found.trouble or "could not be read")
    try:
        text = found.value.decode()
    except UnicodeDecodeError:
        raise NotSpliced("is no UTF-8") from None
    after = edit(text)
    if after == text:
        return False
    _replaced(path, before, lambda part: part.write_bytes(after.encode()))
    return True


def _regular(path: Path) -> os.stat_result:
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise NotSpliced("is a link or no regular file")
    return found


def _replaced(path: Path, before: os.stat_result, write: Callable[[Path], object]) -> None:
    """`path` by what `write` makes, in one step; not when somebody wrote to it meanwhile."""
    part = path.with_name(f".{path.name}.fairtrial-{os.getpid()}")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        write(part)
        with part.open("rb") as written:
            os.fchmod(written.fileno(), stat.S_IMODE(before.st_mode))
            if (os.geteuid(), os.getegid()) != (before.st_uid, before.st_gid):
                os.fchown(written.fileno(), before.st_uid, before.st_gid)
            os.fsync(written.fileno())
        now = os.lstat(path)
        if (now.st_ino, now.st_mtime_ns, now.st_size) != (before.st_ino, before.st_mtime_ns, before.st_size):
            raise NotSpliced("was changed by somebody else at the same time; try again when the harness is done")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _why(error: Exception) -> str:
    if isinstance(error, NotSpliced):
        return str(error)
    if isinstance(error, OSError):
        return f"could not be written: {error.strerror or error}"
    return f"could not be read ({error})"
