"""What a `serve` is to do, read from its settings and checked: doors, places to listen, the secret.

In: settings and the options of the command line.  Out: a `ServePlan`, or a `ConfigError` that says what to write.  No
socket is opened here.

A door beyond loopback hands a model API to whoever reaches it, so it wants a secret in every request, or the operator's
word that the network is closed (`serve.unguarded`).  A unix socket is guarded by its mode.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core import config
from fairtrial.middleware.core.errors import ConfigError
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.relay.serve_opts import ServeOptions
from fairtrial.middleware.relay.settings import Upstream

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_SECRET: Final = re.compile(r"[A-Za-z0-9_~-]{16,256}")
TRIAL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")
MAX_SOCKET_PATH_BYTES: Final = 107


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen: a unix socket's `path`, else `host` (an IP address) and `port` (0: any)."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def closed(self) -> bool:
        """Whether only users of this machine reach it."""
        return bool(self.path) or ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class DoorPlan:
    """One upstream and where its door listens."""

    upstream: Upstream
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """Everything that a `serve` needs to know before it opens a socket."""

    config: config.Config
    doors: tuple[DoorPlan, ...]
    health: Place | None
    metrics: Place | None
    health_hosts: frozenset[str]
    secret: str | None = field(repr=False)
    store: str


def read_settings(options: ServeOptions, environ: Mapping[str, str]) -> config.Config:
    """File, environment and command line, in rising order.  Raises `ConfigError`."""
    if options.config is not None:
        environ = {**environ, "FAIRTRIAL_CONFIG": os.path.abspath(options.config)}
    overrides = dict(options.settings)
    settings = config.read(environ, overrides)
    if options.upstreams:
        overrides["serve.upstreams"] = {**settings.serve.upstreams, **dict(options.upstreams)}
    named = {name: place for name, place in options.listen if name}
    if named:
        overrides["serve.listen"] = {**settings.serve.listen, **named}
    for name, place in options.listen:
        if not name:
            first = parse_place("--listen", place)
            if first.path:
                raise ConfigError(
                    f"--listen {place} names no upstream.",
                    remedy=f"Say whose door it is, such as: --listen anthropic={place}",
                    key="serve.listen",
                )
            overrides["serve.address"], overrides["serve.port"] = first.host, first.port
    return config.read(environ, overrides)


def plan(settings: config.Config, environ: Mapping[str, str], cwd: str) -> ServePlan:
    """Check all that can be wrong before anything is opened.  Raises `ConfigError`."""
    serve = settings.serve
    _check_numbers(serve)
    _check_named(serve)
    doors = tuple(_doors(serve))
    secret = _secret(serve)
    wide = [door for door in doors if not door.place.closed]
    if wide and secret is None and not serve.unguarded:
        raise ConfigError(
            f"The door for {wide[0].upstream.name} would listen on {wide[0].place}, where others reach it, and asks "
            "for no secret.",
            remedy="Set serve.access_token (openssl rand -hex 16), or bind 127.0.0.1, or, where the network is closed, "
            "say serve.unguarded = true.",
            key="serve.access_token",
        )
    return ServePlan(
        config=settings,
        doors=doors,
        health=_page("serve.health", serve.health),
        metrics=_page("serve.metrics", serve.metrics),
        health_hosts=frozenset(name.strip().lower() for name in serve.health_hosts.split(",") if name.strip()),
        secret=secret,
        store=config.store_path(settings, environ, cwd),
    )


def parse_place(key: str, text: str) -> Place:
    """`HOST:PORT`, `[HOST]:PORT` or `unix:/PATH`.  Raises `ConfigError`, which names `key`."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/") or len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise ConfigError(
                f"`{key}` is {text!r}, whose path is not absolute or too long for a socket.",
                remedy=f"Such as unix:/run/fairtrial/anthropic.sock, at most {MAX_SOCKET_PATH_BYTES} bytes.",
                key=key,
            )
        return Place(path=path)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        address = ipaddress.ip_address(host)
        number = int(port) if port.isdecimal() else -1
    except ValueError:
        address, number = None, -1
    if not colon or address is None or not 0 <= number <= 65535:
        raise ConfigError(
            f"`{key}` is {text!r}, which is no address to listen on.",
            remedy="Write an IP address and a port, such as 127.0.0.1:8790 or [::1]:8790, or unix:/PATH.",
            key=key,
        )
    return Place(str(address), number)


# --- how it works ---------------------------------------------------------------------------------------------------


