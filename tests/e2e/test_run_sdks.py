"""The vendor SDKs under `fairtrial run`, with every fault of the catalogue: the SDK must not notice, the verdict must.

What the SDKs do is known from the base line (`test_standin_clients.EXPECTED`). The verdicts were written down from
VERDICTS.md beforehand. The fault lies on the call after the first tool result, which is step 2.
"""

import http.server
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Outcome
from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.faults import catalogue
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.sdks import Spoken
from tests.e2e.test_standin_clients import FINAL, SCRIPT, at_step, expected
from tests.e2e.under import FAIRTRIAL, NO_DOCKER, Due, Under, ended_by, missed, passed, run_under, shown, step_call

KINDS = ("messages_stream", "messages_json", "chat_stream", "chat_json", "responses_stream", "responses_json")
# Which of them meet a fault: all where a stream and JSON end differently; else, since every process costs seconds, one
# of each SDK, the one with and the other without a stream.
BOTH_WAYS = {"cut_once", "cut_for_ever", "error_event_once", "error_event_for_ever", "garbage_once", "stall_mid_stream"}
ONE_WAY = ("messages_stream", "chat_json")
READ = {"messages": "anthropic", "chat": "openai", "responses": "openai"}
STALL_S = 1.0

INFRA = Blame.INFRA
CUT = ended_by(INFRA, "model_api.truncated", 2)
OVERLOADED = ended_by(INFRA, "model_api.overloaded", 2)
REFUSED = Due(
    blame=Blame.HARNESS,
    grade=Grade.SUSPECTED,
    cause="model_api.client_error",
    step=2,
    ended_as=EndedAs.AGENT_GAVE_UP,
)
GARBAGE = ended_by(INFRA, "gateway.error", 2)
# The client took a page of HTML for an empty answer and left with 0: what ended it is a fact, that the outcome differs
# is not known.
GARBAGE_TAKEN = Due(
    blame=INFRA,
    grade=Grade.SUSPECTED,
    cause="gateway.error",
    step=2,
    terminated_by=("gateway.error", Grade.PROVED, 2),
)


def suspected_end(blame: Blame, cause: str) -> Due:
    """What ended it is a fact; whose doing it was is not: others had passed with the same key, or to the same model."""
    return Due(
        blame=blame,
        grade=Grade.SUSPECTED,
        cause=cause,
        step=2,
        terminated_by=(cause, Grade.PROVED, 2),
        ended_as=EndedAs.AGENT_GAVE_UP,
    )


# Fault → kind (or its ending, or "" for all) → verdict.
DUE: Mapping[str, Mapping[str, Due]] = {
    "rate_limited_once": {"": passed(("model_api.rate_limited", 2))},
    "rate_limited_for_ever": {"": ended_by(INFRA, "model_api.rate_limited", 2)},
    "overloaded_twice": {"": passed(("model_api.overloaded", 2))},
    "overloaded_for_ever": {"": OVERLOADED},
    "server_error_once": {"": passed(("model_api.server_error", 2))},
    "server_error_for_ever": {"": suspected_end(INFRA, "model_api.poison_request")},  # the step before had passed
    "unauthorised_for_ever": {"": suspected_end(Blame.OPERATOR, "operator.auth")},
    "prompt_too_long": {"": REFUSED},
    "stall_mid_stream": {"": passed()},
    "stall_headers": {"": passed()},
    "cut_once": {"stream": CUT, "json": passed(("model_api.truncated", 2))},
    "cut_for_ever": {"": CUT},
    "close_once": {"": passed(("model_api.unreachable", 2))},
    "close_for_ever": {"": ended_by(INFRA, "model_api.unreachable", 2)},
    "reset_once": {"": passed(("model_api.unreachable", 2))},
    "error_event_once": {"": OVERLOADED},
    "error_event_for_ever": {"": OVERLOADED},
    "garbage_once": {"chat_stream": GARBAGE_TAKEN, "": GARBAGE},
}
# What each attempt at the faulty call must be recorded as: its outcome, for a call that failed at least once.
FAILED_AS = {
    "cut_once": "truncated",
    "cut_for_ever": "truncated",
}


def due(fault: str, kind: str) -> Due:
    rows = DUE[fault]
    return rows.get(kind) or rows.get(kind.rpartition("_")[2]) or rows[""]


def sdk_command(kind: str) -> list[str]:
    return [FAIRTRIAL[0], "-m", "tests.e2e.one_sdk", kind]


def sdk_environment(home: Path, base: str) -> dict[str, str]:
    """`base` without /v1. The SDKs are loaded from this checkout."""
    urls = {"ANTHROPIC_BASE_URL": base, "OPENAI_BASE_URL": f"{base}/v1"}
    return clients.clean_environment(home, PYTHONPATH=str(clients.REPO_ROOT), **urls, **NO_DOCKER)


