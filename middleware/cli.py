"""The commands for people: what is stored, what it means, what this machine can see.

In: a command line.  Out: text, or JSON with `--json`.  `fairtrial run` does not come through here on its way to
the agent (`fairtrial/__main__.py` takes the short path); its row stands here so that help shows it.
Exit status: 0; 1 when there is nothing to show (an empty JSON list is an answer: 0); 2 for a line that cannot be
understood; 78 for a setting that cannot be used.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, NoReturn

import msgspec
import typer

from fairtrial import __version__
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.attribution.thresholds import load as load_thresholds
from fairtrial.middleware.cli_report import Format, names_a_file, recorded, write_report
from fairtrial.middleware.closing import judged, recover_orphans, revise
from fairtrial.middleware.core.config import (
    Effective,
    Setting,
    config_path,
    describe,
    mistyped,
    read,
    read_sources,
    store_file,
)
from fairtrial.middleware.core.config import load as load_settings
from fairtrial.middleware.core.errors import ConfigError, FairtrialError, UsageError
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.report.tables import table_lines
from fairtrial.middleware.report.text import WIDTH, show_lines
from fairtrial.middleware.report.words import headline, plural, printable, seconds, verdict_phrase, wrapped
from fairtrial.middleware.store.database import latest_record, observations_of, open_database
from fairtrial.middleware.store.merge import merge_file
from fairtrial.middleware.store.queries import TrialRow, find_trial, list_trials
from fairtrial.middleware.store.writer import StoreWriter, explain

app = typer.Typer(
    name="fairtrial",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Stands beside an agent and says, with evidence, whether a failure was the infrastructure's or the model's.",
    epilog="Start with: fairtrial demo. Then put `fairtrial run --` before your agent's command.",
)
import_app = typer.Typer(no_args_is_help=True, help="Bring records from elsewhere into the store.")
config_app = typer.Typer(no_args_is_help=True, help="The settings in force.")
_RUN, _READ, _MACHINE = "Run an agent", "Read what happened", "This machine"
app.add_typer(import_app, name="import", rich_help_panel=_READ)
app.add_typer(config_app, name="config", rich_help_panel=_MACHINE)

StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store to read (default: $FAIRTRIAL_STORE, else the state folder).")
]
TargetOption = Annotated[
    Path | None, typer.Option("--store", help="The store to write (default: $FAIRTRIAL_STORE, else the state folder).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    if missing := _not_built(arguments or []):
        print(f"fairtrial: {missing}", file=sys.stderr)
        return 2
    try:
        result = app(args=arguments, standalone_mode=False, prog_name="fairtrial")
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return 130
    except FairtrialError as error:
        print(f"fairtrial: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        return int(getattr(error, "exit_code", 2))
    return result if isinstance(result, int) else 0


def _not_built(arguments: list[str]) -> str | None:
    """Why a command that is planned does not answer; None for all others."""
    match arguments:
        case ["compare", *_]:
            return (
                "`compare` over several runs is not built yet. `summary --run NAME` sums one up, `show` explains one "
                "trial."
            )
        case _:
            return None


def _store_file(chosen: Path | None) -> Path:
    return Path(store_file(os.environ, None if chosen is None else str(chosen)))


def _numbers(settings: list[str]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--set {setting!r} is no NAME=NUMBER.", remedy="Such as: --set stall_s=60") from None
        if not equals:
            raise UsageError(f"--set {setting!r} has no `=`.", remedy="Such as: --set stall_s=60")
    return numbers


def _thresholds(settings: list[str]) -> Thresholds:
    """Those of the settings, changed by `--set`.  Raises `UsageError` for a wrong `--set`."""
    base = read(os.environ, {}).verdict
    try:
        return load_thresholds(_numbers(settings), base=base)
    except ConfigError as error:
        raise UsageError(f"--set: {error.what}", remedy=error.remedy) from error


def _leave(sentence: str, status: int = 1) -> NoReturn:
    print(f"fairtrial: {sentence}", file=sys.stderr)
    raise typer.Exit(status)


@contextmanager
def _reading(store: Path | None) -> Iterator[sqlite3.Connection]:
    path = _store_file(store)
    try:
        database = open_database(path, read_only=True)
    except FileNotFoundError:
        _leave(f"there is no store at {path} yet; `fairtrial run -- COMMAND` makes one")
    except (OSError, sqlite3.Error) as error:
        _leave(explain(path, error, reading=True))
    try:
        yield database
    finally:
        database.close()


def _one(database: sqlite3.Connection, wanted: str) -> TrialRow:
    rows = find_trial(database, wanted)
    if not rows:
        _leave(f"no trial matches {wanted!r}; `fairtrial trials` lists them, `last` is the newest")
    if len(rows) > 1 and len({row.name for row in rows}) > 1:
        shown = ", ".join(row.trial[-12:] for row in rows[:5])
        _leave(f"{wanted!r} may be {len(rows)} trials: {shown}; type more of the id")
    if len(rows) > 1:
        print(
            f"fairtrial: the newest of {len(rows)} trials called {wanted!r}; `fairtrial trials` lists their ids",
            file=sys.stderr,
        )
    return rows[0]


@app.command(
    rich_help_panel=_RUN,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def run(context: typer.Context) -> None:
    """Run a command under observation: fairtrial run -- claude -p "…"  (fairtrial run --help)."""
    from fairtrial.middleware.relay import runopts, supervise

    supervise.run(runopts.parse(context.args))


@app.command(
    rich_help_panel=_RUN,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def serve(context: typer.Context) -> int:
    """A long-lived door for each model API, for many trials  (fairtrial serve --help)."""
    from fairtrial.middleware.relay import serve as serving

    return serving.main(context.args)


@app.command(rich_help_panel=_RUN)
def demo(
    only: Annotated[str | None, typer.Option("--only", help="Run one of the six trials by name.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Six scripted trials against a stand-in model server, offline: what was booked, and what was true."""
    from fairtrial.middleware.demo.show import run_demo

    return run_demo(only=only, as_json=as_json)


