"""Secrets that a run and a serve meet are found in nothing that they write, send, serve or say.

Fifty-odd secrets (`canary.SECRETS`), planted in every place where real ones travel, are searched in spans as they went
over the wire, the metrics page, logs, every byte and every unpacked row of the store, spill files, records, and what
commands print.  A task's name, which is allowed, must be found in each of them: so the search itself is proved.
"""

import http.client
import ssl
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.conftest import REPO_ROOT, engine
from tests.e2e import clients
from tests.e2e.canary import CONTROL, CONTROL_MODEL, MARKS, SECRETS, call, leaks, pieces, upstream
from tests.e2e.under import fairtrial, read_record, run_command
from tests.fakes.collector import Collector, http_collector
from tests.fakes.grpc_collector import grpc_collector
from tests.middleware.relay.serving import free_port, served, until

COMMANDS = (
    ("trials",),
    ("trials", "--json"),
    ("show", "last"),
    ("show", "last", "--json"),
    ("show", "last", "--replay"),
    ("drift",),
    ("drift", "--json"),
    ("export", "last", "--jsonl"),
)


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(SECRETS.values()))
    assert len({leak.split()[0] for leak in leaks(pieces(tmp_path))}) == len(MARKS) == len(SECRETS) >= 50


@contextmanager
def untrusted(name: str) -> Iterator[int]:
    """A TLS server whose certificate nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA(organization_name=name).issue_cert("localhost", organization_name=name).configure_cert(context)
    with http_collector(tls=context) as server:
        yield server.port


def arguments() -> list[str]:
    """The agent's command line, with secrets of its own."""
    prompt = f"use the password {SECRETS['ArgvPrompt']} for it"
    named = ["--api-key", SECRETS["ArgvOption"], f"--auth-token={SECRETS['ArgvEquals']}"]
    return [sys.executable, "-m", "tests.e2e.canary", *named, SECRETS["ArgvBare"], prompt]


def environment_of(home: Path, url: str, collector: Collector, protocol: str, tls_port: int) -> dict[str, str]:
    port = url.rpartition(":")[2]
    address, _ = engine()
    docker = {"FAIRTRIAL_RUN__DOCKER": "false"} if address is None else {"DOCKER_HOST": address}
    if address is not None:
        docker |= {"CANARY_IMAGE": "ft-busybox", "CANARY_SUFFIX": uuid.uuid4().hex[:8]}
    return clients.clean_environment(
        home,
        PYTHONPATH=str(REPO_ROOT),
        XDG_STATE_HOME=str(home / "state"),
        ANTHROPIC_BASE_URL=f"http://127.0.0.1:{port}/base/{SECRETS['BasePath']}",
        OPENAI_BASE_URL=f"http://user:{SECRETS['UrlPassword']}@127.0.0.1:{port}/base?key={SECRETS['UrlQuery']}",
        LOST_URL=f"http://{SECRETS['UpstreamName'].lower()}.invalid/v1",
        TLS_URL=f"https://localhost:{tls_port}/v1",
        HTTP_PROXY=f"http://user:{SECRETS['ProxyPassword']}@127.0.0.1:{free_port()}",
        NO_PROXY="127.0.0.1,localhost",
        ANTHROPIC_API_KEY=SECRETS["EnvProviderKey"],
        AWS_SECRET_ACCESS_KEY=SECRETS["EnvSecret"],
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_EXPORTER_OTLP_HEADERS=f"x-collector-token={SECRETS['EnvOtlpHeader']}",
        FAIRTRIAL_EXPORT__LOG="trials.log",
        **docker,
    )


