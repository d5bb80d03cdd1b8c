"""Names by which our pages may be asked for."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.hosts import is_our_host


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3:80", "[::1]:80", "[fe80::1]", "localhost", "LOCALHOST:1", "sidecar.internal:9"]
)
def test_addresses_localhost_and_known_names_are_ours(host: str) -> None:
    assert is_our_host(host, {"sidecar.internal"})


@pytest.mark.parametrize(
    "host", ["", ":80", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[evil]", "sidecar"]
)
def test_other_names_are_not(host: str) -> None:
    assert not is_our_host(host, {"sidecar.internal"})
