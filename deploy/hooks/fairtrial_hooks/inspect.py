"""Hooks of Inspect: loaded by its entry point, nothing to switch on.

In: the events of an eval's samples.  Out: marks, an outcome at each sample's end, and the sample's name in the header
`x-fairtrial-trial` of its model calls, so that samples that run side by side are told apart.  The name is
TASK.SAMPLE.EPOCH.UUID; the uuid, which is the log's, makes it the only one.
Not named are calls that Inspect may answer from its cache (the header would be part of the cache's key) and those of
batches (their requests share headers).
What this module does not do: say anything where neither `FAIRTRIAL_TRIAL` nor `FAIRTRIAL_CONTROL_URL` is set.
**Source:** inspect-ai 0.3.285, inspect_ai/hooks/_hooks.py and inspect_ai/_eval/task/run.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextvars import ContextVar
from typing import Any

from inspect_ai.hooks import (
    BeforeModelGenerate,
    Hooks,
    RunEnd,
    SampleAttemptEnd,
    SampleAttemptStart,
    SampleEnd,
    SampleInit,
    SampleScoring,
    TaskStart,
    hooks,
)

from fairtrial_hooks.telling import Teller, plain

HEADER = "x-fairtrial-trial"
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's CORRECT, INCORRECT, PARTIAL, NOANSWER."""
_SAMPLE: ContextVar[str | None] = ContextVar("fairtrial_sample", default=None)


@hooks(name="fairtrial", description="tells fairtrial how each sample goes")
class FairtrialHooks(Hooks):  # type: ignore[misc] # Inspect is not in our environment
    """One for the life of the process; what it keeps of a sample goes at the sample's end."""

    def __init__(self) -> None:
        self._teller = Teller.here()
        self._under = self._teller is not None or bool(os.environ.get("FAIRTRIAL_TRIAL"))
        self._tasks: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def enabled(self) -> bool:
        """Only under `fairtrial run`."""
        return self._under

    async def on_task_start(self, data: TaskStart) -> None:
        """Keep the task's name for its samples'."""
        with contextlib.suppress(Exception):
            self._tasks[data.eval_id] = data.spec.task

    async def on_sample_init(self, data: SampleInit) -> None:
        """Before its sandbox is made."""
        with contextlib.suppress(Exception):
            words = f"sample {data.summary.id}, epoch {data.summary.epoch}"
            self._mark(self._name(data), "sample-init", words)

    async def on_sample_attempt_start(self, data: SampleAttemptStart) -> None:
        """Its sandbox is there, its solver begins; again for each retry."""
        with contextlib.suppress(Exception):
            name = self._name(data)
            _SAMPLE.set(name)
            self._mark(name, "attempt-start", f"attempt {data.attempt}" if data.attempt > 1 else None)

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        """Name the sample's call.  The configuration is this call's own copy."""
        with contextlib.suppress(Exception):
            name = _SAMPLE.get()
            if name is None or data.cache is not None or data.config.batch:
                return
            headers = data.config.extra_headers or {}
            if not any(key.lower() == HEADER for key in headers):
                data.config.extra_headers = {**headers, HEADER: name}

    async def on_sample_scoring(self, data: SampleScoring) -> None:
        """The solver is done, or has failed."""
        with contextlib.suppress(Exception):
            name = self._names.get(data.sample_id)
            if name is not None:
                _SAMPLE.set(name)
                self._mark(name, "scoring")

    async def on_sample_attempt_end(self, data: SampleAttemptEnd) -> None:
        """With its error, and whether it is tried again."""
        with contextlib.suppress(Exception):
            words = [] if data.error is None else [_error_name(data.error.message)]
            words += ["will be tried again"] if data.will_retry else []
            self._mark(self._name(data), "attempt-end", ", ".join(words))

    async def on_sample_end(self, data: SampleEnd) -> None:
        """Its scores, its error, its limit."""
        name = self._names.pop(data.sample_id, None)
        with contextlib.suppress(Exception):
            if name is not None and self._teller is not None:
                self._end(self._teller, name, data.sample)

    async def on_run_end(self, data: RunEnd) -> None:  # noqa: ARG002 - Inspect's signature
        """Wait a little for the last words."""
        if self._teller is not None:
            with contextlib.suppress(Exception):
                await asyncio.get_running_loop().run_in_executor(None, self._teller.finish)

    def _end(self, teller: Teller, name: str, sample: Any) -> None:
        scores = {key: score.value for key, score in (sample.scores or {}).items()}
        reward = next((number for value in scores.values() if (number := _number(value)) is not None), None)
        words = [f"{key} {value}" for key, value in scores.items()]
        status = None
        if sample.limit is not None:
            status = f"limit: {sample.limit.type}"
            words.append(status)
        if sample.error_retries:
            words.append(f"tried {len(sample.error_retries) + 1} times")
        if sample.error is not None:
            outcome, status = "errored", _error_name(sample.error.message)
            words.append(status)
        elif reward is None:
            outcome = "unknown"
        else:
            outcome = "passed" if reward >= 1 else "failed"
        teller.outcome(name, outcome, reward=reward, exit_status=status)
        teller.mark(name, "sample-end", ", ".join(words))

    def _mark(self, trial: str, name: str, text: str | None = None) -> None:
        if self._teller is not None:
            self._teller.mark(trial, name, text)

    def _name(self, data: Any) -> str:
        known = self._names.get(data.sample_id)
        if known is None:
            task = self._tasks.get(data.eval_id, "task").rpartition("/")[2]
            parts = (plain(task, 30), plain(data.summary.id, 40), str(data.summary.epoch), plain(data.sample_id, 40))
            known = self._names[data.sample_id] = ".".join(parts)
        return known


def _number(value: object) -> float | None:
    if isinstance(value, str):
        return _LETTERS.get(value)
    return float(value) if isinstance(value, (bool, int, float)) else None


def _error_name(message: str) -> str:
    """The class name that most of Inspect's error texts begin with."""
    name = message.split("(", 1)[0].split(":", 1)[0].strip()
    return name[:80] if name.isidentifier() else "error"
