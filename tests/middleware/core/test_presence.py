"""Trials on one engine see each other, and vanish with their process."""

from __future__ import annotations

from pathlib import Path

from fairtrial.middleware.core.presence import announce, claim, is_claimed, others

ENGINE = "unix:///tmp/ft-presence-test.sock"


def test_each_counts_the_others_and_nobody_of_another_engine() -> None:
    ours, elsewhere = announce(ENGINE, "a"), announce("unix:///tmp/another.sock", "c")
    assert ours is not None
    assert elsewhere is not None
    assert others(ENGINE, "a") == 0
    theirs = announce(ENGINE, "b")
    assert theirs is not None
    assert (others(ENGINE, "a"), others(ENGINE, "b")) == (1, 1)
    theirs.close()
    assert others(ENGINE, "a") == 0
    ours.close()
    elsewhere.close()


def test_a_link_to_the_socket_is_the_same_engine(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    held = announce(f"unix://{tmp_path}/real", "a")
    assert held is not None
    assert others(f"unix://{tmp_path}/link", "b") == 1
    held.close()


def test_a_name_that_is_taken_is_no_error_and_no_proc_is_nobody(tmp_path: Path) -> None:
    held = announce(ENGINE, "a")
    assert held is not None
    assert announce(ENGINE, "a") is None
    assert others(ENGINE, "b", proc=tmp_path) == 0
    held.close()


def test_a_container_is_claimed_by_the_trial_that_made_it_as_long_as_that_one_lives(tmp_path: Path) -> None:
    held = claim(ENGINE, "c" * 64)
    assert held is not None
    assert is_claimed(ENGINE, "c" * 64)
    assert not is_claimed(ENGINE, "c" * 63)
    assert not is_claimed("unix:///tmp/another.sock", "c" * 64)
    assert not is_claimed(ENGINE, "c" * 64, proc=tmp_path)
    assert others(ENGINE, "a") == 0
    held.close()
    assert not is_claimed(ENGINE, "c" * 64)
