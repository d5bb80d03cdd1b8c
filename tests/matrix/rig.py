"""Runs scenarios for real: a stand-in model server, the matrix's agent, `fairtrial run`, an engine where one is needed.

In: a `Scenario`.  Out: a `Result` with what fairtrial said.  Nothing of ours is replaced: program, store, observer,
doors and collectors are the real ones.  Scenarios may run at the same time; those in which the kernel kills for memory
run after the others, because a trial without a container is cleared by the host's own counter alone, and such a trial
is tried again when somebody else's kill clouded it.
What this module does not do: say what is right (`cases/`), or count (`confusion.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self, TypeVar

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.demo.script import Scenario as Script
from fairtrial.middleware.demo.script import Step
from fairtrial.middleware.demo.standin import StandIn
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e import clients
from tests.e2e.engine import Engine, EngineUnavailable, named_engine, private_engine, why_no_private_engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.under import NO_DOCKER, fairtrial, host_oom_kills, read_record, run_command, shown
from tests.matrix.confusion import Result, found_in
from tests.matrix.scenario import Scenario

AGENT: Final = Path(__file__).with_name("agent.py")
TIMEOUT_S: Final = 150.0
TRIES: Final = 3
_T = TypeVar("_T")


class NotHere(Exception):
    """This machine cannot run the scenario; the message says why."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """A trial that runs, as somebody outside of it sees it."""

    folder: Path
    url: str
    box: str
    engine: Engine | None
    environment: dict[str, str]
    run: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of `fairtrial run`."""
        assert self.run is not None
        return self.run.pid

    def until(self, name: str, within_s: float = 60.0) -> None:
        """Wait until a command of the trial has made this file in the scenario's folder.  Raises TimeoutError."""
        end = time.monotonic() + within_s
        while not (self.folder / name).exists():
            if time.monotonic() > end or (self.run is not None and self.run.poll() is not None):
                raise TimeoutError(f"the trial never made {name}")
            time.sleep(0.02)

    def note(self, name: str) -> None:
        """Make a file that a command of the trial waits for."""
        (self.folder / name).touch()

    def docker(self, *arguments: str) -> str:
        """As somebody else on the same engine, past fairtrial's door."""
        assert self.engine is not None
        return self.engine.docker(*arguments).stdout.strip()


class Rig:
    """What scenarios share: the loop of the stand-ins, one engine with its image, a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = contextlib.ExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._lock = threading.Lock()
        self._engine: Engine | NotHere | None = None
        self.recorded: dict[str, list[Observation]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _in_loop(self, doing: Coroutine[object, object, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(60)

    def engine(self) -> Engine:
        """The engine of FAIRTRIAL_TEST_DOCKER, else a private one for all.  Raises NotHere."""
        with self._lock:
            if self._engine is None:
                named = os.environ.get("FAIRTRIAL_TEST_DOCKER")
                try:
                    made = named_engine(named) if named else self._stack.enter_context(private_engine())
                    image_of(made)
                    self._engine = made
                except (EngineUnavailable, ImageUnavailable) as why:
                    self._engine = NotHere(str(why))
            if isinstance(self._engine, NotHere):
                raise self._engine
            return self._engine

    # --- one scenario -----------------------------------------------------------------------------------------------

    def play(self, scenario: Scenario) -> Result:
        """Run it, again if a kill for memory elsewhere clouded it; never raises."""
        began = time.monotonic()
        result = Result(scenario=scenario, skipped="not tried")
        for number in range(TRIES):
            before = host_oom_kills()
            try:
                result = self._once(scenario, number)
            except NotHere as why:
                return Result(scenario=scenario, skipped=str(why))
            except Exception as error:
                result = Result(scenario=scenario, broken=f"{type(error).__name__}: {error}")
            if not result.wrong or not _clouded(result, before):
                break
        return replace(result, seconds=time.monotonic() - began)

    def _once(self, scenario: Scenario, number: int) -> Result:
        if scenario.root and os.geteuid() != 0:
            raise NotHere("needs uid 0")
        with contextlib.ExitStack() as stack:
            engine = None
            if scenario.engine == "shared":
                engine = self.engine()
            elif scenario.engine == "own":
                reason = why_no_private_engine()
                if reason is not None:
                    raise NotHere(reason)
                engine = stack.enter_context(private_engine())
                stack.callback(_revive, engine)
            folder = self.folder / f"{scenario.name}-{number}"
            for part in ("home", "project"):
                (folder / part).mkdir(parents=True)
            box = f"{scenario.name}-{os.getpid() % 10000}-{number}"
            words = {"folder": str(folder), "python": sys.executable, "box": box, "agent": str(AGENT)}
            words |= {"store": str(folder / "store.db")}
            if engine is not None:
                words["image"] = image_of(engine)
                stack.callback(engine.docker, "rm", "-f", "-v", box, f"{box}-service", check=False)
            for name, text in scenario.files.items():
                (folder / name).write_text(text)
            script = Script(
                steps=tuple(_filled(step, words) for step in scenario.steps),
                faults=tuple(scenario.faults),
                request_ids=scenario.request_ids,
            )
            if scenario.stands is not None:
                words |= stack.enter_context(scenario.stands(folder))
            server = StandIn(script)
            self._in_loop(server.start())
            stack.callback(lambda: self._in_loop(server.stop()))
            words["url"], words["port"] = server.url, str(server.port)
            return self._run(
                scenario,
                folder,
                words,
                Stage(
                    folder=folder,
                    url=server.url,
                    box=box,
                    engine=engine,
                    environment=_environment(scenario, folder, words, engine),
                ),
            )

    def _run(self, scenario: Scenario, folder: Path, words: Mapping[str, str], stage: Stage) -> Result:
        command = run_command(_command(scenario, words), folder / "store.db", folder / "trial.json", scenario.options)
        failed: list[BaseException] = []
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            stage.run = subprocess.Popen(
                command,
                cwd=folder / "project",
                env=stage.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            beside = threading.Thread(target=_outside, args=(scenario, stage, failed), daemon=True)
            beside.start()
            try:
                status = stage.run.wait(TIMEOUT_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(stage.run.pid, signal.SIGKILL)  # whatever the trial left behind
                stage.run.wait()
        beside.join(10)
        trial = read_record(folder / "trial.json") or self._closed_later(stage)
        told = f"status {status}\n{_text(folder / 'out')}\n{_text(folder / 'err')}"
        if failed:
            return Result(scenario=scenario, broken=f"what was to be done outside failed: {failed[0]!r}", told=told)
        if scenario.shows is not None and scenario.shows not in _text(folder / "out"):
            return Result(scenario=scenario, broken=f"the output does not show {scenario.shows!r}", told=told)
        self._keep(scenario.name, folder / "store.db", trial.trial)
        return Result(scenario=scenario, found=found_in(trial), told=told)

    def _closed_later(self, stage: Stage) -> Trial:
        """The record of a run that was killed: the next command of fairtrial's closes it."""
        store = stage.folder / "store.db"
        fairtrial("trials", "--store", str(store), environment=stage.environment)
        return shown(store, stage.environment)

    def _keep(self, name: str, store: Path, trial: str) -> None:
        with contextlib.suppress(Exception):  # a scenario may have wrecked its store on purpose
            database = open_database(store, read_only=True)
            try:
                self.recorded[name] = list(observations_of(database, trial))
            finally:
                database.close()


