"""JUnit XML, as test runners and CI write it: one trial per test case.

In: a file, or a folder of `*.xml`.  Out: one `Booked` per test case, joined by a property `semconv.TRIAL`, else by
its name.  A failure is booked as failed, an error as errored, a skipped case as unknown.  A file that was cut off
gives the cases before the cut.  What this module does not do: keep texts of failures; take a document with a DTD.
**Source:** the schema of Jenkins' xUnit plugin (junit-10.xsd) and what pytest 8 writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.observations import BookedError, HarnessOutcome
from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.harnesses.base import Adapter, Booked, Keys, Reading
from fairtrial.middleware.harnesses.files import read_bytes, shown, wall_ns
from fairtrial.middleware.wire.redact import digest

HARNESS: Final = "junit"
TRIAL_PROPERTY: Final = semconv.TRIAL
_CHUNK: Final = 1 << 16


def read(path: Path) -> Reading:
    """A file, or a folder of them."""
    reading = Reading()
    if not path.is_dir():
        _file(path, path.name, reading)
        return reading
    files = sorted(file for file in path.rglob("*.xml") if file.is_file())
    for file in files:
        _file(file, shown(file, path), reading)
    if not files:
        reading.note(path.name, "foreign", "holds no .xml file")
    return reading


def _file(file: Path, name: str, reading: Reading) -> None:
    content = read_bytes(file)
    if content.value is None:
        reading.note(name, "unreadable", content.trouble or "could not be read")
        return
    if not content.value.strip():
        reading.note(name, "unreadable", "is empty")
        return
    if b"<!DOCTYPE" in content.value or b"<!ENTITY" in content.value:
        reading.note(name, "foreign", "has a DTD, which JUnit reports do not need and which is not read")
        return
    found = _Cases(content.value)
    before = len(reading.booked)
    seen: dict[str, int] = {}
    for suite, case in found:
        label = _label(case)
        number = seen[label] = seen.get(label, 0) + 1
        reading.booked.append(_booked(suite, case, label, number, name, file))
    trouble = content.trouble or found.trouble
    if found.root not in {"testsuite", "testsuites"}:
        why = "is no XML" if found.root is None else f"is no JUnit report (its root is <{found.root[:40]}>)"
        reading.note(name, "foreign", why)
        return
    if len(reading.booked) == before and trouble is None:
        reading.note(name, "whole", "holds no test case")
        return
    reading.note(name, "whole" if trouble is None else "partial", trouble or "")


class _Cases:
    """Test cases with the suite they stand in, in order; afterwards `root` and `trouble`."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.root: str | None = None
        self.trouble: str | None = None

    def __iter__(self) -> Iterator[tuple[Element | None, Element]]:
        parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))  # no DTD comes this far, so no entity is expanded
        suites: list[Element] = []
        try:
            for at in range(0, len(self._content), _CHUNK):
                parser.feed(self._content[at : at + _CHUNK])
                yield from self._events(parser, suites)
            parser.close()
            yield from self._events(parser, suites)
        except (ParseError, ValueError, LookupError) as error:
            self.trouble = f"is cut off or damaged ({error}); the cases before were read"

    def _events(self, parser: XMLPullParser[Any], suites: list[Element]) -> Iterator[tuple[Element | None, Element]]:
        for event in parser.read_events():
            kind, element = cast("tuple[str, Element]", event)
            tag = element.tag.rpartition("}")[2]
            self.root = self.root or tag
            if tag == "testsuite":
                if kind == "start":
                    suites.append(element)
                elif suites:
                    suites.pop()
                    element.clear()
            elif tag == "testcase" and kind == "end":
                yield (suites[-1] if suites else None), element


def _label(case: Element) -> str:
    group, name = case.get("classname"), case.get("name") or "unnamed"
    return f"{group}::{name}" if group else name


def _booked(suite: Element | None, case: Element, label: str, number: int, name: str, file: Path) -> Booked:
    kinds = [child.tag.rpartition("}")[2] for child in case]
    outcome, word = Outcome.PASSED, "passed"
    for kind, booked in (("skipped", Outcome.UNKNOWN), ("failure", Outcome.FAILED), ("error", Outcome.ERRORED)):
        if kind in kinds:
            outcome, word = booked, kind
    wrong = next((c for c in case if c.tag.rpartition("}")[2] in {"failure", "error"}), None)
    started = wall_ns(suite.get("timestamp")) if suite is not None else None
    ids = frozenset(
        value
        for prop in case.iter()
        if prop.tag.rpartition("}")[2] == "property" and prop.get("name") == TRIAL_PROPERTY
        if (value := prop.get("value"))
    )
    told = HarnessOutcome(
        harness=HARNESS,
        identity=digest(f"{HARNESS}/{label}/{number}/{file.resolve()}"),
        label=label,
        task=label,
        job=suite.get("name") if suite is not None else None,
        try_=number if number > 1 else None,
        outcome=outcome,
        scored=outcome is not Outcome.UNKNOWN,
        reward={Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}.get(outcome),
        exit_status=word,
        errors=[BookedError(type=(wrong.get("type") or word)[:80])] if wrong is not None else [],
        started_ns=started,
        files=[name],
    )
    names = {label, case.get("name") or label}
    return Booked(outcome=told, keys=Keys(trial_ids=ids, names=frozenset(names)))


ADAPTER: Final = Adapter(name=HARNESS, takes="a JUnit .xml file, or a folder of them", read=read)
