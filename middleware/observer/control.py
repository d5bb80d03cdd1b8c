"""The control API of `run --control`: the command, or a hook in its harness, says how its trial went.

In: POST /t/TOKEN/trials/TRIAL/outcome and …/mark on an inherited socket.  Out: `harness.outcome` and `note`
observations of trust `inside`: whoever has the child's environment can say anything here, so it is recorded and shown
and changes no blame (`steps/booked.py`).  What is said can neither name another trial nor fill the store.
What this module does not do: bind a port (the run process did, before the command began), or reach the agent's path.
**Source:** design page DESIGN.md sections 3, 5 and 8.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import socket
from typing import Annotated, Final, TypeVar

import msgspec
from aiohttp import web

from fairtrial.middleware.core.hosts import is_our_host
from fairtrial.middleware.core.observations import HarnessOutcome, Note
from fairtrial.middleware.core.records import Outcome, Trust
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.booked import CONTROL

SOURCE: Final = CONTROL
MARK: Final = "control.mark"
MAX_BODY_BYTES: Final = 16 << 10
MAX_SAID: Final = 1000
"""Outcomes and marks of one trial together."""
_BODY_S: Final = 5.0
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
T = TypeVar("T")


class OutcomeSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of …/outcome.  `name`: what the harness calls the trial; a later word of the same name replaces it."""

    outcome: Outcome
    name: _Text | None = None
    reward: float | None = None
    exit_status: _Text | None = None


class MarkSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of …/mark: a moment with a name."""

    name: _Text
    text: _Text | None = None


class ControlPage:
    """`source` must be named `SOURCE`."""

    def __init__(self, trial: str, token: str, source: Source) -> None:
        self._trial = trial
        self._token = token.encode()
        self._source = source
        self._said = 0
        self._shut = False
        self._runner: web.AppRunner | None = None

    async def open(self, listener: socket.socket) -> None:
        """Answer on a socket that listens.  Raises `OSError`."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/t/{token}/trials/{trial}/outcome", self._outcome)
        app.router.add_post("/t/{token}/trials/{trial}/mark", self._mark)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    def shut(self) -> None:
        """The trial is over: what comes now is refused."""
        self._shut = True

    async def close(self) -> None:
        """Stop listening."""
        self.shut()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _outcome(self, request: web.Request) -> web.Response:
        said = await self._read(request, OutcomeSaid)
        if said.reward is not None and not math.isfinite(said.reward):
            raise web.HTTPBadRequest(text="`reward` is no finite number\n")
        label = said.name or self._trial
        value = HarnessOutcome(
            harness=SOURCE,
            identity=f"{SOURCE}/{label}",
            label=label,
            outcome=said.outcome,
            reward=said.reward,
            exit_status=said.exit_status,
            joined_by="trial_id",
        )
        return self._recorded(value)

    async def _mark(self, request: web.Request) -> web.Response:
        said = await self._read(request, MarkSaid)
        return self._recorded(Note(event=MARK, text=said.text, fields={"name": said.name}))

    def _recorded(self, value: HarnessOutcome | Note) -> web.Response:
        if self._shut:
            raise web.HTTPGone(text="the trial is over\n")
        if self._said >= MAX_SAID:
            raise web.HTTPTooManyRequests(text=f"of one trial {MAX_SAID} outcomes and marks are recorded\n")
        self._said += 1
        observation = self._source.emit(value, trust=Trust.INSIDE)
        return web.json_response({"recorded": observation.id, "trust": Trust.INSIDE.value})

    async def _read(self, request: web.Request, wanted: type[T]) -> T:
        """The body, from somebody who may say it."""
        if not is_our_host(request.headers.get("Host", ""), ()) or "Origin" in request.headers:
            raise web.HTTPForbidden(text="this page is for programs on this machine\n")
        if not hmac.compare_digest(request.match_info["token"].encode(), self._token):
            raise web.HTTPNotFound(text="there is no such page; use FAIRTRIAL_CONTROL_URL as it is\n")
        if request.match_info["trial"] != self._trial:
            raise web.HTTPNotFound(text="this token is of another trial; use FAIRTRIAL_TRIAL\n")
        try:
            async with asyncio.timeout(_BODY_S):
                content = await request.read()
            return msgspec.json.decode(content, type=wanted)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not come within {_BODY_S:g} s\n") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(text=f"the body is not as it should be: {error}\n") from None
