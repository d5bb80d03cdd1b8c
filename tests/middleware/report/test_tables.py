"""Rows stay aligned, one line each."""

from __future__ import annotations

from fairtrial.middleware.core.records import Call, Connection, ContainerUse, PhaseName, Step, Tool, Trial
from fairtrial.middleware.report.tables import connection_rows, steps_table, table_lines


def test_a_table_keeps_one_row_on_one_line_and_cuts_only_for_a_terminal() -> None:
    rows = [("a", "bbb", "sentence"), ("aaaa", "b", "another sentence")]
    assert table_lines(rows, width=None) == ["a     bbb  sentence", "aaaa  b    another sentence"]
    assert table_lines(rows, width=12) == ["a     bbb  …", "aaaa  b    …"]


def test_the_shared_cgroup_of_the_command_stands_back_behind_a_container() -> None:
    own = ContainerUse(id="own", memory_peak=1 << 20, memory_peak_kind="shared")
    box = ContainerUse(id="box", memory_peak=2 << 20, memory_peak_kind="at_most", memory_limit=4 << 20)
    steps = [Step(index=1, containers=[own, box], calls=[Call(id="1")]), Step(index=2, containers=[own])]
    header, both, alone = steps_table(Trial(trial="t", steps=steps), width=None)
    assert header.startswith("  step  call")
    assert "≤2 MiB/4 MiB" in both
    assert "1 MiB" not in both.replace("MiB/", "")
    assert "~1 MiB" in alone


def test_a_trial_without_a_step_says_so() -> None:
    assert steps_table(Trial(trial="t"), width=None) == ["  none: no model call reached a door"]


def test_a_command_that_did_not_end_by_itself_says_who_ended_it_and_a_run_is_called_so() -> None:
    tools = [
        Tool(name="bash", exec_id="x", ended_by="client"),
        Tool(container_id="c", exit_code=4, ended_by="process"),
        Tool(exec_id="y", ended_by="engine"),
    ]
    _, row = steps_table(Trial(trial="t", steps=[Step(index=1, phase=PhaseName.AGENT, tools=tools)]), width=None)
    assert "bash, docker run (4), e" in row
    assert row.endswith("exec left by its client, exec broken off by the engine")


def test_opaque_connections_have_a_row_each_and_what_was_not_seen_is_a_dash() -> None:
    stood = Connection(
        host="api.anthropic.com",
        port=443,
        ok=True,
        dns=0.004,
        connect=0.02,
        tls=0.05,
        bytes_up=2048,
        bytes_down=10,
        max_wait=2.0,
        max_gap=0.1,
        duration=3.0,
        closed_by="upstream",
        close_kind="fin",
        cut=True,
    )
    failed = Connection(host="no\x1bwhere", port=443, stage="dns", error="no such name")
    head, first, second = connection_rows([stood, failed])
    assert len(head) == len(first) == len(second)
    assert first == (
        "  api.anthropic.com:443", "4 ms", "20 ms", "50 ms", "2 KiB", "10 B", "2.0 s", "100 ms", "3.0 s",
        "upstream fin, without close_notify",
    )  # fmt: skip
    assert second == ("  no where:443", *["-"] * 8, "never stood: dns, no such name")
