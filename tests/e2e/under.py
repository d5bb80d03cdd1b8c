"""Runs a command under `fairtrial run` and reads what fairtrial made of it.

In: a command, its environment, a folder. Out: `Under`, with how the command ended, what fairtrial said, and the record
of the trial as `--json` wrote it. `Due` is a verdict written down before anything ran; `missed` compares the two.
Nothing of ours is replaced: the program, the store and the observer are the real ones.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from fairtrial.middleware.core.observations import Value, decode
from fairtrial.middleware.core.records import Blame, Call, EndedAs, Grade, Trial, Verdict
from fairtrial.middleware.report.text import show_lines
from fairtrial.middleware.store.database import all_observations, open_database
from tests.e2e import clients
from tests.e2e.clients import Outcome

FAIRTRIAL: tuple[str, ...] = (sys.executable, "-m", "fairtrial")
NO_DOCKER = {"FAIRTRIAL_RUN__DOCKER": "false"}
"""For trials that use no container: another test's containers on the same engine are none of their business."""

V = TypeVar("V", bound=Value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Under:
    """One run: the command's end (`outcome`), the record (None: none was written), and the store it is kept in."""

    outcome: Outcome
    record: Trial | None
    store: Path

    @property
    def trial(self) -> Trial:
        """The record; a test that needs it fails without it."""
        assert self.record is not None, self.told()
        return self.record

    @property
    def verdict(self) -> Verdict:
        """The record's verdict."""
        assert self.trial.verdict is not None, self.told()
        return self.trial.verdict

    def told(self) -> str:
        """Everything, for an assertion's message."""
        if self.record is None:
            return f"{self.outcome.told()}\n--- no record"
        steps = "\n".join(f"{s.index}: {s.calls} {s.tools}" for s in self.record.steps)
        shown = "\n".join(show_lines(self.record))
        return f"{self.outcome.told()}\n--- {self.store.parent}\n{shown}\n--- calls and tools\n{steps}"


def run_command(command: Sequence[str], store: Path, record: Path | None, options: Sequence[str] = ()) -> list[str]:
    """The command line of `fairtrial run` for `command`."""
    asked = [] if record is None else ["--json", str(record)]
    return [*FAIRTRIAL, "run", "--store", str(store), *asked, *options, "--", *command]


def run_under(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    kept: Path,
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
    store: Path | None = None,
    timeout_s: float = 120.0,
) -> Under:
    """Run to the end. `kept` is a folder of the test's own for store and record; it may exist, the record may not."""
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / "store.db" if store is None else store
    record = kept / "trial.json"
    assert not record.exists()
    outcome = clients.run(
        run_command(command, place, record, options), environment, folder, prefix=prefix, timeout_s=timeout_s
    )
    return Under(outcome=outcome, record=read_record(record), store=place)


def read_record(path: Path) -> Trial | None:
    """The `fairtrial.trial/1` in a file, None when there is no such file or the run was parted (`fairtrial.run/1`)."""
    if not path.exists():
        return None
    content = path.read_bytes()
    parted = msgspec.json.decode(content)["schema"] != "fairtrial.trial/1"
    return None if parted else msgspec.json.decode(content, type=Trial)


def seen_in(store: Path, kind: type[V]) -> list[V]:
    """Every observation of a kind, by its time, whosever it is."""
    with contextlib.closing(open_database(store, read_only=True)) as database:
        found = sorted(all_observations(database), key=lambda o: o.wall_ns)
    return [value for value in map(decode, found) if isinstance(value, kind)]


def fairtrial(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Another command of fairtrial's, to its end."""
    return subprocess.run(
        [*FAIRTRIAL, *arguments], env=dict(environment), capture_output=True, text=True, check=False, timeout=60
    )


def shown(store: Path, environment: Mapping[str, str], trial: str = "last", *more: str) -> Trial:
    """A trial as `fairtrial show --json` gives it."""
    done = fairtrial("show", trial, "--json", "--store", str(store), *more, environment=environment)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Trial)


# --- what is due ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The verdict that the design asks for. `terminated_by` is (cause, grade, step); `ended_as` None: not decided.

    `present` holds (cause, step) of the outside events that must be told as harmless, in any order.
    """

    blame: Blame
    grade: Grade | None = None
    cause: str | None = None
    step: int | None = None
    terminated_by: tuple[str, Grade, int | None] | None = None
    ended_as: EndedAs | None = None
    present: frozenset[tuple[str, int | None]] = frozenset()


def passed(*present: tuple[str, int | None]) -> Due:
    """The agent finished; these events did not matter."""
    return Due(blame=Blame.NONE, ended_as=EndedAs.AGENT_FINISHED, present=frozenset(present))


def ended_by(blame: Blame, cause: str, step: int, *, ended_as: EndedAs = EndedAs.AGENT_GAVE_UP) -> Due:
    """An outside event that ended the trial, and three yeses."""
    proved = Grade.PROVED
    return Due(
        blame=blame, grade=proved, cause=cause, step=step, terminated_by=(cause, proved, step), ended_as=ended_as
    )


def missed(under: Under, due: Due) -> str:
    """ "" when the verdict is the one that is due; else what differs, and everything that was seen."""
    verdict = under.verdict
    ended = verdict.terminated_by
    pairs: list[tuple[str, object, object]] = [
        ("blame", due.blame, verdict.blame),
        ("grade", due.grade, verdict.grade),
        ("cause", due.cause, verdict.cause),
        ("step", due.step, verdict.step),
        ("terminated_by", due.terminated_by, None if ended is None else (ended.cause, ended.grade, ended.step)),
        ("present", due.present, frozenset((p.cause, p.step) for p in verdict.present)),
        ("closed", "normal", under.trial.closed),
    ]
    if due.ended_as is not None:
        pairs.append(("ended_as", due.ended_as, verdict.ended_as))
    wrong = [f"{name}: due {_word(wanted)}, said {_word(said)}" for name, wanted, said in pairs if wanted != said]
    if not wrong:
        return ""
    return "\n".join([*wrong, verdict.sentence, under.told()])


def _word(value: object) -> str:
    if isinstance(value, frozenset | tuple):
        return f"({', '.join(sorted(map(_word, value)) if isinstance(value, frozenset) else map(_word, value))})"
    return str(value)


def unclouded(run: Callable[[], Under], *, tries: int = 3) -> Under:
    """Run until no process of the whole machine was killed for memory meanwhile.

    Without a container a kill is ruled out by the host's own counter, so a neighbour's kill rightly makes the verdict
    indeterminate; on a machine that also runs memory tests this is a matter of chance.
    """
    for _ in range(tries - 1):
        before = host_oom_kills()
        under = run()
        if host_oom_kills() == before:
            return under
    return run()


def host_oom_kills() -> int | None:
    """Kills for memory of this machine since its boot; None where the kernel does not count them."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return None


def step_call(trial: Trial, step: int) -> Call:
    """The one call of a step."""
    calls = next(each for each in trial.steps if each.index == step).calls
    assert len(calls) == 1, calls
    return calls[0]
