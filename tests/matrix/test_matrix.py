"""The scenarios as test cases: those that `make test` has time for, all of them with `make matrix`.

They are started together and run at the same time; each case waits for its own.  One that awaits a mend somewhere else
is an expected failure with its reason, told in the summary; `make matrix` counts it as a miss.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.matrix.cases import ALL
from tests.matrix.rig import Running, running

CHEAP = {scenario.name: scenario for scenario in ALL if not scenario.dear}


@pytest.fixture(scope="module")
def under_way(request: pytest.FixtureRequest) -> Iterator[Running]:
    """The scenarios of the chosen cases, all started."""
    chosen = {name for name in CHEAP if any(f"[{name}]" in item.nodeid for item in request.session.items)}
    with running([CHEAP[name] for name in CHEAP if name in chosen]) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHEAP)
def test_a_scenario_gets_the_verdict_that_was_written_down(name: str, under_way: Running) -> None:
    result = under_way.futures[name].result()
    scenario = CHEAP[name]
    if result.skipped is not None:
        pytest.skip(result.skipped)
    if result.wrong and scenario.awaits is not None:
        pytest.xfail(f"{result.wrong[0]}; awaits {scenario.awaits}")
    says = result.found.sentence if result.found is not None else ""
    assert not result.wrong, "\n".join([scenario.what, scenario.why, *result.wrong, says, result.told])
