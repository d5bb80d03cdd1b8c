"""How far a verdict is from turning is found by turning it."""

import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.margins import margins
from fairtrial.middleware.attribution.thresholds import load
from fairtrial.middleware.core.yardsticks import Yardsticks
from tests.middleware.attribution.rules.test_time_limit import overloaded_for
from tests.middleware.attribution.scene import Scene, model_failed, storm


def test_a_stall_turns_where_the_clients_patience_would_end_later() -> None:
    told = Scene(user_agent="my-agent/1").call().ran(0).aborted(silence=120).waited(9).end(1)
    (edge,) = [m for m in margins(told.assembly()).found if m.name == "watchdog_unknown_s"]
    assert edge.value == 90.0
    assert edge.at == pytest.approx(120, rel=0.02)
    assert edge.becomes.startswith("harness")
    # The edge is where it says: on this side the verdict stands, on the other it does not.
    assert told.verdict(thresholds=load({"watchdog_unknown_s": 119.0})).cause == "model_api.stalled"
    assert told.verdict(thresholds=load({"watchdog_unknown_s": edge.at})).blame == "harness"


def test_a_time_limit_turns_with_the_share_of_the_ledger() -> None:
    yard = Yardsticks(need_s=80.0, need_trials=9)
    found = margins(overloaded_for(50).assembly(), yardsticks=yard).found
    (edge,) = [m for m in found if m.name == "ledger_share"]
    assert edge.at == pytest.approx(0.5, rel=0.05)
    assert edge.becomes == "model, proved"


@pytest.mark.parametrize("told", [storm(9), model_failed()])
def test_what_rests_on_no_number_of_ours_has_no_edge(told: Scene) -> None:
    found = margins(told.assembly())
    assert found.found == ()
    assert found.asked == found.known


def test_a_budget_is_kept_and_said() -> None:
    found = margins(storm(9).assembly(), budget_s=-1.0)
    assert (found.asked, found.found) == (0, ())
    assert found.known > 5


SUSPECTED = [
    Scene().call().ran(137, oom=True),
    Scene(user_agent="curl/8.5.0").refused(500, times=3),
    Scene().call().ran(0).refused(500, times=3),
    Scene().call().ran(0).refused(504, times=3),
    Scene().call().ran(0).undialled("connect", "OSError: timed out"),
    Scene().undialled("tls", "certificate verify failed"),
    Scene().undialled("proxy", "refused", proxy_status=502),
    Scene().call().ran(0).refused(400, times=1),
    Scene().call().ran(0).cut(errno="ETIMEDOUT"),
    Scene().call().ran(0).aborted(silence=5, request_whole=False).waited(9),
    Scene(families=("memory",)).call().ran(1).call(tools=0),
]


@pytest.mark.parametrize("told", SUSPECTED, ids=range(len(SUSPECTED)))
def test_every_suspicion_says_what_would_turn_it(told: Scene) -> None:
    verdict = judge(told.end(1).assembly())
    assert verdict.grade == "suspected"
    assert (verdict.flips_if or "").startswith("turns")
