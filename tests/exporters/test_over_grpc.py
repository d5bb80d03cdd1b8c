"""OTLP over gRPC on a real server: answers, RetryInfo, TLS, and connections that break under a call."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

grpc = pytest.importorskip("grpc", reason="grpcio (the extra `grpc`) is not installed")

from fairtrial.exporters.answers import Accepted, Answer, Later, Misdirected, Refused, TooLarge, Unknown  # noqa: E402
from fairtrial.exporters.bounds import Bounds  # noqa: E402
from fairtrial.exporters.encoding import Resources, batches  # noqa: E402
from fairtrial.exporters.over_grpc import GrpcSender  # noqa: E402
from fairtrial.exporters.pipeline import TracePipeline  # noqa: E402
from fairtrial.exporters.settings import ExportSettings, settings_of  # noqa: E402
from fairtrial.exporters.trace_layout import spans_of  # noqa: E402
from fairtrial.middleware.core.selfevents import Journal  # noqa: E402
from fairtrial.middleware.store.exports import Batch, Counts  # noqa: E402
from tests.fakes.collector import Collector  # noqa: E402
from tests.fakes.grpc_collector import grpc_collector  # noqa: E402
from tests.fakes.traced import a_trial, span_count  # noqa: E402

RESOURCES = Resources(version="1", host=None, schema_url="", extra={})


def a_batch(steps: int = 3) -> Batch:
    (batch,) = batches(spans_of(a_trial(steps=steps)), RESOURCES, Bounds(), most=100_000, most_bytes=1 << 30)
    return batch


def settings_for(collector: Collector, **more: str) -> ExportSettings:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    return settings_of(environ | more)


def send(settings: ExportSettings, body: bytes | None = None, *, timeout_s: float = 10.0) -> Answer:
    sender = GrpcSender(settings, version="1")
    try:
        return sender.send(a_batch().body if body is None else body, timeout_s)
    finally:
        sender.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_a_request_arrives_whole_with_the_users_headers(compression: str) -> None:
    batch = a_batch()
    with grpc_collector() as collector:
        settings = settings_for(
            collector, OTEL_EXPORTER_OTLP_COMPRESSION=compression, OTEL_EXPORTER_OTLP_HEADERS="X-Key=a%20b"
        )
        assert send(settings, batch.body) == Accepted()
    (got,) = collector.got
    assert got.body == batch.body
    assert got.headers["x-key"] == "a b"
    assert got.headers["user-agent"].startswith("OTel-OTLP-Exporter-fairtrial/")


@pytest.mark.parametrize(
    "word, answer",
    [
        ("partial:2", Accepted(2, "too old")),
        ("UNAVAILABLE:3", Later("gRPC status 14 no", 3.0)),
        ("RESOURCE_EXHAUSTED:2", Later("gRPC status 8 no", 2.0)),
        ("UNAVAILABLE", Later("gRPC status 14 no")),
        ("RESOURCE_EXHAUSTED", TooLarge("gRPC status 8 no")),
        ("UNAUTHENTICATED", Misdirected("gRPC status 16 no")),
        ("INVALID_ARGUMENT", Refused("gRPC status 3 no", "grpc_3")),
        ("DATA_LOSS", Later("gRPC status 15 no")),
    ],
)
def test_an_answer_is_read(word: str, answer: Answer) -> None:
    with grpc_collector(word) as collector:
        assert send(settings_for(collector)) == answer


@pytest.mark.parametrize("word", ["die", "reset"])
def test_a_connection_that_breaks_under_a_call_leaves_its_fate_unknown(word: str) -> None:
    with grpc_collector(word) as collector:
        assert isinstance(send(settings_for(collector)), Unknown)
        assert len(collector.got) == 1, "the library repeats nothing"


def test_no_answer_in_time_is_unknown_and_nobody_there_is_later() -> None:
    with grpc_collector("hang") as collector:
        assert isinstance(send(settings_for(collector), timeout_s=0.5), Unknown)
        settings = settings_for(collector)
    begun = time.monotonic()
    assert isinstance(send(settings, timeout_s=0.5), Later)
    assert time.monotonic() - begun < 10


@pytest.mark.slow
def test_a_receiver_of_four_mebibytes_refuses_a_larger_request_as_too_large() -> None:
    body = a_batch(steps=5_000).body
    assert len(body) > 4 << 20
    with grpc_collector() as collector:
        assert isinstance(send(settings_for(collector), body), TooLarge)


def test_tls_trusts_the_named_certificate_and_shows_its_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("fairtrial@example.org")
    credentials = grpc.ssl_server_credentials(
        [(server.private_key_pem.bytes(), b"".join(pem.bytes() for pem in server.cert_chain_pems))],
        authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(str(paths["ca"]))
    client.cert_chain_pems[0].write_to_path(str(paths["cert"]))
    client.private_key_pem.write_to_path(str(paths["key"]))
    with grpc_collector(credentials=credentials) as collector:
        settings = replace(
            settings_for(collector),
            endpoint=f"https://127.0.0.1:{collector.port}",
            certificate=str(paths["ca"]),
            client_certificate=str(paths["cert"]),
            client_key=str(paths["key"]),
        )
        assert send(settings) == Accepted()
        without = replace(settings, client_certificate=None, client_key=None)
        assert isinstance(send(without, timeout_s=1.5), Later | Unknown)
        assert len(collector.got) == 1


@pytest.mark.parametrize("endpoint, insecure", [("127.0.0.1:{}", True), ("http://127.0.0.1:{}/", False)])
def test_an_endpoint_without_a_scheme_is_plain_only_when_that_is_said(endpoint: str, insecure: bool) -> None:
    with grpc_collector() as collector:
        settings = ExportSettings(endpoint=endpoint.format(collector.port), protocol="grpc", insecure=insecure)
        assert send(settings) == Accepted()
        assert isinstance(
            send(replace(settings, endpoint=f"127.0.0.1:{collector.port}", insecure=False), timeout_s=1.0), Later
        )


@pytest.mark.slow
def test_the_pipeline_over_grpc_honours_retry_info_and_sends_each_span_once(tmp_path: Path) -> None:
    with grpc_collector("UNAVAILABLE:2", "RESOURCE_EXHAUSTED", "die") as collector:
        settings = replace(settings_for(collector), delay_s=0.1)
        traces = TracePipeline(
            tmp_path / "s.db", settings, Journal(io.StringIO()), version="0", host=None, first_wait_s=0.2
        )
        traces.start()
        traces.put(a_trial(steps=2))
        deadline = time.monotonic() + 40
        while not collector.got:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        first = time.monotonic()
        while len(collector.got) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert time.monotonic() - first >= 1.5
        while traces.counts().pending or not traces.counts().exported:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        counts = traces.close(5)
    half = span_count(2) // 2
    assert counts == Counts(produced=span_count(2), exported=span_count(2) - half, dropped={"unconfirmed": half})
    final = [span for got in collector.got if got.said in ("ok", "die") for span in got.ids]
    assert len(final) == len(set(final)) == span_count(2)
