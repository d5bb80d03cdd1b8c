"""What follows from a blame and its grade: may a harness run the trial again, count it, believe its reward?

In: a blame and a grade.  Out: three answers.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import PROVED, SUSPECTED
from fairtrial.middleware.core.records import Answer, Answers, Blame, Grade

_YES, _NO, _OPEN = Answer.YES, Answer.NO, Answer.UNKNOWN

_ANSWERS: Final[dict[tuple[Blame, Grade | None], Answers]] = {
    (Blame.INFRA, PROVED): Answers(retry=_YES, grade=_NO, reward_valid=_NO),
    (Blame.INFRA, SUSPECTED): Answers(retry=_YES, grade=_OPEN, reward_valid=_OPEN),
    (Blame.MODEL, PROVED): Answers(retry=_NO, grade=_YES, reward_valid=_YES),
    (Blame.MODEL, SUSPECTED): Answers(retry=_NO, grade=_YES, reward_valid=_YES),
    (Blame.HARNESS, PROVED): Answers(retry=_OPEN, grade=_NO, reward_valid=_NO),
    (Blame.HARNESS, SUSPECTED): Answers(retry=_OPEN, grade=_OPEN, reward_valid=_OPEN),
    (Blame.OPERATOR, PROVED): Answers(retry=_NO, grade=_NO, reward_valid=_NO),
    (Blame.OPERATOR, SUSPECTED): Answers(retry=_OPEN, grade=_NO, reward_valid=_NO),
    (Blame.TASK, PROVED): Answers(retry=_NO, grade=_NO, reward_valid=_NO),
    (Blame.TASK, SUSPECTED): Answers(retry=_OPEN, grade=_OPEN, reward_valid=_OPEN),
    (Blame.FAIRTRIAL, PROVED): Answers(retry=_YES, grade=_NO, reward_valid=_NO),
    (Blame.FAIRTRIAL, SUSPECTED): Answers(retry=_YES, grade=_NO, reward_valid=_NO),
    (Blame.NONE, None): Answers(retry=_NO, grade=_YES, reward_valid=_YES),
}


def answers(blame: Blame, grade: Grade | None) -> Answers:
    """What a harness may do with the trial: run it again, count it, believe its reward.

    An operator's fault is not worth a retry before somebody mends it; what is `indeterminate` leaves all three open.
    """
    return _ANSWERS.get((blame, grade), Answers())
