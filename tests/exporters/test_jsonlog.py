"""One line per call, step, tool, infra event and verdict; whole lines, whoever writes beside us."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from fairtrial.exporters.jsonlog import SCHEMA, JsonLog, lines_of
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core.records import Present, Trial
from tests.fakes.traced import T1, T3, a_trial


def events(trial: Trial) -> list[str]:
    return [str(line["event"]) for line in lines_of(trial)]


def test_a_trial_is_told_step_by_step_and_ends_with_its_verdict() -> None:
    assert events(a_trial(steps=2)) == [*["call", "tool", "infra", "infra", "step"] * 2, "infra", "verdict"]
    assert events(a_trial(cause=None))[-1] == "verdict"
    assert events(a_trial(verdict=None)) == ["call", "tool", "infra", "infra", "step"]


def test_every_line_says_whose_it_is_and_what_was_not_observed_is_absent() -> None:
    trial = a_trial()
    for line in lines_of(trial):
        assert (line["schema"], line["trial"], line["run"], line["task"], line["trace_id"]) == (
            SCHEMA,
            trial.trial,
            "r",
            "t",
            trial.trace_id,
        )
        assert line["level"] in ("info", "warning", "error")
        assert str(line["at"]).endswith("Z")
        assert None not in line.values()


def test_what_happened_is_in_the_fields() -> None:
    call, tool, kill, throttled, step, ended_by, verdict = lines_of(a_trial())
    assert (call["at"], call["model"], call["attempts"], call["statuses"], call["wait"]) == (
        T1.replace(".000000", ".500000"),
        "claude",
        2,
        [529, 200],
        0.5,
    )
    assert (tool["level"], tool["exit_code"], tool["at"]) == ("warning", 137, T3)
    assert (kill["what"], kill["victims"], kill["memory_limit"]) == ("oom_kill", ["tail"], 64 << 20)
    assert (throttled["what"], throttled["cpu_throttled"]) == ("cpu_throttled", 0.25)
    assert (step["step"], step["calls"], step["tools"], step["phase"]) == (1, 1, 1, "agent")
    assert (ended_by["what"], ended_by["cause"], ended_by["grade"]) == ("terminated_by", "container.oom_kill", "proved")
    assert (verdict["level"], verdict["blame"], verdict["cause"], verdict["exit_code"]) == (
        "error",
        "infra",
        "container.oom_kill",
        1,
    )
    assert len(str(verdict["sentence"])) == 1000


def test_a_line_leads_to_its_span() -> None:
    trial = a_trial()
    spans = {span.span_id: span.name for span in spans_of(trial)}
    shown = [(str(line["event"]), spans[str(line["span_id"])]) for line in lines_of(trial) if "span_id" in line]
    assert shown == [
        ("call", "chat claude"),
        ("tool", "execute_tool bash"),
        ("infra", "oom_kill"),
        ("step", "step"),
    ]


def test_what_was_there_and_did_not_matter_is_a_line_too() -> None:
    verdict = a_trial().verdict
    assert verdict is not None
    present = Present(cause="container.cpu_throttled", step=1, why="the step ended normally")
    lines = list(lines_of(a_trial(verdict=msgspec.structs.replace(verdict, present=[present], terminated_by=None))))
    assert (lines[-2]["what"], lines[-2]["cause"], lines[-2]["level"]) == (
        "present",
        "container.cpu_throttled",
        "info",
    )


def test_secrets_are_masked_and_long_texts_are_cut() -> None:
    key = "sk-ant-api03-" + "A" * 40
    verdict = a_trial().verdict
    assert verdict is not None
    trial = a_trial(verdict=msgspec.structs.replace(verdict, sentence=f"{key} " + "x" * 5000), task=key)
    text = json.dumps(list(lines_of(trial)), ensure_ascii=False)
    assert key not in text
    assert "x" * 1100 not in text


def test_writers_beside_each_other_leave_whole_lines_in_a_private_file(tmp_path: Path) -> None:
    trials = [a_trial(steps=20) for _ in range(4)]

    def write(trial: Trial) -> None:
        log = JsonLog("deep/log.jsonl", beside=tmp_path)
        assert log.write(trial) == 102
        log.close()

    threads = [threading.Thread(target=write, args=(trial,)) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    path = tmp_path / "deep" / "log.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 4 * 102
    assert {line["trial"] for line in lines} == {trial.trial for trial in trials}
    assert path.stat().st_mode & 0o777 == 0o600


PROGRAM = "from tests.exporters.test_jsonlog import to_stderr; to_stderr()"


def to_stderr() -> None:
    """Run in a process of its own, whose standard error is the test's."""
    JsonLog("-", beside=Path("/")).write(a_trial())


def test_standard_error_takes_lines_and_a_terminal_columns(repo_root: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    plain = subprocess.run(command, cwd=repo_root, stderr=subprocess.PIPE, check=True)
    assert [json.loads(line)["event"] for line in plain.stderr.splitlines()] == events(a_trial())
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=repo_root, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # the terminal is gone with the process
    os.close(ours)
    assert process.wait(30) == 0
    assert b"verdict" in shown
    assert not shown.lstrip().startswith(b"{")


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        JsonLog("file/log.jsonl", beside=tmp_path)
