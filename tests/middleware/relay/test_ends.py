"""A link tells every ending apart, on both loops, read or paused."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TypeVar

import pytest
import uvloop

from fairtrial.middleware.relay.ends import HIGH_BYTES, HangupWatch, Link
from tests.middleware.relay.rig import read_all, reset

T = TypeVar("T")
Run = Callable[[Coroutine[object, None, None]], None]


class Heard:
    """Everything that a link called back."""

    def __init__(self, link: Link) -> None:
        self.data = bytearray()
        self.events: list[str] = []
        link.on_data = self._data
        link.on_eof = lambda ragged: self.events.append(f"eof {ragged}")
        link.on_error = lambda error: self.events.append(f"error {os.strerror(error.errno or 0)}")
        link.on_write_failed = lambda _error: self.events.append("write failed")
        link.on_blocked = lambda: self.events.append("blocked")
        link.on_drained = lambda: self.events.append("drained")
        link.on_hangup = lambda code: self.events.append(f"hangup {code}")
        link.on_closed = lambda: self.events.append("closed")

    def _data(self, data: bytes, t_ns: int) -> None:
        assert t_ns > 0
        self.data += data

    async def until(self, event: str) -> None:
        async with asyncio.timeout(5):
            while event not in self.events:
                await asyncio.sleep(0.001)


@pytest.fixture
def run(loop_kind: str) -> Iterator[Run]:
    """Runs one coroutine on the loop under test."""
    loop = uvloop.new_event_loop() if loop_kind == "uvloop" else asyncio.new_event_loop()

    def run_it(story: Coroutine[object, None, None]) -> None:
        loop.run_until_complete(story)

    yield run_it
    loop.close()


@contextlib.asynccontextmanager
async def linked(family: int = socket.AF_INET) -> AsyncIterator[tuple[Link, socket.socket, Heard]]:
    """A link and the raw socket at its other end."""
    if family == socket.AF_UNIX:
        near, far = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            far = socket.create_connection(listener.getsockname())
            near, _ = listener.accept()
    near.setblocking(False)
    far.settimeout(5)
    loop = asyncio.get_running_loop()
    watch = HangupWatch(loop)
    link = Link(loop, near, watch)
    try:
        yield link, far, Heard(link)
    finally:
        link.close()
        watch.close()
        far.close()


async def in_thread(act: Callable[[socket.socket], T], sock: socket.socket) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, act, sock)


def test_bytes_then_fin(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            link.resume()
            far.sendall(b"abc")
            far.close()
            await heard.until("eof False")
            assert heard.data == b"abc"

    run(story())


@pytest.mark.parametrize("paused", [False, True])
def test_bytes_that_came_before_a_reset_are_given_out_before_the_error(run: Run, paused: bool) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            if paused:
                link.pause()
            far.sendall(b"x" * 50_000)
            reset(far)
            if paused:
                await heard.until("hangup 104")
                assert heard.data == b""
            link.resume()
            await heard.until("error Connection reset by peer")
            assert len(heard.data) == 50_000

    run(story())


def test_a_failed_write_does_not_stop_reading(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            far.sendall(b"last words")
            reset(far)
            link.write(b"into the void")
            link.write(b"again")
            assert "write failed" in heard.events
            link.resume()
            await heard.until("error Connection reset by peer")
            assert heard.data == b"last words"

    run(story())


def test_a_paused_link_hears_of_a_fin_only_if_it_wants_to(run: Run) -> None:
    async def story() -> None:
        for wanted in (True, False):
            async with linked() as (link, far, heard):
                link.watch_fin = wanted
                link.resume()
                link.pause()
                far.shutdown(socket.SHUT_WR)
                if wanted:
                    await heard.until("hangup None")
                    link.resume()
                    await heard.until("eof False")
                else:
                    for _ in range(20):
                        await asyncio.sleep(0.001)
                    assert heard.events == []

    run(story())


def test_a_reset_behind_a_fin_is_noticed(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            link.resume()
            far.shutdown(socket.SHUT_WR)
            await heard.until("eof False")
            reset(far)
            async with asyncio.timeout(5):
                while not any(event.startswith("error") for event in heard.events):
                    await asyncio.sleep(0.001)

    run(story())


def test_back_pressure_is_told_and_taken_back(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            sent = 0
            while "blocked" not in heard.events:
                link.write(b"y" * 65536)
                sent += 65536
            assert link.unsent_bytes <= HIGH_BYTES + 65536
            link.finish()
            got, how = await in_thread(read_all, far)
            assert (len(got), how) == (sent, "fin")
            assert "drained" in heard.events

    run(story())


def test_finish_and_close_flushes_first(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            while "blocked" not in heard.events:
                link.write(b"y" * 65536)
            link.write(b"end")
            link.finish_and_close()
            got, how = await in_thread(read_all, far)
            assert (got[-4:], how) == (b"yend", "fin")
            await heard.until("closed")

    run(story())


def test_finish_and_close_with_a_limit_gives_up_on_a_stalled_peer(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, _far, heard):
            while "blocked" not in heard.events:
                link.write(b"y" * 65536)
            link.finish_and_close(0.05)
            await heard.until("closed")

    run(story())


def test_a_reset_waits_until_the_peers_kernel_has_everything(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            sent = 0
            while "blocked" not in heard.events:
                link.write(b"z" * 65536)
                sent += 65536
            link.reset_when_delivered()
            got, how = await in_thread(read_all, far)
            assert (len(got), how) == (sent, "rst")
            await heard.until("closed")

    run(story())


def test_a_reset_that_waits_ends_when_the_peer_vanishes(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            while "blocked" not in heard.events:
                link.write(b"z" * 65536)
            link.reset_when_delivered()
            reset(far)
            await heard.until("closed")

    run(story())


def test_a_lingering_close_lets_the_peer_read_though_it_still_sends(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, far, heard):
            link.resume()
            far.sendall(b"u" * 100_000)
            link.write(b"400")
            link.finish_and_discard()
            got, how = await in_thread(read_all, far)
            assert (got, how) == (b"400", "fin")
            far.close()
            await heard.until("closed")

    run(story())


def test_a_unix_peer_that_is_gone_is_told_from_one_that_half_closed(run: Run) -> None:
    async def story() -> None:
        async with linked(socket.AF_UNIX) as (link, far, _heard):
            far.shutdown(socket.SHUT_WR)
            assert not link.vanished()
            far.close()
            assert link.vanished()

    run(story())


def test_closing_is_told_once(run: Run) -> None:
    async def story() -> None:
        async with linked() as (link, _far, heard):
            link.close()
            link.close()
            link.reset()
            link.finish()
            link.write(b"x")
            link.pause()
            link.resume()
            assert heard.events == ["closed"]

    run(story())
