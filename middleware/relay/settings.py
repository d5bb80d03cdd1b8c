"""What the relay is told at its start: upstreams, proxies towards them, and how strict it is.

In: strings from `supervise.py` (nothing here reads the environment).  Out: frozen records.

**Source:** RFC 3986 section 3 (URL), RFC 9112 section 3.2 (target forms); NO_PROXY as curl, Go and
requests read it in common.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MAX_SOCKET_PATH_BYTES: Final = 107
"""unix(7): the path of a socket, without its NUL."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS towards one upstream by files of its own (a Docker engine's `ca.pem`, `cert.pem`, `key.pem`).

    With `ca_file` that one alone is trusted, as the Docker command does; without it the system's store and the
    user's files.  `verify` False: any certificate will do.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    password: str | None = field(default=None, repr=False)
    """Of the key file."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a door leads.  `base_path` has no slash at its end; "" is the root.

    `scheme` is http, https, unix or tcp; unix is plain http through the socket at `path` (`host` is then localhost and
    `port` 0); tcp carries what nobody here reads (`egress.py`), through an https proxy's CONNECT where there is one.
    """

    name: str
    scheme: str
    host: str
    port: int
    base_path: str = ""
    path: str = ""
    tls: ClientTls | None = None

    @classmethod
    def parse(cls, name: str, url: str, tls: ClientTls | None = None) -> Upstream:
        """Read a base URL such as `https://host:8443/api/anthropic`, `unix:///run/llm.sock`, or, for a socket with a
        base path, `http+unix://%2Frun%2Fllm.sock/v1`.

        Raises `ValueError` with a sentence when it is none of these.
        """
        parts = urlsplit(url.strip())
        if parts.scheme in ("unix", "http+unix"):
            return cls._parse_unix(name, url.strip())
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"upstream {name}: {url!r} is not an http:// or https:// URL with a host")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"upstream {name}: {url!r} must not carry a user, a query or a fragment")
        port = parts.port if parts.port is not None else DEFAULT_PORTS[parts.scheme]
        return cls(name, parts.scheme, parts.hostname, port, parts.path.rstrip("/"), tls=tls)

    @classmethod
    def _parse_unix(cls, name: str, url: str) -> Upstream:
        scheme, _, rest = url.partition("://")
        path, base = (rest, "") if scheme == "unix" else (unquote(rest.partition("/")[0]), rest.partition("/")[2])
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"upstream {name}: {url!r} does not name a socket by its whole path")
        if len(path.encode()) > _MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"upstream {name}: the path of a socket has at most {_MAX_SOCKET_PATH_BYTES} bytes")
        if "?" in base or "#" in base:
            raise ValueError(f"upstream {name}: {url!r} must not carry a query or a fragment")
        return cls(name, "unix", "localhost", 0, f"/{base}".rstrip("/"), path=path)

    @property
    def authority(self) -> str:
        """The value of Host: the port only where it is not the scheme's own; localhost for a socket, as curl does."""
        if self.scheme == "unix":
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL again."""
        if self.scheme == "unix":
            return (
                f"http+unix://{quote(self.path, safe='')}{self.base_path}" if self.base_path else f"unix://{self.path}"
            )
        return f"{self.scheme}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy.  An HTTP proxy may itself be reached by https (`tls`); `authorization` is that of
    Proxy-Authorization, a secret.  With `socks` it is a SOCKS5 proxy, and `login` (user, password) is its secret.
    """

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)
    tls: bool = False
    socks: bool = False
    login: tuple[str, str] | None = field(default=None, repr=False)

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
        if upstream.scheme == "unix":
            return None
        value = self.http_proxy if upstream.scheme == "http" else self.https_proxy
        if not value or self.bypasses(upstream.host, upstream.port):
            return None
        parts = urlsplit(value if "://" in value else f"http://{value}")
        try:
            _ = parts.port
        except ValueError:  # its text would repeat a piece of a password that holds a bare / or #
            raise ValueError("the proxy's address cannot be read: quote what is special in its password") from None
        if parts.scheme in ("socks5", "socks5h", "socks") and parts.hostname:
            login = (unquote(parts.username), unquote(parts.password or "")) if parts.username is not None else None
            return Proxy(parts.hostname, parts.port or 1080, socks=True, login=login)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"only http://, https:// and socks5:// proxies are spoken to, not {parts.scheme}://")
        secret = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            secret = "Basic " + base64.b64encode(pair.encode()).decode()
        return Proxy(parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme], secret, tls=parts.scheme == "https")

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
    proxy_of: Mapping[str, ProxySettings] = field(default_factory=dict[str, ProxySettings])
    """By the door's name, where its client chooses in another way than `proxy` does."""
    ca_files: tuple[str, ...] = ()
    """Files and folders of CA certificates in addition to the system's store."""
    dns_timeout_s: float = 30.0
    """For the name: a resolver tries several servers, some seconds each."""
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

    def proxy_for(self, upstream: Upstream) -> Proxy | None:
        """The proxy that this door's client would have used.  Raises `ValueError` as `ProxySettings.choose`."""
        return self.proxy_of.get(upstream.name, self.proxy).choose(upstream)


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
    accept_waits: int = 0
    """How often no more connections were taken for a while, because descriptors ran short."""
    turned_away: int = 0
    """Clients that a door's gate did not let in."""
    edited: int = 0
    """Bodies that went upstream changed (`editing.py`)."""
    not_edited: int = 0
    """Bodies that should have been looked at and passed unseen."""
    made_room: int = 0
    """Idle connections that were ended for another's sake."""
    swallowed: int = 0
    """Exceptions in observing code, and faults of ours that ended a pair."""
    last_swallowed: str = ""