def _clouded(result: Result, kills_before: int | None) -> bool:
    """Whether a kill of somebody else's may be why: nobody is cleared while one of the host's kills has no owner."""
    unsure = result.found is None or result.found.blame is Blame.INDETERMINATE
    return unsure and host_oom_kills() != kills_before


def _revive(engine: Engine) -> None:
    """A killed daemon is started once more, or nobody would end its containers."""
    if engine.docker("version", check=False).returncode != 0:
        engine.again()


def image_of(engine: Engine) -> str:
    """The small image, in this engine.  Raises ImageUnavailable."""
    return ensure_image("ft-busybox", engine.docker_host, clients.e2e_folder() / "images")


def _outside(scenario: Scenario, stage: Stage, failed: list[BaseException]) -> None:
    if scenario.outside is None:
        return
    try:
        scenario.outside(stage)
    except BaseException as error:
        failed.append(error)


def _command(scenario: Scenario, words: Mapping[str, str]) -> list[str]:
    if scenario.command is not None:
        return [fill(word, words) for word in scenario.command]
    boxed = [] if scenario.engine == "none" else ["--image", words["image"], "--name", words["box"]]
    return [sys.executable, str(AGENT), *boxed, *(fill(word, words) for word in scenario.agent)]


def _environment(scenario: Scenario, folder: Path, words: Mapping[str, str], engine: Engine | None) -> dict[str, str]:
    docker = NO_DOCKER if engine is None else {"DOCKER_HOST": engine.docker_host}
    more = {name: fill(text, words) for name, text in scenario.environment.items()}
    return clients.clean_environment(folder / "home") | {"ANTHROPIC_BASE_URL": words["url"]} | docker | more


def _filled(step: Step, words: Mapping[str, str]) -> Step:
    return replace(step, commands=tuple(fill(command, words) for command in step.commands))


def fill(text: str, words: Mapping[str, str]) -> str:
    """`%name%` -> its value."""
    for name, value in words.items():
        text = text.replace(f"%{name}%", value)
    return text


def _text(path: Path) -> str:
    return path.read_text(errors="replace")[-6000:]


# --- many -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Running:
    """Scenarios under way, by name."""

    rig: Rig
    futures: dict[str, Future[Result]] = field(default_factory=dict[str, "Future[Result]"])

    def results(self) -> Iterator[Result]:
        """Each in the order given, as soon as it and those before it are done."""
        for future in self.futures.values():
            yield future.result()


def _after(before: Sequence[Future[Result]], rig: Rig, scenario: Scenario) -> Result:
    wait(before)
    return rig.play(scenario)


@contextlib.contextmanager
def running(scenarios: Sequence[Scenario], *, at_once: int = 4) -> Generator[Running]:
    """Start them all; those that kill for memory come last.  What they leave on disk is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ft-mx-", dir="/tmp"))  # short: a unix socket's path stops at 107 bytes
    try:
        with Rig(folder) as rig, ThreadPoolExecutor(at_once) as pool:
            made = Running(rig=rig)
            ordered = sorted(scenarios, key=lambda each: (each.kills, each.engine != "none", each.dear))
            started: dict[str, Future[Result]] = {}
            for each in ordered:
                # Those that kill wait for all others: by then each of these has begun, so the wait has an end.
                before = [started[other.name] for other in ordered if not other.kills] if each.kills else []
                started[each.name] = pool.submit(_after, before, rig, each)
            made.futures = {each.name: started[each.name] for each in scenarios}
            try:
                yield made
            finally:
                for future in started.values():
                    future.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
