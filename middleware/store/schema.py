"""The SQLite schema of the store and how a row's body is packed.

Version 2.  `observations` is append-only and unique by (source, seq); bodies are the JSON of the record, deflated
against a fixed dictionary of field names and against an earlier body: the row before it of the same kind, or its
source's *sample* (its first long body).  The budget is 2 KB a step; `packing.py` has the rules.  The dictionary belongs
to the schema version: a new one needs a new version.

Version 1 had no rows that are packed against other rows; what it wrote is read as it is.
"""

from __future__ import annotations

import zlib
from typing import Final

SCHEMA_VERSION: Final = 2

STATEMENTS: Final = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS sources (id INTEGER PRIMARY KEY, source_id TEXT NOT NULL UNIQUE, sample BLOB)",
    "CREATE TABLE IF NOT EXISTS trial_keys (id INTEGER PRIMARY KEY, trial TEXT NOT NULL UNIQUE)",
    """CREATE TABLE IF NOT EXISTS observations (
        source INTEGER NOT NULL, seq INTEGER NOT NULL, trial INTEGER NOT NULL, wall_ns INTEGER NOT NULL,
        sampled INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (source, seq)) WITHOUT ROWID""",
    # A store of version 1 keeps its own, which has the time as well.
    "CREATE INDEX IF NOT EXISTS observations_by_trial ON observations (trial)",
    """CREATE TABLE IF NOT EXISTS trials (
        trial TEXT PRIMARY KEY, run TEXT, name TEXT, task TEXT, started_ns INTEGER NOT NULL, ended_ns INTEGER,
        closed TEXT, outcome TEXT, exit_code INTEGER, signal INTEGER, blame TEXT, grade TEXT, cause TEXT,
        terminated_by TEXT, step INTEGER, steps INTEGER, sentence TEXT, trace_id TEXT,
        owner_pid INTEGER, owner_boot TEXT, owner_start INTEGER) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS trials_by_start ON trials (started_ns)",
    "CREATE INDEX IF NOT EXISTS trials_by_run ON trials (run, started_ns)",
    """CREATE TABLE IF NOT EXISTS verdicts (
        trial TEXT NOT NULL, revision INTEGER NOT NULL, ruleset TEXT NOT NULL, made_ns INTEGER NOT NULL,
        body BLOB NOT NULL, PRIMARY KEY (trial, revision)) WITHOUT ROWID""",
    # Added within version 1: traces that were asked for, and their spans on the way (store/exports.py).
    """CREATE TABLE IF NOT EXISTS exports (
        trial TEXT PRIMARY KEY, root TEXT, parent TEXT, wanted_ns INTEGER NOT NULL,
        revision INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS export_batches (
        id INTEGER PRIMARY KEY AUTOINCREMENT, trial TEXT NOT NULL, revision INTEGER NOT NULL, state TEXT NOT NULL,
        spans INTEGER NOT NULL, rejected INTEGER NOT NULL DEFAULT 0, why TEXT, due_ns INTEGER NOT NULL,
        bytes INTEGER NOT NULL, ids BLOB NOT NULL, body BLOB)""",
    "CREATE INDEX IF NOT EXISTS exports_by_revision ON exports (revision)",
    "CREATE INDEX IF NOT EXISTS export_batches_by_state ON export_batches (state, id)",
    # Covers the counting, which is done every few seconds over all of them.
    "CREATE INDEX IF NOT EXISTS export_batches_ledger ON export_batches (state, why, spans, rejected)",
    "CREATE INDEX IF NOT EXISTS export_batches_by_trial ON export_batches (trial)",
    # Added within version 1: how fast model APIs were, in histograms of ten minutes (store/paces.py).
    """CREATE TABLE IF NOT EXISTS paces (
        provider TEXT NOT NULL, model TEXT NOT NULL, signal TEXT NOT NULL, slot INTEGER NOT NULL, counts TEXT NOT NULL,
        PRIMARY KEY (provider, model, signal, slot)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS paced (trial TEXT PRIMARY KEY) WITHOUT ROWID",
    # Added within version 2: runs that were parted into several trials (store/parted_runs.py).
    """CREATE TABLE IF NOT EXISTS parted (
        id TEXT PRIMARY KEY, name TEXT, started_ns INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
)

_DICTIONARY: Final = (
    b'"trust":"host","trust":"same_uid","trust":"inside","populated":true,"tcp_attempt_fails":0,"tcp_retrans":0,'
    b'"pids_max_hits":0,"pids_limit":,"pids_current":,"disk_written":,"psi_io":0.0,"psi_memory":0.0,"psi_cpu":0.0,'
    b'"cpu_throttled_periods":0,"cpu_throttled":0.0,"cpu_used":,"oom_kill":0,"memory_max_hits":0,"memory_shmem":0,'
    b'"memory_inactive_file":,"memory_file":,"memory_anon":,"memory_limit":,"memory_peak_kind":"exact","memory_peak":,'
    b'"memory_sampled_peak":,"memory_current":,"egress_rate_max":,"ingress_bytes":,"egress_bytes":,"edge":"call_started",'
    b'"edge":"call_ended","container_id":"own","kind":"cgroup.reading","kind":"host.counters","memory_available":,'
    b'"steal_s":0.0,"load1":,"kind":"exec.started","kind":"exec.ended","exec_id":","text_digest":","plumbing":false,'
    b'"kind":"attempt.started","kind":"attempt.ended","parse":"full","remote":"127.0.0.1:","close_kind":"fin",'
    b'"closed_by":"upstream","our_lag":0.0,"downstream_blocked":0.0,"silence_at_end":0.0,"max_gap_with_pings":0.0,'
    b'"max_gap":0.0,"duration":0.0,"first_token":0.0,"ttfb":0.0,"request_sent":0.0,"reused":true,"tls":0.0,'
    b'"connect":0.0,"dns":0.0,"bytes_down":,"bytes_up":,"ended_ns":,"started_wall_ns":17,"started_ns":,"outcome":"ok",'
    b'"reply":{"status":200,"content_type":"text/event-stream; charset=utf-8","html":false,"provider_id":true,'
    b'"request_id":"req_","error_in_stream":false,"model":"claude-","response_id":"msg_","stop_reason":"tool_use",'
    b'"stop_reason":"end_turn","input_tokens":,"output_tokens":,"cache_read_tokens":0,"cache_write_tokens":0,'
    b'"usage_partial":false,"tool_calls":[{"id":"toolu_","name":"Bash","text_digest":"}],"open_tool_calls":0,'
    b'"text_chars":,"terminator":true,"started_content":true,"events":,"pings":0},"request":{"operation":"chat",'
    b'"stream":true,"max_tokens":,"history_len":,"assistant_turns":,"has_tools":true,"tool_count":,"body_digest":"'
    b'","raw_digest":"","tools_digest":"","system_digest":"","first_user_digest":"","message_digests":["",""],'
    b'"last_assistant_digest":"","last_assistant_chars":,"tool_result_ids":["toolu_"],"session_kind":"claude_code",'
    b'"session":"","retry_count":0,"user_agent":"claude-cli/ (external, sdk-cli)","traceparent":"00-"},"method":"POST",'
    b'"path":"/v1/messages","path":"/v1/chat/completions","upstream_host":"api.anthropic.com","dialect":"anthropic_messages",'
    b'"dialect":"openai_chat","provider":"anthropic","provider":"openai","door":"anthropic","msg":1,"conn":1,"attempt":"019'
    b'{"id":"019","source":"collector.cgroup","source":"door.model","source":"collector.host","source":"collector.docker_events",'
    b'"source_id":"door.model/019","seq":,"host":{"name":"","boot_id":""},"subject":{"trial":"019","call":"019",'
    b'"container_id":"","exec":""},"phase":"agent","wall_ns":17,"mono_ns":,"uncertainty_s":0.0,"value":{'
)


SAMPLE_BYTES: Final = (700, 8192)
"""How long a body must, and may, be to become its source's sample."""


def pack(body: bytes, before: bytes = b"") -> bytes:
    """Deflate one JSON body against the schema's dictionary and an earlier body (JSON, may be empty)."""
    deflate = zlib.compressobj(level=6, wbits=-15, zdict=_DICTIONARY + before)
    return deflate.compress(body) + deflate.flush()


def unpack(body: bytes, before: bytes = b"") -> bytes:
    """The JSON body of a row; raises `zlib.error` on a damaged one, or mostly with another `before` than at `pack`."""
    return zlib.decompressobj(wbits=-15, zdict=_DICTIONARY + before).decompress(body)
