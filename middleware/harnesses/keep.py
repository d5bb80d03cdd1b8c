"""Before it is gone: a trial's files that its harness deletes when it tries again.

In: the folder that a harness writes its jobs into.  Out: copies, in the store's keep folder, of those trials' files
that were deleted while we looked, and a `Kept` for each.  Harbor removes a failed trial's folder before its next
attempt; what is still there at the end is Harbor's and is not copied.

How: each wanted file is opened when it appears and held; a deleted file that is open can still be read.  So there is no
race with a delete behind the last write.  Nothing in the harness's folder is changed, linked or locked.
Bounds: files per trial, open files, bytes per file, and bytes of the whole keep folder, whose oldest runs go first when
it fills up.  What did not fit is counted.
How it can be wrong: a file that appears and goes before this thread runs is missed, as is one behind a lost notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from fairtrial.middleware.harnesses.inotify import CREATE, DELETE, DELETE_SELF, IS_DIR, MOVED_TO, Notices

MARK: Final = "fairtrial-kept.json"
"""In a kept folder: which attempt it was, so that a reader takes it for one that was tried again."""
WANTED: Final = frozenset({"result.json", "config.json", "trial.log", "exception.txt", "lock.json"})
WANTED_BELOW: Final = {
    "agent": frozenset({"trajectory.json"}),
    "verifier": frozenset({"reward.txt", "reward.json", "test-stdout.txt"}),
}
MAX_OPEN: Final = 512
MAX_FILE_BYTES: Final = 16 << 20
_OLD_JOBS: Final = 64
_LAST_READS: Final = 16
_DONE_S: Final = 60.0
"""A trial that has its result for so long is not deleted for another attempt any more: its files are let go."""
_SETTLED_S: Final = 0.2
"""A folder that is being deleted loses its files one by one: it is kept when this long nothing more went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One attempt whose files were saved.  `missed`: files that did not fit, or could not be read."""

    name: str
    attempt: int
    folder: Path
    files: int
    bytes: int
    missed: int


@dataclass(slots=True)
class _Watched:
    """One trial's folder and the files in it that are held open, by their path within it."""

    folder: Path
    opened: int
    """The folder itself, held open so that its inode's number is nobody else's."""
    held: dict[str, int] = field(default_factory=dict[str, int])
    done_at: float | None = None
    gone_at: float | None = None


