"""Harbor's job plugin: `harbor run … --plugin fairtrial`.

In: the events of a job's trials.  Out: a mark for each, and an outcome at each trial's end, said of Harbor's own name
for the trial.  Nothing of Harbor is imported: what is used are `Job.on_trial_started` and its like, and the fields of
the events.  An event that has other fields than those of 0.26 is said as far as it can be read.
What this module does not do: change a trial's configuration.  Harbor compares it when a job is resumed, and its
environments are named after the trial already.
**Source:** harbor 0.26.0, harbor/cli/job_plugins.py and harbor/trial/hooks.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

from fairtrial_hooks.telling import Teller

_EVENTS = (
    "on_trial_started",
    "on_environment_started",
    "on_agent_started",
    "on_agent_ended",
    "on_verification_started",
    "on_trial_ended",
    "on_trial_cancelled",
)


class Plugin:
    """What Harbor makes one of for a job; options are taken and not used."""

    def __init__(self, **_options: object) -> None:
        self._teller = Teller.here()
        self._attempts: Counter[str] = Counter()

    async def on_job_start(self, job: Any) -> None:
        """Listen to the job's trials."""
        if self._teller is None:
            return
        for name in _EVENTS:
            with contextlib.suppress(Exception):
                getattr(job, name)(self._on_event)

    async def on_job_end(self, job_result: Any) -> None:  # noqa: ARG002 - Harbor's signature
        """Wait a little for the last words."""
        if self._teller is not None:
            with contextlib.suppress(Exception):
                await asyncio.get_running_loop().run_in_executor(None, self._teller.finish)

    async def _on_event(self, event: Any) -> None:
        with contextlib.suppress(Exception):
            self._say(event)

    def _say(self, event: Any) -> None:
        teller, trial, kind = self._teller, str(event.trial_name), str(event.event.value)
        if teller is None:
            return
        text = None
        if kind == "start":
            self._attempts[trial] += 1
            again = self._attempts[trial]
            text = f"task {event.task_name}" + (f", attempt {again}" if again > 1 else "")
            if again > 1:
                teller.mark(trial, "retry", f"attempt {again}")
        elif kind == "end":
            text = self._end(teller, trial, event.result)
        teller.mark(trial, kind, text)

    def _end(self, teller: Teller, trial: str, result: Any) -> str | None:
        verified = result.verifier_result
        rewards = dict((verified.rewards if verified is not None else None) or {})
        reward = _reward(rewards)
        errors = [str(each.exception_type) for each in result.recorded_exceptions()]
        outcome = "unknown"
        if reward is not None and (result.reward_valid or not errors):
            outcome = "passed" if reward >= 1 else "failed"
        elif errors:
            outcome = "errored"
        teller.outcome(trial, outcome, reward=reward, exit_status=errors[0] if errors else None)
        said = [f"{name} {value:g}" for name, value in rewards.items()] + errors
        return ", ".join(said) or None


def _reward(rewards: dict[str, Any]) -> float | None:
    """The one number that is booked: `reward`, or the only one, or the least of several."""
    if "reward" in rewards:
        return float(rewards["reward"])
    return min((float(value) for value in rewards.values()), default=None)
