"""What harnesses booked for a trial: which outcome counts, and when its phases were.

In: the `harness.outcome` observations of one trial.  Out: a `Booking`.  Pure.  What this module does not do: read files
(`harnesses/`), judge, or take an agent's own word (trust `inside`) where anybody else said something.

Which one counts: a verifier's or scorer's word before an exit status; of two alike the one that was read whole, then
the one that was read last.  An unscored word changes an exit status of 0 only to the worse.
Phases are used only when the model calls that were seen lie within them: a clock of another machine would put a kill
into the wrong phase, and then the wrong blame.  Nor are times that the agent wrote: they would move what struck it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.observations import ContainerSeen, HarnessOutcome, Observation, Value
from fairtrial.middleware.core.records import Booked, Outcome, PhaseName, Trust

CLOCKS_APART_NS: Final = 2_000_000_000
"""So far may a call lie outside of the harness's agent phase before its clock is taken for another one."""

CONTROL: Final = "control"
"""The harness of an outcome that came through the control API: nobody knows which program said it."""
_WORSE: Final = frozenset({Outcome.FAILED, Outcome.ERRORED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A phase as the harness timed it, wall ns."""

    name: PhaseName
    started_ns: int
    ended_ns: int | None
    outcome: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """All that was booked; empty where nothing was."""

    all: tuple[HarnessOutcome, ...] = ()
    """The newest of each identity, the one that counts first."""
    outside: tuple[HarnessOutcome, ...] = ()
    """Those of them that an agent could not have written."""
    windows: tuple[Window, ...] = ()
    """In order of time; empty when none was told, or the clocks are apart."""
    clocks_apart: bool = False

    @property
    def first(self) -> HarnessOutcome | None:
        return self.all[0] if self.all else None

    @property
    def agent_ended_ns(self) -> int | None:
        """When the agent's last phase ended; None where that was not told."""
        ends = [window.ended_ns for window in self.windows if window.name is PhaseName.AGENT]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None

    @classmethod
    def of(cls, own: Iterable[tuple[Observation, Value]], calls_ns: Sequence[tuple[int, int | None]] = ()) -> Booking:
        """`calls_ns`: begin and end of each model call of the main agent, wall ns."""
        newest: dict[str, tuple[Observation, HarnessOutcome]] = {}
        for observation, value in own:
            if not isinstance(value, HarnessOutcome):
                continue
            known = newest.get(value.identity)
            if known is None or _age(observation, value) >= _age(*known):
                newest[value.identity] = (observation, value)
        # An attempt that was given up counts only where it is all that is known.
        if any(not value.retried for _, value in newest.values()):
            newest = {key: pair for key, pair in newest.items() if not pair[1].retried}
        told = sorted(newest.values(), key=lambda pair: _weight(*pair), reverse=True)
        windows = _windows([value for observation, value in told if observation.trust is not Trust.INSIDE])
        apart = bool(windows) and not _hold(windows, calls_ns)
        return cls(
            all=tuple(value for _, value in told),
            outside=tuple(value for observation, value in told if observation.trust is not Trust.INSIDE),
            windows=() if apart else tuple(windows),
            clocks_apart=apart,
        )

    def outcome(self, by_exit: Outcome, *, observed: bool) -> tuple[Outcome, str | None]:
        """The outcome and who said it; `by_exit` is what the command's own end says, unknown where it had none.

        `observed`: fairtrial watched the trial.  Then an agent's word alone is no outcome.
        """
        exit_source = None if by_exit is Outcome.UNKNOWN else "exit_code"
        for value in self.outside:
            if value.scored and value.outcome is not Outcome.UNKNOWN:
                return value.outcome, value.harness
        for value in self.outside:
            if by_exit is not Outcome.FAILED and value.outcome in _WORSE:
                return value.outcome, value.harness
        words = self.outside if observed else self.all
        if words and by_exit is Outcome.UNKNOWN:
            said = next((value for value in words if value.outcome is not Outcome.UNKNOWN), words[0])
            return said.outcome, said.harness
        return by_exit, exit_source

    def records(self) -> list[Booked]:
        """As the trial's record shows it."""
        return [
            Booked(
                harness=value.harness,
                label=value.label,
                job=value.job,
                outcome=value.outcome,
                scored=value.scored,
                reward=value.reward,
                reward_valid=value.reward_valid,
                exit_status=value.exit_status,
                error=value.errors[0].type if value.errors else None,
                marks=value.marks,
                retried=value.retried,
                part_of=value.part_of,
                joined_by=value.joined_by,
                complete=value.complete,
                model_calls=value.model_calls,
                inside=not any(value is each for each in self.outside),
            )
            for value in self.all
        ]

    def phase_at(self, at_ns: int) -> PhaseName | None:
        """The phase that a moment falls into; between the agent's end and the verifier's begin it is the verifier's,
        behind the last phase teardown; None before the first one, or where nothing was told."""
        found: PhaseName | None = None
        ended: int | None = None
        for window in self.windows:
            if at_ns < window.started_ns:
                if found is PhaseName.AGENT and ended is not None and at_ns > ended:
                    return window.name
                return found
            found, ended = window.name, window.ended_ns
        if found is not None and ended is not None and at_ns > ended:
            return PhaseName.TEARDOWN
        return found

    def is_verifiers(self, seen: ContainerSeen, at_ns: int) -> bool:
        """Whether a container is the verifier's own: by Harbor's name for it, or because it began in the verifier's
        time, after the agent's."""
        if seen.role not in {"main", "service"}:
            return False
        project = seen.labels.get("com.docker.compose.project", "")
        if "__verifier__" in project:
            return True
        begun = seen.started_wall_ns or at_ns
        verify = [w for w in self.windows if w.name is PhaseName.VERIFY]
        agent = [w for w in self.windows if w.name is PhaseName.AGENT]
        return any(w.started_ns <= begun and (w.ended_ns is None or begun <= w.ended_ns) for w in verify) and not any(
            a.started_ns <= begun and (a.ended_ns is None or begun <= a.ended_ns) for a in agent
        )


def _age(observation: Observation, value: HarnessOutcome) -> tuple[bool, int, int]:
    return value.complete, value.imported_ns or 0, observation.wall_ns


def _weight(observation: Observation, value: HarnessOutcome) -> tuple[bool, bool, bool, int, str]:
    return (
        observation.trust is not Trust.INSIDE,
        value.scored,
        value.complete,
        value.imported_ns or 0,
        value.identity,
    )


def _windows(told: Sequence[HarnessOutcome]) -> list[Window]:
    """Of the outcome that counts; a verifier's from another harness when that one has none (SWE-bench after mini)."""
    windows: list[Window] = []
    for value in told:
        have = {w.name for w in windows}
        windows += [
            Window(
                name=phase.name,
                started_ns=phase.started_ns,
                ended_ns=phase.ended_ns,
                outcome=phase.outcome,
                source=value.harness,
            )
            for phase in value.phases
            if phase.started_ns is not None and phase.name not in have
        ]
    return sorted(windows, key=lambda w: w.started_ns)


def _hold(windows: Sequence[Window], calls_ns: Sequence[tuple[int, int | None]]) -> bool:
    """Whether the calls lie where the harness says that its agent ran."""
    agent = [w for w in windows if w.name is PhaseName.AGENT]
    if not agent or not calls_ns:
        return True
    begin = min(w.started_ns for w in agent) - CLOCKS_APART_NS
    ends = [w.ended_ns for w in agent]
    known = [end for end in ends if end is not None]
    end = max(known) + CLOCKS_APART_NS if len(known) == len(ends) else None
    return all(began >= begin and (end is None or began <= end) for began, _ in calls_ns)
