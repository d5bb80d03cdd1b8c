"""One secret per store, for its owner alone."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fairtrial.middleware.store.secret import SECRET_BYTES, secret_of


def test_a_store_keeps_its_secret_and_another_has_another(tmp_path: Path) -> None:
    first = secret_of(tmp_path / "a" / "store.db")
    assert first is not None
    assert len(first) == SECRET_BYTES
    assert secret_of(tmp_path / "a" / "store.db") == first
    assert secret_of(tmp_path / "b" / "store.db") != first
    assert os.stat(tmp_path / "a" / "store.db.secret").st_mode & 0o777 == 0o600
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["store.db.secret"]


def test_many_that_ask_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: secret_of(tmp_path / "store.db"), range(1)))
    assert len(found) == 1


def test_where_none_can_be_kept_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert secret_of(tmp_path / "file" / "store.db") is None
    (tmp_path / "store.db.secret").write_bytes(b"short")
    assert secret_of(tmp_path / "store.db") is None
