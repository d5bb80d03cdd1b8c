"""Networks as they are: addresses that stay silent, IPv6 alone, slow and silent name servers, hidden stores.

Each dial runs in a network and mount namespace of its own, by the system's resolver and kernel.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.e2e.clients import REPO_ROOT

SILENT_6 = "2001:db8:9::2"
"""Sorted before any IPv4 address; nobody answers."""
SILENT_4 = "10.9.0.2"
LAST_6 = "fd00:9::1"
"""Answers."""


@functools.cache
def cannot() -> str:
    """Why there can be no network of our own; "" when there can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    made = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if made.returncode == 0 else f"no network namespace with a pair of devices: {made.stderr.strip()}"


def inside(loop_kind: str, environ: dict[str, str] | None = None, **plan: object) -> list[dict[str, object]]:
    if reason := cannot():
        pytest.skip(reason)
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.middleware.relay.inside"]
    done = subprocess.run(
        [*command, json.dumps({"loop": loop_kind, **plan})],
        cwd=REPO_ROOT,
        env=dict(os.environ) | (environ or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def seconds(report: dict[str, object], name: str) -> float:
    value = report[name]
    assert isinstance(value, float), (name, report)
    return value


@pytest.mark.parametrize(
    "addresses, answering",
    [([SILENT_6, "127.0.0.1"], "127.0.0.1"), ([SILENT_4, LAST_6], LAST_6)],
    ids=["v6 silent", "v4 silent"],
)
def test_where_the_first_address_is_silent_the_second_answers(
    addresses: list[str], answering: str, loop_kind: str
) -> None:
    four = addresses[0] == SILENT_4
    if four and not os.path.exists("/etc/gai.conf"):
        pytest.skip("no /etc/gai.conf to put another in the place of")
    (report,) = inside(
        loop_kind, url="http://two.test:{port}", hosts={"two.test": addresses}, listen=[answering], prefer_4=four
    )
    assert (report["ok"], report["tried"]) == (True, 2), report
    assert str(report["remote"]).startswith(answering)
    assert 0.2 < seconds(report, "connect_s") < 5


def test_a_refused_address_gives_way_at_once(loop_kind: str) -> None:
    (report,) = inside(loop_kind, url="http://two.test:{port}", hosts={"two.test": ["2001:db8:9::1", "127.0.0.1"]})
    assert (report["ok"], report["tried"]) == (True, 2), report
    assert seconds(report, "connect_s") < 0.2


def test_a_family_without_a_way_out_costs_one_step(loop_kind: str) -> None:
    dead = [f"2001:db8:9::{n}" for n in range(2, 8)]
    (report,) = inside(loop_kind, url="http://many.test:{port}", hosts={"many.test": [*dead, "127.0.0.1"]})
    assert (report["ok"], report["tried"]) == (True, 2), report


@pytest.mark.parametrize("host", ["[::1]", "six.test"])
def test_an_upstream_that_has_ipv6_alone(host: str, loop_kind: str) -> None:
    (report,) = inside(loop_kind, url=f"http://{host}:{{port}}", hosts={"six.test": ["::1"]}, listen=["::1"])
    assert (report["ok"], report["tried"]) == (True, 1), report
    assert str(report["remote"]).startswith("::1:")


def test_a_connection_that_is_never_answered_ends_at_the_budget(loop_kind: str) -> None:
    (report,) = inside(loop_kind, url=f"http://{SILENT_4}:9", settings={"connect_timeout_s": 0.5})
    assert (report["ok"], report["stage"], report["errno"]) == (False, "connect", 110), report
    assert 0.5 <= seconds(report, "spent_s") < 10


def test_all_addresses_together_have_one_budget(loop_kind: str) -> None:
    addresses = [SILENT_6, "2001:db8:9::3", SILENT_4, "10.9.0.3"]
    (report,) = inside(
        loop_kind, url="http://dead.test:9", hosts={"dead.test": addresses}, settings={"connect_timeout_s": 1.5}
    )
    assert (report["ok"], report["stage"], report["errno"], report["tried"]) == (False, "connect", 110, 4), report
    assert 1.5 <= seconds(report, "spent_s") < 10


def test_a_slow_name_is_dns_time_and_not_connect_time(loop_kind: str) -> None:
    (report,) = inside(loop_kind, url="http://slow.test:{port}", delay_s={"slow.test": 0.4})
    assert report["ok"], report
    assert seconds(report, "dns_s") >= 0.4
    assert seconds(report, "connect_s") < 0.4


def test_an_unknown_name_is_a_dns_failure(loop_kind: str) -> None:
    (report,) = inside(loop_kind, url="http://unknown.test:1")
    assert (report["ok"], report["stage"], report["errno"]) == (False, "dns", None), report
    assert "gaierror" in str(report["error"])


def test_a_name_server_that_stays_silent_ends_at_its_budget_and_holds_no_other_name_up(loop_kind: str) -> None:
    """Threads that look names up are few; each would wait ten seconds."""
    *silent, beside = inside(
        loop_kind,
        url="http://silent.test:{port}",
        also="http://known.test:{port}",
        delay_s={"silent.test": None},
        hosts={"known.test": ["127.0.0.1"]},
        settings={"dns_timeout_s": 1.0},
        dials=40,
    )
    assert len(silent) == 40
    for report in silent:
        assert (report["ok"], report["stage"], report["errno"]) == (False, "dns", 110), report
        assert 0.9 < seconds(report, "spent_s") < 10
    assert beside["ok"], beside
    assert seconds(beside, "dns_s") < 0.9


# --- certificates -----------------------------------------------------------------------------------------------------


def company(folder: Path, name: str) -> tuple[str, dict[str, str]]:
    """A CA's file, and a server's certificate of it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    ca, chain, key = (str(folder / f"{name}-{kind}.pem") for kind in ("ca", "chain", "key"))
    authority.cert_pem.write_to_path(ca)
    issued.private_key_pem.write_to_path(key)
    Path(chain).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return ca, {"chain": chain, "key": key}


@pytest.mark.parametrize("variables", [(), ("SSL_CERT_FILE",), ("SSL_CERT_DIR",), ("SSL_CERT_FILE", "SSL_CERT_DIR")])
def test_the_systems_store_is_trusted_beside_the_users(
    variables: tuple[str, ...], loop_kind: str, tmp_path: Path
) -> None:
    """OpenSSL takes these variables *instead* of the system's store."""
    import ssl

    system, server = company(tmp_path, "system")
    other, _ = company(tmp_path, "other")
    store = tmp_path / "store"
    store.mkdir()
    hashed = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", system], capture_output=True, text=True, check=False
    )
    paths = ssl.get_default_verify_paths()
    if hashed.returncode != 0 or not os.path.isdir(paths.openssl_capath):
        pytest.skip("no openssl command, or no folder of the system's certificates")
    (store / f"{hashed.stdout.strip()}.0").write_text(Path(system).read_text())
    (tmp_path / "dir").mkdir()
    values = {"SSL_CERT_FILE": other, "SSL_CERT_DIR": str(tmp_path / "dir")}
    (report,) = inside(
        loop_kind,
        {name: values[name] for name in variables},
        url="https://localhost:{port}",
        tls=server,
        store={"capath": str(store)},
        settings={"ca_files": [values[name] for name in variables]},
    )
    assert report["ok"], report
