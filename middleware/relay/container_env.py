"""The Env of a container or an exec that is asked for: which values are a door of this run, and the body with others.

In: the JSON body of `containers/create` or of an exec's create, and what the doors of this run look like.  Out: the
values found, and the same body in which these values alone are new: every other byte stays, whatever order, spelling or
spacing the client has.  Pure.  Where a door can be reached from a container is the work of `bridge.py`.

A value is a door of this run when the whole of it is one of the URLs that the command was given, with whatever path,
query and user part stands in it: scheme, port and token fit, and the host is loopback, or one of the names by which a
harness that knows containers writes it.  Nothing else is touched: no part of a longer value, no other address, no word
of a command.

**Source:** Docker Engine API v1.41, `ContainerCreate` and `ContainerExec`; the engine decodes with Go's encoding/json,
which takes names of fields in any case and the last of two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_URL: Final = re.compile(
    r"http://(?P<login>[^/?#@\s]*@)?(?:127\.0\.0\.1|localhost|host\.(?:docker|containers)\.internal):"
    r"(?P<port>\d{1,5})/t/(?P<token>[0-9a-f]{32})"
    r"(?P<rest>(?:[/?#].*)?)",
    re.DOTALL,
)
_DECODER: Final = json.JSONDecoder()
_PROXIES: Final = ("http_proxy", "all_proxy")
"""Of a plain-http door."""


class Unreadable(ValueError):
    """The body is not a JSON object that can be taken apart; it passes as it is."""


@dataclass(frozen=True, slots=True)
class DoorValue:
    """One entry of Env whose value is a door.  `start`, `end`: where its JSON string stands in the text."""

    start: int
    end: int
    name: str
    port: int
    token: str
    login: str
    rest: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body says, as far as it matters here."""

    text: str
    values: tuple[DoorValue, ...]
    network: str
    """`HostConfig.NetworkMode`; "" where it is not given."""
    proxy: str | None
    """The variable that sends plain-http calls of that container to a proxy."""
    no_proxy: str
    """Its `no_proxy`; "" where there is none."""


def read(body: bytes) -> Asked:
    """Take a body apart.  Raises `Unreadable`."""
    try:
        text = body.decode()
        whole = json.loads(text)
        spans = list(_env_strings(text)) if isinstance(whole, dict) else []
    except (ValueError, RecursionError, IndexError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    if not isinstance(whole, dict):
        raise Unreadable("no JSON object")
    values: list[DoorValue] = []
    others: dict[str, str] = {}
    for start, end, entry in spans:
        name, equals, value = entry.partition("=")
        if not equals:
            continue
        others[name.lower()] = value
        if found := _URL.fullmatch(value):
            values.append(
                DoorValue(
                    start, end, name, int(found["port"]), found["token"], found["login"] or "", found["rest"] or ""
                )
            )
    host = whole.get("HostConfig")
    network = host.get("NetworkMode") if isinstance(host, dict) else None
    return Asked(
        text=text,
        values=tuple(values),
        network=network if isinstance(network, str) else "",
        proxy=next((name for name in _PROXIES if others.get(name)), None),
        no_proxy=others.get("no_proxy", ""),
    )


def rewritten(asked: Asked, new: Mapping[DoorValue, str]) -> bytes:
    """The body with these entries' values replaced."""
    parts: list[str] = []
    at = 0
    for value in sorted(new, key=lambda each: each.start):
        parts += (asked.text[at : value.start], json.dumps(f"{value.name}={new[value]}", ensure_ascii=False))
        at = value.end
    return "".join((*parts, asked.text[at:])).encode()


def _env_strings(text: str) -> list[tuple[int, int, str]]:
    """Begin, end and value of every string in the top-level arrays called Env."""
    found: list[tuple[int, int, str]] = []
    at = _skip(text, 0)
    at = _skip(text, at + 1)  # behind the brace: the text is known to be an object
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if key.lower() == "env" and text[at] == "[":
            at = _skip(text, at + 1)
            while text[at] != "]":
                start = at
                value, at = _DECODER.raw_decode(text, at)
                if isinstance(value, str):
                    found.append((start, at, value))
                at = _skip(text, at)
                if text[at] == ",":
                    at = _skip(text, at + 1)
            at += 1
        else:
            _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
