"""A merge says which trials it brought late evidence of."""

from __future__ import annotations

import io
from pathlib import Path

from fairtrial.middleware.closing import judged
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import insert_observation, insert_trial, open_database
from fairtrial.middleware.store.merge import merge_file
from tests.middleware.attribution.scene import TRIAL, Scene


def test_only_a_closed_trial_for_which_something_new_came_has_late_evidence(tmp_path: Path) -> None:
    told = Scene().call().ran(137, oom=True).end(1).observations
    ours, theirs = open_database(tmp_path / "ours.db"), open_database(tmp_path / "theirs.db")
    with ours, theirs:
        for observation in told[:-3]:
            insert_observation(ours, observation)
        insert_trial(ours, judged(told[:-3], TRIAL, Journal(io.StringIO())))
        for observation in told:
            insert_observation(theirs, observation)
    theirs.close()
    assert merge_file(ours, tmp_path / "theirs.db").late == (TRIAL,)
    assert merge_file(ours, tmp_path / "theirs.db").late == ()
    ours.close()