def spoken(under: Under) -> Spoken:
    try:
        return Spoken(**json.loads(under.outcome.stdout))
    except ValueError as error:
        raise AssertionError(under.told()) from error


def run_kinds(
    kinds: Sequence[str], url: str, home: Path, project: Path, kept: Path, prefix: Sequence[str]
) -> dict[str, Under]:
    """Each kind as a trial of its own, under a path of its own, at once; one store for all."""

    def one(kind: str) -> Under:
        environment = sdk_environment(home, f"{url}/run/{kind}")
        return run_under(
            sdk_command(kind), environment, project, kept=kept / kind, store=kept / "store.db", prefix=prefix
        )

    with ThreadPoolExecutor(len(kinds)) as pool:
        return dict(zip(kinds, pool.map(one, kinds), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(DUE))
def test_an_sdk_fault_reaches_the_sdk_as_it_was_and_has_its_verdict(
    fault: str, home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    kinds = KINDS if fault in BOTH_WAYS else ONE_WAY
    with running_standin(SCRIPT, catalogue(1, stall_s=STALL_S)[fault], command_prefix=loopback_only) as server:
        ran = run_kinds(kinds, server.url, home, project, tmp_path / "kept", loopback_only)
        calls = server.calls
    wrong = [f"== {kind}\n{told}" for kind in kinds if (told := _wrong(fault, kind, ran[kind], calls))]
    assert not wrong, "\n".join(wrong)


def _wrong(fault: str, kind: str, under: Under, calls: Sequence[Call]) -> str:
    """ "" when nothing is wrong with one trial."""
    said, (wanted, attempts) = spoken(under), expected(fault, kind)
    if (got := said.error if said.text is None else said.text) != wanted:
        return f"the SDK ended with {got!r} instead of {wanted!r}\n{under.told()}"
    if len(seen := at_step(calls, kind, 1)) != attempts:
        return f"the model server saw {len(seen)} attempts instead of {attempts}\n{under.told()}"
    if told := missed(under, due(fault, kind)):
        return told
    recorded = step_call(under.trial, 2).attempts
    wrong: list[str] = []
    if [each.status for each in recorded] != [each.status for each in seen]:
        wrong.append(f"statuses {[each.status for each in recorded]}, sent {[each.status for each in seen]}")
    shown_ids = [each.request_id for each in recorded if each.status is not None]
    if shown_ids != [each.request_id for each in seen if each.status is not None]:
        wrong.append(f"request ids {shown_ids}")
    failed_as = FAILED_AS.get(fault)
    if failed_as is not None and recorded[0].outcome != failed_as:
        wrong.append(f"first attempt is {recorded[0].outcome}, not {failed_as}")
    if under.outcome.returncode != (0 if said.text is not None else 1):
        wrong.append("the exit status is not the command's")
    return "\n".join([*wrong, under.told()]) if wrong else ""


def test_the_verdicts_cover_the_whole_catalogue() -> None:
    assert set(DUE) == set(catalogue())


def test_what_an_sdk_asked_and_got_is_recorded_without_a_fault(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        ran = run_kinds(KINDS, server.url, home, project, tmp_path / "kept", loopback_only)
        calls = server.calls
    for kind, under in ran.items():
        assert spoken(under).text == FINAL, under.told()
        assert not (told := missed(under, passed())), told
        assert under.trial.outcome is Outcome.PASSED
        assert [step.index for step in under.trial.steps] == [1, 2]
        sent = [call for call in calls if call.prefix == f"/run/{kind}"]
        for index, theirs in enumerate(sent, start=1):
            call = step_call(under.trial, index)
            assert theirs.usage is not None
            got = (call.provider, call.model, call.stream, call.outcome, call.role, len(call.attempts))
            provider = READ[kind.partition("_")[0]]
            assert got == (provider, theirs.model, theirs.stream, "ok", "step", 1), under.told()
            assert (call.input_tokens, call.output_tokens) == (
                theirs.usage.input_tokens,
                theirs.usage.output_tokens,
            ), under.told()
            attempt = call.attempts[0]
            assert (attempt.status, attempt.request_id) == (200, theirs.request_id)
            assert attempt.bytes_down is not None
            assert attempt.bytes_down >= theirs.sent_bytes, under.told()
            assert None not in {attempt.ttfb, attempt.duration, call.duration}, under.told()
            if theirs.stream:  # a reply in one piece has neither tokens nor gaps
                assert None not in {attempt.first_token, call.ttft, call.max_gap_with_pings}, under.told()
        tools = [(tool.name, tool.call_id) for tool in under.trial.steps[0].tools]
        assert len(tools) == 1, under.told()
        assert tools[0][0] == "bash"
        assert (tools[0][1] or "-").encode() in sent[1].body, under.told()


def test_a_rate_limit_is_recorded_with_its_wait(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["rate_limited_once"], command_prefix=loopback_only) as server:
        ran = run_kinds(("messages_stream",), server.url, home, project, tmp_path / "kept", loopback_only)
    under = ran["messages_stream"]
    first, second = step_call(under.trial, 2).attempts
    assert first.retry_after == 2.0, under.told()
    assert second.wait_before is not None
    assert 1.9 <= second.wait_before <= 4.0, under.told()


def test_a_silence_in_a_stream_and_before_a_head_are_told_apart(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    waits: dict[str, tuple[float, float]] = {}
    for fault in ("stall_mid_stream", "stall_headers"):
        with running_standin(SCRIPT, catalogue(1, stall_s=STALL_S)[fault], command_prefix=loopback_only) as server:
            ran = run_kinds(("chat_stream",), server.url, home, project, tmp_path / fault, loopback_only)
        call = step_call(ran["chat_stream"].trial, 2)
        assert call.attempts[0].ttfb is not None
        assert call.max_gap_with_pings is not None, ran["chat_stream"].told()
        waits[fault] = (call.attempts[0].ttfb, call.max_gap_with_pings)
    assert waits["stall_mid_stream"][0] < STALL_S / 2 < 0.9 * STALL_S < waits["stall_mid_stream"][1] < 2 * STALL_S, (
        waits
    )
    assert 0.9 * STALL_S < waits["stall_headers"][0] < 2 * STALL_S, waits


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """Some other model API: any request is answered with 200 and JSON that nobody here reads."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"candidates": [{"content": {"parts": [{"text": "Done."}]}}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Tests print nothing."""


ASKS_ELSEWHERE = """
import os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v2/models/some-model:ask"
for _ in range(2):
    request = urllib.request.Request(url, b'{"contents": []}', {"content-type": "application/json"})
    print(urllib.request.urlopen(request).read().decode())
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 1])
def test_an_api_that_is_not_read_passes_unharmed_is_counted_and_leads_to_no_guess(
    status: int, home: Path, project: Path, tmp_path: Path
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            environment = sdk_environment(home, f"http://127.0.0.1:{server.server_address[1]}")
            command = [FAIRTRIAL[0], "-c", ASKS_ELSEWHERE, str(status)]
            under = run_under(command, environment, project, kept=tmp_path / "kept")
        finally:
            server.shutdown()
            thread.join()
    assert under.outcome.returncode == status, under.told()
    assert under.outcome.stdout.count('"Done."') == 2
    allowed = {Blame.INDETERMINATE} if status else {Blame.NONE, Blame.INDETERMINATE}
    assert under.verdict.blame in allowed, under.told()
    assert under.verdict.terminated_by is None
    assert under.trial.steps == []
    beside = sum(len(call.attempts) for call in under.trial.side_calls) + sum(under.trial.unassigned.values())
    assert beside == 2, under.told()


def test_a_stream_that_ends_early_but_cleanly_is_a_truncation_that_the_client_took_for_whole(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    """The SDKs notice nothing and leave with 0; the door saw that the end mark never came."""
    from fairtrial.middleware.demo.faults import Fault

    faults = [Fault(kind="short", step=1, after_events=4)]
    with running_standin(SCRIPT, faults, command_prefix=loopback_only) as server:
        ran = run_kinds(("messages_stream", "chat_stream"), server.url, home, project, tmp_path / "kept", loopback_only)
    for under in ran.values():
        said = spoken(under)
        assert said.text is not None
        assert FINAL.startswith(said.text)
        assert step_call(under.trial, 2).outcome == "truncated", under.told()
        taken = Due(
            blame=INFRA,
            grade=Grade.SUSPECTED,
            cause="model_api.truncated",
            step=2,
            terminated_by=("model_api.truncated", Grade.PROVED, 2),
        )
        assert not (told := missed(under, taken)), told


def test_a_verdict_is_the_same_when_it_is_computed_anew_from_the_store(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, catalogue(1)["overloaded_for_ever"], command_prefix=loopback_only) as server:
        ran = run_kinds(("messages_json",), server.url, home, project, tmp_path / "kept", loopback_only)
    under = ran["messages_json"]
    environment = sdk_environment(home, "http://127.0.0.1:9")
    stored = shown(under.store, environment, under.trial.trial)
    again = shown(under.store, environment, under.trial.trial, "--replay")
    assert stored == under.trial
    assert again.verdict is not None
    assert (again.verdict.blame, again.verdict.cause, again.verdict.sentence, again.steps) == (
        under.verdict.blame,
        under.verdict.cause,
        under.verdict.sentence,
        under.trial.steps,
    )
    assert again.verdict.revision == under.verdict.revision + 1
