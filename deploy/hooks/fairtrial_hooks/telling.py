"""Says outcomes and marks to fairtrial's control API, beside the harness's own work.

In: `FAIRTRIAL_CONTROL_URL`, and words.  Out: POSTs, from a thread of its own.  Nothing here raises, and but for
`finish`, which is bounded, nothing waits: what cannot be said is lost and counted.  A page that is gone, or of a
fairtrial that knows no names of trials, is not asked again.
What this module does not do: retry, read a harness's files, or need anything but the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import queue
import re
import threading
import time
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlsplit

MAX_WAITING = 2000
MAX_CHARS = 200
"""Of each text; the control API takes no longer one."""
MAX_NAME_CHARS = 120
"""A client's name in a header or a path is kept a little longer than that."""
ANSWER_S = 5.0
FINISH_S = 2.0
"""So long may the harness's own end wait for the last words."""
FAILURES = 3
"""In a row, then the page counts as gone."""
_OVER = frozenset({403, 404, 405, 410})

_SHOWN = re.compile(r"[^ -~]+")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def plain(text: object, limit: int = MAX_NAME_CHARS) -> str:
    """A name that may stand in a header and a path, "" when nothing of it is left."""
    return _PLAIN.sub("-", str(text)).strip("-")[:limit]


class Teller:
    """Talks to one control page."""

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        """Raises ValueError for what is no http address."""
        place = urlsplit(url)
        if place.scheme != "http" or not place.hostname:
            raise ValueError(f"FAIRTRIAL_CONTROL_URL is no http address: {url[:80]!r}")
        self._host, self._port, self._path = place.hostname, place.port or 80, place.path.rstrip("/")
        self._answer_s = answer_s
        self._waiting: queue.Queue[tuple[str, bytes]] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._patience_s = FINISH_S
        self.gone = False
        self.said = 0
        self.lost = 0

    @classmethod
    def here(cls) -> Teller | None:
        """The page of this process's environment, None where there is none."""
        try:
            url = os.environ.get("FAIRTRIAL_CONTROL_URL")
            return cls(url) if url else None
        except ValueError:
            return None

    def mark(self, trial: str, name: str, text: str | None = None) -> None:
        """A moment of a trial, now."""
        body: dict[str, object] = {"name": name, "at": time.time_ns()}
        if text:
            body["text"] = text
        self._say(trial, "mark", body)

    def outcome(self, trial: str, outcome: str, *, reward: float | None = None, exit_status: str | None = None) -> None:
        """How a trial went: passed, failed, errored or unknown.  A later word replaces it."""
        body: dict[str, object] = {"outcome": outcome}
        if reward is not None and math.isfinite(reward):
            body["reward"] = reward
        if exit_status:
            body["exit_status"] = exit_status
        self._say(trial, "outcome", body)

    def finish(self, within_s: float | None = None) -> None:
        """Wait until all was said, not longer than this; else what is left of `FINISH_S` since all was said last."""
        began = time.monotonic()
        until = began + (self._patience_s if within_s is None else within_s)
        while (waits := self._waiting.unfinished_tasks > 0) and not self.gone and time.monotonic() < until:
            time.sleep(0.01)
        self._patience_s = max(0.0, self._patience_s - (time.monotonic() - began)) if waits else FINISH_S

    def _say(self, trial: str, page: str, body: dict[str, object]) -> None:
        with contextlib.suppress(Exception):
            name = _shown(trial)
            if self.gone or not name:
                self.lost += 1
                return
            cut = {key: _shown(value) if isinstance(value, str) else value for key, value in body.items()}
            content = json.dumps({key: value for key, value in cut.items() if value != ""}).encode()
            try:
                self._waiting.put_nowait((f"{self._path}/trials/{quote(name, safe='')}/{page}", content))
            except queue.Full:
                self.lost += 1
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._talk, name="fairtrial-hooks", daemon=True)
                self._thread.start()
                atexit.register(self.finish)

    def _talk(self) -> None:
        while True:
            path, content = self._waiting.get()
            if self.gone or not self._post(path, content):
                self.lost += 1
            else:
                self.said += 1
            self._waiting.task_done()

    def _post(self, path: str, content: bytes) -> bool:
        try:
            connection = HTTPConnection(self._host, self._port, timeout=self._answer_s)
            try:
                connection.request("POST", path, content, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read(1 << 16)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError):
            self._failures += 1
            self.gone = self._failures >= FAILURES
            return False
        self._failures = 0
        self.gone = answer.status in _OVER
        return answer.status == 200


def _shown(text: object) -> str:
    """What the control API takes as a text: bounded, without control characters."""
    return _SHOWN.sub("?", str(text)).strip()[:MAX_CHARS].strip()
