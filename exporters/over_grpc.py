"""Sends one OTLP request over gRPC, once, and says what became of it.

In: a serialized request and a time limit.  Out: an `Answer`.  Needs grpcio (extra `[grpc]`), which is loaded with this
module.  The library's own retries are off.  A request is handed over only to a connection that is up, so a collector
that is away is told apart from one that went away with our spans.  UNAVAILABLE is what a busy server says and what the
library says when the connection broke: then, and only then, the channel is no longer ready.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

import grpc

from fairtrial.exporters.answers import Answer, Later, of_grpc
from fairtrial.exporters.settings import ExportSettings

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DETAILS: Final = "grpc-status-details-bin"
CHANGE_S: Final = 0.6
"""grpcio looks at a channel's state five times a second."""
_OPTIONS: Final = (("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 1), ("grpc.min_reconnect_backoff_ms", 200))


class GrpcSender:
    """One channel to one endpoint.  Raises `OSError` for certificate files that cannot be read."""

    def __init__(self, settings: ExportSettings, *, version: str) -> None:
        scheme, _, rest = settings.endpoint.rpartition("://")
        target = rest.partition("/")[0]
        options = (*_OPTIONS, ("grpc.primary_user_agent", f"OTel-OTLP-Exporter-fairtrial/{version}"))
        self._compression = {
            "none": grpc.Compression.NoCompression,
            "gzip": grpc.Compression.Gzip,
            "deflate": grpc.Compression.Deflate,
        }[settings.compression]
        self._metadata = tuple(settings.headers.items())
        if scheme == "http" or (not scheme and settings.insecure):
            self._channel = grpc.insecure_channel(target, options=options)
        else:
            self._channel = grpc.secure_channel(target, _credentials(settings), options=options)
        self._export = self._channel.unary_unary(METHOD)
        self._shown = settings.shown
        self._lost = threading.Event()
        self._channel.subscribe(self._changed)

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        if state is not grpc.ChannelConnectivity.READY:
            self._lost.set()

    def send(self, body: bytes, timeout_s: float) -> Answer:
        """Call Export once; returns within about `timeout_s`."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            return Later(f"{self._shown} does not answer")
        self._lost.clear()
        try:
            answer = self._export(body, timeout=timeout_s, metadata=self._metadata, compression=self._compression)
        except grpc.RpcError as error:
            return self._failed(error)
        return of_grpc(0, "", None, answer)

    def _failed(self, error: grpc.RpcError) -> Answer:
        code = error.code()
        trailers: Any = error.trailing_metadata() or ()  # pairs; the library's own annotation is no iterable
        details = next((value for key, value in trailers if key == DETAILS), None)
        broken = code is grpc.StatusCode.UNAVAILABLE and self._lost.wait(CHANGE_S)
        return of_grpc(
            code.value[0],
            error.details() or "",
            details if isinstance(details, bytes) else None,
            from_server=not broken,
        )

    def close(self) -> None:
        """Give the channel back."""
        self._channel.unsubscribe(self._changed)
        # The library's thread that watches the channel ends at its next look, or fails when it finds it closed.
        threading.Event().wait(CHANGE_S)
        self._channel.close()


def _credentials(settings: ExportSettings) -> grpc.ChannelCredentials:
    roots = settings.certificate or os.environ.get("SSL_CERT_FILE")
    return grpc.ssl_channel_credentials(
        _content(roots), _content(settings.client_key), _content(settings.client_certificate)
    )


def _content(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()
