"""The control API of `run --control`: the command, or a hook in its harness, says how its trial went.

In: POST /t/TOKEN/trials/TRIAL/outcome and …/mark on an inherited socket; TRIAL is the run's own id, or what the harness
calls one of its trials.  Out: `harness.outcome` and `note` observations of trust `inside`: whoever has the child's
environment can say anything here, so it is recorded and shown and changes no blame (`steps/booked.py`).  What is said
can neither reach another run nor fill the store.
What this module does not do: find the trial of a name (`steps/words.py`, when the run is over), bind a port (the run
process did, before the command began), or reach the agent's path.
**Source:** design page DESIGN.md sections 3, 5 and 8.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import msgspec
from aiohttp import web

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.hosts import is_our_host
from fairtrial.middleware.core.observations import HarnessOutcome, Note
from fairtrial.middleware.core.records import Outcome, Trust
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.booked import CONTROL
from fairtrial.middleware.steps.words import ABOUT, AT, MARK, MAX_NAME_CHARS, NAME

SOURCE: Final = CONTROL
MAX_BODY_BYTES: Final = 16 << 10
MAX_SAID: Final = 1000
"""Outcomes and marks of one trial together."""
MAX_SAID_OF_ALL: Final = 20_000
"""The same of all trials of the command; names cost nothing to make up."""
CLOCKS_APART_NS: Final = 2_000_000_000
"""So far may a moment that is said lie outside of the run: clocks are read apart, and rounded."""
_BODY_S: Final = 5.0
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
T = TypeVar("T")
_PAGES: Final = (
    "POST $FAIRTRIAL_CONTROL_URL/trials/TRIAL/outcome and …/mark are all; TRIAL is $FAIRTRIAL_TRIAL, or what the "
    "harness calls one of its trials, percent-encoded (`/` is %2F)\n"
)


class OutcomeSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of …/outcome.  `name`: what the harness calls the trial; a later word of the same name replaces it."""

    outcome: Outcome
    name: _Text | None = None
    reward: float | None = None
    exit_status: _Text | None = None


class MarkSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of …/mark: a moment with a name.  `at`: when it was, as RFC 3339 with a zone or as ns since 1970; else it is
    when it was said."""

    name: _Text
    text: _Text | None = None
    at: _Text | int | None = None


_ENOUGH: Final = "those are kept: say a trial's end and its phases, not each of its steps\n"
_SUCH_AS: Final[dict[type, str]] = {
    OutcomeSaid: '{"outcome": "failed", "reward": 0.25} (passed, failed, errored or unknown)',
    MarkSaid: '{"name": "compacted", "text": "at 180 000 tokens"}',
}


@web.middleware
async def _pages_named(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What no page is reached by is told which pages there are; aiohttp's own word is the status alone."""
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        if request.match_info.http_exception is not None:
            what = "there is no such page" if error.status == 404 else f"{request.method} is not answered here"
            error.text = f"{what}; {_PAGES}"
        raise


