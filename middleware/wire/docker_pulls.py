"""A pull of an image as it passed the Docker door: the request's query and the end of the answer in, one fact out.

The answer is a line of JSON per layer and moment, with status 200 from the first on; an error is the last line.  What
this module does not do: read the lines before, or tell pulls that the engine makes past the door.
**Source:** Docker Engine API v1.41, `ImageCreate`.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs

import msgspec

from fairtrial.middleware.core.observations import DoorImage
from fairtrial.middleware.wire.docker_errors import OTHER, kind_of

TAIL_BYTES: Final = 4096
"""So much of the answer's end is enough."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,255}\Z")


class _Line(msgspec.Struct):
    error: str = ""
    message: str = ""


def pull(
    query: str, tail: bytes, *, status: int | None, duration: float | None, started_wall_ns: int
) -> DoorImage | None:
    """None for an import, which pulls nothing."""
    asked = parse_qs(query)
    name, tag = (asked.get(key, [""])[0] for key in ("fromImage", "tag"))
    if not name:
        return None
    if tag and "@" not in name:
        name += f"@{tag}" if tag.startswith("sha256:") else f":{tag}"
    refused = (status or 0) >= 400
    said = [line.error or (line.message if refused else "") for line in map(_line, tail.splitlines())]
    error = next((kind_of(text) or OTHER for text in reversed(said) if text), OTHER if refused else None)
    return DoorImage(
        image=name if _NAME.match(name) else None,
        status=status,
        error=error,
        duration=duration,
        started_wall_ns=started_wall_ns,
    )


def _line(raw: bytes) -> _Line:
    try:
        return msgspec.json.decode(raw, type=_Line)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _Line()
