"""Harbor: a job's folder, one trial's folder, or a `result.json`; per-step results, several attempts, trajectories.

In: a path.  Out: one `Booked` per trial folder, joined by trial name, compose project, session and tool-call ids.
What Harbor deletes (a failed attempt that it tried again) is not here; `keep.py` saves it on sight.
Harbor's reward is the booked score as it stands; `reward_valid` is Harbor's own word on whether it counts.
What this module does not do: keep texts of failures, or believe the agent's files (`agent/` is written inside the
container): the trajectory only joins and sums.  Without a result `exception.txt` gives the failure's name.
**Source:** Harbor 0.26.0, harbor/models/trial/result.py, models/job, trial/queue.py; reference page harnesses.md 9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.names import AGENT, ENVIRONMENT, project_of
from fairtrial.middleware.core.observations import BookedError, BookedPhase, HarnessOutcome
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName
from fairtrial.middleware.harnesses.atif import Trajectory, read_trajectory
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import read_bytes, read_json, shown, wall_ns
from fairtrial.middleware.harnesses.harbor_declared import Task
from fairtrial.middleware.harnesses.harbor_shapes import Config, JobResult, Lock, Mark, Raised, Result, Timing
from fairtrial.middleware.harnesses.keep import MARK
from fairtrial.middleware.wire.redact import digest

HARNESS: Final = "harbor"
_EXIT: Final = re.compile(r"\bexit(?:ed)?(?: with)?(?: code)?[ :=]+(\d{1,3})\b")
_NAME: Final = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_GONE: Final = "Session has ended, breaking out of agent loop"
_LOG_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What a job's own files say of all its trials."""

    name: str | None = None
    version: str | None = None
    concurrency: int | None = None


def read(path: Path) -> Reading:
    """A job's folder, a folder of jobs, one trial's folder, or a trial's result.json."""
    if path.is_file():
        if path.name == "trajectory.json":
            return _alone(path)
        reading = _trial(path.parent, _job_of(path.parent.parent), path, result=path)
        if not reading.booked and not reading.notes:
            reading.note(shown(path, path), "foreign", "is a job's own result.json; import the job's folder")
        return reading
    if not path.is_dir():
        reading = Reading()
        reading.note(path.name, "unreadable", "could not be read: there is no such file or folder")
        return reading
    if _is_trial(path):
        return _trial(path, _job_of(path.parent), path)
    return _folder(path, path, depth=2)


def _folder(folder: Path, top: Path, *, depth: int) -> Reading:
    """Trials in the folder, and in jobs below it."""
    reading = Reading()
    job = _job_of(folder)
    for child in _folders(folder, reading, top):
        if _is_trial(child):
            reading.add(_trial(child, job, top))
        elif depth > 1:
            reading.add(_folder(child, top, depth=depth - 1))
    retries = read_json(folder / "result.json", JobResult).value
    if retries is not None and retries.stats.n_retries:
        count = retries.stats.n_retries
        reading.note(
            shown(folder, top),
            "partial",
            f"Harbor tried {count} {'attempt' if count == 1 else 'attempts'} again and deleted what the failed ones "
            "had written; what was kept on sight lies in the store's keep folder",
        )
    if depth == 2 and not reading.booked and not reading.notes:
        reading.note(shown(folder, top), "foreign", "holds no trial of Harbor's (no folder with result.json or config)")
    return _numbered(reading)


def _folders(folder: Path, reading: Reading, top: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir() and not child.is_symlink())
    except OSError as error:
        reading.note(shown(folder, top), "unreadable", f"could not be read: {error.strerror or error}")
        return []


def _is_trial(folder: Path) -> bool:
    """A trial's folder has both files of a trial's begin; a job's config.json stands beside folders of trials."""
    if (folder / "trial.log").exists() or (folder / "agent").is_dir():
        return True
    return (
        (folder / "result.json").is_file()
        and read_json(folder / "result.json", Result).value is not None
        and (read_json(folder / "result.json", Result).value or Result()).trial_name is not None
    )


def _job_of(folder: Path) -> _Job:
    lock = read_json(folder / "lock.json", Lock).value
    if lock is None or lock.n_concurrent_trials is None:
        return _Job()
    return _Job(name=folder.name, version=lock.harbor.version, concurrency=lock.n_concurrent_trials)