@app.command(rich_help_panel=_READ)
def drift(
    hours: Annotated[float, typer.Option("--hours", min=1, max=24 * 14, help="How far back to look.")] = 24.0,
    model: Annotated[str | None, typer.Option("--model", help="Only this model.")] = None,
    alarm: Annotated[bool, typer.Option("--alarm", help="Exit status 1 when something drifts now (for cron).")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> int:
    """Which model APIs are slower than this hour usually is, from the trials of this store."""
    from fairtrial.middleware.cli_drift import show_drift

    path = _store_file(store)
    try:
        return show_drift(
            path, hours=hours, model=model, alarm=alarm, as_json=as_json, width=_terminal_width() or WIDTH
        )
    except FileNotFoundError:
        _leave(f"there is no store at {path} yet; `fairtrial run -- COMMAND` makes one")
    except (OSError, sqlite3.Error) as error:
        _leave(explain(path, error, reading=True))


@app.command(rich_help_panel=_READ)
def trials(
    run: Annotated[str | None, typer.Option("--run", help="Only trials of this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, the newest first.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only trials that did not pass.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List trials, the newest first."""
    _close_orphans(_store_file(store))
    from fairtrial.middleware.cli_parted import trials_of_parted, with_parts

    with _reading(store) as database:
        rows = list_trials(database, run=run, limit=limit, failed_only=failed)
        if not rows and run is not None and (held := trials_of_parted(database, run)) is not None:
            rows = [row for row in held[1] if not failed or row.outcome != "passed"][::-1][:limit]
        together = [] if as_json or run is None or not rows else _together(database, run)
        others = not rows and bool(list_trials(database, limit=1))
        if any(row.closed is None for row in rows):
            rows = with_parts(database, rows, _thresholds([]), most=limit)
    if as_json:
        print(json.dumps([asdict(row) | {"provisional": "." in row.trial} for row in rows], indent=2))
        return
    if not rows:
        _leave(_nothing_listed(run, failed=failed, others=others))
    print("\n".join([*_trials_table(rows, _terminal_width()), *(["", *together] if together else [])]))


def _together(database: sqlite3.Connection, run: str) -> list[str]:
    from fairtrial.middleware.cli_together import below_list

    return below_list(database, run, width=_terminal_width() or WIDTH)


def _terminal_width() -> int | None:
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def _nothing_listed(run: str | None, *, failed: bool, others: bool) -> str:
    if not others:
        return "there is no trial yet; `fairtrial run -- COMMAND` makes one"
    of_run = "" if run is None else f" of run {run!r}"
    options = " and ".join(name for name, given in (("--run", run), ("--failed", failed)) if given)
    return f"no trial{of_run}{' that did not pass' if failed else ''}; without {options} there are some"


def _trials_table(rows: list[TrialRow], width: int | None) -> list[str]:
    """One line a trial where the terminal is wide enough for a good part of the sentence, else a few."""
    header = ("trial", f"started ({datetime.now().astimezone():%Z})", "took", "task or name", "booked")
    verdicts = ("ended by", "verdict", "sentence")
    cells = [_cells(row) for row in rows]
    table = [(*header, *verdicts), *((*left, *right) for left, right in cells)]
    if width is None or table_lines(table, width=None)[0].index("sentence") + 40 <= width:
        return table_lines(table, width=width)
    head, *left = table_lines([header, *(left for left, _ in cells)], width=width)
    folded = [head]
    for line, (_, (_, verdict, sentence)) in zip(left, cells, strict=True):
        folded += [line, *wrapped(f"{verdict}: {sentence}" if sentence else verdict, width, indent="    ")]
    return folded


def _cells(row: TrialRow) -> tuple[tuple[str, ...], tuple[str, str, str]]:
    started = datetime.fromtimestamp(row.started_ns / 1e9).astimezone().strftime("%m-%d %H:%M:%S")
    took = "running" if row.closed is None else "-"
    if row.ended_ns is not None:
        took = seconds((row.ended_ns - row.started_ns) / 1e9)
    booked = row.outcome or "open"
    if row.signal:
        booked += f" (signal {row.signal})"
    elif row.exit_code:
        booked += f" (exit {row.exit_code})"
    verdict = verdict_phrase(row.blame, row.grade, row.cause, row.step) if row.blame else "-"
    left = (row.trial[-12:], started, took, printable(row.task or row.name or "-"), booked)
    return left, (printable(row.terminated_by or "-"), printable(verdict), printable(row.sentence or ""))


def _close_orphans(path: Path) -> None:
    """Trials whose run was killed are closed by whoever looks next; a store that cannot be written stays as it is."""
    if not path.exists() or not os.access(path, os.W_OK):
        return
    with open(os.devnull, "w") as nowhere:
        quiet = Journal(nowhere)
        writer = StoreWriter(path, quiet)
        try:
            recover_orphans(path, writer, quiet)
        except (OSError, sqlite3.Error):
            # The reader that follows meets the same fault and says it in a sentence.
            return
        finally:
            writer.close()


@app.command(rich_help_panel=_READ)
def show(
    trial: Annotated[
        str, typer.Argument(help="A trial's id, its beginning or end, its name or task, or `last`.")
    ] = "last",
    replay: Annotated[bool, typer.Option("--replay", help="Compute the verdict anew from what is stored.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="THRESHOLD=VALUE", help="With --replay: another threshold.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one trial: the verdict, its evidence, each step, what was watched."""
    if settings and not replay:
        _leave("--set changes a verdict that is computed anew: add --replay", 2)
    with _reading(store) as database:
        if _shown_as_run(database, trial, replay=replay, store=store, as_json=as_json):
            return
        row = _one(database, trial)
        stored = latest_record(database, row.trial)
        kept = list(observations_of(database, row.trial)) if replay or stored is None else []
    if replay or stored is None:
        thresholds = _thresholds(settings or [])
        revision = (stored.verdict.revision if stored and stored.verdict else 0) + 1
        record = judged(kept, row.trial, Journal(), thresholds=thresholds, revision=revision, store=_store_file(store))
    else:
        record = stored
    if stored is None:
        still = "is open: it still runs, or fairtrial was stopped in its middle. What follows is judged as of now."
        print(f"fairtrial: this trial {still}", file=sys.stderr)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        return
    width = _terminal_width()
    if record.run is not None:
        from fairtrial.middleware.cli_together import beside_one

        with _reading(store) as database:
            beside = beside_one(database, record, _thresholds(settings or []), width=width or WIDTH)
    else:
        beside = []
    print("\n".join(show_lines(record, width=width or WIDTH, cut_tables=width is not None)))
    if beside:
        print("\n" + "\n".join(beside))
    if replay and stored is not None:
        from fairtrial.middleware.cli_replay import replayed

        now = _thresholds(settings or [])
        said = replayed(stored, record, kept, thresholds=now, store=_store_file(store), width=width or WIDTH)
        print("\n" + "\n".join(said))


def _shown_as_run(
    database: sqlite3.Connection, wanted: str, *, replay: bool, store: Path | None, as_json: bool
) -> bool:
    """Whether `wanted` was a run of several trials, or a trial of one that still runs; then it was shown."""
    from fairtrial.middleware.cli_parted import Live, held_before, held_now, part_now, show_held

    live, thresholds, width = Live(database), _thresholds([]), _terminal_width()
    known = find_trial(database, wanted)
    held = held_now(database, live, wanted, thresholds)
    by_id = wanted == "last" or any(row.trial.startswith(wanted) or row.trial.endswith(wanted) for row in known)
    if held is None and not by_id:
        part = part_now(database, live, wanted, thresholds, _store_file(store))
        if part is not None:
            print("fairtrial: its run goes on. What follows is judged as of now, and stored nowhere.", file=sys.stderr)
            if as_json:
                sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(part)) + b"\n")
            else:
                print("\n".join(show_lines(part, width=width or WIDTH, cut_tables=width is not None)))
            return True
    if held is None and not known:
        held = held_before(database, wanted)
    if held is None:
        return False
    if replay:
        _leave(f"{wanted!r} is a run of several trials; --replay is for one of them", 2)
    show_held(held, table=lambda rows: _trials_table(rows, width), as_json=as_json, width=width or WIDTH)
    return True


@app.command(rich_help_panel=_MACHINE, context_settings={"ignore_unknown_options": True})
def doctor(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND…|PATH…]",
            help="The command that you want to run under fairtrial, as you would type it; or files and folders "
            "(task.toml, compose, Kubernetes, workflows).",
        ),
    ] = None,
    from_container: Annotated[
        str | None,
        typer.Option(
            "--from-container",
            metavar="IMAGE",
            help="Prove, with a container from IMAGE, that it reaches a model door.",
        ),
    ] = None,
    container_network: Annotated[
        str | None, typer.Option("--container-network", help="With --from-container: the network it is put on.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """What fairtrial can see on this machine, and what `run` would change:  fairtrial doctor claude -p x

    With files: floor, ceiling, headroom and time limits, and what is unfair about them:  fairtrial doctor tasks/
    """
    if from_container is not None:
        from fairtrial.middleware.doctor.container import prove

        proof = prove(dict(os.environ), from_container, container_network)
        print(json.dumps(asdict(proof), indent=2) if as_json else proof.line)
        return 0 if proof.state == "ok" else 1
    from fairtrial.middleware.doctor import examine, print_findings
    from fairtrial.middleware.doctor.files import examine_files, looks_like_files, print_files

    if looks_like_files(command or []):
        reports = examine_files(command or [])
        if as_json:
            print(json.dumps([report.record() for report in reports], indent=2))
        else:
            print_files(reports)
        return 1 if not reports or any(report.problem is not None for report in reports) else 0
    findings = examine(dict(os.environ), command or [])
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print_findings(findings)
    return 0


@app.command(rich_help_panel=_READ)
def report(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="[TRIAL|RUN|FILE]", help="A trial as for `show`, the name of a run, or what `run --json` wrote."
        ),
    ] = "last",
    form: Annotated[
        Format, typer.Option("--format", help="markdown: a job summary. github: that, annotations, outputs.")
    ] = (Format.MARKDOWN),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, not the screen.")] = None,
    store: StoreOption = None,
) -> int:
    """A trial, or all trials of a run, for a CI server:  fairtrial report last --format junit -o junit.xml"""
    if names_a_file(wanted):
        run, records = recorded(Path(wanted))
        return write_report(records, run, form, output, os.environ)
    _close_orphans(_store_file(store))
    with _reading(store) as database:
        run, rows = _trials_of(database, wanted)
        records = [record for row in rows if (record := latest_record(database, row.trial)) is not None]
    if left := len(rows) - len(records):
        print(f"fairtrial: {plural(left, 'trial')} still open, left out", file=sys.stderr)
    if not records:
        _leave(f"no trial of {wanted!r} has ended yet")
    return write_report(records, run, form, output, os.environ)


def _trials_of(database: sqlite3.Connection, wanted: str) -> tuple[str | None, list[TrialRow]]:
    """One trial, or (its name and) the trials of a run, the oldest first.  A trial's id, name or task goes first."""
    if not find_trial(database, wanted):
        rows = list_trials(database, run=wanted, limit=-1)
        if rows:
            return wanted, rows[::-1]
        from fairtrial.middleware.cli_parted import trials_of_parted

        if (held := trials_of_parted(database, wanted)) is not None:
            return held
    return None, [_one(database, wanted)]


@app.command(rich_help_panel=_READ)
def export(
    trials: Annotated[list[str] | None, typer.Argument(help="Ids or names of trials, or `last`.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="All trials of this run.")] = None,
    pending: Annotated[bool, typer.Option("--pending", help="What waits in the store for the collector.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was sent already, with the same span ids.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Write OTLP JSON lines instead of sending.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="With --jsonl: a file, not the screen.")] = None,
    wait: Annotated[float, typer.Option("--wait", min=0.0, help="Send for at most this long, s.")] = 30.0,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Put verdicts beside the scores in Harbor's trajectories or Inspect's logs here."),
    ] = None,
    store: TargetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send stored traces to OTEL_EXPORTER_OTLP_ENDPOINT, or write them:  fairtrial export last --jsonl > t.jsonl"""
    from fairtrial.middleware.cli_export import Choice, export_traces

    if into is not None and (pending or again or jsonl or output is not None):
        raise UsageError("--into writes verdicts, not traces.", remedy="Give it alone, or with trials or --run.")

    with _reading(store) as database:
        chosen = [row.trial for wanted in trials or [] for row in _meant(database, wanted)]
        if run is not None:
            of_run = list_trials(database, run=run, limit=-1) or _of_parted(database, run)
            chosen += [row.trial for row in of_run]
            if not chosen:
                _leave(_nothing_listed(run, failed=False, others=True))
        if into is not None:
            from fairtrial.middleware.cli_beside import write_beside

            every = not trials and run is None
            return write_beside(database, into, None if every else frozenset(chosen), as_json=as_json)
    choice = Choice(chosen, pending=pending, again=again, jsonl=jsonl, output=output, wait_s=wait, as_json=as_json)
    return export_traces(_store_file(store), choice)


def _meant(database: sqlite3.Connection, wanted: str) -> list[TrialRow]:
    """One trial; or those of a run that was parted, by its own id or name."""
    held = [] if find_trial(database, wanted) else _of_parted(database, wanted)
    return held or [_one(database, wanted)]


def _of_parted(database: sqlite3.Connection, wanted: str) -> list[TrialRow]:
    from fairtrial.middleware.cli_parted import trials_of_parted

    held = trials_of_parted(database, wanted)
    return [] if held is None else held[1]


HARNESSES: Final[dict[str, str]] = {
    "harbor": "Results of Harbor: a job's folder, a trial's folder, or a result.json.",
    "swe-bench": "Results of SWE-bench: a run report, an instance's logs, or a folder above them.",
    "mini-swe-agent": "mini-swe-agent's trajectories and exit_statuses, or a folder with them.",
    "inspect": "Inspect's logs, .eval or .json, or a folder of them.",
    "claude-code": "Claude Code's transcripts, or what --output-format stream-json or json wrote.",
    "junit": "JUnit XML: one trial per test case.",
    "exit-code": "A file with an exit code, or lines of NAME CODE.",
}
"""As `middleware/harnesses` has them; that room is loaded only when one is called."""

RunOption = Annotated[
    str | None, typer.Option("--run", help="Only trials of this run are candidates, and new ones belong to it.")
]


def _importer(harness: str) -> Callable[..., int]:
    def import_harness(
        path: Annotated[Path, typer.Argument(help="The file or folder that the harness wrote.")],
        run: RunOption = None,
        store: TargetOption = None,
        as_json: JsonOption = False,
    ) -> int:
        from fairtrial.middleware.cli_import import import_path

        target = _store_file(store)
        _close_orphans(target)
        return import_path(
            target, harness, path, run=run, as_json=as_json, width=_terminal_width(), thresholds=_thresholds([])
        )

    import_harness.__doc__ = f"{HARNESSES[harness]} Doing it twice changes nothing."
    return import_harness


for _harness in HARNESSES:
    import_app.command(_harness)(_importer(_harness))


@app.command(rich_help_panel=_READ)
def summary(
    run: Annotated[str, typer.Option("--run", help="The run to sum up.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> int:
    """Sum up a run: what was booked, what was true, and which trials to look at first."""
    from fairtrial.middleware.cli_summary import show_summary

    _close_orphans(_store_file(store))
    with _reading(store) as database:
        found = show_summary(database, run, as_json=as_json, width=_terminal_width() or WIDTH)
        others = not found and bool(list_trials(database, limit=1))
    if not found:
        _leave(_nothing_listed(run, failed=False, others=others))
    return 0


@import_app.command("store")
def import_store(
    path: Annotated[Path, typer.Argument(help="A spill file (.jsonl) or another store (.db).")],
    store: TargetOption = None,
) -> None:
    """Bring the rows of a spill file, or of another store, into the store. Doing it twice changes nothing."""
    target = _store_file(store)
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        _leave(f"{path} could not be read: {error.strerror}")
    try:
        database = open_database(target)
    except (OSError, sqlite3.Error) as error:
        _leave(explain(target, error))
    try:
        merged = merge_file(database, path)
    except (OSError, sqlite3.Error) as error:
        _leave(f"{path} could not be read: {error}")
    finally:
        database.close()
    if merged.damaged and not (merged.read or merged.trials):
        _leave(f"{path} is no spill file and no store: none of its {merged.damaged} lines could be read")
    damaged = f", {merged.damaged} damaged lines skipped" if merged.damaged else ""
    told = f"{plural(merged.read, 'observation')} and {plural(merged.trials, 'trial')} read"
    print(f"{told}, {plural(merged.added, 'row')} new{damaged}")
    for line in _revised(target, merged.late):
        print(line)


def _revised(store: Path, late: Sequence[str]) -> list[str]:
    """Trials that were closed before this evidence came are judged again; what that changes is a new revision."""
    if not late:
        return []
    with open(os.devnull, "w") as nowhere:
        quiet = Journal(nowhere)
        writer = StoreWriter(store, quiet)
        try:
            trials = revise(store, writer, quiet, late)
        finally:
            writer.close()
    return [
        f"{trial.trial[-12:]}: revision {trial.verdict.revision}, {headline(trial.verdict)}"
        for trial in trials
        if trial.verdict is not None
    ]


@config_app.command("show")
def config_show(
    file: Annotated[Path | None, typer.Option("--config", help="Another file than $FAIRTRIAL_CONFIG.")] = None,
) -> int:
    """Print every setting in force as TOML, secrets masked, and where it came from."""
    environ = dict(os.environ) if file is None else {**os.environ, "FAIRTRIAL_CONFIG": str(file.absolute())}
    path = config_path(environ)
    failure: ConfigError | None = None
    try:
        effective = read_sources(environ, {})
    except ConfigError as error:
        failure, effective = error, Effective(load_settings({}, {}, {}), {})
    state = "" if os.path.exists(path) else " (not there)"
    print(f"# {printable(path)}{state}")
    for sentence in mistyped(os.environ):
        print(f"# {printable(sentence)}")
    if failure is not None:
        print(f"# Not in force: {printable(str(failure))}")
        print("# These are the defaults.")
    print("\n".join(_settings_lines(describe(effective), path)))
    if failure is not None:
        print(f"fairtrial: {failure}", file=sys.stderr)
        return failure.exit_code
    return 0


def _settings_lines(settings: list[Setting], file: str) -> Iterator[str]:
    """TOML: keys without a section first, since they could not stand below one."""
    section = ""
    for setting in sorted(settings, key=lambda setting: "." in setting.key):
        table, _, leaf = setting.key.rpartition(".")
        if table != section:
            section = table
            yield f"\n[{section}]"
        source = {None: "default", file: "from this file"}.get(setting.source, f"from {setting.source}")
        value = "# " + leaf + " is unset" if setting.value is None else f"{leaf} = {_toml(setting.value)}"
        yield f"{value}   # {source}. {setting.doc}"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(str(name))} = {json.dumps(str(item))}" for name, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    # JSON's texts, numbers and booleans are TOML's as well.
    return json.dumps(value)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"fairtrial {__version__}")
        raise typer.Exit
