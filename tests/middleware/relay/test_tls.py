"""Our TLS tells clean from ragged, can half-close, and gives out what came with the handshake."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
import uvloop

from fairtrial.middleware.relay.ends import HangupWatch
from fairtrial.middleware.relay.tls import TlsLink, make_context
from tests.middleware.relay.rig import AUTHORITY, UpstreamSide

Run = Callable[[Coroutine[object, None, None]], None]


@pytest.fixture
def run(loop_kind: str) -> Iterator[Run]:
    """Runs one coroutine on the loop under test."""
    loop = uvloop.new_event_loop() if loop_kind == "uvloop" else asyncio.new_event_loop()

    def run_it(story: Coroutine[object, None, None]) -> None:
        loop.run_until_complete(story)

    yield run_it
    loop.close()


class Spoken:
    """A TLS server thread, and a link to it with what it heard."""

    def __init__(self, serve: Callable[[ssl.SSLSocket], None], ca_file: str, version: ssl.TLSVersion) -> None:
        self.side = UpstreamSide(tls=True)
        assert self.side._context is not None
        self.side._context.maximum_version = version
        self.data = bytearray()
        self.ends: list[str] = []
        self.ca_file = ca_file
        self.faults: list[BaseException] = []

        def target() -> None:
            try:
                sock = self.side.accept()
                assert isinstance(sock, ssl.SSLSocket)
                serve(sock)
            except BaseException as error:
                self.faults.append(error)

        self.thread = threading.Thread(target=target)

    async def link(self) -> tuple[TlsLink, HangupWatch]:
        loop = asyncio.get_running_loop()
        self.thread.start()
        sock = socket.create_connection(("127.0.0.1", self.side.port))
        sock.setblocking(False)
        watch = HangupWatch(loop)
        link = TlsLink(loop, sock, watch, make_context((self.ca_file,)), "localhost")
        await link.handshake()
        link.on_data = self._data
        link.on_eof = lambda ragged: self.ends.append("ragged" if ragged else "clean")
        link.on_error = lambda error: self.ends.append(f"error {error.strerror}")
        link.resume()
        link.start()
        return link, watch

    def _data(self, data: bytes, _t_ns: int) -> None:
        self.data += data

    async def until(self, claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not claim():
                await asyncio.sleep(0.001)

    def close(self) -> None:
        self.thread.join(5)
        self.side.close()
        assert self.faults == []


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ending", ["clean", "ragged"])
def test_the_end_is_told_as_it_was(run: Run, ca_file: str, version: ssl.TLSVersion, ending: str) -> None:
    def serve(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"first words")
        if ending == "clean":
            sock.setblocking(False)
            with pytest.raises(ssl.SSLWantReadError):
                sock.unwrap()
        sock.close()

    async def story() -> None:
        spoken = Spoken(serve, ca_file, version)
        link, watch = await spoken.link()
        await spoken.until(lambda: bool(spoken.ends))
        assert bytes(spoken.data) == b"first words"
        assert spoken.ends == [ending]
        link.close()
        watch.close()
        spoken.close()

    run(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_half_close_lets_the_other_side_go_on(run: Run, ca_file: str, version: ssl.TLSVersion) -> None:
    def serve(sock: ssl.SSLSocket) -> None:
        got = b""
        while data := sock.recv(65536):
            got += data
        assert got == b"question"
        if version is ssl.TLSVersion.TLSv1_3:
            sock.sendall(b"answer" * 10_000)
        sock.close()

    async def story() -> None:
        spoken = Spoken(serve, ca_file, version)
        link, watch = await spoken.link()
        link.write(b"question")
        link.finish()
        await spoken.until(lambda: bool(spoken.ends))
        if version is ssl.TLSVersion.TLSv1_3:
            assert bytes(spoken.data) == b"answer" * 10_000
        link.close()
        watch.close()
        spoken.close()

    run(story())


def test_http_1_1_is_offered_and_nothing_else(run: Run, ca_file: str) -> None:
    """T59: no stream of HTTP/2 can be reset."""
    chosen: list[str | None] = []

    def serve(sock: ssl.SSLSocket) -> None:
        chosen.append(sock.selected_alpn_protocol())
        sock.close()

    async def story() -> None:
        spoken = Spoken(serve, ca_file, ssl.TLSVersion.TLSv1_3)
        link, watch = await spoken.link()
        await spoken.until(lambda: bool(spoken.ends))
        link.close()
        watch.close()
        spoken.close()

    run(story())
    assert chosen == ["http/1.1"]


def test_a_broken_record_is_an_error_not_an_end(run: Run, ca_file: str) -> None:
    def serve(sock: ssl.SSLSocket) -> None:
        raw = socket.socket(fileno=sock.detach())
        raw.sendall(b"\x17\x03\x03\x00\x20" + b"not encrypted at all, thirty-two")
        raw.close()

    async def story() -> None:
        spoken = Spoken(serve, ca_file, ssl.TLSVersion.TLSv1_3)
        link, watch = await spoken.link()
        await spoken.until(lambda: bool(spoken.ends))
        assert spoken.ends[0].startswith("error TLS:")
        link.close()
        watch.close()
        spoken.close()

    run(story())


def test_extra_cas_are_added_and_unreadable_ones_left_out(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(pem))
    before = len(make_context().get_ca_certs())
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    context = make_context((str(tmp_path / "missing"), str(junk), str(pem)))
    assert len(context.get_ca_certs()) == before + 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("cut_bytes", [1, 5, 16_000, 16_406, 1 << 20])
def test_records_and_the_end_behind_them_are_given_out_whatever_the_cuts_of_the_reads(
    run: Run, ca_file: str, version: ssl.TLSVersion, cut_bytes: int
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = version
        AUTHORITY.issue_cert("localhost").configure_cert(context)
        server = context.wrap_bio(heard, said, server_side=True)
        watch = HangupWatch(loop)
        link = TlsLink(loop, near, watch, make_context((ca_file,)), "localhost")
        shaking = loop.create_task(link.handshake())
        done = False
        while not (done and shaking.done()):
            with contextlib.suppress(ssl.SSLWantReadError):
                server.do_handshake()
                done = True
            if said.pending and not shaking.done():  # session tickets come with the data
                await loop.sock_sendall(far, said.read())
            if not done:
                heard.write(await loop.sock_recv(far, 1 << 16))
            await asyncio.sleep(0)
        await shaking
        data, ends = bytearray(), []
        link.on_data = lambda piece, _t_ns: data.extend(piece)
        link.on_eof = lambda ragged: ends.append("ragged" if ragged else "clean")
        link.start()
        sent = bytes(range(256)) * 200
        server.write(sent[:40_000])
        server.write(sent[40_000:])
        with pytest.raises(ssl.SSLWantReadError):
            server.unwrap()
        wire = said.read()
        for at in range(0, len(wire), cut_bytes):
            assert not ends
            link._ingest(wire[at : at + cut_bytes], 1)
        assert bytes(data) == sent
        assert ends == ["clean"]
        link.reset()
        watch.close()
        far.close()

    run(story())