def _numbered(reading: Reading) -> Reading:
    """Attempts at one task, in the order in which they began."""
    by_task: dict[tuple[str | None, str | None, str | None, str | None], list[Booked]] = {}
    for one in reading.booked:
        told = one.outcome
        if told.retried:
            continue
        by_task.setdefault((told.job, told.task, told.agent, told.model), []).append(one)
    tries: dict[int, int] = {}
    for group in by_task.values():
        group.sort(key=lambda one: (one.outcome.started_ns or 0, one.outcome.label))
        tries |= {id(one): number for number, one in enumerate(group, 1) if len(group) > 1}
    tries |= {id(one): one.outcome.try_ for one in reading.booked if one.outcome.retried and one.outcome.try_}
    reading.booked = [
        Booked(
            outcome=msgspec.structs.replace(one.outcome, try_=tries.get(id(one))),
            keys=one.keys,
            trust=one.trust,
            program=one.program,
        )
        for one in reading.booked
    ]
    return reading


# --- one trial --------------------------------------------------------------------------------------------------------


def _alone(path: Path) -> Reading:
    """A trajectory without its trial: it joins, and books nothing."""
    reading = Reading()
    found = read_trajectory(path)
    if found.value is None:
        reading.note(path.name, "foreign" if found.foreign else "unreadable", found.trouble or "could not be read")
        return reading
    reading.note(path.name, "whole" if found.trouble is None else "partial", found.trouble or "")
    label = min(found.value.sessions, default=path.parent.name)
    outcome = HarnessOutcome(harness=HARNESS, identity=digest(f"{HARNESS}/{label}"), label=label, files=[path.name])
    outcome = _with_trajectory(outcome, [found.value])
    reading.booked.append(Booked(outcome=outcome, keys=_keys(None, [found.value])))
    return reading


def _trial(folder: Path, job: _Job, top: Path, *, result: Path | None = None) -> Reading:
    reading = Reading()
    files: list[str] = []
    whole = True
    result = folder / "result.json" if result is None else result
    read_result = read_json(result, Result)
    value = read_result.value
    if value is not None and value.trial_name is None and value.stats is not None:
        return reading  # a job's own
    nameless = value is not None and value.trial_name is None and value.config.trial_name is None
    if read_result.foreign or (nameless and read_result.trouble is None):
        reading.note(shown(result, top), "foreign", read_result.trouble or "is no result of a Harbor trial")
        value = None
        if not (folder / "trial.log").exists():
            return reading
    if (value is None or nameless) and not (folder / "trial.log").exists() and not (folder / "config.json").exists():
        if not reading.notes:  # nothing says that this is a trial at all
            said = read_result.trouble or "names no trial"
            reading.note(shown(result, top), "unreadable", said)
        return reading
    if result.exists():
        if value is not None and read_result.trouble is None:
            files.append(shown(result, top))
            reading.note(shown(result, top), "whole", "")
        elif not read_result.foreign:
            files.append(shown(result, top))
            reading.note(shown(result, top), "partial" if value else "unreadable", read_result.trouble or "")
        whole = read_result.whole
    else:
        whole = False
        reading.note(
            shown(folder, top),
            "partial",
            "holds no result.json: Harbor has not finished this trial, was stopped, or is about to try it again",
        )
    config = value.config if value is not None else None
    if value is None or config is None or config.trial_name is None:
        config = read_json(folder / "config.json", Config).value or config or Config()
    value = value if value is not None else Result()
    name = value.trial_name or config.trial_name or folder.name
    trajectories: list[Trajectory] = []
    for path in _trajectories(folder):
        found = read_trajectory(path)
        files.append(shown(path, top))
        if found.value is not None:
            trajectories.append(found.value)
        if found.trouble is not None:
            whole = False
            reading.note(shown(path, top), "unreadable" if found.value is None else "partial", found.trouble)
    outcome = _with_trajectory(_outcome(value, config, name, job, folder), trajectories)
    outcome = msgspec.structs.replace(outcome, complete=whole, files=files, marks=_marks(folder))
    attempt = read_json(folder / MARK, Mark).value
    if attempt is not None:
        identity = digest(f"{HARNESS}/{name}/attempt/{attempt.attempt}/{outcome.started_ns or ''}")
        outcome = msgspec.structs.replace(outcome, retried=True, identity=identity, try_=attempt.attempt)
    keys = _keys(name, trajectories)
    reading.booked.append(Booked(outcome=outcome, keys=keys, program=("harbor",)))
    return reading


