"""Real clients print and send through the door what they print and send without it.

Each client meets the same stand-in twice: directly, and under `fairtrial run`.  Compared are its standard output and,
request by request, on which connection it came, method, target, all header lines in their order and case, and the body.
What a client makes anew for each run (ids, times) is replaced by its kind.  Everything else that differs is named in
`DIFFERENCES`, exactly: one that goes away fails as well as one that is new.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.faults import catalogue
from fairtrial.middleware.demo.script import Scenario, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.clients import Outcome
from tests.e2e.test_run_sdks import KINDS, sdk_command, sdk_environment
from tests.e2e.under import NO_DOCKER, run_under

FINAL = "Done: hello.txt says hello."
SCRIPT = tuple(
    replace(step, input_tokens=1_000)  # a count of the request's bytes would count the digits of its times
    for step in (
        shell("echo hello > hello.txt", text="I will write it."),
        shell("cat hello.txt", text="I look at it."),
        say(FINAL),
    )
)

DIFFERENCES: Mapping[str, frozenset[str]] = {
    "claude_traced": frozenset({"request header traceparent"}),
}
"""Client → what differs.  `request header NAME`: sent with us and not without.

Claude Code, with its own telemetry on, sends `traceparent` because of CLAUDE_CODE_PROPAGATE_TRACEPARENT, which is in
the trial's mutations.  Both runs have a base URL here; what Claude Code does otherwise once it has one is
`test_run_claude.test_what_claude_code_offers_differently_behind_a_door_is_listed_in_the_mutations`.
"""

ANEW = (
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (
        r"\b(toolu|msg|call|fc|fco|resp|rs|prt|ses|req|evt|item|user|thread|turn)_(?:[a-z]\d*_)?[0-9A-Za-z]{8,}",
        r"\1_ID",
    ),
    (r"\b[0-9a-f]{32,}\b", "HEX"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "TIME"),
    (r'("(?:[a-z_]*_ms|timestamp|wall_time_seconds)"):[0-9.]+', r'\1:"N"'),  # first: its decimals may look like a time
    (r"(?<![\d.])1[789]\d{8}(?:\d{3})?(?:\.\d+)?\b", "EPOCH"),
    (r"[0-9.]+ seconds", "N seconds"),
    (r"cch=[0-9a-f]+", "cch=CHECKSUM"),
    (r"Chunk ID: \w+", "Chunk ID: ID"),
    (r"(00-[0-9a-f]{32}-[0-9a-f]{16}-01)", "TRACEPARENT"),
)
"""What clients make anew for each run."""


def plain(text: str) -> str:
    for pattern, kind in ANEW:
        text = re.sub(pattern, kind, text)
    return text


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as far as it must be the same."""

    connection: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """What one run printed, and what the model server saw of it."""

    outcome: Outcome
    printed: str
    asked: tuple[Asked, ...]
    names: frozenset[str]


def transcript(client: "Client", outcome: Outcome, calls: Sequence[Call]) -> Transcript:
    order: dict[int, int] = {}
    asked: list[Asked] = []
    for call in calls:
        headers = tuple(
            (name, plain(value))
            for name, value in call.headers
            if name.lower() not in {"content-length", "sec-websocket-key", "traceparent"}
        )
        body = plain(client.body(call.body.decode()))
        connection = order.setdefault(call.connection, len(order)) if client.one_by_one else 0
        asked.append(Asked(connection, call.method, call.path, headers, body))
        length = call.header("content-length")
        assert length is None or int(length) == call.body_bytes
    names = frozenset(name.lower() for call in calls for name, _ in call.headers)
    return Transcript(outcome, plain(outcome.stdout), tuple(asked), names)


def parting(direct: str, through: str) -> str:
    """Where two texts part."""
    pairs = enumerate(zip(direct, through, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(direct), len(through)))
    return f"direct:  …{direct[max(0, at - 150) : at + 150]}…\nthrough: …{through[max(0, at - 150) : at + 150]}…"


