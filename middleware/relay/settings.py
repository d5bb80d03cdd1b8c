"""What the relay is told at its start: upstreams, proxies towards them, and how strict it is.

In: strings from `supervise.py` (nothing here reads the environment).  Out: frozen records.

**Source:** RFC 3986 section 3 (URL), RFC 9112 section 3.2 (target forms); NO_PROXY as curl, Go and
requests read it in common.
"""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a door leads.  `base_path` has no slash at its end; "" is the root."""

    name: str
    scheme: str
    host: str
    port: int
    base_path: str = ""

    @classmethod
    def parse(cls, name: str, url: str) -> Upstream:
        """Read a base URL such as `https://host:8443/api/anthropic`.

        Raises `ValueError` with a sentence when it is not an http(s) URL with a host.
        """
        parts = urlsplit(url.strip())
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"upstream {name}: {url!r} is not an http:// or https:// URL with a host")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"upstream {name}: {url!r} must not carry a user, a query or a fragment")
        port = parts.port if parts.port is not None else DEFAULT_PORTS[parts.scheme]
        return cls(name, parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of Host: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL again."""
        return f"{self.scheme}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """One HTTP proxy.  `authorization` is the value of Proxy-Authorization, a secret."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """host:port, for records: never the credentials."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY as the child's environment has them ("" is unset).

    An https upstream is reached by CONNECT; an http one by absolute-form requests, as curl and the SDKs do
    (most proxies refuse CONNECT to port 80).
    """

    https_proxy: str = ""
    http_proxy: str = ""
    no_proxy: str = ""

    def choose(self, upstream: Upstream) -> Proxy | None:
        """The proxy for an upstream, or None.  Raises `ValueError` for a proxy that we cannot speak to."""
        value = self.https_proxy if upstream.scheme == "https" else self.http_proxy
        if not value or self.bypasses(upstream.host, upstream.port):
            return None
        parts = urlsplit(value if "://" in value else f"http://{value}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"only http:// proxies are spoken to, not {parts.scheme}://")
        secret = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            secret = "Basic " + base64.b64encode(pair.encode()).decode()
        return Proxy(parts.hostname, parts.port or 80, secret)

    def bypasses(self, host: str, port: int) -> bool:
        """Whether NO_PROXY names this host: `*`, a name and what is under it, an address, a CIDR, each with :port."""
        host = host.lower().rstrip(".")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        return any(_names(entry.strip().lower(), host, port, address) for entry in self.no_proxy.split(","))


def _names(entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    if entry.startswith("["):
        inner, _, rest = entry[1:].partition("]")
        entry, wanted = inner, rest.lstrip(":")
    elif entry.count(":") == 1:
        entry, wanted = entry.split(":")
    else:
        wanted = ""
    if wanted and wanted != str(port):
        return False
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    entry = entry.removeprefix("*").lstrip(".").rstrip(".")
    return bool(entry) and (host == entry or host.endswith("." + entry))


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The relay's own knobs; durations in seconds, sizes in bytes."""

    refuse_bad_heads: bool = False
    """True (`serve`): a request head that we do not vouch for gets a 400.  False (`run`): blind tunnel."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    ca_files: tuple[str, ...] = ()
    """Files and folders of CA certificates in addition to the system's store."""
    connect_timeout_s: float = 10.0
    """For each of TCP connect (all addresses), the proxy's answer, and the TLS handshake."""
    head_timeout_s: float = 60.0
    """How long a begun request head may dawdle; only where bad heads are refused."""
    half_open_s: float = 60.0
    """How long a client may keep a connection that the upstream ended and that carries nothing."""
    held_bytes: int = 256 * 1024
    """How much is held while the upstream is dialled or an upgrade is undecided."""
    pipeline_depth: int = 64
    """Requests without a final response on one connection, before reading is paused."""
    lag_threshold_s: float = 0.020


@dataclass(slots=True)
class Counters:
    """Since the start, but `open_pairs`."""

    connections: int = 0
    open_pairs: int = 0
    requests: int = 0
    blind: int = 0
    refused: int = 0
    dial_failed: int = 0
    accept_failed: int = 0
    swallowed: int = 0
    """Exceptions in observing code, and faults of ours that ended a pair."""
    last_swallowed: str = ""
