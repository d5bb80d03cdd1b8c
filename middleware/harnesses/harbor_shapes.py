"""The fields of Harbor's files that are read, as msgspec structs: result.json, config.json, lock.json, our mark.

Shapes only; everything may be absent, since a file may be cut off anywhere or come from another version.
**Source:** Harbor 0.26.0, harbor/models/trial/result.py, models/trial/config.py, models/job.
"""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct):
    started_at: str | None = None
    finished_at: str | None = None


class Policy(msgspec.Struct):
    should_retry: bool | None = None
    should_grade: bool | None = None
    has_valid_reward: bool | None = None


class Raised(msgspec.Struct):
    exception_type: str = "unknown"
    exception_message: str = ""
    occurred_at: str | None = None
    policy: Policy = msgspec.field(default_factory=Policy)


class Verified(msgspec.Struct):
    rewards: dict[str, float] | None = None


class AgentResult(msgspec.Struct):
    n_input_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


class StepResult(msgspec.Struct):
    step_name: str = ""
    agent_result: AgentResult | None = None
    verifier_result: Verified | None = None
    exception_info: Raised | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None


class ModelInfo(msgspec.Struct):
    name: str | None = None
    provider: str | None = None


class AgentInfo(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    model_info: ModelInfo | None = None


class ConfigTask(msgspec.Struct):
    path: str | None = None
    name: str | None = None


class ConfigAgent(msgspec.Struct):
    override_timeout_sec: float | None = None
    override_setup_timeout_sec: float | None = None
    max_timeout_sec: float | None = None


class ConfigEnvironment(msgspec.Struct):
    override_cpus: float | None = None
    override_memory_mb: float | None = None


class ConfigVerifier(msgspec.Struct):
    override_timeout_sec: float | None = None
    max_timeout_sec: float | None = None


class Config(msgspec.Struct):
    trial_name: str | None = None
    task: ConfigTask = msgspec.field(default_factory=ConfigTask)
    timeout_multiplier: float | None = None
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    agent: ConfigAgent = msgspec.field(default_factory=ConfigAgent)
    environment: ConfigEnvironment = msgspec.field(default_factory=ConfigEnvironment)
    verifier: ConfigVerifier = msgspec.field(default_factory=ConfigVerifier)


class Result(msgspec.Struct):
    trial_name: str | None = None
    """Absent in a job's own result.json, and where the file was cut before it."""
    task_name: str | None = None
    config: Config = msgspec.field(default_factory=Config)
    agent_info: AgentInfo = msgspec.field(default_factory=AgentInfo)
    agent_result: AgentResult | None = None
    verifier_result: Verified | None = None
    exception_info: Raised | None = None
    started_at: str | None = None
    finished_at: str | None = None
    environment_setup: Timing | None = None
    agent_setup: Timing | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None
    step_results: list[StepResult] | None = None
    reward_valid: bool | None = None
    stats: msgspec.Raw | None = None
    """Only a job's own result.json has it."""


class Mark(msgspec.Struct):
    """What `keep.py` writes beside the files of an attempt that Harbor deleted."""

    attempt: int


class HarborVersion(msgspec.Struct):
    version: str | None = None


class Lock(msgspec.Struct):
    harbor: HarborVersion = msgspec.field(default_factory=HarborVersion)
    n_concurrent_trials: int | None = None


class JobStats(msgspec.Struct):
    n_retries: int = 0


class JobResult(msgspec.Struct):
    stats: JobStats = msgspec.field(default_factory=JobStats)