def same(client: str, direct: Transcript, through: Transcript) -> None:
    """Fails with the first thing that differs."""
    told = f"{direct.outcome.told()}\n=== under fairtrial\n{through.outcome.told()}"
    assert through.outcome.returncode == direct.outcome.returncode, told
    assert through.printed == direct.printed, f"{parting(direct.printed, through.printed)}\n{told}"
    shape = [[(one.method, one.target) for one in each.asked] for each in (direct, through)]
    assert shape[0] == shape[1] != [], f"{shape}\n{told}"
    for mine, theirs in zip(through.asked, direct.asked, strict=True):
        assert mine == theirs, parting(str(theirs), str(mine))
    found = {f"request header {name}" for name in through.names - direct.names}
    found |= {f"no request header {name}" for name in direct.names - through.names}
    assert found == DIFFERENCES.get(client, frozenset()), f"{found}\n{told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How a client is run.  `body` takes out of a request what has no order; `order` is that of its requests.

    `one_by_one`: not for a client that sends calls side by side: which of its free connections the next one takes is
    then chance, with us and without.  `keeps_home`: both runs have one HOME, since its first use costs seconds and
    changes nothing that is sent.
    """

    command: Callable[[], Sequence[str]]
    environment: Callable[[Path, Path, str], Mapping[str, str]]
    options: tuple[str, ...] = ()
    body: Callable[[str], str] = str
    order: Callable[[Call], tuple[int, ...]] = lambda call: (call.index,)
    websockets: bool = False
    one_by_one: bool = True
    keeps_home: bool = False


def twice(
    client: Client, home: Path, project: Path, kept: Path, prefix: Sequence[str], faults: str | None = None
) -> tuple[Transcript, Transcript]:
    """Directly and under fairtrial, from the same folders, made anew."""
    scenario = Scenario(
        steps=SCRIPT, websockets=client.websockets, faults=tuple(catalogue(1)[faults]) if faults else ()
    )
    done: list[Transcript] = []
    port = 0
    for way in ("direct", "through"):
        for folder in (project,) if client.keeps_home else (home, project):
            shutil.rmtree(folder)
            folder.mkdir()
        with running_standin(scenario, command_prefix=prefix, port=port) as server:
            port = server.port
            environment = dict(client.environment(home, project, server.url)) | NO_DOCKER
            if way == "direct":
                outcome = clients.run(client.command(), environment, project, prefix=prefix)
            else:
                under = run_under(
                    client.command(), environment, project, kept=kept, options=client.options, prefix=prefix
                )
                outcome = under.outcome
                assert under.trial.steps, under.told()
            calls = [call for call in server.calls if not call.path.startswith("/otlp/")]
            done.append(transcript(client, outcome, sorted(calls, key=client.order)))
    return done[0], done[1]


# --- the clients ------------------------------------------------------------------------------------------------------


def metadata_in_order(body: str) -> str:
    """Codex's own metadata are a map without an order."""
    if not body:
        return body
    asked = json.loads(body)
    if isinstance(asked.get("client_metadata"), dict):
        asked["client_metadata"] = dict(sorted(asked["client_metadata"].items()))
    return json.dumps(asked)


CLIENTS: Mapping[str, Client] = {
    **{
        kind: Client(
            command=lambda kind=kind: sdk_command(kind),  # type: ignore[misc]  # a default is how a loop binds
            environment=lambda home, _project, url: sdk_environment(home, url),
        )
        for kind in KINDS
    },
    "claude": Client(
        command=lambda: clients.claude_command("say hello using bash", output_format="stream-json"),
        environment=lambda home, _project, url: clients.claude_environment(home, url),
    ),
    "claude_traced": Client(
        command=lambda: clients.claude_command("say hello using bash"),
        environment=lambda home, _project, url: clients.claude_environment(
            home,
            url,
            CLAUDE_CODE_ENABLE_TELEMETRY="1",
            CLAUDE_CODE_ENHANCED_TELEMETRY_BETA="1",
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/json",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"{url}/otlp",
        ),
    ),
    "codex": Client(
        command=lambda: clients.codex_command("say hello using the shell"),
        environment=lambda home, _project, url: clients.codex_environment(home, url),
        body=metadata_in_order,
        options=("--adapt",),
    ),
    "codex_websocket": Client(
        command=lambda: clients.codex_command("say hello using the shell"),
        environment=lambda home, _project, url: clients.codex_builtin_environment(home, url),
        body=metadata_in_order,
        options=("--adapt",),
        websockets=True,
    ),
    "opencode": Client(
        command=lambda: clients.opencode_command("say hello using bash"),
        environment=lambda home, project, url: clients.opencode_environment(home, project, url),
        options=("--adapt",),
        order=lambda call: (call.step or 0, not call.side),
        one_by_one=False,
        keeps_home=True,
    ),
    "opencode_messages": Client(
        command=lambda: clients.opencode_command("say hello using bash", model="anthropic/claude-sonnet-4-5"),
        environment=lambda home, project, url: clients.opencode_environment(home, project, url),
        options=("--adapt",),
        order=lambda call: (call.step or 0, not call.side),
        one_by_one=False,
        keeps_home=True,
    ),
}


def test_a_duration_whose_decimals_look_like_a_time_is_one_number() -> None:
    assert plain('{"retry_delay_ms":512.1796084162377,"at":1796084162377}') == '{"retry_delay_ms":"N","at":EPOCH}'


@pytest.fixture
def installed(request: pytest.FixtureRequest) -> None:
    """Skips a client that is not there."""
    program = str(request.node.callspec.params["client"]).partition("_")[0]
    if program in {"claude", "codex", "opencode"}:
        request.getfixturevalue(program)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_prints_and_sends_the_same_through_the_door(
    client: str, home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    direct, through = twice(CLIENTS[client], home, project, tmp_path / "kept", loopback_only)
    assert direct.outcome.returncode == 0, direct.outcome.told()
    same(client, direct, through)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "client, fault",
    [
        ("claude", "overloaded_twice"),
        ("claude", "cut_once"),
        ("codex", "overloaded_twice"),
        ("codex", "cut_once"),
        ("opencode", "overloaded_twice"),
    ],
)
def test_a_clients_retries_are_the_same_through_the_door(
    client: str, fault: str, home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    same(client, *twice(CLIENTS[client], home, project, tmp_path / "kept", loopback_only, fault))
