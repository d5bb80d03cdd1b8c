"""A model door that many strangers share: who may use it, and what it does not pass on.

In: request heads.  Out: as `model.py`, or `HeadRefused`.  A guarded door wants its secret with every request: in the
path, `/t/SECRET/…` or `/t/SECRET.NAME/…` (the trial's name), or in the header `x-fairtrial-access`; neither reaches
the upstream.  An open door takes any `/t/NAME/…`.  A door leads to one upstream: what a client asks
of another host is refused.

**Source:** design page DESIGN.md sections 3 and 8.
"""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from fairtrial.middleware.relay.coupled import HeadRefused
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.model import ModelDoor
from fairtrial.middleware.relay.settings import Upstream

_ACCESS: Final = re.compile(rb"\r\nx-fairtrial-access:([^\r\n]*)\r\n", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


class PathTokens(Mapping[str, str]):
    """What may stand behind `/t/`: token → the trial's name, "" for none.  Without a secret any name may."""

    def __init__(self, secret: str | None) -> None:
        self._secret = None if secret is None else secret.encode()

    def admits(self, secret: bytes) -> bool:
        """Whether this is the secret; always, where there is none."""
        return self._secret is None or hmac.compare_digest(secret, self._secret)

    def __getitem__(self, token: str) -> str:
        if self._secret is not None:
            secret, dot, name = token.partition(".")
            if not self.admits(secret.encode("latin-1")):
                raise KeyError(token)
            if dot and _NAME.fullmatch(name) is None:
                # Never passed on as a path like any other: the secret is in it.
                raise HeadRefused("the trial's name behind its access token is none", "403 Forbidden")
            return name
        if _NAME.fullmatch(token) is None:
            raise KeyError(token)
        return token

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ServeDoor(ModelDoor):
    """See the module."""

    def __init__(self, upstream: Upstream, dialler: Dialler, listener: socket.socket, tokens: PathTokens) -> None:
        super().__init__(upstream, dialler, listener, tokens)
        self._admits = tokens.admits
        self._guarded = not tokens.admits(b"")

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """See `coupled.Route`."""
        if head.method == b"CONNECT" or not self._is_ours(head.target):
            raise HeadRefused("this door leads to one model API and is no proxy", "403 Forbidden")
        new, trial = super().rewrite(head)
        if self._guarded and trial is None:
            said = _ACCESS.search(head.raw) if head.has_own_lines else None
            if said is None or not self._admits(said[1].strip(b" \t")):
                raise HeadRefused(
                    "it bears no valid access token (/t/TOKEN/ before the path, or x-fairtrial-access)", "403 Forbidden"
                )
        return new, trial

    def _is_ours(self, target: bytes) -> bool:
        return target[:1] == b"/" or target == b"*" or self._own.match(target) is not None