@pytest.mark.parametrize("protocol, store", [("http/protobuf", "sound"), ("grpc", "corrupt")])
def test_nothing_of_a_run_holds_a_secret(
    home: Path, project: Path, tmp_path: Path, protocol: str, store: str, request: pytest.FixtureRequest
) -> None:
    if engine()[0] is not None:
        request.getfixturevalue("busybox_image")
    state = home / "state" / "fairtrial"
    state.mkdir(parents=True)
    database = state / "store.db"
    if store == "corrupt":
        database.write_bytes(b"this is no database " * 1000)
    record = tmp_path / "kept" / "trial.json"
    record.parent.mkdir()
    made = http_collector() if protocol.startswith("http") else grpc_collector()
    with upstream() as url, untrusted(SECRETS["UpstreamName"]) as tls_port, made as collector:
        environment = environment_of(home, url, collector, protocol, tls_port)
        routes = [f"{name}={environment[name]}" for name in ("LOST_URL", "TLS_URL")]
        options = ("--task", CONTROL, "--verbose", *(word for route in routes for word in ("--route", route)))
        outcome = clients.run(run_command(arguments(), database, record, options), environment, project)
        until(lambda: collector.got, "the trace is there")
        spans = [("a span", got.body) for got in collector.got]
        said = [("stderr of run", outcome.stderr.encode()), *spans]
        if store == "sound":
            said += [
                (f"fairtrial {' '.join(words)}", text.encode())
                for words in COMMANDS
                for done in [fairtrial(*words, "--store", str(database), environment=environment)]
                for text in (done.stdout, done.stderr)
            ]
        else:
            spill = next(state.glob("spill-*"))
            saved = tmp_path / "kept" / "saved.db"
            done = fairtrial("import", "store", str(spill), "--store", str(saved), environment=environment)
            assert done.returncode == 0, done.stderr
        for words in (("config", "show"), ("doctor", *arguments())):
            done = fairtrial(*words, environment=environment)
            said += [(f"fairtrial {words[0]}", text.encode()) for text in (done.stdout, done.stderr)]
    assert outcome.returncode == 1, outcome.told()
    assert "tool 200" in outcome.stdout and "error 401" in outcome.stdout, outcome.told()
    if engine()[0] is not None:
        assert "docker run 0" in outcome.stdout and "docker exec 0" in outcome.stdout, outcome.told()
    trial = read_record(record)
    assert trial is not None
    calls = [call for step in trial.steps for call in step.calls] + trial.side_calls
    seen = Counter(attempt.outcome for each in calls for attempt in each.attempts)
    assert (seen["ok"], seen["error"]) == (3, 5), f"not all was seen: {seen}"
    files = [*pieces(state), *pieces(record.parent)]
    if engine()[0] is not None:
        kinds = (b'"kind":"container.seen"', b'"kind":"door.exec"')
        assert all(any(kind in raw for _, raw in files) for kind in kinds), "no container or no exec was seen"
    assert not (found := leaks([*said, *files])), "\n".join(sorted(set(found)))
    for what in ("trials.log", "trial.json", "store.db:observation" if store == "sound" else "spill-"):
        assert any(what in name and CONTROL.encode() in raw for name, raw in files), f"no control in {what}"
    assert any(CONTROL.encode() in raw for _, raw in spans), "no control in the spans"
    if store == "sound":
        for words in (("trials",), ("show", "last", "--json"), ("export", "last", "--jsonl")):
            assert any(n == f"fairtrial {' '.join(words)}" and CONTROL.encode() in raw for n, raw in said), words


def test_nothing_of_a_serve_holds_a_secret(tmp_path: Path) -> None:
    metrics_port = free_port()
    with upstream() as url, http_collector() as collector, served(tmp_path) as home:
        environment = {
            "FAIRTRIAL_SERVE__METRICS": f"127.0.0.1:{metrics_port}",
            "FAIRTRIAL_SERVE__ACCESS_TOKEN": SECRETS["ServeAccess"],
            "FAIRTRIAL_SERVE__KEYS": f"keyed={SECRETS['ServeKey']}",
            "FAIRTRIAL_EXPORT__LOG": "trials.log",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-collector-token={SECRETS['EnvOtlpHeader']}",
            "ANTHROPIC_API_KEY": SECRETS["EnvProviderKey"],
        }
        refused = f"http://user:{SECRETS['UrlPassword']}@127.0.0.1:9/?key={SECRETS['UrlQuery']}"
        status, why = home.fails("--upstream", f"anthropic={refused}", environ=environment)
        assert status == 78, why
        running = home.start({"anthropic": f"{url}/base/{SECRETS['BasePath']}"}, environ=environment)
        running.wait_for_observer()
        door = f"http://127.0.0.1:{running.doors['anthropic']}"
        named = f"/t/{SECRETS['ServeAccess']}.{CONTROL}"
        for want in ("tool", "error", "page", "stream", "done"):
            assert call(door, want, prefix=named) in (200, 401, 502)
        assert call(door, "done", SECRETS["ModelAsked"], prefix=named) == 200
        assert call(door, "done", prefix=f"/t/{SECRETS['HeaderSession']}") == 403
        bearer = {"Authorization": f"Bearer {SECRETS['ServeAccess']}"}
        until(lambda: home.calls(CONTROL) == 6, "the calls are stored")
        assert running.report(f"trials/{CONTROL}/over", bearer, "POST")[0] == 202
        until(lambda: home.closed(CONTROL) is not None and collector.got, "the trial is over and sent")
        said = [("a span", got.body) for got in collector.got]
        said += [("stderr of one that is refused", why.encode())]
        said += [("/metrics", page(metrics_port)), ("/healthz", repr(running.report("healthz")).encode())]
        assert running.end() == 0
        said += [("stderr of serve", line.encode()) for line in running.said]
    files = list(pieces(tmp_path / "state"))
    assert not (found := leaks([*said, *files])), "\n".join(sorted(set(found)))
    for what in ("store.db:observation", "trials.log"):
        assert any(what in name and CONTROL_MODEL.encode() in raw for name, raw in files), f"no control in {what}"
    for what in ("a span", "/metrics"):
        assert any(name == what and CONTROL_MODEL.encode() in raw for name, raw in said), f"no control in {what}"


def page(port: int) -> bytes:
    """The metrics, in the form that has exemplars."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        return connection.getresponse().read()
    finally:
        connection.close()
