"""Every telemetry name of fairtrial: attributes, span names, services.  Nowhere else may such a literal stand.

GenAI names follow the conventions of the semantic-conventions-genai repository at 024a4f94 (inference spans) and
002c8a6e (agent spans), all "Development"; `GENAI_PROFILES` holds those of v1.41 to v1.44, the last that the common
package had, for back ends that know only them.
HTTP, network, error, container and process names: semantic-conventions v1.44.  Ours have the prefix `fairtrial.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SCOPE: Final = "fairtrial"

SERVICE_HARNESS: Final = "agent-harness"
SERVICE_MODEL_API: Final = "model-api"
SERVICE_CONTAINER: Final = "task-container"

SPAN_TRIAL: Final = "trial"
SPAN_STEP: Final = "step"
SPAN_PHASE: Final = "phase"
SPAN_CHAT: Final = "chat"
SPAN_ATTEMPT: Final = "attempt"
SPAN_EXECUTE_TOOL: Final = "execute_tool"
SPAN_EXEC: Final = "exec"
SPAN_OOM_KILL: Final = "oom_kill"
SPAN_VERDICT: Final = "verdict"
SPAN_LATE_EVIDENCE: Final = "late_evidence"

SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
HOST_NAME: Final = "host.name"
ERROR_TYPE: Final = "error.type"
HTTP_STATUS: Final = "http.response.status_code"
HTTP_RESEND: Final = "http.request.resend_count"
SERVER_ADDRESS: Final = "server.address"
PEER_ADDRESS: Final = "network.peer.address"
CONTAINER_ID: Final = "container.id"
CONTAINER_NAME: Final = "container.name"
PROCESS_EXIT_CODE: Final = "process.exit.code"
PROCESS_COMMAND_ARGS: Final = "process.command_args"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

TRIAL: Final = "fairtrial.trial"
RUN: Final = "fairtrial.run"
TASK: Final = "fairtrial.task"
NAME: Final = "fairtrial.name"
TRY: Final = "fairtrial.try"
OUTCOME: Final = "fairtrial.outcome"
CLOSED: Final = "fairtrial.closed"
INCOMPLETE: Final = "fairtrial.incomplete"
HARNESS: Final = "fairtrial.harness"
PART: Final = "fairtrial.part"
PARTS: Final = "fairtrial.parts"
LATE: Final = "fairtrial.late"
BLAME: Final = "fairtrial.blame"
GRADE: Final = "fairtrial.grade"
CAUSE: Final = "fairtrial.cause"
TERMINATED_BY: Final = "fairtrial.terminated_by"
ENDED_AS: Final = "fairtrial.ended_as"
GUILTY: Final = "fairtrial.guilty"
VERDICT_STEP: Final = "fairtrial.verdict.step"
VERDICT_REVISION: Final = "fairtrial.verdict.revision"
SENTENCE: Final = "fairtrial.sentence"
RETRY: Final = "fairtrial.retry"
REWARD_VALID: Final = "fairtrial.reward_valid"
EXIT_CODE: Final = "fairtrial.exit_code"
STEPS: Final = "fairtrial.steps"
PHASE: Final = "fairtrial.phase"
STEP_INDEX: Final = "fairtrial.step.index"
STEP_MEMORY_PEAK: Final = "fairtrial.step.memory.peak"
STEP_MEMORY_PEAK_KIND: Final = "fairtrial.step.memory.peak_kind"
STEP_MEMORY_LIMIT: Final = "fairtrial.step.memory.ceiling"
STEP_OOM_KILLS: Final = "fairtrial.step.oom_kills"
STEP_THROTTLED: Final = "fairtrial.step.cpu.throttled_s"
STEP_EGRESS_BYTES: Final = "fairtrial.step.egress.bytes"
STEP_EGRESS_RATE: Final = "fairtrial.step.egress.rate_max"
STEP_API_SECONDS: Final = "fairtrial.step.api_s"
STEP_WAIT_SECONDS: Final = "fairtrial.step.wait_s"
CALL: Final = "fairtrial.call"
CALL_ROLE: Final = "fairtrial.call.role"
CALL_OUTCOME: Final = "fairtrial.call.outcome"
CALL_ATTEMPTS: Final = "fairtrial.call.attempts"
CALL_FELL_BACK: Final = "fairtrial.call.fell_back"
CALL_LEFT_OUT: Final = "fairtrial.call.attempts_left_out"
MAX_GAP: Final = "fairtrial.max_gap_s"
MAX_GAP_WITH_PINGS: Final = "fairtrial.max_gap_with_pings_s"
WAIT_BEFORE: Final = "fairtrial.wait_before_s"
RETRY_AFTER: Final = "fairtrial.retry_after_s"
REQUEST_ID: Final = "fairtrial.request_id"
CLOSED_BY: Final = "fairtrial.closed_by"
CLOSE_KIND: Final = "fairtrial.close_kind"
NET_DNS: Final = "fairtrial.net.dns_s"
NET_CONNECT: Final = "fairtrial.net.connect_s"
NET_TLS: Final = "fairtrial.net.tls_s"
TTFB: Final = "fairtrial.ttfb_s"
BYTES_UP: Final = "fairtrial.bytes_up"
BYTES_DOWN: Final = "fairtrial.bytes_down"
EXEC_ID: Final = "fairtrial.exec.id"
EXEC_JOIN: Final = "fairtrial.exec.join"
EXEC_VIA: Final = "fairtrial.exec.via"
EXEC_SIGNAL: Final = "fairtrial.exec.signal"
EXEC_TIMED_OUT_BY: Final = "fairtrial.exec.timed_out_by"
EXEC_BYTES_OUT: Final = "fairtrial.exec.bytes_out"
EXEC_BYTES_ERR: Final = "fairtrial.exec.bytes_err"
EXEC_BYTES_IN: Final = "fairtrial.exec.bytes_in"
EXEC_DURATION: Final = "fairtrial.exec.duration_s"
EXEC_DISPATCH_DELAY: Final = "fairtrial.exec.dispatch_delay_s"
EXEC_ENDED_BY: Final = "fairtrial.exec.ended_by"
OOM_VICTIM: Final = "fairtrial.oom.victim"
OOM_VICTIM_ROLE: Final = "fairtrial.oom.victim_role"
EVENT_THROTTLED: Final = "fairtrial.cpu_throttled"
EVENT_STALLED: Final = "fairtrial.stalled"
EVENT_MARK: Final = "fairtrial.said_from_inside"
MARK_NAME: Final = "fairtrial.mark.name"
MARK_TEXT: Final = "fairtrial.mark.text"
MARK_TRUST: Final = "fairtrial.mark.trust"

PROVIDER_NAMES: Final = {"gemini": "gcp.gemini", "vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock"}
"""Our names of providers that the conventions call otherwise (client-inference.md, `gen_ai.provider.name`)."""


@dataclass(frozen=True, slots=True)
class GenAiProfile:
    """Which generation of the GenAI names is written: `renamed` maps the newest name to that of the profile."""

    schema_url: str
    renamed: dict[str, str]


GENAI_NEWEST: Final = "newest"
GENAI_PROFILES: Final = {
    GENAI_NEWEST: GenAiProfile(SCHEMA_URL, {}),
    "1.41": GenAiProfile("https://opentelemetry.io/schemas/1.41.0", {CACHE_WRITE_TOKENS: CACHE_CREATION_TOKENS}),
}
"""Attributes of spans only; the renamed metrics of the conventions are not among what fairtrial writes."""

# --- metrics (Prometheus; counters go without `_total` here) --------------------------------------------------------

M_TTFT: Final = "fairtrial_api_ttft_seconds"
M_CALL_DURATION: Final = "fairtrial_api_attempt_duration_seconds"
M_TOKEN_RATE: Final = "fairtrial_api_output_tokens_per_second"  # noqa: S105 - tokens of a model
M_ATTEMPTS: Final = "fairtrial_api_attempts"
M_OUTPUT_TOKENS: Final = "fairtrial_api_output_tokens"
M_STALLS: Final = "fairtrial_api_stalls"
M_TOOL_DURATION: Final = "fairtrial_tool_duration_seconds"
M_OOM_KILLS: Final = "fairtrial_container_oom_kills"
M_MEMORY_RATIO: Final = "fairtrial_container_memory_peak_ratio"
M_THROTTLED: Final = "fairtrial_container_cpu_throttled_seconds"
M_EGRESS_BYTES: Final = "fairtrial_container_egress_bytes"
M_EGRESS_RATE: Final = "fairtrial_container_egress_rate_bytes_per_second"
M_OPEN_TRIALS: Final = "fairtrial_open_trials"
M_SILENT_TRIAL: Final = "fairtrial_longest_silent_trial_seconds"
M_TRIALS: Final = "fairtrial_trials"
M_ENDED_BY: Final = "fairtrial_trials_terminated"
M_DROPPED: Final = "fairtrial_own_dropped"
M_UNASSIGNED: Final = "fairtrial_api_unassigned"
M_ERRORS: Final = "fairtrial_own_errors"
M_LAG: Final = "fairtrial_own_loop_lag_seconds"
M_SPANS: Final = "fairtrial_own_spans"
M_BUILD: Final = "fairtrial_build"
