"""`fairtrial run` at a real terminal: keys reach the command once, Ctrl-Z and fg work."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.middleware.relay.running import DEADLINE_S, Bench, kill_quietly, until


class Terminal:
    """A pseudo-terminal with a session of its own and one program in its foreground."""

    def __init__(self, argv: list[str], environ: dict[str, str], cwd: Path) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(argv[0], argv, environ)
        self._text = ""

    def keys(self, text: str) -> None:
        os.write(self._master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, pattern: str, *, deadline_s: float = DEADLINE_S) -> re.Match[str]:
        """Read until the pattern comes; what is before it is dropped."""
        end = time.monotonic() + deadline_s
        while True:
            if found := re.search(pattern, self._text):
                self._text = self._text[found.end() :]
                return found
            left = end - time.monotonic()
            assert left > 0, f"{pattern!r} did not come; the terminal shows: {self._text!r}"
            if select.select([self._master], [], [], left)[0]:
                try:
                    self._text += os.read(self._master, 4096).decode(errors="replace")
                except OSError as error:
                    raise AssertionError(f"{pattern!r} did not come before the end: {self._text!r}") from error

    def wait(self, *, deadline_s: float = DEADLINE_S) -> int:
        """The wait status of the program."""
        result: list[int] = []

        def gone() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            result.append(status)
            return pid != 0

        until(gone, deadline_s=deadline_s)
        self.pid = 0
        return result[-1]

    def close(self) -> None:
        if self.pid:
            kill_quietly(self.pid)
            os.waitpid(self.pid, 0)
        os.close(self._master)


@pytest.fixture
def bench() -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    yield Bench(folder)
    shutil.rmtree(folder, ignore_errors=True)


_COUNTER = """
import os, signal, sys
counts = {}
def note(number, frame):
    counts[number] = counts.get(number, 0) + 1
    os.write(1, b"got %d (%d)\\n" % (number, counts[number]))
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH):
    signal.signal(number, note)
os.write(1, b"pid %d fg %d pgrp %d tty %d\\n" % (os.getpid(), os.tcgetpgrp(0), os.getpgrp(), os.isatty(0)))
while True:
    line = sys.stdin.readline().strip()
    if line == "end": break
    os.write(1, b"read %s\\n" % line.encode())
