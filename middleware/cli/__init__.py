"""The commands for people: what is stored, what it means, what this machine can see.

In: a command line.  Out: text, or JSON with `--json`.  `fairtrial run` does not come through here on its way to
the agent (`fairtrial/__main__.py` takes the short path); its row stands here so that help shows it.
Exit status: 0; 1 when there is nothing to show (an empty JSON list is an answer: 0); 2 for a line that cannot be
understood; 78 for a setting that cannot be used.
"""

from __future__ import annotations

import sys
from typing import Final

import typer

# Loading registers what they hold; help shows it in this order.
# isort: off
from fairtrial.middleware.cli import running
from fairtrial.middleware.cli import telling
from fairtrial.middleware.cli import giving
from fairtrial.middleware.cli import bringing
from fairtrial.middleware.cli import machine

# isort: on
from fairtrial.middleware.cli.base import app
from fairtrial.middleware.cli.bringing import HARNESSES
from fairtrial.middleware.core.errors import FairtrialError

__all__ = ["HARNESSES", "app", "main"]

_COMMANDS: Final = (running, telling, giving, bringing, machine)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    if missing := _not_built(arguments or []):
        print(f"fairtrial: {missing}", file=sys.stderr)
        return 2
    try:
        result = app(args=arguments, standalone_mode=False, prog_name="fairtrial")
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return 130
    except FairtrialError as error:
        print(f"fairtrial: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        return int(getattr(error, "exit_code", 2))
    return result if isinstance(result, int) else 0


def _not_built(arguments: list[str]) -> str | None:
    """Why a command that is planned does not answer; None for all others."""
    match arguments:
        case ["compare", *_]:
            return (
                "`compare` over several runs is not built yet. `summary --run NAME` sums one up, `show` explains one "
                "trial."
            )
        case _:
            return None
