"""TLS towards one upstream by files of its own, as a Docker engine at tcp:// wants it."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from fairtrial.middleware.relay.settings import ClientTls, RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import UpstreamSide, read_all, read_exactly, read_head, request, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def authority() -> trustme.CA:
    """The engine's own CA, which nothing else knows."""
    return trustme.CA()


@pytest.fixture
def engine(authority: trustme.CA) -> Iterator[UpstreamSide]:
    """An upstream that lets only clients in whose certificate its CA has signed."""
    with contextlib.closing(UpstreamSide(tls=True)) as side:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # later ones tell the client of a refusal after its handshake
        side._context = context
        yield side


def files(authority: trustme.CA, folder: Path, *, verify: bool = True) -> ClientTls:
    ca, cert, key = (str(folder / f"{name}.pem") for name in ("ca", "cert", "key"))
    authority.cert_pem.write_to_path(ca)
    issued = authority.issue_cert("client@fair.test")
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    return ClientTls(ca_file=ca, cert_file=cert, key_file=key, verify=verify)


def test_an_engine_that_wants_a_client_certificate_gets_it(
    engine: UpstreamSide, authority: trustme.CA, loop_kind: str, tmp_path: Path
) -> None:
    with running(loop_kind) as rig:
        door = rig.open_door(Upstream.parse("engine", engine.url, files(authority, tmp_path)))
        client = rig.client(door=door)
        client.sendall(request("GET", "/_ping"))
        up = engine.accept()
        assert read_head(up).startswith(b"GET /_ping ")
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
        client.close()
        rig.no_pair_open()


def dial_once(engine: UpstreamSide, tls: ClientTls, loop_kind: str, settings: RelaySettings) -> dict[str, object]:
    """One call to an engine that need not be reached: how the dial went."""
    with running(loop_kind, settings=settings) as rig:
        client = rig.client(door=rig.open_door(Upstream.parse("engine", engine.url, tls)))
        serving = threading.Thread(target=answer, args=(engine,), daemon=True)
        serving.start()
        client.sendall(request("GET", "/_ping"))
        read_all(client)
        client.close()
        rig.no_pair_open()
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        engine.listener.close()
        serving.join(10)
    return dial


def answer(engine: UpstreamSide) -> None:
    with contextlib.suppress(OSError), contextlib.closing(engine.accept()) as up:
        read_head(up)
        up.sendall(OK)


def test_only_the_engines_own_ca_is_trusted_where_it_names_one(
    engine: UpstreamSide, authority: trustme.CA, loop_kind: str, tmp_path: Path, ca_file: str
) -> None:
    mine = files(authority, tmp_path)
    engine_ca = tmp_path / "engine.pem"
    authority.cert_pem.write_to_path(str(engine_ca))
    other = ClientTls(ca_file=ca_file, cert_file=mine.cert_file, key_file=mine.key_file)
    dial = dial_once(engine, other, loop_kind, RelaySettings(ca_files=(str(engine_ca),)))
    assert (dial["ok"], dial["stage"]) == (False, "tls")
    assert "verify failed" in str(dial["error"])


def test_verification_can_be_switched_off_for_an_engine(
    engine: UpstreamSide, authority: trustme.CA, loop_kind: str, tmp_path: Path
) -> None:
    mine = files(authority, tmp_path)
    bare = ClientTls(cert_file=mine.cert_file, key_file=mine.key_file, verify=False)
    assert dial_once(engine, bare, loop_kind, RelaySettings())["ok"] is True


def test_a_missing_certificate_file_is_a_failed_dial_with_its_reason(
    engine: UpstreamSide, loop_kind: str, tmp_path: Path
) -> None:
    lost = ClientTls(cert_file=str(tmp_path / "lost.pem"), key_file=str(tmp_path / "lost.key"))
    dial = dial_once(engine, lost, loop_kind, RelaySettings())
    assert (dial["ok"], dial["stage"], dial["errno"]) == (False, "tls", 2)
