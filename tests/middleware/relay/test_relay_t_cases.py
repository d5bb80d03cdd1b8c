"""The sixty-eight known faults of other proxies: which test shows that fairtrial does not have each of them.

T numbers are those of the reference page model-api.md section 5.3.  A case names its tests as `path::name`, relative to
this folder; each of these says the number in its docstring.  A case that does not apply to a relay that passes bytes
through says why; so does the part of a case that does not.
"""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLIENTS = "test_relay_t_cases_clients.py"
ANSWERS = "test_relay_t_cases_answers.py"
BODIES = "test_relay_t_cases_bodies.py"
ENDS = "test_coupled_ends.py"
COUPLED = "test_coupled.py"
DOCKER = "test_coupled_docker.py"
ANTHROPIC = "../wire/dialects/test_anthropic_messages.py"

LEAVES = f"{CLIENTS}::test_a_client_that_leaves_ends_the_upstream_and_the_attempt"
LEAVES_UNARY = f"{CLIENTS}::test_a_client_that_leaves_a_call_without_a_stream_ends_the_upstream"
TRUNCATED = f"{ANSWERS}::test_a_stream_without_its_end_mark_is_truncated_and_passes_as_it_came"
WHOLE = f"{ANSWERS}::test_a_whole_stream_is_ok_with_its_usage_however_its_events_are_cut"
IN_STREAM = f"{ANSWERS}::test_an_error_inside_a_200_is_the_attempts_error_and_passes_as_it_came"
TERMINAL = f"{ANSWERS}::test_each_of_the_four_terminal_events_ends_a_response"
ONCE = f"{CLIENTS}::test_a_failure_reaches_the_client_and_is_never_tried_again"
VERBATIM = f"{BODIES}::test_no_header_line_is_added_dropped_joined_or_moved"
ENCODED = f"{BODIES}::test_an_encoded_stream_passes_as_it_is_and_is_read_from_a_decoded_copy"
BELIED = f"{BODIES}::test_a_header_line_that_belies_its_body_passes_with_it"
AT_ONCE = f"{BODIES}::test_each_write_of_the_upstream_reaches_the_client_before_the_next"
STAMPS = f"{ANSWERS}::test_head_first_byte_first_token_and_end_are_told_apart"
MERGED = f"{ANTHROPIC}::test_usage_is_merged_by_field_and_never_added"


@dataclass(frozen=True)
class Case:
    """`tests` show it; `not_here` says what of it does not apply, and why."""

    tests: tuple[str, ...] = ()
    not_here: str = ""


def shown(*tests: str, not_here: str = "") -> Case:
    return Case(tests, not_here)