os.write(1, b"counts %s\\n" % repr(sorted(counts.items())).encode())
sys.exit(9)
"""


@pytest.fixture
def counter(bench: Bench) -> Iterator[Terminal]:
    terminal = Terminal(bench.argv("--", sys.executable, "-S", "-c", _COUNTER), bench.environ, bench.home)
    yield terminal
    terminal.close()


def test_the_command_is_in_the_foreground_of_the_terminal(counter: Terminal) -> None:
    found = counter.expect(r"pid (\d+) fg (\d+) pgrp (\d+) tty 1")
    assert found[2] == found[3] == str(counter.pid)
    counter.keys("hello\n")
    counter.expect("read hello")
    counter.keys("end\n")
    counter.expect("stand-in verdict")
    assert os.waitstatus_to_exitcode(counter.wait()) == 9


@pytest.mark.parametrize("key, number", [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_a_key_reaches_the_command_exactly_once(
    bench: Bench, counter: Terminal, key: str, number: signal.Signals
) -> None:
    counter.expect(r"pid \d+")
    counter.keys(key)
    counter.expect(rf"got {int(number)} \(1\)")
    counter.keys("after\n")
    counter.expect("read after")
    counter.keys("end\n")
    counter.expect(re.escape(f"counts [({int(number)}, 1)]"))
    assert os.waitstatus_to_exitcode(counter.wait()) == 9
    assert bench.of_kind("BYE")[0]["forwarded_signals"] == []
    assert bench.of_kind("BYE")[0]["keyboard_signals"] == [int(number)]


def test_a_change_of_the_windows_size_reaches_the_command_exactly_once(counter: Terminal) -> None:
    counter.expect(r"pid \d+")
    counter.resize(40, 100)
    counter.expect(rf"got {int(signal.SIGWINCH)} \(1\)")
    counter.keys("end\n")
    counter.expect(re.escape(f"counts [({int(signal.SIGWINCH)}, 1)]"))


def test_a_command_that_dies_of_ctrl_c_takes_us_with_it_by_the_same_signal(bench: Bench) -> None:
    terminal = Terminal(bench.argv("--", "sh", "-c", "echo ready; exec sleep 60"), bench.environ, bench.home)
    try:
        terminal.expect("ready")
        terminal.keys("\x03")
        assert os.waitstatus_to_exitcode(terminal.wait()) == -signal.SIGINT
    finally:
        terminal.close()


def test_the_terminals_end_ends_the_command_and_the_trial_is_closed(bench: Bench) -> None:
    terminal = Terminal(bench.argv("--", "sh", "-c", "echo ready; exec sleep 60"), bench.environ, bench.home)
    try:
        terminal.expect("ready")
        bench.observer_pid()
    finally:
        os.close(terminal._master)
    try:
        assert os.waitstatus_to_exitcode(terminal.wait()) == -signal.SIGHUP
        assert bench.of_kind("BYE")[0]["signal"] == signal.SIGHUP
    finally:
        terminal._master = os.open(os.devnull, os.O_RDONLY)
        terminal.close()


@pytest.fixture
def shell(bench: Bench) -> Iterator[Terminal]:
    """An interactive bash with job control; the prompt is `outer> `."""
    environ = {**bench.environ, "PS1": "outer> ", "TERM": "dumb", "HISTFILE": "/dev/null", "PROMPT_COMMAND": ""}
    terminal = Terminal(["/bin/bash", "--norc", "--noprofile", "--noediting", "-i"], environ, bench.home)
    terminal.expect("outer> ")
    yield terminal
    terminal.close()


def _quoted(argv: list[str]) -> str:
    import shlex

    return shlex.join(argv)


@pytest.mark.parametrize("how", ["ctrl_z", "stops_itself"])
def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(bench: Bench, shell: Terminal, how: str) -> None:
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCONT, lambda *a: os.write(1, b'continued\\n'))\n"
        "os.write(1, b'ready\\n')\n"
        "while (line := sys.stdin.readline().strip()) != 'end':\n"
        "    if line == 'stop': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    else: os.write(1, b'read ' + line.encode() + b'\\n')\n"
        "sys.exit(9)\n"
    )
    (bench.home / "job.py").write_text(script)
    shell.keys(_quoted(bench.argv("--", sys.executable, "-S", "job.py")) + "\n")
    shell.expect("ready")
    shell.keys("\x1a" if how == "ctrl_z" else "stop\n")
    shell.expect(r"Stopped")
    shell.keys("jobs; echo at-the-prompt-$((1+1))\n")
    shell.expect("at-the-prompt-2")
    shell.keys("fg\n")
    shell.expect("continued")
    shell.keys("again\n")
    shell.expect("read again")
    shell.keys("end\n")
    shell.expect("stand-in verdict")
    shell.keys("echo status=$?\n")
    shell.expect("status=9")
    note = bench.notes("suspended")[0]
    assert int(str(note["until_ns"])) > int(str(note["since_ns"]))


def test_a_background_job_that_reads_the_terminal_is_stopped_and_said_to_be(bench: Bench, shell: Terminal) -> None:
    shell.keys(_quoted(bench.argv("--", "sh", "-c", "read line; exit 4")) + " &\n")
    shell.expect(r"\[1\]")
    until(lambda: bench.of_kind("CHILD"))
    shell.keys("jobs\n")
    stopped = r"Stopped"
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            shell.expect(stopped, deadline_s=0.5)
            break
        except AssertionError:
            assert time.monotonic() < deadline
            shell.keys("jobs\n")
    shell.keys("fg\n")
    shell.keys("x\n")
    shell.expect("stand-in verdict")
    shell.keys("echo status=$?\n")
    shell.expect("status=4")


def test_an_interactive_shell_as_the_command_keeps_its_job_control(bench: Bench, shell: Terminal) -> None:
    inner = ["env", "PS1=inner> ", "/bin/bash", "--norc", "--noprofile", "--noediting", "-i"]
    shell.keys(_quoted(bench.argv("--", *inner)) + "\n")
    shell.expect(r"[\r\n]inner> ")
    shell.keys("sh -c 'echo begun-$((1+1)); exec sleep 60'\n")
    shell.expect("begun-2")
    shell.keys("\x1a")
    shell.expect("Stopped")
    shell.expect("inner> ")
    shell.keys("exit 5\n")
    shell.expect("There are stopped jobs")
    shell.keys("exit 5\n")  # said twice it is meant; the stopped job is ended by bash
    shell.expect("stand-in verdict")
    shell.keys("echo status=$?\n")
    shell.expect("status=5")
