"""What every rule is given."""

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from tests.middleware.attribution.scene import Scene, model_failed


def test_it_knows_whether_any_call_ever_completed() -> None:
    assert Context.of(model_failed().assembly(), DEFAULT_THRESHOLDS).ever_completed
    assert not Context.of(Scene().refused(401).end(1).assembly(), DEFAULT_THRESHOLDS).ever_completed
