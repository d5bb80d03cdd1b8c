"""Tool calls are bounded in number and size, whatever a stranger sends."""

import json

from fairtrial.middleware.core.observations import ToolUse
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.redact import digest


def test_ids_and_names_are_cut_and_results_keep_the_newest() -> None:
    assert calls.tool_use("i" * 999, "n" * 999, "d") == ToolUse(id="i" * 200, name="n" * 200, text_digest="d")
    assert calls.tool_use(None, None) == ToolUse()
    kept = calls.result_ids([None, "", *(f"{n}" for n in range(1000)), "x" * 999])
    assert (len(kept), kept[0], kept[-1]) == (512, "489", "x" * 200)


def test_arguments_in_pieces_give_the_commands_digest_once() -> None:
    arguments = calls.Arguments()
    for piece in ('{"comm', 'and":"l', 's"}'):
        arguments.add("a", piece)
    arguments.add("b", "{")
    assert arguments.take("a") == digest("ls")
    assert arguments.take("a") is None
    assert arguments.take("b") is None
    assert arguments.take("never") is None


def test_arguments_that_are_too_long_cost_their_own_digest_only() -> None:
    arguments = calls.Arguments()
    arguments.add("long", '{"command":"' + "x" * base.MAX_ARGUMENT_BYTES)
    arguments.add("long", '"}')
    arguments.add("short", json.dumps({"command": "ls"}))
    assert arguments.take("long") is None
    assert arguments.take("short") == digest("ls")


def test_open_arguments_are_bounded_together_and_room_comes_back() -> None:
    arguments = calls.Arguments()
    whole = json.dumps({"command": "x" * 900_000})
    for n in range(20):
        arguments.add(n, whole)
    assert [arguments.take(n) is not None for n in range(20)] == [True] * 4 + [False] * 16
    arguments.add("next", whole)
    assert arguments.take("next") is not None


def test_the_number_of_open_arguments_is_bounded() -> None:
    arguments = calls.Arguments()
    for n in range(calls.MAX_CALLS + 5):
        arguments.add(n, "{}")
    assert len(arguments._open) == calls.MAX_CALLS


def test_calls_without_ids_are_numbered_by_turn_tool_and_order() -> None:
    numbering = calls.Numbering(3)
    assert [numbering.next(tool) for tool in ("sh", "sh", "cat", None)] == ["3:sh#0", "3:sh#1", "3:cat#0", "3:#0"]
    for n in range(2000):
        numbering.next(f"{n}" + "x" * 5000)
    assert len(numbering._names) == calls.MAX_CALLS
    assert numbering.next("sh") == "3:sh#2"
