"""What is known of connections while they pass."""

import pytest

from fairtrial.middleware.wire.passing import MAX_TRIALS, Conn, peer_host


@pytest.mark.parametrize(
    "peer, host",
    [
        ("127.0.0.1:5", "127.0.0.1"),
        ("172.17.0.3:41000", "172.17.0.3"),
        ("fe80::1:41000", "fe80::1"),
        ("[::1]:41000", "::1"),
        ("unix", "unix"),
        ("", None),
        (None, None),
    ],
)
def test_a_peer_is_its_address_without_the_port(peer: str | None, host: str | None) -> None:
    assert peer_host(peer) == host


def test_a_connection_remembers_whose_requests_it_carried_once_each_and_within_bounds() -> None:
    conn = Conn()
    for trial in ("a", "b", "a"):
        conn.add_trial(trial)
    assert conn.trials == ["a", "b"]
    for n in range(200):
        conn.add_trial(str(n))
    assert len(conn.trials) == MAX_TRIALS
    assert conn.trials[-1] == "199"
