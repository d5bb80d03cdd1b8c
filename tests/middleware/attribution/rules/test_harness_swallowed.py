"""An error that was taken for an answer."""

from tests.middleware.attribution.scene import Scene, ended, summary


def gone_on(told: Scene) -> Scene:
    """The next request's history holds one more turn of the model, and nothing had been answered."""
    told.turns += 1
    return told.call().ran(1).call(tools=0).end(1)


def test_an_error_status_taken_for_an_answer_is_swallowed() -> None:
    verdict = gone_on(Scene().call().ran(0).refused(500, times=2)).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.swallowed", 2)
    assert "HTTP 500 x 2" in verdict.sentence
    assert "model_api.server_error" in [p.cause for p in verdict.present]
    assert ended(verdict) is None
    assert "fails in the same way" in (verdict.flips_if or "")


def test_a_cut_reply_that_was_kept_is_the_providers_and_not_swallowed() -> None:
    """Near-miss: some of it had come."""
    verdict = gone_on(Scene().call().ran(0).cut(open_tools=1)).verdict()
    assert summary(verdict) == ("infra", "suspected", "model_api.truncated", 2)


def test_an_error_that_was_asked_again_is_not_swallowed() -> None:
    """Innocent."""
    verdict = Scene().call().ran(0).refused(500, times=2).call().ran(1).call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert [p.cause for p in verdict.present] == ["model_api.server_error"]


def test_an_error_at_the_very_end_is_not_swallowed_but_terminal() -> None:
    verdict = Scene().call().ran(0).waited(90).refused(500, times=2).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.server_error", 2)