CASES: dict[str, Case] = {
    "T01": shown(LEAVES),
    "T02": shown(LEAVES),
    "T03": shown(LEAVES_UNARY),
    "T04": shown(LEAVES, LEAVES_UNARY),
    "T05": shown(f"{CLIENTS}::test_an_abandoned_stream_leaves_no_work_of_its_length"),
    "T06": shown(ONCE),
    "T07": shown(
        f"{CLIENTS}::test_a_silent_upstream_is_waited_for_and_the_silence_is_told",
        not_here="no bound on the wait for a head: the client's own timers decide (no total or read timeout)",
    ),
    "T08": shown(LEAVES),
    "T09": shown(LEAVES, TRUNCATED),
    "T10": shown(
        f"{CLIENTS}::test_a_half_closed_client_of_the_model_door_has_left",
        f"{DOCKER}::test_a_half_close_behind_a_request_does_not_end_a_long_answer",
        f"{COUPLED}::test_a_tunnel_forwards_half_closes_and_ends_with_the_second",
    ),
    "T11": shown(f"{CLIENTS}::test_a_client_that_leaves_under_a_flood_is_no_fault_of_ours"),
    "T12": shown(LEAVES),
    "T13": shown(TRUNCATED, f"{ANSWERS}::test_an_end_of_tls_or_fin_behind_a_whole_stream_is_no_failure"),
    "T14": shown(TRUNCATED),
    "T15": shown(TERMINAL),
    "T16": shown(f"{ANSWERS}::test_a_client_of_http_sees_a_cut_as_an_incomplete_body"),
    "T17": shown(f"{ANSWERS}::test_a_chat_whose_server_leaves_done_out_is_whole"),
    "T18": shown(IN_STREAM),
    "T19": shown(
        f"{ENDS}::test_a_reset_upstream_resets_the_client_behind_every_byte_that_came",
        f"{ENDS}::test_a_paused_upstream_that_resets_loses_no_byte_for_a_slow_client",
    ),
    "T20": shown(TRUNCATED, not_here="no terminal event is ever made up, not even on request: it repairs nothing"),
    "T21": shown(LEAVES, TRUNCATED, IN_STREAM),
    "T22": shown(f"{ANSWERS}::test_an_answer_without_a_body_ends_with_its_head"),
    "T23": shown(TRUNCATED),
    "T24": shown(TRUNCATED),
    "T25": shown(MERGED),
    "T26": shown(MERGED),
    "T27": shown(MERGED),
    "T28": shown(TERMINAL, WHOLE),
    "T29": shown(WHOLE, f"{ANTHROPIC}::test_a_whole_stream_gives_usage_stop_reason_text_and_tools"),
    "T30": shown(WHOLE),
    "T31": shown(f"{ANSWERS}::test_a_last_event_without_its_line_end_is_read"),
    "T32": shown(f"{ANSWERS}::test_empty_choices_and_null_data_are_no_harm"),
    "T33": shown(STAMPS),
    "T34": shown(STAMPS),
    "T35": shown(STAMPS, not_here="no time per token is computed: the stamps are kept, and each attempt ends once"),
    "T36": shown(f"{ANSWERS}::test_an_answer_without_a_stream_is_ok_and_has_no_first_token"),
    "T37": shown(STAMPS),
    "T38": shown(WHOLE, "../steps/test_attempts.py::test_a_storm_of_attempts_is_one_call_in_any_order_of_delivery"),
    "T39": shown(f"{CLIENTS}::test_a_call_that_is_open_at_shutdown_has_its_end"),
    "T40": shown(
        f"{COUPLED}::test_an_observer_that_does_not_read_costs_copies_and_not_a_byte",
        "test_supervise.py::test_a_verdict_that_does_not_come_is_not_waited_for",
        not_here="the relay process exports nothing: exporters live in the observer process",
    ),
    "T41": shown(ENCODED),
    "T42": shown(ENCODED, VERBATIM),
    "T43": shown(BELIED),
    "T44": shown(VERBATIM, BELIED),
    "T45": shown(ENCODED),
    "T46": shown(VERBATIM, f"{BODIES}::test_a_length_beside_chunks_passes_and_is_read_as_chunks"),
    "T47": shown(VERBATIM),
    "T48": shown(
        VERBATIM,
        not_here="lines named by Connection pass: each client connection has an upstream connection of its own, so a "
        "hop of the client is a hop of the upstream",
    ),
    "T49": shown(f"{BODIES}::test_an_encoded_request_passes_as_it_is_and_is_read_from_a_decoded_copy"),
    "T50": shown(f"{BODIES}::test_a_bomb_passes_and_its_copy_is_given_up"),
    "T51": shown(AT_ONCE),
    "T52": shown(AT_ONCE),
    "T53": shown(VERBATIM),
    "T54": shown(AT_ONCE, f"{BODIES}::test_silence_is_told_with_and_without_pings"),
    "T55": shown(f"{BODIES}::test_an_event_without_an_end_is_neither_kept_nor_mistaken_for_a_cut"),
    "T56": shown(f"{BODIES}::test_an_event_without_an_end_is_neither_kept_nor_mistaken_for_a_cut"),
    "T57": shown(
        f"{ENDS}::test_an_upstream_that_closes_an_idle_connection_closes_the_client",
        not_here="there is no pool: a connection is idle exactly as long as the client keeps its own",
    ),
    "T58": shown(
        ONCE,
        f"{ENDS}::test_a_request_on_a_connection_that_the_upstream_left_is_a_reset",
        not_here="no second dial: a stale connection is shown to the client as it would be without us",
    ),
    "T59": shown(
        "test_tls.py::test_http_1_1_is_offered_and_nothing_else", not_here="HTTP/2 is not spoken to upstreams"
    ),
    "T60": shown(ONCE),
    "T61": shown(f"{BODIES}::test_thirty_three_megabytes_up_are_no_matter_of_size"),
    "T62": shown("../wire/test_sse.py::test_only_line_feeds_end_a_line", WHOLE),
    "T63": shown("../wire/dialects/test_openai_chat.py::test_tool_calls_are_told_apart_by_id_then_index_then_order"),
    "T64": shown(
        f"{ANSWERS}::test_an_answer_without_a_body_ends_with_its_head",
        not_here="greetings are relayed, never answered here",
    ),
    "T65": shown(f"{CLIENTS}::test_streams_that_ended_leave_no_object_behind", not_here="10 000 streams: make bench"),
    "T66": shown(f"{BODIES}::test_a_websocket_is_tunnelled_and_a_426_is_the_upstreams_own"),
    "T67": shown(f"{BODIES}::test_a_dead_path_to_the_upstream_is_probed"),
    "T68": shown(
        f"{BODIES}::test_an_early_refusal_reaches_a_client_that_still_uploads",
        f"{COUPLED}::test_expect_100_continue_is_the_upstreams_to_answer",
        f"{ENDS}::test_an_early_413_followed_by_rst_reaches_the_client",
    ),
}


@functools.cache
def docstrings(path: Path) -> dict[str, str]:
    """Of every test function of a file."""
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_case_is_shown_or_says_why_it_does_not_apply() -> None:
    assert list(CASES) == [f"T{number:02}" for number in range(1, 69)]
    assert [number for number, case in CASES.items() if not (case.tests or case.not_here)] == []


@pytest.mark.parametrize("number", CASES)
def test_the_tests_of_a_case_exist_and_name_it(number: str) -> None:
    for test in CASES[number].tests:
        file, _, name = test.partition("::")
        known = docstrings(HERE / file)
        assert name in known, f"{number}: {file} has no {name}"
        assert number in known[name], f"{test} does not say {number} in its docstring"


@pytest.mark.parametrize("file", [CLIENTS, ANSWERS, BODIES])
def test_every_test_of_a_case_is_in_the_table(file: str) -> None:
    named = {test for case in CASES.values() for test in case.tests}
    assert [name for name in docstrings(HERE / file) if f"{file}::{name}" not in named] == []
