"""Every error is a sentence, has a remedy and an exit status that scripts can test."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core import errors


def _all_kinds() -> list[type[errors.FairtrialError]]:
    kinds: list[type[errors.FairtrialError]] = []
    queue = [errors.FairtrialError]
    while queue:
        kind = queue.pop()
        kinds.append(kind)
        queue.extend(kind.__subclasses__())
    return kinds


@pytest.mark.parametrize("kind", [kind for kind in _all_kinds() if kind is not errors.CommandError])
def test_an_error_says_what_was_seen_and_what_to_do(kind: type[errors.FairtrialError]) -> None:
    error = kind("The port 80 is taken.", remedy="Choose another.")
    assert str(error) == "The port 80 is taken. Choose another."
    assert error.exit_code in {2, 69, 70, 78}
    assert error.owner in {"fairtrial", "operator", "infra"}


def test_a_command_that_cannot_start_has_the_status_of_a_shell() -> None:
    error = errors.CommandError("No such command: x.", remedy="", exit_code=127, errno=2)
    assert (error.exit_code, error.errno, str(error)) == (127, 2, "No such command: x.")
