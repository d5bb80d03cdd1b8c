"""The stand-in speaks the Responses API over a WebSocket, to a client that is not ours."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import pytest

from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.faults import Fault, catalogue
from fairtrial.middleware.demo.script import Scenario, say, shell
from fairtrial.middleware.demo.standin import running_standin

SCRIPT = (shell("ls", text="I will look."), say("Done."))
TOOLS = [{"type": "function", "name": "shell", "parameters": {"properties": {"command": {"type": "string"}}}}]


def wish(**more: object) -> dict[str, object]:
    return {
        "type": "response.create",
        "model": "m",
        "tools": TOOLS,
        "input": [{"role": "user", "content": "x"}],
        **more,
    }


async def talk(url: str, wishes: Sequence[Mapping[str, object]], *, compress: int) -> list[list[dict[str, Any]]]:
    """Each wish's events up to its terminal one, or to the end of the connection."""
    heard: list[list[dict[str, Any]]] = []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/run/t1/v1/responses", compress=compress) as socket,
    ):
        for each in wishes:
            heard.append([])
            await socket.send_json(each)
            async for message in socket:
                event = json.loads(message.data)
                heard[-1].append(event)
                if event["type"] in {"response.completed", "response.failed", "error"}:
                    break
    return heard


def run(
    wishes: Sequence[Mapping[str, object]], faults: Sequence[Fault] = (), *, compress: int = 15
) -> tuple[list[list[dict[str, Any]]], list[Call]]:
    scenario = Scenario(steps=SCRIPT, faults=tuple(faults), websockets=True)
    with running_standin(scenario) as server:
        return asyncio.run(talk(server.url, wishes, compress=compress)), server.calls


@pytest.mark.parametrize("compress", [0, 15])
def test_each_message_is_a_call_and_an_id_continues_its_turn(compress: int) -> None:
    def following(number: int) -> dict[str, object]:
        return {"previous_response_id": f"resp_s{number}_x", "input": [{"type": "function_call_output"}]}

    heard, calls = run([wish(), wish(**following(0))], compress=compress)
    assert [events[-1]["type"] for events in heard] == ["response.completed"] * 2
    assert [item["type"] for item in heard[0][-1]["response"]["output"]] == ["message", "function_call"]
    assert [(call.route, call.step, call.prefix, call.ended, call.status) for call in calls] == [
        ("responses", 0, "/run/t1", "complete", 101),
        ("responses", 1, "/run/t1", "complete", 101),
    ]


def test_a_warm_up_says_nothing_and_counts_no_turn() -> None:
    heard, calls = run([wish(generate=False), wish(previous_response_id="resp_w_x")])
    assert heard[0][-1]["response"]["output"] == []
    assert [call.step for call in calls] == [None, 0]


def test_a_refusal_is_an_error_event_with_its_status() -> None:
    (events,), calls = run([wish()], catalogue(0)["rate_limited_for_ever"])
    assert [(event["type"], event["status"], event["headers"]) for event in events] == [
        ("error", 429, {"retry-after": "1"})
    ]
    assert events[0]["error"]["type"] == "rate_limit_error"
    assert calls[0].fault == "http"


@pytest.mark.parametrize("kind, ended", [("cut", "fin"), ("short", "short"), ("rst", "rst")])
def test_a_connection_is_cut_in_the_middle_of_a_call(kind: Any, ended: str) -> None:
    (events,), calls = run([wish()], [Fault(kind=kind, step=0, after_events=3)])
    assert len(events) == (0 if kind == "rst" else 3)
    assert [call.ended for call in calls] == [ended]


def test_an_error_event_in_the_middle_is_an_object_with_a_status() -> None:
    (events,), _ = run([wish()], [Fault(kind="error_event", step=0, after_events=2)])
    assert (len(events), events[-1]["status"], events[-1]["error"]["type"]) == (3, 503, "overloaded_error")


def test_a_failed_response_ends_its_stream_over_a_websocket_too() -> None:
    (events,), calls = run([wish()], [Fault(kind="failed", step=0, after_events=2)])
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "server_error"
    assert [call.usage for call in calls] == [None]


def test_without_the_switch_the_handshake_is_answered_with_404() -> None:
    async def refused(url: str) -> int:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/responses") as response:
            return response.status

    with running_standin(SCRIPT) as server:
        assert asyncio.run(refused(server.url)) == 404
