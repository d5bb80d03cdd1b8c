"""Claude Code 2.1.197: transcripts, stream-json, json."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairtrial.middleware.core.records import EndedAs, Outcome, Trust
from tests.middleware.harnesses.real import DATA, read


@pytest.mark.parametrize("kind", ["stream", "transcript"])
def test_its_own_word_is_no_score_and_is_trusted_as_the_agents(kind: str) -> None:
    one = read("claude-code", f"claude-code/ok.{kind}.jsonl").booked[0]
    assert (one.outcome.outcome, one.outcome.scored, one.trust) == (Outcome.UNKNOWN, False, Trust.INSIDE)
    assert (len(one.keys.requests), len(one.keys.responses), len(one.keys.tool_calls)) == (2, 2, 1)
    assert len(one.keys.sessions) == 1


@pytest.mark.parametrize(
    "fault, status", [("529", "server_error"), ("400", "invalid_request"), ("cut", "server_error")]
)
@pytest.mark.parametrize("kind", ["stream", "transcript"])
def test_an_api_error_that_it_shows_as_an_answer_is_booked_as_an_error(fault: str, status: str, kind: str) -> None:
    outcome = read("claude-code", f"claude-code/{fault}.{kind}.jsonl").booked[0].outcome
    assert (outcome.outcome, outcome.exit_status, outcome.ended_as) == (
        Outcome.ERRORED,
        status,
        EndedAs.AGENT_GAVE_UP,
    )


def test_retries_are_told_by_the_stream_only() -> None:
    assert "retried_calls" in read("claude-code", "claude-code/529.stream.jsonl").booked[0].outcome.marks
    assert "retried_calls" not in read("claude-code", "claude-code/529.transcript.jsonl").booked[0].outcome.marks


def test_a_stream_that_stops_without_its_result_was_killed_or_runs(tmp_path: Path) -> None:
    lines = (DATA / "claude-code/ok.stream.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "out.jsonl"
    file.write_bytes(b"".join(line for line in lines if b'"type": "result"' not in line))
    reading = read("claude-code", file)
    outcome = reading.booked[0].outcome
    assert (outcome.outcome, outcome.marks, outcome.complete) == (Outcome.UNKNOWN, ["no_result"], False)
    assert "no `result` line" in reading.notes[0].said
    assert [phase.ended_ns for phase in outcome.phases] == [None], "what struck it came after its last line"


def test_the_stream_and_the_transcript_of_one_session_are_one_trial(tmp_path: Path) -> None:
    for kind in ("stream", "transcript"):
        (tmp_path / f"{kind}.jsonl").write_bytes((DATA / f"claude-code/529.{kind}.jsonl").read_bytes())
    booked = read("claude-code", tmp_path).booked
    assert len(booked) == 1
    assert len(booked[0].outcome.files) == 2
