"""The link to the observer by itself: waits are bounded, foreign words are ignored, the log does not grow for ever."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from fairtrial.middleware.core.config import EndConfig
from fairtrial.middleware.relay import signals
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.launcher import Launcher, control_listener, log_file
from fairtrial.middleware.relay.observer_link import ObserverLink, Verdict
from tests.middleware.relay.running import ROOT

_ANSWER = """
import socket, sys
from fairtrial.middleware.wire.feed import encode, encode_json, Decoder, Kind
link = socket.socket(fileno=int(sys.argv[-1]))
decoder = Decoder()
done = False
while not done and (chunk := link.recv(65536)):
    for record in decoder.feed(chunk):
        done = done or record.kind == Kind.BYE
link.sendall(encode(200, b"a newer word") + encode_json(Kind.VERDICT, %s))
"""


def _link(tmp_path: Path, code: str, waits: EndConfig, loop: asyncio.AbstractEventLoop) -> ObserverLink:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    launcher = Launcher((sys.executable, "-P", "-c", code), environ, str(tmp_path / "log"))
    feed = FeedSender(None)
    return ObserverLink(launcher.launch(), launcher=launcher, hello={"trial": "t"}, feed=feed, loop=loop, waits=waits)


async def test_a_newer_word_is_skipped_and_an_answer_of_wrong_types_is_an_empty_one(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    for answer, expected in (
        ({"lines": ["a", 1], "gate": 75}, Verdict(("a", "1"), 75)),
        ({"lines": "x", "gate": "y"}, Verdict((), None)),
        ({"gate": True}, Verdict((), None)),
    ):
        link = _link(tmp_path, _ANSWER % json.dumps(answer).replace("true", "True"), EndConfig(), loop)
        link.begin()
        assert await link.conclude({"exit_code": 0}, asked=True) == expected
        pid = link._pid
        assert pid is not None
        link.close()
        os.waitpid(pid, 0)


async def test_the_user_who_wants_to_leave_does_not_wait(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    link = _link(tmp_path, "import time; time.sleep(60)", EndConfig(verdict_wait_start_s=50.0), loop)
    link.begin()
    loop.call_later(0.05, link.hurry)
    began = loop.time()
    assert await link.conclude({"exit_code": 0}, asked=False) is None
    assert loop.time() - began < 10
    pid = link._pid
    assert pid is not None
    link.close()
    os.kill(pid, 9)
    os.waitpid(pid, 0)


async def test_an_observer_that_somebody_stopped_for_ever_is_ended_not_left_behind(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    waits = EndConfig(verdict_wait_start_s=0.1, verdict_wait_s=0.1)
    link = _link(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", waits, loop)
    link.begin()
    pid = link._pid
    assert pid is not None
    deadline = loop.time() + 10
    while not signals.is_stopped(pid):
        assert loop.time() < deadline
        await asyncio.sleep(0.01)
    assert await link.conclude({"exit_code": 0}, asked=False) is None
    link.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9


def test_the_log_keeps_one_old_generation(tmp_path: Path) -> None:
    path = log_file(str(tmp_path / "state"))
    assert os.stat(path).st_mode & 0o777 == 0o600
    os.truncate(path, 5 << 20)
    assert log_file(str(tmp_path / "state")) == path
    assert not Path(path).exists()
    assert Path(path + ".1").stat().st_size == 5 << 20


def test_a_state_folder_that_cannot_be_made_costs_the_log_only() -> None:
    assert log_file("/dev/null/state") == os.devnull


async def test_once_no_observer_will_come_who_asks_the_control_api_is_refused(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    listener = control_listener()
    assert listener is not None
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    launcher = Launcher((sys.executable, "-P", "-c", "pass"), environ, str(tmp_path / "log"), listener)
    address = listener.getsockname()
    link = ObserverLink(
        launcher.launch(), launcher=launcher, hello={}, feed=FeedSender(None), loop=loop, waits=EndConfig()
    )
    link.begin()
    async with asyncio.timeout(60):
        while listener.fileno() != -1:
            link.reap()
            await asyncio.sleep(0.02)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
    link.close()