class Keeper:
    """Watches one folder of jobs in a thread of its own until `close`.  `on_kept` is called in that thread."""

    def __init__(
        self, jobs: Path, target: Path, *, limit_bytes: int, on_kept: Callable[[Kept], None] | None = None
    ) -> None:
        """Raises `OSError` where there is no inotify.  `jobs` need not exist yet; its parent must."""
        self.missed = 0
        """Files that were seen and not kept."""
        self.kept: list[Kept] = []
        self._jobs = jobs
        self.target = target
        self._left = make_room(target.parent, limit_bytes)
        self._on_kept = on_kept
        self._trials: dict[Path, _Watched] = {}
        self._attempts: dict[str, int] = {}
        self._open = 0
        self._ending = False
        self._notices = Notices()
        self._begin()
        self._thread = threading.Thread(target=self._work, name="keep", daemon=True)
        self._thread.start()

    def _begin(self) -> None:
        """A job may be taken up again: new trials in the newest old jobs are seen, their old trials are not touched."""
        if not self._jobs.is_dir():
            above = next(parent for parent in self._jobs.parents if parent.is_dir())
            self._notices.add(above)
            if not self._jobs.is_dir():
                return
        self._notices.add(self._jobs)
        jobs = [child for child in self._children(self._jobs) if child.is_dir()]
        for job in sorted(jobs, key=lambda job: job.stat().st_mtime)[-_OLD_JOBS:]:
            self._notices.add(job)

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop looking; what was deleted until now is kept."""
        self._ending = True
        self._notices.wake()
        self._thread.join(timeout_s)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._ending:
                for folder, name, mask in self._notices.wait(_SETTLED_S):
                    if folder is not None:
                        self._take(folder, name, mask)
                self._settle(time.monotonic() - _SETTLED_S)
            for _ in range(_LAST_READS):
                for folder, name, mask in self._notices.wait(0):
                    if folder is not None:
                        self._take(folder, name, mask)
            self._settle(time.monotonic())
        finally:
            for trial in self._trials.values():
                self._let_go(trial)
            self._notices.close()

    def _take(self, folder: Path, name: str, mask: int) -> None:
        path = folder / name if name else folder
        if mask & (CREATE | MOVED_TO) and mask & IS_DIR:
            self._new_folder(path)
        elif mask & (CREATE | MOVED_TO):
            self._hold(path)
        elif mask & (DELETE_SELF | DELETE) and path in self._trials and not _is_still(self._trials[path]):
            # (A late notice of the attempt before this one is none of this one's.)
            self._trials[path].gone_at = self._trials[path].gone_at or time.monotonic()

    def _new_folder(self, path: Path) -> None:
        """A folder appeared: look into it, and at what came into it before we did."""
        depth = self._depth(path)
        if depth is None and path in self._jobs.parents:
            depth = 0
        if depth is None or depth > 3 or (depth == 3 and path.name not in WANTED_BELOW):
            return
        if depth == 2:
            known = self._trials.get(path)
            if known is not None and _is_still(known):
                return  # found by looking, and now by its notice as well
            if known is not None:  # tried again within the time in which we wait for the last file to go
                del self._trials[path]
                self._keep(known)
            try:
                opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                return
            self._trials[path] = _Watched(path, opened)
        if not self._notices.add(path):
            return
        for child in self._children(path):
            if child.is_dir():
                self._new_folder(child)
            else:
                self._hold(child)

    def _depth(self, path: Path) -> int | None:
        """0: the folder of jobs, 1: a job, 2: a trial, 3: below a trial."""
        try:
            return len(path.relative_to(self._jobs).parts)
        except ValueError:
            return None

    @staticmethod
    def _children(path: Path) -> list[Path]:
        try:
            return sorted(path.iterdir())
        except OSError:
            return []

    def _trial_of(self, path: Path) -> tuple[_Watched, str] | None:
        for folder in (path.parent, path.parent.parent):
            trial = self._trials.get(folder)
            if trial is not None:
                within = str(path.relative_to(folder))
                below = path.parent.name if folder != path.parent else None
                wanted = WANTED if below is None else WANTED_BELOW.get(below, frozenset())
                return (trial, within) if path.name in wanted else None
        return None

    def _hold(self, path: Path) -> None:
        found = self._trial_of(path)
        if found is None:
            return
        trial, within = found
        if self._open >= MAX_OPEN:
            self.missed += 1
            return
        try:
            # By the folder that we hold: at the same path there may be the next attempt's by now.
            fd = os.open(within, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=trial.opened)
        except OSError:
            return
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return
        known = trial.held.pop(within, None)
        if known is not None:
            os.close(known)
            self._open -= 1
        trial.held[within] = fd
        self._open += 1
        if within == "result.json":
            trial.done_at = time.monotonic()

    def _settle(self, before: float) -> None:
        """Keep the trials whose folders went some time ago."""
        for path, trial in list(self._trials.items()):
            if trial.gone_at is not None and trial.gone_at <= before:
                del self._trials[path]
                self._keep(trial)
            elif trial.gone_at is None and trial.done_at is not None and trial.done_at < before - _DONE_S:
                del self._trials[path]
                self._let_go(trial)

    # --- keeping ------------------------------------------------------------------------------------------------------

    def _keep(self, trial: _Watched) -> None:
        name = trial.folder.name
        attempt = self._attempts.get(name, 0) + 1
        while (self.target / name / str(attempt)).exists():
            attempt += 1  # kept by an observer before this one
        self._attempts[name] = attempt
        folder = self.target / name / str(attempt)
        files = total = missed = 0
        for within, fd in trial.held.items():
            written = self._copy(fd, folder / within)
            if written is None:
                missed += 1
            else:
                files, total = files + 1, total + written
        self._let_go(trial)
        self.missed += missed
        if not files:
            return
        with contextlib.suppress(OSError):
            (folder / MARK).write_text(json.dumps({"trial_name": name, "attempt": attempt}))
        kept = Kept(name=name, attempt=attempt, folder=folder, files=files, bytes=total, missed=missed)
        self.kept.append(kept)
        if self._on_kept is not None:
            self._on_kept(kept)

    def _copy(self, fd: int, target: Path) -> int | None:
        size = os.fstat(fd).st_size
        if size > min(MAX_FILE_BYTES, self._left):
            return None
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.lseek(fd, 0, os.SEEK_SET)
            with os.fdopen(os.dup(fd), "rb") as source, target.open("wb") as copy:
                content = source.read(MAX_FILE_BYTES)
                copy.write(content)
        except OSError:
            return None
        self._left -= len(content)
        return len(content)

    def _let_go(self, trial: _Watched) -> None:
        for fd in trial.held.values():
            os.close(fd)
        self._open -= len(trial.held)
        trial.held.clear()
        if trial.opened >= 0:
            os.close(trial.opened)
            trial.opened = -1


def _is_still(trial: _Watched) -> bool:
    """Whether the folder at the path is the one that we hold, and not another one of the same name."""
    try:
        now, then = os.stat(trial.folder), os.fstat(trial.opened)
    except OSError:
        return False
    return (now.st_ino, now.st_dev) == (then.st_ino, then.st_dev)


def make_room(root: Path, limit_bytes: int) -> int:
    """How many bytes may be added to the keep folder, after its oldest runs went to leave a quarter of the limit."""
    runs: list[tuple[float, Path, int]] = []
    with contextlib.suppress(OSError):
        for run in root.iterdir():
            files = [file.stat() for file in run.rglob("*") if file.is_file() and not file.is_symlink()]
            runs.append((max((f.st_mtime for f in files), default=0.0), run, sum(f.st_size for f in files)))
    used = sum(size for _, _, size in runs)
    for _, run, size in sorted(runs, key=lambda each: each[0]):
        if used <= limit_bytes * 3 // 4:
            break
        shutil.rmtree(run, ignore_errors=True)
        used -= size
    return max(0, limit_bytes - used)


# --- where a harness writes -------------------------------------------------------------------------------------------


def jobs_folder(command: Sequence[str], folder: Path) -> Path | None:
    """Where the Harbor that this command starts in `folder` writes its jobs; None when it starts none that is seen."""
    words = list(_words(command))
    starts = [n for n, word in enumerate(words) if PurePosixPath(word).name in {"harbor", "hb"}]
    if not any(words[at + 1 : at + 2] in (["run"], ["job"], ["jobs"]) for at in starts):
        return None
    chosen = "jobs"
    for number, word in enumerate(words):
        if word in {"-o", "--jobs-dir"} and number + 1 < len(words):
            chosen = words[number + 1]
        elif word.startswith("--jobs-dir="):
            chosen = word.partition("=")[2]
    path = Path(chosen)
    return path if path.is_absolute() else folder / path


def _words(command: Sequence[str]) -> list[str]:
    """The command's words; one that is itself a command line (sh -c) is split."""
    found: list[str] = []
    for word in command[:256]:
        if " " not in word:
            found.append(word)
            continue
        try:
            found += shlex.split(word)[:256]
        except ValueError:
            found.append(word)
    return found
