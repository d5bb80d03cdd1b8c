"""What did not go as it should, in lines for the end of a run, each with what to do.

In: the parts of the run that may have failed.  Out: lines for standard error.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.core.hello import Hello
from fairtrial.middleware.core.observations import CoverageChanged
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.machine import write_whole
from fairtrial.middleware.observer.traces import Traces
from fairtrial.middleware.report.text import PREFIX
from fairtrial.middleware.report.words import plural
from fairtrial.middleware.store.writer import StoreWriter

if TYPE_CHECKING:
    from fairtrial.middleware.harnesses.keep import Keeper

_MOST_SAID_AT_THE_END: Final = 3
STDOUT: Final = "-"
"""`--json -`: the run process prints the record, since its standard output is not ours."""


def complaints(
    hello: Hello,
    *,
    book: TrialBook,
    writer: StoreWriter,
    too_many: bool,
    at_the_end: list[str],
    keeper: Keeper | None,
    traces: Traces | None,
    no_traces: str | None,
) -> list[str]:
    """What did not go as it should.

    `too_many`: trials had names and could not be told apart; `at_the_end`: what the relay noted for a person;
    `no_traces`: why the trace did not arrive.
    """
    lines: list[str] = []
    if too_many:
        lines.append(f"{PREFIX}the run is too large for its trials to be told apart.")
        lines.append("  It stands as one trial. Run its tasks in several parts under one --run name.")
    engine = _unwatched_engine(hello, book)
    if engine is not None:
        lines.append(f"{PREFIX}containers were not watched: {engine}")
    lines += [f"{PREFIX}{text}" for text in at_the_end[:_MOST_SAID_AT_THE_END]]
    if keeper is not None and keeper.kept:
        count = plural(len(keeper.kept), "attempt")
        lines.append(f"{PREFIX}kept the files of {count} that the harness deleted; bring them in with:")
        lines.append(f"  fairtrial import harbor {keeper.target}")
    if no_traces is not None:
        lines.append(f"{PREFIX}the trace is not sent yet: {no_traces}. Check OTEL_EXPORTER_OTLP_ENDPOINT.")
        lines.append("  It waits in the store for the next run, or for: fairtrial export --pending")
    if traces is not None:
        lines += [f"{PREFIX}{sentence}." for sentence in traces.complaints]
    if writer.failed is not None:
        spills = [str(path) for path in writer.spills if path.stat().st_size]
        kept = f"the rows are in {' and '.join(spills)}, bring them back with:" if spills else ""
        lost = f"{writer.kept_in_memory} row(s) are lost" if writer.kept_in_memory else ""
        lines.append(f"{PREFIX}{writer.failed}")
        lines += [f"  {text}" for text in (kept, *(f"  fairtrial import store {p}" for p in spills), lost) if text]
    return lines


def write_record(target: str | None, record: bytes | None) -> list[str]:
    """Write the record to the file of `--json`, where one is named; a line if that fails."""
    if target in (None, STDOUT) or record is None:
        return []
    try:
        write_whole(Path(target), record + b"\n")
    except OSError as error:
        return [f"{PREFIX}--json {target} could not be written: {error.strerror or error}"]
    return []


def _unwatched_engine(hello: Hello, book: TrialBook) -> str | None:
    """Why an engine that the user named was not watched, and what to do; None when it was, or none was named."""
    if hello.docker.source in (None, "default socket", "rootless socket"):
        return None
    said = [o for o in book.held() if o.source == "collector.docker_events" and o.kind == CoverageChanged.kind]
    if not said or said[-1].value.get("state", "on") == "on":
        return None
    why = said[-1].value.get("why") or "it does not answer"
    if said[-1].value.get("containers_missed"):
        return f"{why}."  # a command of a moment: nothing is wrong with the engine
    return f"{why}. Start the engine, or correct {hello.docker.source}."
