"""`fairtrial` and `python -m fairtrial`: hand the command line to whoever answers it.

`run` is answered here, before typer and rich are imported: the agent waits for it.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> int:
    """Entry point.  `run` never returns: the process ends as the command ends."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        _run(arguments[1:])
    from fairtrial.middleware.cli import main as command_line

    return command_line(arguments)


def _run(arguments: list[str]) -> NoReturn:
    from fairtrial.middleware.core.errors import UsageError
    from fairtrial.middleware.relay import runopts

    try:
        options = runopts.parse(arguments)
    except UsageError as error:
        print(f"fairtrial run: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    from fairtrial.middleware.relay import supervise

    supervise.run(options)


if __name__ == "__main__":
    sys.exit(main())
