"""A line on stderr is one line, and a broken stderr is no reason to stop."""

from __future__ import annotations

import io
import sys

import pytest

from fairtrial.middleware.relay.saying import say


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2Jb\nc\x9bd→")
    assert capsys.readouterr().err == "fairtrial: a [2Jb c d→\n"


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_a_stderr_that_is_gone_is_ignored(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if stream is not None:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    say("unheard")


def test_a_key_in_what_is_said_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("[Errno -2] sk-ant-api03-abcdefgh.example is not known")
    assert capsys.readouterr().err == "fairtrial: [Errno -2] ***.example is not known\n"
