"""The model door: one loopback TCP port, or unix socket, that leads to one model API.

In: requests to `http://127.0.0.1:PORT/t/<token>/…`.  Out: the same requests to the upstream's base path.  The
token names the trial and may differ from request to request; it never chooses the upstream, which the
port alone does.  A request without a known token (somebody curls the door) passes like any other and is
recorded with trial null.

Towards a plain-http upstream behind a proxy the target becomes absolute-form and Proxy-Authorization is
added; nothing else of a head changes but target prefix, Host and our own header lines.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from fairtrial.middleware.relay.coupled import DoorPolicy
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.heads import RequestHead, rewrite
from fairtrial.middleware.relay.route import Gate
from fairtrial.middleware.relay.settings import Upstream

TOKEN_PREFIX: Final = b"/t/"
_FIRST_LINE: Final = re.compile(rb"\A(?:\r?\n)*([^\s]+[ \t]+)(/[^\s]*)")
_HOST_LINE: Final = re.compile(rb"(\n[Hh][Oo][Ss][Tt]:[ \t]*)([^\r\n]*)")


class ModelDoor:
    """A bound door.  `port` (0 for a socket), `path` ("" for a port) and `url` are for the child's environment.

    The rest is for the engine.
    """

    lead = None
    editor = None
    gate: Gate | None = None

    def __init__(
        self, upstream: Upstream, dialler: Dialler, listener: socket.socket, tokens: Mapping[str, str]
    ) -> None:
        self.upstream = upstream
        self.dialler = dialler
        self.listener = listener
        self.label = f"model:{upstream.name}"
        self.path: str = listener.getsockname() if listener.family == socket.AF_UNIX else ""
        self.host: str = "localhost" if self.path else listener.getsockname()[0]
        self.port: int = 0 if self.path else listener.getsockname()[1]
        self.policy = DoorPolicy(client_eof="unix" if self.path else "gone")
        self._tokens = tokens
        self._base = upstream.base_path.encode()
        self._authority = upstream.authority.encode()
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self._authority_here = "localhost" if self.path else f"{shown}:{self.port}"
        self._own = re.compile(
            rb"\Ahttp://" + re.escape(self._authority_here.encode()) + rb"(?=[/?]|\Z)", re.IGNORECASE
        )
        self._absolute = b"http://" + self._authority if dialler.absolute_form else b""
        self._extra = b""
        if dialler.absolute_form and dialler.proxy is not None and dialler.proxy.authorization is not None:
            self._extra = b"Proxy-Authorization: " + dialler.proxy.authorization.encode("latin-1") + b"\r\n"

    def url(self, token: str) -> str:
        """The base URL for a trial, instead of the upstream's; a socket's path is quoted in it."""
        if self.path:
            return f"http+unix://{quote(self.path, safe='')}/t/{token}"
        return f"http://{self._authority_here}/t/{token}"

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """See `coupled.Route`."""
        asked = head.target
        target, trial = self._retarget(asked)
        extra = self._extra if target is not asked else b""  # somebody else's URL gets no credentials of ours
        return rewrite(head, target, self._authority, extra), trial

    def rewrite_loosely(self, rest: bytes) -> bytes:
        """Path prefix and Host of what looks like a head, so that a blind tunnel still reaches the right page."""
        match = _FIRST_LINE.match(rest)
        if match is None:
            return rest
        target, _trial = self._retarget(match[2])
        end = match.end(2)
        head_end = min(
            (at for at in (rest.find(b"\n\r\n", end), rest.find(b"\n\n", end)) if at != -1), default=len(rest)
        )
        lines = _HOST_LINE.sub(lambda found: found[1] + self._authority, rest[end : head_end + 1])
        return rest[: match.start(2)] + target + lines + rest[head_end + 1 :]

    def _retarget(self, target: bytes) -> tuple[bytes, str | None]:
        if target[:1] != b"/":
            own = self._own.match(target)
            if own is not None:  # a client that takes the door for a proxy
                target = target[own.end() :] or b"/"
        trial: str | None = None
        if target[:3] == TOKEN_PREFIX:
            end = target.find(b"/", 3)
            query = target.find(b"?", 3)
            if end == -1 or -1 < query < end:
                end = query if query != -1 else len(target)
            trial = self._tokens.get(target[3:end].decode("latin-1"))
            if trial is not None:
                target = target[end:]
        if target[:1] == b"/":
            return self._absolute + self._base + target, trial
        if not target or target[:1] == b"?":
            return self._absolute + (self._base or b"/") + target, trial
        return target, trial  # `*`, an authority, somebody else's URL: not ours to change


class RunTokens(Mapping[str, str]):
    """Token → trial.  `TOKEN.NAME` leads where TOKEN leads: the name tells the trials of one run apart (the observer
    reads it) and opens nothing."""

    def __init__(self) -> None:
        self._trials: dict[str, str] = {}

    def add(self, token: str, trial_id: str) -> None:
        """The token leads to this trial from now on."""
        self._trials[token] = trial_id

    def __getitem__(self, token: str) -> str:
        known = self._trials.get(token)
        return self._trials[token.partition(".")[0]] if known is None else known

    def __iter__(self) -> Iterator[str]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)


class SocketDoor(ModelDoor):
    """A door in the place of a unix socket that a client was told of: requests go on as they are, Host included.

    It needs no token: whoever can open the socket is of this trial.  TLS within the socket passes as a blind tunnel.
    """

    def __init__(self, upstream: Upstream, dialler: Dialler, listener: socket.socket, trial: str) -> None:
        super().__init__(upstream, dialler, listener, {})
        self.label = f"socket:{upstream.name}"
        """By this the observer knows that no token is needed."""
        self._trial = trial

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """See `coupled.Route`."""
        return rewrite(head, head.target, head.raw[head.host_start : head.host_end]), self._trial

    def rewrite_loosely(self, rest: bytes) -> bytes:
        """Nothing is to be changed."""
        return rest
