"""One outcome per attempt, by the status, the end mark, and how it ended."""

import pytest

from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.outcome import judge, reply_facts
from fairtrial.middleware.wire.passing import SHUTDOWN, Ending

WHOLE = Ending(complete=True, how="framed")
CUT = Ending(complete=False, how="cut")
GONE = Ending(complete=False, how="client_gone")
ABORTED = Ending(complete=False, how="aborted")


@pytest.mark.parametrize(
    "status, tally, ending, outcome",
    [
        (200, Tally(terminator=True, events=3), WHOLE, "ok"),
        (200, Tally(terminator=True, events=3), GONE, "ok"),
        (200, Tally(terminator=True, events=3), CUT, "ok"),
        (200, Tally(terminator=False, events=3), WHOLE, "truncated"),
        (200, Tally(terminator=False, events=3), CUT, "truncated"),
        (200, Tally(terminator=False, events=3), GONE, "client_disconnect"),
        (200, Tally(terminator=False, events=3), ABORTED, "proxy_shutdown"),
        (200, Tally(terminator=False, events=3), SHUTDOWN, "proxy_shutdown"),
        (200, Tally(terminator=True, error_in_stream=True, events=3), WHOLE, "error"),
        (200, Tally(terminator=False, html=True, events=3), WHOLE, "error"),
        (200, Tally(terminator=False), WHOLE, "error"),
        (200, Tally(terminator=None), WHOLE, "ok"),
        (200, Tally(terminator=None), CUT, "truncated"),
        (200, Tally(terminator=None), Ending(how="blind"), "ok"),
        (529, Tally(), WHOLE, "error"),
        (529, Tally(), CUT, "error"),
        (None, Tally(), CUT, "error"),
        (None, Tally(), WHOLE, "error"),
        (None, Tally(), GONE, "client_disconnect"),
        (None, Tally(), ABORTED, "proxy_shutdown"),
    ],
)
def test_the_terminator_table(status: int | None, tally: Tally, ending: Ending, outcome: str) -> None:
    assert judge(status, tally, ending, known=True) == outcome


def test_a_reply_that_no_dialect_reads_is_whole_when_its_framing_is() -> None:
    assert judge(200, Tally(terminator=False), WHOLE, known=False) == "ok"
    assert judge(200, Tally(terminator=False), CUT, known=False) == "truncated"


def test_facts_of_a_reply_are_of_bounded_size() -> None:
    facts = reply_facts(200, Tally(model="m" * 9999, response_id="r" * 9999, stop_reason="s" * 9999))
    assert [len(text or "") for text in (facts.model, facts.response_id, facts.stop_reason)] == [200, 200, 100]