def _page(key: str, text: str) -> Place | None:
    if text in ("", "off"):
        return None
    place = parse_place(key, text)
    if place.path:
        raise ConfigError(
            f"`{key}` is {text!r}, a unix socket.", remedy="Give an address and a port: probes ask for these.", key=key
        )
    return place


def _check_numbers(serve: config.ServeConfig) -> None:
    for name, value, least in (
        ("drain_s", serve.drain_s, 0.0),
        ("flush_s", serve.flush_s, 0.0),
        ("idle_s", serve.idle_s, 1.0),
        ("max_trials", serve.max_trials, 1),
    ):
        if not least <= value < 1e9:
            raise ConfigError(
                f"`serve.{name}` is {value:g}.", remedy=f"Give a number from {least:g} up.", key=f"serve.{name}"
            )


def _check_named(serve: config.ServeConfig) -> None:
    for setting, table in (("keys", serve.keys), ("peers", serve.peers)):
        for name, value in table.items():
            if TRIAL_NAME.fullmatch(name) is None:
                raise ConfigError(
                    f"{name!r} in `serve.{setting}` is no name for a trial.",
                    remedy="Use up to 128 letters, digits and . _ ~ -, a letter or digit first.",
                    key=f"serve.{setting}",
                )
            if not value or list(table.values()).count(value) > 1:
                raise ConfigError(
                    f"What `serve.{setting}` gives for {name} is empty, or another trial's as well.",
                    remedy="Give each trial one of its own.",
                    key=f"serve.{setting}.{name}",
                )
    for name, value in serve.peers.items():
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise ConfigError(
                f"`serve.peers.{name}` is {value!r}, which is no IP address.",
                remedy="Give the address from which that trial's client connects.",
                key=f"serve.peers.{name}",
            ) from None


def _doors(serve: config.ServeConfig) -> list[DoorPlan]:
    if not serve.upstreams:
        raise ConfigError(
            "There is no upstream to serve.",
            remedy="Name one: --upstream anthropic=https://api.anthropic.com, or in the file:\n"
            '  [serve.upstreams]\n  anthropic = "https://api.anthropic.com"',
            key="serve.upstreams",
        )
    for name in serve.listen:
        if name not in serve.upstreams:
            raise ConfigError(
                f"`serve.listen` names {name!r}, which is no upstream.",
                remedy=f"Upstreams are: {', '.join(serve.upstreams)}.",
                key=f"serve.listen.{name}",
            )
    doors: list[DoorPlan] = []
    port = serve.port
    for name, url in serve.upstreams.items():
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{name!r} is no name for an upstream.",
                remedy="Use small letters, digits, - and _, such as anthropic or vllm-2.",
                key="serve.upstreams",
            )
        try:
            upstream = Upstream.parse(name, url)
        except ValueError as error:
            raise ConfigError(
                f"The address of `{name}`, {mask_url(url)!r}, is none that can be relayed to: {mask_url(str(error))}.",
                remedy="Write it in full, such as https://host/path.",
                key=f"serve.upstreams.{name}",
            ) from error
        if name in serve.listen:
            place = parse_place(f"serve.listen.{name}", serve.listen[name])
        else:
            place = parse_place("serve.address", f"{serve.address}:{port}")
            port += 1 if port else 0
        twin = next((door for door in doors if door.place == place and (place.port or place.path)), None)
        if twin is not None:
            raise ConfigError(
                f"{twin.upstream.name} and {name} would both listen on {place}.",
                remedy="One port (or socket) leads to one upstream: give one of them another in serve.listen.",
                key=f"serve.listen.{name}",
            )
        doors.append(DoorPlan(upstream, place))
    return doors


def _secret(serve: config.ServeConfig) -> str | None:
    secret, where = serve.access_token, "serve.access_token"
    if serve.access_file is not None:
        if secret is not None:
            raise ConfigError(
                "Both serve.access_token and serve.access_file are set.", remedy="Keep one.", key="serve.access_file"
            )
        where = "serve.access_file"
        try:
            with open(serve.access_file, encoding="ascii") as file:
                secret = file.read().strip()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The secret cannot be read from {serve.access_file}: {error}.",
                remedy="Correct serve.access_file, or the file's owner and mode.",
                key=where,
            ) from error
    if secret is not None and _SECRET.fullmatch(secret) is None:
        raise ConfigError(
            f"`{where}` is not fit for a path: {len(secret)} characters.",
            remedy="Use 16 to 256 letters, digits, - _ ~, such as from: openssl rand -hex 16",
            key=where,
        )
    return secret
