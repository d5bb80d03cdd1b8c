"""`fairtrial` and `python -m fairtrial`: hand the command line to whoever answers it.

`run` and `serve` are answered here, before typer and rich are imported: the agent waits for the one, and the other
keeps in memory for weeks what it loads.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Entry point.  `run` never returns: the process ends as the command ends."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        from fairtrial.middleware.relay import supervise

        supervise.main(arguments[1:])
    if arguments[:1] == ["serve"]:
        from fairtrial.middleware.relay import serve

        return serve.main(arguments[1:])
    from fairtrial.middleware.cli import main as command_line

    return command_line(arguments)


if __name__ == "__main__":
    sys.exit(main())
