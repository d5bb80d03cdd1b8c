"""Which version of the engine's API is spoken, or one sentence why none can be.

In: the reply of `GET /version`.  Out: a version for the paths.  Fields that are read here (`timeNano`, `execID`,
`State.Pid`) are the same in all versions from 1.40 (Docker 19.03) to the newest one that was tried.
**Source:** Docker Engine API, version history; engines from 29 on refuse what is older than their `MinAPIVersion`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

OLDEST: Final = (1, 40)
NEWEST: Final = (1, 52)
_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})\Z")

Version = tuple[int, int]


class NotSpoken(Exception):
    """There is no version that both sides know; the message is a sentence without its full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRange:
    """What the engine says that it speaks; `oldest` None where it does not say."""

    newest: Version | None
    oldest: Version | None = None
    release: str | None = None

    @classmethod
    def of(cls, reply: object) -> ApiRange:
        """From JSON of any shape."""
        told = cast("Mapping[str, object]", reply) if isinstance(reply, dict) else {}
        release = told.get("Version")
        return cls(
            newest=_version(told.get("ApiVersion")),
            oldest=_version(told.get("MinAPIVersion")),
            release=release[:40] if isinstance(release, str) and release.isprintable() else None,
        )


def choose(theirs: ApiRange) -> str:
    """The newest version that both know, as in a path.  Raises `NotSpoken`."""
    who = f"the engine{f' {theirs.release}' if theirs.release else ''}"
    if theirs.newest is None:
        raise NotSpoken(
            f"{who} does not say which version of the API it speaks (GET /version), so it is no Docker engine"
        )
    if theirs.newest < OLDEST:
        raise NotSpoken(
            f"{who} speaks API {_dotted(theirs.newest)}, and fairtrial needs {_dotted(OLDEST)} (Docker 19.03)"
        )
    if theirs.oldest is not None and theirs.oldest > NEWEST:
        raise NotSpoken(
            f"{who} speaks no API older than {_dotted(theirs.oldest)}, and fairtrial knows none newer than "
            f"{_dotted(NEWEST)}: update fairtrial"
        )
    return _dotted(min(theirs.newest, NEWEST))


def _version(text: object) -> Version | None:
    found = _VERSION.match(text) if isinstance(text, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