class ControlPage:
    """`source` must be named `SOURCE`; `begun_ns`: when the run began, wall ns."""

    def __init__(self, trial: str, token: str, source: Source, *, begun_ns: int = 0) -> None:
        self._trial = trial
        self._token = token.encode()
        self._source = source
        self._begun_ns = begun_ns
        self._said: Counter[str] = Counter()
        self._shut = False
        self._runner: web.AppRunner | None = None

    async def open(self, listener: socket.socket) -> None:
        """Answer on a socket that listens.  Raises `OSError`."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_pages_named])
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
        name, said = await self._read(request, OutcomeSaid)
        if said.reward is not None and not math.isfinite(said.reward):
            raise web.HTTPBadRequest(text="`reward` is no finite number; give one, or leave it out\n")
        about = name or said.name
        label = said.name or name or self._trial
        identity = f"{SOURCE}/{label}" if about in {None, label} else f"{SOURCE}/{about}/{label}"
        value = HarnessOutcome(
            harness=SOURCE,
            identity=identity,
            label=label,
            about=about,
            outcome=said.outcome,
            reward=said.reward,
            exit_status=said.exit_status,
            joined_by="trial_id" if about is None else "name",
        )
        return self._recorded(value, name)

    async def _mark(self, request: web.Request) -> web.Response:
        name, said = await self._read(request, MarkSaid)
        fields: dict[str, object] = {NAME: said.name}
        if name is not None:
            fields[ABOUT] = name
        if said.at is not None:
            fields[AT] = _moment(said.at, self._begun_ns, clock.now().wall_ns)
        return self._recorded(Note(event=MARK, text=said.text, fields=fields), name)

    def _recorded(self, value: HarnessOutcome | Note, name: str | None) -> web.Response:
        if self._shut:
            raise web.HTTPGone(
                text="the run is over; what its harness wrote is read by fairtrial import HARNESS PATH\n"
            )
        if self._said[name or ""] >= MAX_SAID:
            raise web.HTTPTooManyRequests(text=f"of one trial {MAX_SAID} outcomes and marks are recorded; {_ENOUGH}")
        if self._said.total() >= MAX_SAID_OF_ALL:
            raise web.HTTPTooManyRequests(
                text=f"of one run {MAX_SAID_OF_ALL} outcomes and marks are recorded; {_ENOUGH}"
            )
        self._said[name or ""] += 1
        observation = self._source.emit(value, trust=Trust.INSIDE)
        return web.json_response({"recorded": observation.id, "trust": Trust.INSIDE.value})

    async def _read(self, request: web.Request, wanted: type[T]) -> tuple[str | None, T]:
        """Of whom (None: of the run's own trial) and the body, from somebody who may say it."""
        if not is_our_host(request.headers.get("Host", ""), ()) or "Origin" in request.headers:
            raise web.HTTPForbidden(
                text="this page is for programs on this machine; use FAIRTRIAL_CONTROL_URL as it is, without Origin\n"
            )
        if not hmac.compare_digest(request.match_info["token"].encode(), self._token):
            raise web.HTTPNotFound(text="there is no such page; use FAIRTRIAL_CONTROL_URL as it is\n")
        name: str | None = request.match_info["trial"].strip()
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            what = f"1 to {MAX_NAME_CHARS} characters that can be printed, percent-encoded"
            raise web.HTTPBadRequest(text=f"a trial's name has {what}; FAIRTRIAL_TRIAL is the run's own\n")
        if name == self._trial:
            name = None
        try:
            async with asyncio.timeout(_BODY_S):
                content = await request.read()
            return name, msgspec.json.decode(content, type=wanted)
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text=f"the body did not come within {_BODY_S:g} s; send it with the head\n"
            ) from None
        except web.HTTPRequestEntityTooLarge as error:
            error.text = (
                f"a body may have {MAX_BODY_BYTES >> 10} KiB; send what is needed, such as {_SUCH_AS[wanted]}\n"
            )
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            said = f"the body is not as it should be: {error}; send such as {_SUCH_AS[wanted]}\n"
            raise web.HTTPBadRequest(text=said) from None


def _moment(said: str | int, begun_ns: int, now_ns: int) -> int:
    """Wall ns, within the run."""
    at_ns = said if isinstance(said, int) else _parsed(said)
    if at_ns is None:
        raise web.HTTPBadRequest(text="`at` is no moment: RFC 3339 with a zone (…T12:00:00Z), or ns since 1970\n")
    if not begun_ns - CLOCKS_APART_NS <= at_ns <= now_ns + CLOCKS_APART_NS:
        raise web.HTTPBadRequest(text="`at` is not within the run: from its begin until now; seconds are no ns\n")
    return min(max(at_ns, begun_ns), now_ns)


def _parsed(said: str) -> int | None:
    try:
        moment = datetime.fromisoformat(said)
        if "T" not in said.upper() or moment.tzinfo is None:
            return None
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
