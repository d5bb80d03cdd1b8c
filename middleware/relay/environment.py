"""The child's environment: which variables point to a door, and every other change, each with its reason.

In: the environment as the user has it, what the user asked for, and (second half) the addresses of the open doors.
Out: first an `EnvironmentPlan` (the doors to open), then a `ChildEnvironment` (the new variables, the list of
mutations).  Pure: no file, no socket, no `os.environ`.  The rules are the table of DESIGN section 5.

A door stands for one *origin* (scheme, host, port; or a unix socket).  What follows the origin in a variable, its path
and query, stays in the variable behind the door's token, so `https://host/api/anthropic` becomes
`http://127.0.0.1:PORT/t/TOKEN/api/anthropic` and the request target reaches the upstream as the client wrote it.
`settings_files` does the same for settings that are no variables; `docker_upstream.py` finds the engine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from fairtrial.middleware.core.masking import mask_url, mask_value

DEFAULT_URLS: Final[Mapping[str, str]] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com",
}
VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_BASE_URL",),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL",),
}
SOCKETS: Final[Mapping[str, str]] = {"anthropic": "ANTHROPIC_UNIX_SOCKET"}
"""Where a provider's client can be told of a unix socket, which it then takes whatever its base URL says."""
_PROVIDER_OF: Final = {variable: name for name, variables in VARIABLES.items() for variable in variables}

_SIGNED: Final = frozenset(
    {
        "ANTHROPIC_BEDROCK_BASE_URL",
        "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_BEDROCK",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    }
)
_BEDROCK_HOST: Final = re.compile(r"(?:^|\.)bedrock[a-z-]*\.[a-z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$")
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

_EFFECTS: Final[Mapping[str, str]] = {
    "ANTHROPIC_BASE_URL": (
        "a client may take this for a gateway. Claude Code 2.1.197 (seen) then gives up its tool search: it sends 16 "
        "more tools with each call and no ToolSearch (76 KB, not 49), names no deferred tools in its first message, "
        "and the beta advanced-tool-use is missing; its system prompt comes in one block less, without a cache mark of "
        "scope global (so fewer hits of the prompt cache), and without the checksum cch; it sends no "
        "x-client-request-id, does not ask for its managed settings and policy limits, and waits 300 s for a silent "
        "stream, not 180 s. Claude Code 2.1.332 (seen) keeps its tools and their search; it drops four betas, the "
        "field diagnostics and five headers of its own; that block, cache mark and checksum, and the settings, are "
        "missing as well. The model that it asks for is the same in both. "
        "Connect errors show as a reset of the first request"
    ),
    "OPENAI_BASE_URL": "HTTP/1.1 where the client might have used h2; connect errors show as a reset",
    "OPENAI_API_BASE": "as OPENAI_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL": "HTTP/1.1 where the client might have used h2; connect errors show as a reset",
    "HTTPS_PROXY": "a CONNECT before each TLS connection of every program that honours the variable; connect errors "
    "show as a reset of the tunnel",
    "https_proxy": "as HTTPS_PROXY",
    "NO_PROXY": "loopback is reached without the proxy",
    "no_proxy": "loopback is reached without the proxy",
    "TRACEPARENT": "programs that speak OpenTelemetry join this trial's trace",
    "CLAUDE_CODE_PROPAGATE_TRACEPARENT": "Claude Code adds a traceparent header to its model calls",
}


@dataclass(frozen=True, slots=True)
class Note:
    """A fact about the start, for the record; `say` puts `text` on stderr before the command starts."""

    event: str
    text: str
    say: bool = False


@dataclass(frozen=True, slots=True)
class Mutation:
    """One thing that fairtrial changed; `old` and `new` are masked, None means *was not set*."""

    what: str
    old: str | None
    new: str | None
    why: str
    side_effects: str | None = None

    def record(self) -> dict[str, object]:
        """As the feed and `fairtrial.trial/1` carry it."""
        return {
            "what": self.what,
            "old": self.old,
            "new": self.new,
            "why": self.why,
            "side_effects": self.side_effects,
        }


@dataclass(frozen=True, slots=True)
class Pointer:
    """A variable that will point to a door.  `rest` is path and query behind the token; `login` is `user:password@`."""

    variable: str
    rest: str
    login: str
    why: str


