"""What an exec runs, and whose upkeep it is."""

import hashlib

from fairtrial.middleware.core.commands import is_plumbing, shell_text, text_digest


def test_the_command_is_the_last_argument_and_only_guessed_where_it_is_plain() -> None:
    assert shell_text(("bash", "-lc", "ls -c x"), "bash -lc ls -c x") == "ls -c x"
    assert shell_text(None, "/bin/bash -lc echo a -c b") == "echo a -c b"
    assert shell_text(None, "bash --login -c make test") == "make test"
    assert shell_text(None, "python run.py -c x") is None
    assert text_digest("ls") == hashlib.blake2b(b"ls", digest_size=16).hexdigest()


def test_upkeep_of_the_harness_is_told_from_tool_calls() -> None:
    assert is_plumbing(("tmux", "send-keys", "-t", "agent", "ls"), None, ()) is True
    assert is_plumbing(("bash", "-c", "tmux capture-pane -p"), None, ()) is True
    assert is_plumbing(("/bin/sh", "-c", "curl localhost"), None, ("CMD-SHELL", "curl localhost")) is True
    assert is_plumbing(("bash", "-c", "pytest"), None, ("CMD", "true")) is False
    assert is_plumbing(None, None, ()) is None
