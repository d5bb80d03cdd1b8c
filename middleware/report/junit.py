"""Trials as JUnit XML, the shape that CI servers read: one test case a trial, the cause as a property.

In: `Trial` records.  Out: XML in UTF-8.  A trial is a failure, an error or a pass as it was *booked*; the verdict
stands beside it, in the failure's `type` and in properties of the case, and changes no count.  `infra_cause` is there
when the blame is infra, or when nobody is blamed and an outside event that may be infra's ended the trial.  A trial of
unknown outcome is skipped.

**Source:** `junit-10.xsd` of Jenkins' xUnit plugin, which the files are valid by but for the `properties` of a case:
the schema has them for a suite alone, test runners write them all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Blame, Outcome, Trial, Verdict
from fairtrial.middleware.report.sight import sight_line
from fairtrial.middleware.report.words import booked, called, headline, printable

_NOT_XML: Final = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even as a reference."""
_TALLIED: Final = {Outcome.FAILED: "failures", Outcome.ERRORED: "errors", Outcome.UNKNOWN: "skipped"}


def junit_xml(name: str, trials: Sequence[Trial]) -> bytes:
    """A `testsuites` document with one suite, `name`."""
    root = Element("testsuites", name="fairtrial")
    suite = SubElement(root, "testsuite", name=_text(name))
    counts = {"failures": 0, "errors": 0, "skipped": 0}
    total_s = 0.0
    names = called(trials)
    for trial in trials:
        if trial.outcome in _TALLIED:
            counts[_TALLIED[trial.outcome]] += 1
        total_s += _case(suite, name, names[trial.trial], trial)
    tallies = {
        "tests": str(len(trials)),
        **{key: str(value) for key, value in counts.items()},
        "time": f"{total_s:.3f}",
    }
    for key, value in tallies.items():
        suite.set(key, value)
        if key != "skipped":  # which the schema has for a suite alone
            root.set(key, value)
    if started := min((trial.started for trial in trials if trial.started), default=None):
        suite.set("timestamp", started[:19])
    if nodes := {trial.environment.node for trial in trials if trial.environment.node}:
        suite.set("hostname", _text(", ".join(sorted(nodes))))
    indent(root)
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: Element, name: str, called_: str, trial: Trial) -> float:
    """Add one case; how long it took, s."""
    started, ended = wall_ns_of(trial.started), wall_ns_of(trial.ended)
    lasted_s = 0.0 if started is None or ended is None else max(0.0, (ended - started) / 1e9)
    again = f" (try {trial.try_})" if trial.try_ is not None else ""
    case = SubElement(suite, "testcase", classname=_text(name), name=_text(called_ + again), time=f"{lasted_s:.3f}")
    properties = SubElement(case, "properties")
    for key, value in case_properties(trial).items():
        SubElement(properties, "property", name=key, value=_text(value))
    verdict = trial.verdict
    said = headline(verdict) if verdict else "no verdict"
    cause = verdict.cause or verdict.blame.value if verdict else "unknown"
    message = _text(f"{booked(trial)}: {said}")
    match trial.outcome:
        case Outcome.FAILED:
            SubElement(case, "failure", message=message, type=_text(cause)).text = _body(trial)
        case Outcome.ERRORED:
            SubElement(case, "error", message=message, type=_text(cause)).text = _body(trial)
        case Outcome.UNKNOWN:
            SubElement(case, "skipped", message="the outcome of this trial is not known")
        case Outcome.PASSED:
            SubElement(case, "system-out").text = _body(trial)
    return lasted_s


def case_properties(trial: Trial) -> dict[str, str]:
    """What is known of a trial as flat texts; what is not known is absent."""
    verdict = trial.verdict
    known: dict[str, str | None] = {semconv.TRIAL: trial.trial, semconv.RUN: trial.run}
    if verdict is not None:
        ended = verdict.terminated_by
        known |= {
            semconv.BLAME: verdict.blame.value,
            semconv.GRADE: verdict.grade.value if verdict.grade else None,
            semconv.CAUSE: verdict.cause,
            semconv.VERDICT_STEP: None if verdict.step is None else str(verdict.step),
            semconv.TERMINATED_BY: ended.cause if ended else None,
            semconv.ENDED_AS: verdict.ended_as.value,
            semconv.RETRY: verdict.answers.retry.value,
            semconv.REWARD_VALID: verdict.answers.reward_valid.value,
            "infra_cause": infra_cause(verdict),
        }
    return {key: value for key, value in known.items() if value}


def infra_cause(verdict: Verdict) -> str | None:
    """The cause when it is infra's: by blame, or by the outside event that ended the trial while nobody is blamed."""
    if verdict.blame is Blame.INFRA:
        return verdict.cause
    ended = verdict.terminated_by
    open_question = verdict.blame is Blame.INDETERMINATE
    if ended is not None and open_question and ended.cause in CAUSES and Blame.INFRA in CAUSES[ended.cause].may_blame:
        return ended.cause
    return None


def _body(trial: Trial) -> str:
    lines = [f"trial {trial.trial}"]
    verdict = trial.verdict
    if verdict is not None:
        lines.append(verdict.sentence)
        lines += [f"for: {item.claim}" for item in verdict.evidence[:12]]
        lines += [f"against: {item.claim}" for item in verdict.against[:12]]
    lines.append(sight_line(trial.coverage))
    return "\n".join(_text(line) for line in lines)


def _text(text: str) -> str:
    """Printable, and what XML can hold."""
    return _NOT_XML.sub("�", printable(text))