@dataclass(frozen=True, slots=True)
class DoorPlan:
    """A door to open.  `origin` such as `https://host:8443`; `name` is the provider, or the variable or setting.

    `socket`: the door is itself a unix socket, and its variables hold the socket's path.
    """

    name: str
    origin: str
    pointers: tuple[Pointer, ...] = ()
    socket: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """A variable that already points to a door of the run around this one; it stays as it is."""

    variable: str
    door: str


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """What has to be opened before the child's environment can be written."""

    doors: tuple[DoorPlan, ...] = ()
    joined: tuple[Joined, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trial's place in a trace (W3C Trace Context): `root_span_id` is the trial's own span."""

    trace_id: str
    root_span_id: str
    parent_span_id: str | None = None
    flags: str = "01"


@dataclass(frozen=True, slots=True)
class ChildEnvironment:
    """The environment that the command gets, and how it differs from ours."""

    variables: dict[str, str]
    mutations: tuple[Mutation, ...]
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What decides about doors besides the environment.

    `upstreams`, `routes`: from the options and the settings.  `held`: what a settings file holds for a variable that
    it overrides and that will be adapted.  `leave`: variable -> why it must not be set.  `outer_doors`: ports of the
    doors of the run around this one -> their names.  `extra`: doors for settings that are no variables.
    `v1_clients`: the command wants `/v1` at the end of ANTHROPIC_BASE_URL where the user has set nothing.
    """

    upstreams: Mapping[str, str] = field(default_factory=dict[str, str])
    routes: Mapping[str, str] = field(default_factory=dict[str, str])
    held: Mapping[str, str] = field(default_factory=dict[str, str])
    leave: Mapping[str, str] = field(default_factory=dict[str, str])
    outer_doors: Mapping[int, str] = field(default_factory=dict[int, str])
    extra: Collection[DoorPlan] = ()
    v1_clients: bool = False


def plan_doors(environ: Mapping[str, str], wishes: Wishes) -> EnvironmentPlan:
    """Which doors to open for this command, which variables they serve, and what cannot be served."""
    planner = _Planner(environ, wishes)
    for provider, variables in VARIABLES.items():
        if (path := environ.get(SOCKETS.get(provider, ""), "")).startswith("/"):
            planner.socket(provider, SOCKETS[provider], path)
        else:
            planner.provider(provider, variables)
    for variable, url in wishes.routes.items():
        if variable not in _PROVIDER_OF:
            planner.point(variable, variable, url, "asked for by --route")
    planner.unseen_clouds()
    return EnvironmentPlan(
        doors=(*planner.sockets, *planner.doors(), *wishes.extra),
        joined=tuple(planner.joined),
        notes=tuple(planner.notes),
    )


def child_environment(
    environ: Mapping[str, str],
    plan: EnvironmentPlan,
    door_urls: Mapping[str, str],
    *,
    trial: str,
    run: str | None,
    trace: TraceContext,
    proxy: str | None = None,
    control: str | None = None,
) -> ChildEnvironment:
    """The environment of the command.  `door_urls`: door name -> `http://127.0.0.1:PORT/t/TOKEN`; a door that is
    missing there was not opened and its variables stay as they are.  Of a socket door it is `unix://PATH`.
    `proxy`: the connect door, in whose run there is no other.  `control`: the control API's address.
    """
    changes: dict[str, tuple[str, str]] = {}
    for door in plan.doors:
        base = door_urls.get(door.name)
        if base is None:
            continue
        for pointer in door.pointers:
            url = base.removeprefix("unix://") if door.socket else point_to(base, pointer.rest, pointer.login)
            changes[pointer.variable] = (url, pointer.why)
    hosts = {urlsplit(url).hostname or "" for url in door_urls.values()}
    for name, value in _no_proxy(environ, (*_LOOPBACK, *sorted(hosts - {""} - set(_LOOPBACK)))).items():
        why = "a proxy must not stand between the command and the doors" if proxy is None else "loopback stays direct"
        changes[name] = (value, why)
    if proxy is not None:
        why = "--via connect: each TLS connection is dialled by fairtrial, through the proxy that stood here before"
        changes |= dict.fromkeys(("HTTPS_PROXY", "https_proxy"), (proxy, why))
    changes["TRACEPARENT"] = (
        f"00-{trace.trace_id}-{trace.root_span_id}-{trace.flags}",
        "the trial's span; continues the incoming trace" if trace.parent_span_id else "the trial's span, a new trace",
    )
    notes: list[Note] = []
    if proxy is not None:
        pass  # nobody reads the header, and a first-party address shall get what it would get without us
    elif environ.get("CLAUDE_CODE_PROPAGATE_TRACEPARENT", "1") in {"", "1"}:
        changes["CLAUDE_CODE_PROPAGATE_TRACEPARENT"] = ("1", "attempts of one call are told by their traceparent")
    else:
        notes.append(
            Note("environment.kept", "CLAUDE_CODE_PROPAGATE_TRACEPARENT is set by the user and stays as it is.")
        )
    changes["FAIRTRIAL_TRIAL"] = (trial, "programs inside can name the trial; a nested run finds this one")
    if run is not None:
        changes["FAIRTRIAL_RUN"] = (run, "programs inside can name the run")
    if control is not None:
        changes["FAIRTRIAL_CONTROL_URL"] = (control, "--control: programs inside can say the trial's outcome")
    variables = dict(environ)
    mutations: list[Mutation] = []
    for name, (value, why) in changes.items():
        old = environ.get(name)
        if old == value:
            continue
        variables[name] = value
        mutations.append(
            Mutation(
                what=f"environment {name}",
                old=None if old is None else mask_value(name, old),
                new=mask_url(value),
                why=why,
                side_effects=_EFFECTS.get(name),
            )
        )
    return ChildEnvironment(variables=variables, mutations=tuple(mutations), notes=tuple(notes))


def trace_context(environ: Mapping[str, str], *, new_trace_id: str, root_span_id: str) -> TraceContext:
    """Continue the incoming TRACEPARENT where it is valid, else begin the given new trace, sampled."""
    found = _TRACEPARENT.fullmatch(environ.get("TRACEPARENT", "").strip())
    if found and int(found[1], 16) and int(found[2], 16):
        return TraceContext(found[1], root_span_id, parent_span_id=found[2], flags=found[3])
    return TraceContext(new_trace_id, root_span_id)


def point_to(base: str, rest: str, login: str = "") -> str:
    """A door's URL with a variable's own path, query and user part."""
    scheme, _, tail = base.partition("://")
    return f"{scheme}://{login}{tail}{rest}"


def split_target(url: str) -> tuple[str, str, str] | None:
    """As `split_origin`, for an address that the user gives for fairtrial: also `unix:///path`, and
    `http+unix://%2Fpath/base`, whose origin is the socket.
    """
    scheme, _, rest = url.strip().partition("://")
    if scheme == "unix" and rest.startswith("/"):
        return f"unix://{rest}", "", ""
    if scheme == "http+unix" and rest.lower().startswith("%2f"):
        path, slash, base = rest.partition("/")
        return f"unix://{unquote(path)}", slash + base, ""
    return split_origin(url)


def split_origin(url: str) -> tuple[str, str, str] | None:
    """(origin, path and query, `user:password@` or "") of an http(s) URL; None when it is none."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = f"{parts.scheme.lower()}://{host}" + (f":{port}" if port is not None else "")
    rest = parts.path + (f"?{parts.query}" if parts.query else "")
    return origin, rest, _login(parts)


# --- how it works ---------------------------------------------------------------------------------------------------


class _Planner:
    """Collects doors; variables of one provider with one origin share a door."""

    def __init__(self, environ: Mapping[str, str], wishes: Wishes) -> None:
        self._environ = environ
        self._wishes = wishes
        self._doors: dict[str, tuple[str, list[Pointer]]] = {}
        self.joined: list[Joined] = []
        self.notes: list[Note] = []
        self.sockets: list[DoorPlan] = []

    def socket(self, provider: str, variable: str, path: str) -> None:
        """A door in the place of a client's socket.  Its base URL stays: through a socket it names no place."""
        trial = self._environ.get("FAIRTRIAL_TRIAL", "")
        if trial and path.rpartition("/")[0].endswith(f"/{trial[-12:]}"):
            self.joined.append(Joined(variable, provider))
            return
        pointer = Pointer(variable, "", "", "the socket that the variable held is behind the door")
        self.sockets.append(DoorPlan(provider, f"unix://{path}", (pointer,), socket=True))
        text = f"{variable} is set: {', '.join(VARIABLES[provider])} stays as it is."
        self.notes.append(Note("environment.socket", text))

    def doors(self) -> Iterable[DoorPlan]:
        return [DoorPlan(name, origin, tuple(pointers)) for name, (origin, pointers) in self._doors.items()]

    def provider(self, provider: str, variables: tuple[str, ...]) -> None:
        wishes = self._wishes
        held = {
            name: value for name in variables if (value := wishes.held.get(name) or self._environ.get(name, "").strip())
        }
        for variable in variables:
            if variable in wishes.routes:
                self.point(provider, variable, wishes.routes[variable], "asked for by --route")
            elif provider in wishes.upstreams:
                self.point(provider, variable, wishes.upstreams[provider], "asked for by --upstream")
            elif variable in held:
                source = "what a settings file held" if variable in wishes.held else "what the variable held"
                self.point(provider, variable, held[variable], f"{source} is behind the door", asked=False)
            elif not held:
                # With one of two variables set, the other stays unset: a client that reads both would turn away from
                # the user's address if ours appeared in the one it prefers.
                url = DEFAULT_URLS[provider]
                if variable == "ANTHROPIC_BASE_URL" and wishes.v1_clients:
                    url += "/v1"
                self.point(provider, variable, url, "the provider's own address is behind the door")

    def point(self, name: str, variable: str, url: str, why: str, *, asked: bool = True) -> None:
        """Let a variable point to the door of `url`.  `asked`: the user gave it to us; else a client reads it too."""
        if variable in self._wishes.leave:
            self.notes.append(Note("environment.left_alone", f"{variable}: {self._wishes.leave[variable]}", say=True))
            return
        found = split_target(url) if asked else split_origin(url)
        if found is None:
            self.notes.append(
                Note(
                    "environment.not_an_address",
                    f"{variable} holds {mask_value(variable, url)!r}, which is no http(s) address; it stays as it is, "
                    f"and calls that go there are not seen.",
                    say=True,
                )
            )
            return
        origin, rest, login = found
        if door := self._outer_door(origin, rest):
            self.joined.append(Joined(variable, door))
            return
        if self._is_signed(variable, origin):
            self.notes.append(
                Note(
                    "environment.signed",
                    f"{variable} stays as it is: requests to Bedrock are signed for their host, so they cannot go "
                    f"through a door and are not seen.",
                    say=True,
                )
            )
            return
        if name in self._doors and self._doors[name][0] != origin:
            name = variable
        self._doors.setdefault(name, (origin, []))[1].append(Pointer(variable, rest, login, why))

    def unseen_clouds(self) -> None:
        """Switches with which Claude Code goes past ANTHROPIC_BASE_URL."""
        for switch, cloud, hint in (
            (
                "CLAUDE_CODE_USE_BEDROCK",
                "Bedrock",
                (
                    "signed requests cannot go through a door (--via connect times their connections); with "
                    "AWS_BEARER_TOKEN_BEDROCK as their key "
                    "--route ANTHROPIC_BEDROCK_BASE_URL=URL shows them"
                ),
            ),
            ("CLAUDE_CODE_USE_VERTEX", "Vertex", "--route ANTHROPIC_VERTEX_BASE_URL=URL shows them"),
            ("CLAUDE_CODE_USE_FOUNDRY", "Foundry", "--route ANTHROPIC_FOUNDRY_BASE_URL=URL shows them"),
        ):
            variable = f"ANTHROPIC_{cloud.upper()}_BASE_URL"
            if (
                self._environ.get(switch, "").lower() in {"", "0", "false", "no", "off"}
                or variable in self._wishes.routes
            ):
                continue
            self.notes.append(
                Note(
                    "environment.cloud",
                    f"{switch} is set: Claude Code's calls go to {cloud} and are not seen; {hint}.",
                    say=True,
                )
            )

    def _outer_door(self, origin: str, rest: str) -> str | None:
        parts = urlsplit(origin)
        if parts.hostname not in _LOOPBACK or parts.port is None or not rest.startswith("/t/"):
            return None
        return self._wishes.outer_doors.get(parts.port)

    def _is_signed(self, variable: str, origin: str) -> bool:
        if variable == "ANTHROPIC_BEDROCK_BASE_URL" and self._environ.get("AWS_BEARER_TOKEN_BEDROCK"):
            return False  # a key of Bedrock's instead of a signature (botocore itself sends that to no plain http)
        if _BEDROCK_HOST.search(urlsplit(origin).hostname or ""):
            return True
        unsigned = self._environ.get("CLAUDE_CODE_SKIP_BEDROCK_AUTH", "").lower() in {"1", "true", "yes", "on"}
        return variable in _SIGNED and not unsigned


def _no_proxy(environ: Mapping[str, str], hosts: tuple[str, ...]) -> dict[str, str]:
    """Both spellings with `hosts` added.  Where only one was set the other begins as its copy: programs differ in which
    one they prefer, and a new one with our hosts alone would hide the user's list.
    """
    upper, lower = environ.get("NO_PROXY"), environ.get("no_proxy")
    result: dict[str, str] = {}
    for name, own, other in (("NO_PROXY", upper, lower), ("no_proxy", lower, upper)):
        value = own if own is not None else other or ""
        entries = [entry for entry in re.split(r"[,\s]+", value) if entry]
        if "*" in entries:
            result[name] = value
            continue
        missing = [host for host in hosts if host not in entries]
        result[name] = ",".join([value.rstrip(", "), *missing]) if entries else ",".join(hosts)
        if entries and not missing:
            result[name] = value
    return result


def _login(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[0] + "@" if "@" in parts.netloc else ""
