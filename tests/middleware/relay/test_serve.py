"""`fairtrial serve` as real processes: trials told apart, an observer that dies, and every way to end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import AttemptEnded, DoorState, decode
from tests.middleware.relay.rig import UpstreamSide, read_all, read_exactly, read_head
from tests.middleware.relay.serving import (
    ASK,
    AnsweringUpstream,
    Running,
    Serve,
    ending,
    free_port,
    opening,
    until,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def raw() -> Iterator[UpstreamSide]:
    side = UpstreamSide()
    yield side
    side.close()


def stream(
    running: Running, raw: UpstreamSide, path: str = "/t/streamed/v1/messages"
) -> tuple[socket.socket, socket.socket]:
    """A call whose reply has begun: client's and upstream's ends."""
    client = running.begin("anthropic", path)
    far = raw.accept()
    head = read_head(far)
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    read_exactly(far, int(length.partition(b":")[2]))
    far.sendall(opening())
    assert read_exactly(client, len(opening())) == opening()
    return client, far


# --- doors and trials ---------------------------------------------------------------------------------------------


def test_several_providers_each_have_a_door_of_their_own(serve: Serve, upstream: AnsweringUpstream) -> None:
    other = AnsweringUpstream()
    first = free_port()
    running = serve.start(
        {"anthropic": upstream.url, "openai": other.url + "/v1"},
        "--listen",
        f"openai=127.0.0.1:{first}",
        "--listen",
        "127.0.0.1:0",
    )
    assert running.doors["openai"] == first
    assert running.call("anthropic", "/t/a/v1/messages")[0] == 200
    assert running.call("openai", "/t/a/chat/completions")[0] == 200
    assert [path for path, _ in upstream.heads] == ["/v1/messages"]
    assert [path for path, _ in other.heads] == ["/v1/chat/completions"]
    assert running.end() == 0
    assert [row.name for row in serve.rows()] == ["a"], "one trial may use both"
    states = [value for o in serve.observations(serve.rows()[0].trial) if isinstance(value := decode(o), DoorState)]
    assert {state.name: state.port for state in states} == running.doors
    assert len(serve.record(serve.row("a").trial).steps) == 2
    other.close()


def test_trials_are_told_apart_by_path_by_header_and_by_native_ids(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url}, "--run", "nightly")
    for _ in range(2):
        running.call("anthropic", "/t/one/v1/messages")
        running.call("anthropic", "/t/two/v1/messages?beta=true")
        running.call("anthropic", "/v1/messages", {"x-fairtrial-trial": "three"})
        running.call("anthropic", "/v1/messages", {"x-claude-code-session-id": "s-1"})
        running.call("anthropic", "/v1/messages", {"x-claude-code-session-id": "s-2"})
    assert running.end() == 0
    rows = serve.rows()
    assert sorted(row.name or "-" for row in rows) == ["-", "-", "one", "three", "two"]
    assert {row.run for row in rows} == {"nightly"}
    for row in rows:
        started = [o for o in serve.observations(row.trial) if o.kind == "attempt.started"]
        assert len(started) == 2, row.name
    assert {path for path, _ in upstream.heads} == {"/v1/messages", "/v1/messages?beta=true"}
    assert not any(name.lower().startswith("x-fairtrial") for _, headers in upstream.heads for name in headers)


def test_trials_are_told_by_their_key_and_by_their_address(serve: Serve, upstream: AnsweringUpstream) -> None:
    key = "sk-of-the-first-trial-0123456789"
    environ = {"FAIRTRIAL_SERVE__KEYS": f"by-key={key}", "FAIRTRIAL_SERVE__PEERS": "by-peer=127.0.0.1"}
    running = serve.start({"anthropic": upstream.url}, environ=environ)
    running.call("anthropic", "/v1/messages", {"x-api-key": key})
    running.call("anthropic", "/v1/messages", {"authorization": f"Bearer {key}", "x-api-key": ""})
    running.call("anthropic", "/v1/messages", {"x-api-key": "another"})
    running.call("anthropic", "/t/by-path/v1/messages", {"x-api-key": key})
    assert running.end() == 0
    assert {row.name: serve.calls(row.name or "") for row in serve.rows()} == {"by-key": 2, "by-peer": 1, "by-path": 1}
    held = b"".join(path.read_bytes() for path in serve.store.parent.iterdir() if path.is_file())
    assert key.encode() not in held
    assert upstream.heads[0][1]["x-api-key"] == key, "the upstream gets what the client sent"


def test_an_idle_trial_is_closed_and_judged_while_serve_goes_on(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url}, "--idle", "1")
    running.call("anthropic", "/t/short/v1/messages")
    running.call("anthropic", "/v1/messages", {"x-claude-code-session-id": "s-1"})
    until(lambda: [row.closed for row in serve.rows()] == ["normal", "normal"], "both are closed")
    record = serve.record(serve.row("short").trial)
    assert record.outcome.value == "unknown"
    assert record.verdict is not None and record.verdict.blame.value == "indeterminate"
    assert record.steps[0].calls[0].attempts[0].status == 200, "the evidence stands"
    running.call("anthropic", "/t/short/v1/messages")
    until(lambda: len([row for row in serve.rows() if row.name == "short"]) == 2, "its name begins another trial")
    assert running.end() == 0


def test_a_trial_that_is_said_to_be_over_is_closed(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url})
    running.call("anthropic", "/t/mine/v1/messages")
    running.call("anthropic", "/t/other/v1/messages")
    assert running.report("trials/mine/over", method="POST")[0] == 202
    until(lambda: serve.closed("mine") == "normal", "it is closed")
    assert serve.row("other").closed is None
    by_header = {"x-fairtrial-trial": "named by header"}
    running.call("anthropic", "/v1/messages", by_header)
    assert running.report("trials/named%20by%20header/over", method="POST")[0] == 202
    until(lambda: serve.closed("named by header") == "normal", "it is closed as well")
    running.call("anthropic", "/v1/messages", by_header)
    until(lambda: [r.name for r in serve.rows()].count("named by header") == 2, "its name begins another")
    assert running.end() == 0


# --- who may ----------------------------------------------------------------------------------------------------


def test_a_guarded_door_wants_its_secret_in_every_request(serve: Serve, upstream: AnsweringUpstream) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    running = serve.start({"anthropic": upstream.url}, environ={"FAIRTRIAL_SERVE__ACCESS_TOKEN": secret})
    assert running.call("anthropic", "/v1/messages")[0] == 403
    assert running.call("anthropic", f"/t/{secret[:-1]}x/v1/messages")[0] == 403
    assert running.call("anthropic", "/t/some-name/v1/messages")[0] == 403
    assert running.call("anthropic", "/v1/messages", {"x-fairtrial-access": "wrong"})[0] == 403
    assert upstream.heads == []
    assert running.call("anthropic", f"/t/{secret}.django-1/v1/messages")[0] == 200
    assert running.call("anthropic", f"/t/{secret}/v1/messages", {"x-claude-code-session-id": "s"})[0] == 200
    assert (
        running.call("anthropic", "/v1/messages", {"x-fairtrial-access": secret, "x-fairtrial-trial": "by-header"})[0]
        == 200
    )
    assert running.report("trials/django-1/over", method="POST")[0] == 401
    assert running.report("trials/django-1/over", {"Authorization": f"Bearer {secret}"}, method="POST")[0] == 202
    assert running.report("healthz")[1]["connections"]["refused"] == 4
    assert running.end() == 0
    assert sorted(row.name or "-" for row in serve.rows()) == ["-", "by-header", "django-1"]
    assert not any(secret in path or secret in str(headers) for path, headers in upstream.heads)
    held = b"".join(path.read_bytes() for path in serve.store.parent.iterdir() if path.is_file())
    assert secret.encode() not in held
    assert all(secret not in line for line in running.said)


def test_the_observer_is_told_no_secret(serve: Serve, upstream: AnsweringUpstream, repo_root: Path) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    observer = (sys.executable, "-P", str(repo_root / "tests" / "fakes" / "observer.py"))
    program = (
        "import sys; from fairtrial.middleware.relay import serve; "
        f"sys.exit(serve.main(sys.argv[1:], observer_command={observer!r}))"
    )
    seen = serve.home / "seen"
    seen.mkdir()
    words = ["--upstream", f"anthropic={upstream.url}", "--listen", "127.0.0.1:0", "--health", "off"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=serve.environ | {"FAIRTRIAL_SERVE__ACCESS_TOKEN": secret, "FAKE_OBSERVER_DIR": str(seen)},
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running(serve, process, 0)
    serve.processes.append(running)
    until(lambda: (seen / "1.jsonl").exists() and "HELLO" in (seen / "1.jsonl").read_text(), "it is told who we are")
    said = (seen / "1.jsonl").read_text()
    assert '"guarded": true' in said and secret not in said
    assert secret.encode() not in Path(f"/proc/{running.observer_pid()}/environ").read_bytes()
    assert running.end() == 0


def test_a_smuggling_head_gets_its_400_and_never_reaches_the_upstream(
    serve: Serve, upstream: AnsweringUpstream
) -> None:
    running = serve.start({"anthropic": upstream.url})
    with socket.create_connection(("127.0.0.1", running.doors["anthropic"]), timeout=30) as sock:
        sock.sendall(
            b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        said, how = read_all(sock)
    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n") and how == "fin"
    for line in (b"CONNECT 169.254.169.254:80", b"CONNECT /v1/messages", b"GET http://169.254.169.254/latest"):
        with socket.create_connection(("127.0.0.1", running.doors["anthropic"]), timeout=30) as sock:
            sock.sendall(line + b" HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n")
            assert read_all(sock)[0].startswith(b"HTTP/1.1 403 Forbidden\r\n"), line
    assert upstream.heads == []
    assert running.call("anthropic", "/t/a/v1/messages")[0] == 200, "the door goes on"
    assert running.end() == 0


# --- the observer dies --------------------------------------------------------------------------------------------


def test_a_stream_outlives_the_observer_which_comes_back_and_says_the_gap(serve: Serve, raw: UpstreamSide) -> None:
    running = serve.start({"anthropic": raw.url})
    running.wait_for_observer()
    client, far = stream(running, raw)
    until(lambda: [row.name for row in serve.rows()] == ["streamed"], "its trial is stored")
    os.kill(running.observer_pid(), signal.SIGKILL)
    far.sendall(ending())
    assert read_exactly(client, len(ending())) == ending(), "not a byte is missing"
    until(lambda: running.report("healthz")[1]["observer"]["deaths"] == 1, "its death is seen")
    status, said = running.report("healthz")
    assert status == 200 and said["observer"]["last_death"] == "signal 9"
    running.wait_for_observer()
    # The same connection goes on, and what comes through it is recorded again, with its provider.
    body = json.dumps(ASK).encode()
    client.sendall(
        b"POST /t/streamed/v1/messages HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    read_head(far)
    read_exactly(far, len(body))
    far.sendall(b"HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\n\r\n{}")
    read_exactly(client, 10)
    assert running.end() == 0
    row = serve.row("streamed")
    seen = serve.observations(row.trial)
    gaps = [o.value for o in seen if o.kind == "coverage.gap"]
    own = [gap for gap in gaps if gap["source"] == "observer"]  # what it had not read yet may be a gap of the feed
    assert len(own) == 1
    since_ns, until_ns = own[0]["since_ns"], own[0]["until_ns"]
    assert isinstance(since_ns, int) and isinstance(until_ns, int) and since_ns < until_ns
    later = [value for o in seen if isinstance(value := decode(o), AttemptEnded)]
    assert later[-1].reply.status == 529
    assert later[-1].upstream_host == f"127.0.0.1:{raw.port}", "it was told of the connections that are open"
    verdict = serve.record(row.trial).verdict
    assert verdict is not None and verdict.blame.value == "indeterminate"


def test_an_observer_that_dies_again_and_again_is_started_again_and_again(
    serve: Serve, upstream: AnsweringUpstream
) -> None:
    running = serve.start({"anthropic": upstream.url})
    for deaths in (1, 2, 3):
        running.wait_for_observer()
        os.kill(running.observer_pid(), signal.SIGKILL)
        until(lambda: running.report("healthz")[1]["observer"]["deaths"] == deaths, "it is seen")  # noqa: B023
        assert running.call("anthropic", "/t/a/v1/messages")[0] == 200
        assert running.report("readyz")[0] == 200, "calls are taken all the while"
        until(lambda: serve.calls("a") == deaths, "what came while it was dead is stored")  # noqa: B023
    running.wait_for_observer()
    assert running.end() == 0
    assert serve.row("a").steps == 3


def test_an_observer_that_hangs_is_ended_and_started_again(serve: Serve, upstream: AnsweringUpstream) -> None:
    program = (
        "import sys; from fairtrial.middleware.relay import serve, serve_link; "
        "serve_link.HUNG_S, serve_link.LOOK_S = 12.0, 0.5; sys.exit(serve.main(sys.argv[1:]))"
    )
    running = serve.start({"anthropic": upstream.url}, program=program)
    running.wait_for_observer()
    hung = running.observer_pid()
    os.kill(hung, signal.SIGSTOP)
    assert running.call("anthropic", "/t/a/v1/messages")[0] == 200
    until(lambda: running.report("healthz")[1]["observer"]["deaths"] >= 1, "it is ended")
    assert any("said nothing" in line for line in running.said)
    running.wait_for_observer()
    assert running.observer_pid() != hung
    assert running.call("anthropic", "/t/b/v1/messages")[0] == 200
    assert running.end() == 0
    assert serve.calls("b") == 1


def test_both_killed_leave_a_trial_that_the_next_start_closes(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url})
    running.call("anthropic", "/t/lost/v1/messages")
    until(lambda: serve.calls("lost") == 1, "its call is stored")
    observer = running.observer_pid()
    os.kill(observer, signal.SIGSTOP)  # so that it cannot close the trial when the relay is gone
    running.kill()
    os.kill(observer, signal.SIGKILL)
    assert serve.row("lost").closed is None
    again = serve.start({"anthropic": upstream.url})
    until(lambda: serve.closed("lost") == "recovered", "it is closed")
    assert again.end() == 0


def test_a_killed_relay_leaves_trials_closed_as_incomplete(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url})
    running.call("anthropic", "/t/cut/v1/messages")
    running.wait_for_observer()
    running.kill()
    until(lambda: serve.closed("cut") == "incomplete", "its observer closes it")


# --- the end ------------------------------------------------------------------------------------------------------


def test_sigterm_lets_an_open_stream_finish_and_ends_with_0(serve: Serve, raw: UpstreamSide) -> None:
    running = serve.start({"anthropic": raw.url})
    assert running.report("readyz")[0] == 200
    client, far = stream(running, raw)
    idle = running.connect("anthropic")
    running.tell()
    until(lambda: running.report("readyz")[0] == 503, "readiness flips")
    assert running.report("healthz")[0] == 200
    assert "draining" in running.report("readyz")[1]["why"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.doors["anthropic"]), timeout=5)
    assert idle.recv(10) == b"", "a connection that says nothing is closed"
    far.sendall(ending())
    assert read_exactly(client, len(ending())) == ending()
    assert running.process.wait(30) == 0
    record = serve.record(serve.row("streamed").trial)
    assert record.steps[0].calls[0].attempts[0].outcome == "ok"


def test_whoever_had_connected_before_the_end_is_still_served(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url})
    early = running.connect("anthropic")
    running.tell()
    until(lambda: running.report("readyz")[0] == 503, "it drains")
    body = json.dumps(ASK).encode()
    early.sendall(b"POST /t/early/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert read_head(early).startswith(b"HTTP/1.1 200")
    assert running.process.wait(30) == 0
    assert serve.row("early").steps == 1


def test_a_stream_past_the_deadline_is_cut_and_that_is_fairtrials_doing(serve: Serve, raw: UpstreamSide) -> None:
    running = serve.start({"anthropic": raw.url}, "--drain", "0.5")
    client, _far = stream(running, raw)
    running.tell()
    _, how = read_all(client)
    assert how == "rst"
    assert running.process.wait(30) == 0
    assert any("were cut" in line for line in running.said)
    seen = serve.observations(serve.row("streamed").trial)
    ended = [value for o in seen if isinstance(value := decode(o), AttemptEnded)]
    assert [value.outcome for value in ended] == ["proxy_shutdown"]
    assert ended[0].closed_by == "fairtrial"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(serve: Serve, raw: UpstreamSide, second: signal.Signals) -> None:
    running = serve.start({"anthropic": raw.url}, "--drain", "600")
    client, _far = stream(running, raw)
    running.tell()
    until(lambda: running.report("readyz")[0] == 503, "it drains")
    running.tell(second)
    assert running.process.wait(30) == 128 + second
    assert read_all(client)[1] == "rst"


def test_sighup_says_that_a_restart_is_needed_and_goes_on(serve: Serve, upstream: AnsweringUpstream) -> None:
    running = serve.start({"anthropic": upstream.url})
    running.tell(signal.SIGHUP)
    until(lambda: any("restart" in line for line in running.said), "it says so")
    assert running.call("anthropic", "/t/a/v1/messages")[0] == 200
    assert running.end() == 0


def test_a_unix_socket_is_private_and_gone_at_the_end(
    serve: Serve, upstream: AnsweringUpstream, tmp_path: Path
) -> None:
    path = tmp_path / "a.sock"
    running = serve.start({"anthropic": upstream.url}, "--listen", f"anthropic=unix:{path}")
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(str(path))
        body = json.dumps(ASK).encode()
        sock.sendall(b"POST /t/u/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert read_head(sock).startswith(b"HTTP/1.1 200")
    assert running.end() == 0
    assert not path.exists()
    assert serve.row("u").steps == 1


# --- it cannot start ----------------------------------------------------------------------------------------------


def test_a_port_in_use_is_said_with_its_number_and_a_remedy(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = serve.fails("--upstream", "anthropic=http://127.0.0.1:9", "--listen", f"127.0.0.1:{port}")
    assert status == 69
    assert f"127.0.0.1:{port}" in said and "in use" in said and "--listen anthropic=" in said


def test_a_store_that_takes_no_rows_is_told_on_the_health_page_and_once_in_the_journal(
    serve: Serve, upstream: AnsweringUpstream
) -> None:
    running = serve.start({"anthropic": upstream.url}, "--store", "/dev/full")
    running.call("anthropic", "/t/a/v1/messages")

    until(
        lambda: "store /dev/full" in running.report("healthz")[1]["why"],
        "the health page says what is wrong with the store",
    )
    assert running.report("readyz")[0] == 200
    until(lambda: any("store /dev/full" in line for line in running.said), "so does the journal, once")
    assert running.end() == 0
    assert sum("store /dev/full" in line for line in running.said) == 1
