"""Each fault does on the wire what its name says; between faults the connection is plain HTTP/1.1.

The client here is a bare socket, so that ends are seen as they are: FIN, reset, half a chunk, half a declared body.
"""

import asyncio
import gzip
import json
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import trustme
import zstandard

from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import Scenario, Step, say, shell
from fairtrial.middleware.demo.standin import StandIn

TOOLS = [{"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]


def body_of(*, step: int = 0, stream: bool = True, tools: bool = True) -> bytes:
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * step
    body = {"model": "m", "messages": [*turns, {"role": "user", "content": "z"}], "stream": stream}
    return json.dumps(body | ({"tools": TOOLS} if tools else {})).encode()


def request(body: bytes = b"", *lines: str, method: str = "POST", path: str = "/v1/messages") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: x", *lines]
    if body and not any(line.startswith("transfer-encoding") for line in lines):
        head.append(f"content-length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


@dataclass
class Wire:
    """What a bare client read until the end: the bytes, and whether the end was a reset."""

    data: bytes
    reset: bool

    @property
    def status(self) -> int:
        return int(self.data.split(b" ", 2)[1])

    @property
    def head(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[0].lower()

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]

    @property
    def unchunked(self) -> tuple[bytes, bool]:
        """The chunks' contents, and whether the last chunk came."""
        rest, out = self.body, b""
        while rest:
            size_line, _, rest = rest.partition(b"\r\n")
            size = int(size_line, 16)
            if size == 0:
                return out, True
            out += rest[:size]
            if len(rest) < size + 2:
                return out, False
            rest = rest[size + 2 :]
        return out, False


async def exchange(server: StandIn, *requests: bytes) -> Wire:
    """Send requests in one write, close our side's sending never, read until the server's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    data = bytearray()
    try:
        writer.write(b"".join(requests))
        while piece := await asyncio.wait_for(reader.read(65536), 10):
            data += piece
        return Wire(bytes(data), reset=False)
    except ConnectionResetError:
        return Wire(bytes(data), reset=True)
    finally:
        writer.close()


@asynccontextmanager
async def serving(*faults: Fault, **more: Any) -> AsyncIterator[StandIn]:
    scenario = Scenario(steps=(shell("echo hello", text="I will look."), say("Done.")), faults=faults, **more)
    server = StandIn(scenario)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


CLOSE = "connection: close"


async def test_a_good_stream_is_chunked_event_by_event_and_ends_whole() -> None:
    async with serving() as server:
        wire = await exchange(server, request(body_of(), CLOSE))
    text, whole = wire.unchunked
    assert (wire.status, whole, wire.reset) == (200, True, False)
    assert text.count(b"event: ") == server.calls[0].events_sent
    assert text.endswith(b'{"type":"message_stop"}\n\n')
    assert b"request-id: req_01" in wire.head
    assert server.calls[0].ended == "complete"
    assert server.calls[0].sent_bytes == len(wire.data)


async def test_requests_that_arrive_together_are_answered_in_order_on_one_connection() -> None:
    async with serving() as server:
        wire = await exchange(
            server, request(body_of(stream=False)), request(body_of(step=1, stream=False)), request(body_of(), CLOSE)
        )
    assert wire.data.count(b"HTTP/1.1 200") == 3
    assert [(call.connection, call.step) for call in server.calls] == [(1, 0), (1, 1), (1, 0)]


async def test_a_chunked_and_coded_request_body_is_read_whole() -> None:
    body = body_of(stream=False)
    coded = zstandard.compress(body)
    chunked = b"5\r\n" + coded[:5] + b"\r\n%x;ext=1\r\n" % (len(coded) - 5) + coded[5:] + b"\r\n0\r\ntrailer: 1\r\n\r\n"
    async with serving() as server:
        await exchange(server, request(chunked, "transfer-encoding: chunked", "content-encoding: zstd", CLOSE))
        await exchange(server, request(gzip.compress(body), "content-encoding: gzip", CLOSE))
    assert [call.body for call in server.calls] == [body, body]
    assert server.calls[0].body_bytes == len(coded)


@pytest.mark.parametrize("junk", [b"\x16\x03\x01", b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n", b"\r\n\r\n"])
async def test_junk_ends_its_connection_and_nothing_else(junk: bytes) -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(junk)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
        wire = await exchange(server, request(body_of(), CLOSE))
    assert wire.unchunked[1]


@pytest.mark.parametrize("ending", ["fin", "rst", "ragged"])
async def test_cut_sends_its_events_and_half_of_the_next(ending: Any) -> None:
    async with serving(Fault(kind="cut", after_events=3, ending=ending)) as server:
        wire = await exchange(server, request(body_of()))
        again = await exchange(server, request(body_of(), CLOSE))
    text, whole = wire.unchunked
    assert not whole
    assert text.count(b"\n\n") == 3
    assert text.rpartition(b"\n\n")[2].startswith(b"event: ")
    assert wire.reset == (ending == "rst")
    assert (server.calls[0].ended, server.calls[0].events_sent, server.calls[0].usage) == (ending, 3, None)
    assert again.unchunked[1]


@pytest.mark.parametrize(
    "ending, seen", [("fin", "clean end"), ("ragged", "end without close_notify"), ("rst", "reset")]
)
async def test_cut_over_tls_shows_which_end_it_was(ending: Any, seen: str) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    server = StandIn((say("Done."),), (Fault(kind="cut", after_events=2, ending=ending, side_calls=True),), context)
    await server.start()
    try:
        met = await asyncio.to_thread(end_over_tls, server.port, trusted)
    finally:
        await server.stop()
    assert met == seen


def end_over_tls(port: int, trusted: ssl.SSLContext) -> str:
    """How a TLS connection ended: the TLS engine is fed by hand, as a blocking SSL socket hides a reset."""
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = trusted.wrap_bio(received, to_send, server_hostname="127.0.0.1")
    asked = False
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain, suppress(ConnectionResetError):
        while True:
            try:
                if not asked:
                    engine.do_handshake()
                    engine.write(request(body_of()))
                    asked = True
                plain.sendall(to_send.read())
                if engine.read(65536) == b"":
                    return "clean end"
            except ssl.SSLWantReadError:
                plain.sendall(to_send.read())
                got = plain.recv(65536)
                if not got:
                    return "end without close_notify"
                received.write(got)
    return "reset"  # it may be met at a send as well as at a read


async def test_cut_of_a_json_answer_keeps_half_of_the_declared_length() -> None:
    async with serving(Fault(kind="cut")) as server:
        wire = await exchange(server, request(body_of(stream=False)))
    declared = int(wire.head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert len(wire.body) == declared // 2


async def test_short_ends_cleanly_without_the_last_events() -> None:
    async with serving(Fault(kind="short", after_events=4)) as server:
        wire = await exchange(server, request(body_of(), CLOSE))
    text, whole = wire.unchunked
    assert whole
    assert b"message_stop" not in text
    assert server.calls[0].ended == "short"


async def test_close_and_rst_end_before_any_byte() -> None:
    async with serving(Fault(kind="close"), Fault(kind="rst")) as server:
        closed = await exchange(server, request(body_of()))
        reset = await exchange(server, request(body_of()))
    assert (closed.data, closed.reset) == (b"", False)
    assert (reset.data, reset.reset) == (b"", True)
    assert [(call.ended, call.status) for call in server.calls] == [("fin", None), ("rst", None)]


async def test_http_error_has_status_headers_and_the_apis_own_body() -> None:
    fault = Fault(kind="http", status=429, headers={"retry-after": "2"})
    async with serving(fault) as server:
        wire = await exchange(server, request(body_of(), CLOSE))
    assert wire.status == 429
    assert b"retry-after: 2" in wire.head
    assert json.loads(wire.body)["error"]["type"] == "rate_limit_error"
    assert json.loads(wire.body)["request_id"] == server.calls[0].request_id


async def test_error_event_comes_inside_a_good_head() -> None:
    async with serving(Fault(kind="error_event", after_events=3)) as server:
        wire = await exchange(server, request(body_of(), CLOSE))
    text, whole = wire.unchunked
    assert (wire.status, whole) == (200, True)
    assert text.split(b"\n\n")[3].startswith(b"event: error\n")


async def test_json_error_has_status_200() -> None:
    async with serving(Fault(kind="json_error")) as server:
        wire = await exchange(server, request(body_of(), CLOSE))
    assert (wire.status, json.loads(wire.body)["type"]) == (200, "error")


async def test_garbage_is_a_page_with_the_wanted_status() -> None:
    async with serving(Fault(kind="garbage"), Fault(kind="garbage", status=502, body="<h1>Bad Gateway</h1>")) as server:
        first = await exchange(server, request(body_of(), CLOSE))
        second = await exchange(server, request(body_of(), CLOSE))
    assert (first.status, second.status) == (200, 502)
    assert b"text/html" in first.head
    assert second.body == b"<h1>Bad Gateway</h1>"


@pytest.mark.parametrize(
    "fault", [Fault(kind="stall_headers", duration_s=0.15), Fault(kind="stall", after_events=2, duration_s=0.15)]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_stall_delays_and_then_gives_the_right_answer(fault: Fault, stream: bool) -> None:
    async with serving(fault) as server:
        await exchange(server, request(body_of(stream=stream), CLOSE))
    call = server.calls[0]
    assert call.ended == "complete"
    assert call.ended_ns is not None
    assert call.first_byte_ns is not None
    assert call.ended_ns - call.started_ns >= 150_000_000
    assert (call.first_byte_ns - call.started_ns >= 150_000_000) == (fault.kind == "stall_headers")


async def test_pings_fill_the_silence() -> None:
    fault = Fault(kind="pings", after_events=2, duration_s=0.1, interval_s=0.02)
    async with serving(fault) as server:
        wire = await exchange(server, request(body_of(), CLOSE))
    text, whole = wire.unchunked
    assert whole
    assert text.count(b"event: ping") >= 3
    assert server.calls[0].usage is not None


async def test_slow_takes_an_interval_between_events() -> None:
    async with serving(Fault(kind="slow", interval_s=0.01), Fault(kind="slow", interval_s=0.01)) as server:
        await exchange(server, request(body_of(), CLOSE))
        await exchange(server, request(body_of(stream=False), CLOSE))
    streamed, whole = server.calls
    assert streamed.ended_ns is not None
    assert whole.ended_ns is not None
    assert streamed.ended_ns - streamed.started_ns >= (streamed.events_sent - 1) * 10_000_000
    assert whole.ended_ns - whole.started_ns >= 100_000_000


async def test_a_client_that_leaves_during_a_stall_is_noticed() -> None:
    async with serving(Fault(kind="stall", after_events=1, duration_s=None)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request(body_of()))
        await reader.readuntil(b"message_start")
        writer.transport.abort()
        async with asyncio.timeout(5):
            while server.calls[0].ended == "open":
                await asyncio.sleep(0.005)
    assert server.calls[0].ended == "client_gone"


async def test_gzip_replies_decode_event_by_event() -> None:
    async with serving(gzip_replies=True) as server:
        streamed = await exchange(server, request(body_of(), CLOSE, "accept-encoding: gzip"))
        whole = await exchange(server, request(body_of(stream=False), CLOSE, "accept-encoding: gzip"))
        plain = await exchange(server, request(body_of(stream=False), CLOSE))
    decoder = zlib.decompressobj(wbits=31)
    assert decoder.decompress(streamed.unchunked[0]).endswith(b'{"type":"message_stop"}\n\n')
    assert decoder.eof
    assert json.loads(gzip.decompress(whole.body))["type"] == "message"
    assert b"content-encoding" not in plain.head


async def test_request_ids_can_be_left_out_and_are_named_as_the_api_names_them() -> None:
    async with serving(request_ids=False) as silent, serving() as server:
        without = await exchange(silent, request(body_of(), CLOSE))
        chat = await exchange(server, request(body_of(tools=False), CLOSE, path="/v1/chat/completions"))
    assert b"request-id" not in without.head
    assert b"\r\nx-request-id: req_01" in chat.head
    assert b"\r\nrequest-id" not in chat.head


async def test_calls_without_tools_get_the_side_text_and_no_fault() -> None:
    async with serving(Fault(kind="http"), side_text="A title") as server:
        wire = await exchange(server, request(body_of(stream=False, tools=False), CLOSE))
    assert json.loads(wire.body)["content"] == [{"type": "text", "text": "A title"}]
    assert (server.calls[0].side, server.calls[0].fault) == (True, None)


async def test_the_small_endpoints_answer() -> None:
    async with serving() as server:
        hello = await exchange(server, request(b"", CLOSE, method="HEAD", path="/"))
        models = await exchange(server, request(b"", CLOSE, method="GET", path="/v1/models"))
        counted = await exchange(server, request(body_of(), CLOSE, path="/v1/messages/count_tokens"))
        traces = await exchange(server, request(b"otlp", CLOSE, path="/v1/traces"))
        unknown = await exchange(server, request(b"", CLOSE, method="GET", path="/nowhere"))
    assert (hello.status, hello.body) == (200, b"")
    assert "stand-in" in [model["id"] for model in json.loads(models.body)["data"]]
    assert json.loads(counted.body)["input_tokens"] > 0
    assert (traces.status, unknown.status) == (200, 404)
    assert [call.body for call in server.calls if call.route == "otlp"] == [b"otlp"]


async def test_a_slow_first_byte_and_gaps_of_a_healthy_step_are_kept() -> None:
    scenario = Scenario(steps=(Step(text="x", head_delay_s=0.05, event_gap_s=0.01),), side_text=None)
    server = StandIn(scenario)
    await server.start()
    await exchange(server, request(body_of(tools=False), CLOSE))
    await server.stop()
    call = server.calls[0]
    assert call.first_byte_ns is not None
    assert call.ended_ns is not None
    assert call.first_byte_ns - call.started_ns >= 50_000_000
    assert call.ended_ns - call.first_byte_ns >= (call.events_sent - 1) * 10_000_000
