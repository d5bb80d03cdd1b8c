"""One POST, once, over real sockets: what went out is known for sure, or is known not to be known."""

from __future__ import annotations

import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from fairtrial.exporters.answers import Accepted, Answer, Later, Misdirected, Refused, TooLarge, Unknown
from fairtrial.exporters.bounds import Bounds
from fairtrial.exporters.encoding import Resources, batches
from fairtrial.exporters.over_http import HttpSender
from fairtrial.exporters.settings import Compression, ExportSettings, Protocol, settings_of
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.store.exports import Batch
from tests.fakes.collector import Collector, http_collector
from tests.fakes.traced import a_trial

RESOURCES = Resources(version="1", host=None, schema_url="", extra={})


def a_batch(steps: int = 3) -> Batch:
    (batch,) = batches(spans_of(a_trial(steps=steps)), RESOURCES, Bounds(), most=10_000)
    return batch


def settings_for(collector: Collector, **more: str) -> ExportSettings:
    return settings_of({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **more})


def send(settings: ExportSettings, *, timeout_s: float = 10.0, body: bytes | None = None) -> Answer:
    sender = HttpSender(settings, version="1")
    try:
        return sender.send(a_batch().body if body is None else body, timeout_s)
    finally:
        sender.close()


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_every_encoding_arrives_whole(protocol: Protocol, compression: Compression) -> None:
    batch = a_batch()
    with http_collector() as collector:
        settings = replace(settings_for(collector), protocol=protocol, compression=compression)
        assert send(settings, body=batch.body) == Accepted()
    (got,) = collector.got
    assert (got.path, got.body) == ("/v1/traces", batch.body)
    assert got.headers["content-type"] == ("application/json" if protocol == "http/json" else "application/x-protobuf")
    assert got.headers.get("content-encoding", "none") == compression
    assert got.headers["user-agent"].startswith("OTel-OTLP-Exporter-fairtrial/")


def test_the_users_headers_go_along() -> None:
    with http_collector() as collector:
        send(settings_for(collector, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20x,x-scope-orgid=a"))
    headers = collector.got[0].headers
    assert (headers["authorization"], headers["x-scope-orgid"]) == ("Bearer x", "a")


@pytest.mark.parametrize(
    "word, answer",
    [
        ("partial:2", Accepted(2, "too old")),
        ("ok:beware", Accepted(0, "beware")),
        ("429:7", Later("HTTP 429 no", 7.0)),
        ("503", Later("HTTP 503 no", None)),
        ("413", TooLarge("HTTP 413 no")),
        ("401", Misdirected("HTTP 401 no")),
        ("307", Misdirected("HTTP 307 no")),
        ("400", Refused("HTTP 400 no", "http_4xx")),
        ("500", Refused("HTTP 500 no", "http_5xx")),
    ],
)
def test_an_answer_is_read(word: str, answer: Answer) -> None:
    with http_collector(word) as collector:
        assert send(settings_for(collector)) == answer


@pytest.mark.parametrize("word", ["die", "reset"])
def test_no_answer_to_what_went_out_whole_is_unknown_and_nothing_is_repeated(word: str) -> None:
    with http_collector(word) as collector:
        assert isinstance(send(settings_for(collector)), Unknown)
    assert len(collector.got) == 1


@pytest.mark.parametrize("word", ["hang", "drip"])
def test_an_answer_that_does_not_come_in_time_is_unknown(word: str) -> None:
    with http_collector(word) as collector:
        begun = time.monotonic()
        answer = send(settings_for(collector), timeout_s=0.5)
        assert time.monotonic() - begun < 5
    assert isinstance(answer, Unknown)
    assert "no answer in time" in answer.why


def test_a_slow_drip_is_cut_on_a_connection_that_was_used_before() -> None:
    with http_collector("ok", "drip") as collector:
        sender = HttpSender(settings_for(collector), version="1")
        assert sender.send(a_batch().body, 10) == Accepted()
        assert isinstance(sender.send(a_batch().body, 0.5), Unknown)
        sender.close()


def test_an_answer_without_end_is_a_yes_and_is_not_read_to_the_end() -> None:
    with http_collector("flood") as collector:
        begun = time.monotonic()
        assert isinstance(send(settings_for(collector), timeout_s=30.0), Accepted)
        assert time.monotonic() - begun < 20


def test_what_did_not_go_out_whole_is_surely_not_there() -> None:
    """The receiver resets in the middle of a body that is larger than all socket buffers."""
    with http_collector("half") as collector:
        assert isinstance(send(settings_for(collector), body=bytes(32 << 20)), Later)
    assert collector.got == []


def test_nobody_there_is_later() -> None:
    with http_collector() as collector:
        settings = settings_for(collector)
    assert isinstance(send(settings), Later)
    assert isinstance(send(replace(settings, endpoint="http://does-not-exist.invalid:1/v1/traces")), Later)


@pytest.mark.parametrize("endpoint", ["ftp://x/v1/traces", "no url at all", "http://"])
def test_an_endpoint_that_is_none_is_misdirected(endpoint: str) -> None:
    assert isinstance(send(ExportSettings(endpoint=endpoint)), Misdirected)


def test_an_idle_connection_is_not_used_again() -> None:
    """The other side may be closing it at that moment, and then nobody would know what became of the request."""
    with http_collector() as collector:
        sender = HttpSender(settings_for(collector), version="1")
        assert sender.send(b"", 10) == Accepted()
        first = sender.connection
        assert sender.send(a_batch().body, 10) == Accepted()
        assert sender.connection is first, "while it is fresh it is"
        time.sleep(1.1)
        assert sender.send(a_batch().body, 10) == Accepted()
        assert sender.connection is not first
        sender.close()


def test_a_proxy_of_the_environment_is_used_and_its_exceptions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_collector() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert send(ExportSettings(endpoint="http://collector.example:4318/v1/traces")) == Accepted()
        assert proxy.got[0].path == "http://collector.example:4318/v1/traces"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with http_collector() as collector:
            assert send(settings_for(collector)) == Accepted()
            assert len(collector.got) == 1


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_tls_trusts_the_named_certificate_and_shows_its_own(authority: trustme.CA, tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("fairtrial@example.org")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(str(paths["ca"]))
    client.cert_chain_pems[0].write_to_path(str(paths["cert"]))
    client.private_key_pem.write_to_path(str(paths["key"]))
    with http_collector(tls=context) as collector:
        settings = replace(
            settings_for(collector),
            endpoint=f"https://localhost:{collector.port}/v1/traces",
            certificate=str(paths["ca"]),
        )
        assert isinstance(send(settings), Later | Unknown), "no client certificate"
        known = replace(settings, client_certificate=str(paths["cert"]), client_key=str(paths["key"]))
        assert send(known) == Accepted()
        assert isinstance(send(replace(known, certificate=None)), Later), "an unknown authority"
        assert len(collector.got) == 1


def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    settings = ExportSettings(endpoint="https://h/v1/traces", certificate=str(tmp_path / "none.pem"))
    with pytest.raises(OSError, match="No such file"):
        HttpSender(settings, version="1")