def _trajectories(folder: Path) -> list[Path]:
    places = [folder / "agent", *sorted((folder / "steps").glob("*/agent"))]
    return [path for place in places if (path := place / "trajectory.json").is_file()]


def _marks(folder: Path) -> list[str]:
    log = read_bytes(folder / "trial.log", _LOG_BYTES).value or b""
    return ["terminal_gone"] if _GONE.encode() in log else []


def _keys(name: str | None, trajectories: list[Trajectory]) -> Keys:
    sessions = {session for each in trajectories for session in each.sessions}
    projects: set[str] = set()
    if name is not None:
        sessions |= {name + AGENT, f"{name}__user"}
        projects = {project_of(name + ENVIRONMENT)}
    return Keys(
        sessions=frozenset(digest(session) for session in sessions),
        tool_calls=frozenset(call for each in trajectories for call in each.tool_calls),
        projects=frozenset(projects),
        names=frozenset() if name is None else frozenset({name}),
    )


def _with_trajectory(outcome: HarnessOutcome, found: list[Trajectory]) -> HarnessOutcome:
    if not found:
        return outcome
    return msgspec.structs.replace(
        outcome,
        agent=outcome.agent or found[0].agent,
        model=outcome.model or found[0].model,
        model_calls=sum(each.model_calls for each in found),
        input_tokens=outcome.input_tokens if outcome.input_tokens is not None else _sum(t.input_tokens for t in found),
        output_tokens=outcome.output_tokens
        if outcome.output_tokens is not None
        else _sum(t.output_tokens for t in found),
        cost_usd=outcome.cost_usd if outcome.cost_usd is not None else found[0].cost_usd,
        started_ns=outcome.started_ns or min((t.started_ns for t in found if t.started_ns), default=None),
        ended_ns=outcome.ended_ns or max((t.ended_ns for t in found if t.ended_ns), default=None),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _outcome(result: Result, config: Config, name: str, job: _Job, folder: Path) -> HarnessOutcome:
    rewards = (result.verifier_result.rewards if result.verifier_result else None) or {}
    errors = _errors(result)
    if not errors and result.finished_at is None:
        errors = _left_behind(folder)
    reward = _reward(rewards)
    valid = result.reward_valid
    if valid is None and rewards:
        answers = [error.reward_valid for error in errors]
        valid = None if None in answers else all(answers)
    task = Task.of(config)
    contexts = [c for c in (result.agent_result, *(s.agent_result for s in result.step_results or [])) if c is not None]
    model = result.agent_info.model_info
    return HarnessOutcome(
        harness=HARNESS,
        harness_version=job.version,
        identity=digest(f"{HARNESS}/{name}"),
        label=name,
        task=result.task_name or config.task.name,
        job=job.name,
        outcome=_booked(reward, errors, valid=valid, ended=result.finished_at is not None),
        scored=reward is not None,
        reward=reward,
        rewards=rewards,
        reward_valid=valid,
        exit_status=errors[0].type if errors else None,
        ended_as=_ended_as(result, errors),
        errors=errors,
        started_ns=wall_ns(result.started_at),
        ended_ns=wall_ns(result.finished_at),
        phases=_phases(result, errors),
        time=task.limits(config),
        memory_declared=task.memory(config),
        cpus_declared=config.environment.override_cpus or task.cpus,
        concurrency=job.concurrency,
        agent=result.agent_info.name,
        model=model.name if model is not None else None,
        input_tokens=_sum(c.n_input_tokens for c in contexts),
        output_tokens=_sum(c.n_output_tokens for c in contexts),
        cost_usd=next((c.cost_usd for c in contexts if c.cost_usd is not None), None),
    )


def _reward(rewards: dict[str, float]) -> float | None:
    """The one number that is booked: `reward`, or the only one, or the least of several."""
    if "reward" in rewards:
        return rewards["reward"]
    return min(rewards.values(), default=None)


def _booked(reward: float | None, errors: list[BookedError], *, valid: bool | None, ended: bool) -> Outcome:
    if reward is not None and (valid is not False):
        return Outcome.PASSED if reward >= 1 else Outcome.FAILED
    if errors:
        return Outcome.ERRORED
    if reward is not None and ended:
        return Outcome.PASSED if reward >= 1 else Outcome.FAILED
    return Outcome.UNKNOWN


def _errors(result: Result) -> list[BookedError]:
    told: list[tuple[Raised | None, str | None]] = [(result.exception_info, None)]
    told += [(step.exception_info, step.step_name) for step in result.step_results or []]
    return [_error(info, step) for info, step in told if info is not None]


def _error(info: Raised, step: str | None) -> BookedError:
    code = _EXIT.search(info.exception_message[:4000])
    return BookedError(
        type=info.exception_type[:80],
        at_ns=wall_ns(info.occurred_at),
        exit_code=int(code.group(1)) if code is not None else None,
        step=step,
        should_retry=info.policy.should_retry,
        should_grade=info.policy.should_grade,
        reward_valid=info.policy.has_valid_reward,
    )


def _left_behind(folder: Path) -> list[BookedError]:
    """The exception of a trial that has no result: the last line of a traceback in exception.txt."""
    text = read_bytes(folder / "exception.txt", 1 << 20).value
    if not text:
        return []
    for line in reversed(text.decode("utf-8", "replace").splitlines()):
        if line[:1].isalpha() or line[:1] == "_":
            name = _NAME.match(line)
            return [BookedError(type=name.group(1).rpartition(".")[2][:80])] if name else []
    return []


def _ended_as(result: Result, errors: list[BookedError]) -> EndedAs | None:
    if not errors:
        return EndedAs.AGENT_FINISHED if result.finished_at is not None else None
    first = errors[0]
    ran = result.agent_execution is not None or any(s.agent_execution is not None for s in result.step_results or [])
    if not ran:
        return EndedAs.NEVER_RAN
    match first.type:
        case "AgentTimeoutError":
            return EndedAs.HARNESS_TIMEOUT
        case "NonZeroAgentExitCodeError":
            return EndedAs.KILLED if first.exit_code in {137, 143} else EndedAs.AGENT_CRASHED
        case "CancelledError":
            return EndedAs.KILLED
        case "VerifierTimeoutError" | "RewardFileNotFoundError" | "RewardFileEmptyError" | "VerifierOutputParseError":
            return EndedAs.AGENT_FINISHED
        case _:
            return EndedAs.AGENT_GAVE_UP


_TIMINGS: Final = (
    ("environment_setup", PhaseName.BUILD),
    ("agent_setup", PhaseName.SETUP),
    ("agent_execution", PhaseName.AGENT),
    ("verifier", PhaseName.VERIFY),
)


def _phases(result: Result, errors: list[BookedError]) -> list[BookedPhase]:
    found = [_phase(name, getattr(result, field), errors, None) for field, name in _TIMINGS]
    for step in result.step_results or []:
        found.append(_phase(PhaseName.AGENT, step.agent_execution, errors, step.step_name))
        found.append(_phase(PhaseName.VERIFY, step.verifier, errors, step.step_name))
    return sorted((p for p in found if p is not None), key=lambda phase: phase.started_ns or 0)


def _phase(name: PhaseName, timing: Timing | None, errors: list[BookedError], step: str | None) -> BookedPhase | None:
    started = wall_ns(timing.started_at) if timing is not None else None
    if timing is None or started is None:
        return None
    ended = wall_ns(timing.finished_at)
    until = None if ended is None else ended + 50_000_000
    within = [
        e.type
        for e in errors
        if e.at_ns is not None and e.step == step and started <= e.at_ns and (until is None or e.at_ns <= until)
    ]
    outcome = within[0] if within else ("ended" if ended is not None else None)
    return BookedPhase(name=name, started_ns=started, ended_ns=ended, outcome=outcome, step=step)


ADAPTER: Final = Adapter(name=HARNESS, takes="a job's folder, a trial's folder, or a result.json", read=read)
