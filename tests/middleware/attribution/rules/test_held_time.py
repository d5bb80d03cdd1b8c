"""Outside time that may be the trial's own doing: a limit that only it explains is nobody's."""

from __future__ import annotations

import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.ledger import SLOW
from fairtrial.middleware.attribution.rules.held_time import word
from fairtrial.middleware.core.observations import TrialStarted
from fairtrial.middleware.core.records import Verdict
from fairtrial.middleware.core.yardsticks import Yardsticks
from tests.middleware.attribution.delays import boxed, throttled
from tests.middleware.attribution.scene import Scene, ended


def judged(told: Scene, need_s: float | None = None) -> Verdict:
    return judge(told.assembly(), yardsticks=Yardsticks(need_s=need_s, need_trials=12))


def stood_still(length: float, *, code: int = 0) -> Scene:
    """So long at its CPU limit in one command of 60 s, then another step, under a limit of 100 s."""
    told = throttled(boxed().call(), 60.0, counted=length, psi_cpu=length).ran(code).call()
    next(o for o in told.observations if o.kind == TrialStarted.kind).value["command"] = ["timeout", "100", "agent"]
    return told.waited(100.05 - told.s).end(124)


def test_a_limit_that_only_throttling_explains_is_nobodys_and_the_evidence_is_named() -> None:
    verdict = judged(stood_still(50.0), 80)
    assert (verdict.blame, verdict.cause, verdict.grade) == ("indeterminate", None, None)
    assert "most of it standing still at a CPU limit (50 s)" in verdict.sentence
    assert "which its own processes may have brought about" in verdict.sentence
    assert [e.source for e in verdict.evidence] == ["collector.cgroup"]
    assert (verdict.ended_as, ended(verdict)) == ("harness.timeout", None)
    assert "whether enough of the limit was left to the trial itself is not known" in [r.why for r in verdict.present]


def test_it_is_present_when_enough_of_the_limit_was_left() -> None:
    """Near-miss."""
    verdict = judged(stood_still(50.0), 30)
    assert verdict.blame == "model"
    assert "enough of the limit was left to the trial itself" in [row.why for row in verdict.present]


def test_a_trial_that_never_met_its_limit_is_the_models() -> None:
    """Innocent."""
    assert judged(stood_still(0.0), 80).blame == "model"


@pytest.mark.parametrize("cause", [SLOW, "container.cpu_throttled", "container.image_pull", "runtime.daemon_fault"])
def test_causes_of_the_ledger_have_words(cause: str) -> None:
    assert word(cause) != cause
