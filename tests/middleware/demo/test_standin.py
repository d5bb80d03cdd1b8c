"""The server keeps no state but spent faults, stops whole, and runs in a process of its own, also over TLS."""

import asyncio
import http.client
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trustme

from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import Scenario, say, shell
from fairtrial.middleware.demo.standin import StandIn, running_standin

SCRIPT = (shell("echo hello"), say("Done."))
TOOLS = [{"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]


def call(url: str, *, step: int = 0, context: ssl.SSLContext | None = None) -> tuple[int, Any]:
    """One Messages call in JSON: status and body."""
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * step
    body = json.dumps({"model": "m", "tools": TOOLS, "messages": [*turns, {"role": "user", "content": "z"}]}).encode()
    asked = urllib.request.Request(f"{url}/v1/messages", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=10, context=context) as answered:
            return answered.status, json.load(answered)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_same_turn_gets_the_same_answer_and_the_last_step_repeats() -> None:
    with running_standin(SCRIPT) as server:
        contents = [call(server.url, step=step)[1]["content"] for step in (0, 0, 1, 5)]
        calls = server.calls
    assert contents[0] == contents[1]
    assert contents[0][0]["input"] == {"command": "echo hello"}
    assert contents[2] == contents[3] == [{"type": "text", "text": "Done."}]
    assert [(seen.step, seen.attempt) for seen in calls] == [(0, 1), (0, 2), (1, 1), (5, 1)]
    assert all(seen.usage is not None and seen.ended == "complete" for seen in calls)


def test_faults_hit_their_step_their_number_of_times_and_in_their_order() -> None:
    faults = [Fault(kind="http", step=1, status=529, attempts=2), Fault(kind="http", step=1, status=429)]
    with running_standin(SCRIPT, faults) as server:
        statuses = [call(server.url, step=step)[0] for step in (0, 1, 1, 0, 1, 1, 1)]
    assert statuses == [200, 529, 529, 200, 429, 200, 200]


def test_faults_are_spent_per_path_prefix() -> None:
    with running_standin(SCRIPT, [Fault(kind="http", status=500)]) as server:
        statuses = [call(f"{server.url}{prefix}")[0] for prefix in ("/run/a", "/run/b", "/run/a", "/run/b")]
    assert statuses == [500, 500, 200, 200]


def test_a_fault_for_ever_is_never_spent() -> None:
    with running_standin(SCRIPT, [Fault(kind="http", status=529, attempts=FOREVER)]) as server:
        assert {call(server.url)[0] for _ in range(5)} == {529}


def test_a_stream_only_fault_spares_json_calls() -> None:
    with running_standin(SCRIPT, [Fault(kind="http", status=529, stream_only=True)]) as server:
        assert call(server.url)[0] == 200


def test_it_serves_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with running_standin(SCRIPT, tls=(chain, key)) as server:
        assert server.url.startswith("https://")
        assert call(server.url, context=trusted)[0] == 200


def test_a_taken_port_is_said() -> None:
    with (
        running_standin(SCRIPT) as server,
        pytest.raises(RuntimeError, match="address already in use"),
        running_standin(SCRIPT, port=server.port),
    ):
        pass


def test_calls_stay_readable_after_the_end_and_those_that_ran_are_stopped() -> None:
    with running_standin(SCRIPT, [Fault(kind="stall_headers", step=1, duration_s=None)]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        body = {"tools": TOOLS, "messages": [{"role": "assistant", "content": "y"}]}
        connection.request("POST", "/v1/messages", json.dumps(body))
        call(server.url)
        assert [seen.ended for seen in server.settle(0.05)] == ["complete"]
    connection.close()
    assert sorted(seen.ended for seen in server.calls) == ["complete", "stopped"]


def test_waiting_for_calls_that_never_come_ends_with_a_count() -> None:
    with running_standin(SCRIPT) as server, pytest.raises(TimeoutError, match="0 calls ended"):
        server.wait_for_calls(1, timeout_s=0.05)


def test_a_scenario_brings_its_own_faults() -> None:
    with pytest.raises(ValueError, match="its own faults"):
        StandIn(Scenario(steps=SCRIPT), [Fault(kind="close")])


async def test_stop_ends_open_connections_and_their_calls() -> None:
    server = StandIn(SCRIPT, [Fault(kind="stall_headers", duration_s=None)])
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 28\r\n\r\n" + b'{"tools":[{"name": "bash"}]}')
    async with asyncio.timeout(5):
        while not server.calls or server.calls[0].fault is None:
            await asyncio.sleep(0.005)
        await server.stop()
    assert server.calls[0].ended == "stopped"
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


async def test_stop_before_start_does_nothing() -> None:
    await StandIn(SCRIPT).stop()


def test_the_command_line_prints_its_address_and_ends_on_sigterm(tmp_path: Path) -> None:
    script = tmp_path / "scenario.json"
    script.write_text('{"steps": [{"text": "hi"}], "side_text": null}')
    command = [sys.executable, "-m", "fairtrial.middleware.demo.standin", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", ready["port"], timeout=5)
        connection.request("HEAD", "/")
        assert connection.getresponse().status == 200
        connection.close()
        server.terminate()
        assert server.wait(timeout=5) == 0
