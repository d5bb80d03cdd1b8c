"""Opening a store: by several at once, and while somebody else has it locked."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from fairtrial.middleware.store.database import _use_wal, open_database


def test_a_store_is_made_by_whoever_is_first_while_others_wait(tmp_path: Path) -> None:
    """The change to WAL mode is refused at once, whatever the busy timeout, while another connection writes."""
    path = tmp_path / "s.db"
    first = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    first.execute("CREATE TABLE somebody (was TEXT)")
    first.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.3, lambda: first.execute("COMMIT"))
    done.start()
    open_database(path).close()
    done.join()
    first.close()


def test_a_store_that_stays_locked_is_told_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("CREATE TABLE somebody (was TEXT)")
    first.execute("BEGIN IMMEDIATE")
    second = sqlite3.connect(path, timeout=0.05)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        _use_wal(second, within_s=0.2)
    second.close()
    first.close()
