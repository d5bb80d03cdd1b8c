"""`fairtrial report`: a trial, or the trials of a run, for a CI server.

In: records (of a store, or of a file that `fairtrial run --json` wrote), a format.  Out: text on stdout or in a file;
with `github`, annotations on stdout, the summary appended to `$GITHUB_STEP_SUMMARY` and the step's outputs to
`$GITHUB_OUTPUT`, where the runner has set those.  Exit status 0, also for a failed trial: whether a job fails is
`run`'s status, not the report's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from fairtrial.middleware.core.errors import HostError, UsageError
from fairtrial.middleware.core.records import RUN_SCHEMA, TRIAL_SCHEMA, Run, Trial
from fairtrial.middleware.report.annotations import annotation_lines, joined, output_lines
from fairtrial.middleware.report.junit import junit_xml
from fairtrial.middleware.report.markdown import run_markdown, trial_markdown


class Format(StrEnum):
    """What can be written."""

    MARKDOWN = "markdown"
    JUNIT = "junit"
    GITHUB = "github"


def names_a_file(wanted: str) -> bool:
    """Whether it is a record's file rather than a trial or a run."""
    return wanted.endswith(".json") and Path(wanted).is_file()


def recorded(path: Path) -> tuple[str | None, list[Trial]]:
    """The trials of a file of `fairtrial run --json`, as `write_report` takes them: all of one run, or a single one.

    Raises `UsageError`.
    """
    remedy = "Name a file that `fairtrial run --json FILE` or `fairtrial show --json` wrote."
    try:
        content = path.read_bytes()
        schema = msgspec.json.decode(content, type=_Head).schema
        if schema == TRIAL_SCHEMA:
            return None, [msgspec.json.decode(content, type=Trial)]
        if schema == RUN_SCHEMA:
            run = msgspec.json.decode(content, type=Run)
            if run.trials:
                return run.run or "without a name", run.trials
            raise UsageError(f"{path} holds no trial.", remedy=remedy)
    except OSError as error:
        raise UsageError(f"{path} could not be read: {error.strerror}.", remedy=remedy) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no record of fairtrial: {error}.", remedy=remedy) from error
    raise UsageError(f"{path} is no record of fairtrial: its schema is {schema[:60]!r}.", remedy=remedy)


class _Head(msgspec.Struct):
    schema: str = ""


def write_report(
    trials: Sequence[Trial], run: str | None, form: Format, output: Path | None, environ: Mapping[str, str]
) -> int:
    """Do it; the exit status.  `run`: the name of the run whose trials these are; None: one trial, named by itself.

    Raises `UsageError`, `HostError`.
    """
    if form is Format.GITHUB:
        if output is not None:
            raise UsageError(
                "--format github writes where the runner says.", remedy="Leave --output out, or take markdown."
            )
        return _github(trials, run, environ)
    suite = run if run is not None else trials[0].run or "fairtrial"
    text = junit_xml(suite, trials) if form is Format.JUNIT else _markdown(trials, run).encode()
    if output is None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    else:
        _write(output, text, append=False)
    return 0


def _markdown(trials: Sequence[Trial], run: str | None) -> str:
    return trial_markdown(trials[0]) if run is None else run_markdown(run, trials)


def _github(trials: Sequence[Trial], run: str | None, environ: Mapping[str, str]) -> int:
    sys.stdout.write(joined(annotation_lines(trials)))
    sys.stdout.flush()
    summary, outputs = environ.get("GITHUB_STEP_SUMMARY"), environ.get("GITHUB_OUTPUT")
    if summary:
        _write(Path(summary), _markdown(trials, run).encode(), append=True)
    if outputs and run is None:
        _write(Path(outputs), joined(output_lines(trials[0])).encode(), append=True)
    missing = [name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT") if not environ.get(name)]
    if missing:
        print(f"fairtrial: {' and '.join(missing)} not set: annotations only", file=sys.stderr)
    return 0


def _write(path: Path, text: bytes, *, append: bool) -> None:
    try:
        with path.open("ab" if append else "wb") as out:
            out.write(text)
    except OSError as error:
        raise HostError(f"{path} could not be written: {error.strerror}.", remedy="Name another file.") from error
