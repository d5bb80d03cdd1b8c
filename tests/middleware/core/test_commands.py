"""What an exec runs, and whose upkeep it is."""

import hashlib

import pytest

from fairtrial.middleware.core.commands import is_plumbing, shell_text, text_digest, typed_text


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


@pytest.mark.parametrize(
    "text",
    [
        "tmux send-keys -t terminus-2 -- 'echo hello > hello.txt\n'",
        "export TERM=xterm-256color && export SHELL=/bin/bash && tmux new-session -x 160 -y 40 -d -s terminus-2",
        "mkdir -p /logs/verifier /logs/agent /logs/artifacts && chmod 777 /logs/verifier /logs/agent /logs/artifacts",
        "[ -d /installed-agent ] || mkdir -p /installed-agent",
        "test -d /logs/artifacts",
        "rm -f -- /logs/verifier/reward.txt /logs/verifier/reward.json",
        "chmod +x /tests/test.sh",
        "(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1",
    ],
)
def test_what_harbor_was_seen_to_run_for_itself_is_upkeep_as_words_and_as_an_event_tells_it(text: str) -> None:
    assert is_plumbing(("bash", "-c", text), None, ()) is True
    assert is_plumbing(None, f"bash -c {text}", ()) is True


@pytest.mark.parametrize(
    "text",
    [
        "mkdir -p /logs/mine",
        "chmod +x /tests/test.sh && /tests/test.sh",
        "cat /logs/verifier/x",
        "echo tmux x",
        "ls /tests",
    ],
)
def test_a_command_that_only_looks_like_it_is_the_agents(text: str) -> None:
    assert is_plumbing(("bash", "-c", text), None, ()) is False


@pytest.mark.parametrize(
    "text, typed",
    [
        ("tmux send-keys -t terminus-2 -- 'echo task-1\n'", "echo task-1\n"),
        ("export A=b && tmux send-keys -t s -- 'it'\"'\"'s' Enter", "it'sEnter"),
        ("tmux send-keys -t s -- 'never closed", None),
        ("tmux capture-pane -p -t s", None),
        ("echo tmux send-keys", None),
        ("tmux send-keys -t s -- '" + "x" * (64 << 10) + "'", None),
    ],
)
def test_the_keys_that_a_command_types(text: str, typed: str | None) -> None:
    assert typed_text(("bash", "-c", text)) == typed


def test_a_command_without_words_types_nothing() -> None:
    assert typed_text(None) is typed_text(()) is None
