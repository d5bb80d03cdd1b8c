"""A stand-in OTLP/gRPC collector on loopback, told what to answer by the words of `collector.py`.

Here a status is a gRPC code's name (`UNAVAILABLE`, `UNAVAILABLE:2` with RetryInfo of 2 s).  `reset` and `die` break the
connection below the call, by way of a relay of bytes that stands before the server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage  # type: ignore[import-untyped]  # ships no types
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]  # same
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]  # same
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # same

from fairtrial.exporters.over_grpc import DETAILS, METHOD
from tests.fakes.collector import Collector, Got, ids_in, response


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    def __init__(self, collector: Collector, relay: _Relay) -> None:
        self._collector = collector
        self._relay = relay

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(self._export)

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        ids = ids_in(body)
        word = self._collector.word(ids)
        if ids:
            headers = {key: str(value) for key, value in context.invocation_metadata()}
            self._collector.note(Got(ids, word, METHOD, headers, body))
        kind, _, more = word.partition(":")
        if kind in ("ok", "partial"):
            return response(word)
        if kind in ("reset", "die"):
            self._relay.cut(reset=kind == "reset")
            kind = "hang"
        if kind == "hang":
            self._collector.stop.wait(30)
            return b""
        code = grpc.StatusCode[kind]
        if more:
            info = AnyMessage()
            info.Pack(RetryInfo(retry_delay=Duration(seconds=int(more))))
            details = Status(code=code.value[0], message="no", details=[info]).SerializeToString()
            context.set_trailing_metadata(((DETAILS, details),))
        context.abort(code, "no")
        raise AssertionError("abort raises")


class _Relay:
    """Passes bytes, until it is told to cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()

    def cut(self, *, reset: bool = False) -> None:
        """End every connection now."""
        while self._open:
            connection = self._open.pop()
            with contextlib.suppress(OSError):
                if reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.shutdown(socket.SHUT_RD)
                else:
                    connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def grpc_collector(
    *script: str,
    otherwise: str = "ok",
    probe: str = "ok",
    credentials: grpc.ServerCredentials | None = None,
    most_bytes: int = 4 << 20,
) -> Iterator[Collector]:
    """A collector that listens; receivers take 4 MiB, as grpc-go's do."""
    collector = Collector(list(script), otherwise, probe)
    server = grpc.server(futures.ThreadPoolExecutor(8), options=(("grpc.max_receive_message_length", most_bytes),))
    if credentials is None:
        target = server.add_insecure_port("127.0.0.1:0")
    else:
        target = server.add_secure_port("127.0.0.1:0", credentials)
    relay = _Relay(target)
    server.add_generic_rpc_handlers((_Service(collector, relay),))
    server.start()
    collector.port = relay.port
    try:
        yield collector
    finally:
        collector.stop.set()
        relay.close()
        server.stop(0.5).wait()
