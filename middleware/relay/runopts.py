"""The command line of `fairtrial run`: the one place that defines its options.

In: the arguments after `run`.  Out: a frozen `RunOptions`, or a `UsageError`; argparse itself ends the process for
`--help` (0) and for a malformed line (2).  argparse and not typer, because the agent waits: this file is loaded in
a few milliseconds.  `cli.py` forwards its `run` here unread.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from fairtrial.middleware.core.errors import UsageError

PROVIDERS: Final = ("anthropic", "openai", "gemini")
"""Names that `--upstream` knows; any other address is given by its variable: `--route VAR=URL`."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL: Final = re.compile(r"(?:https?://[^/?#\s]+|unix:///|http\+unix://%2f)[^\s]*", re.IGNORECASE)

_EPILOG: Final = """\
COMMAND keeps its stdin, stdout, stderr, terminal, signals, working folder and
exit status; fairtrial speaks on stderr when it is over (one line when it
passed). --verbose lists what is changed in the command's environment.

exit status:
  the command's own, also its death by a signal. Else:
  2     the line above cannot be understood, or asks for what is not built yet
  69    --require, and fairtrial cannot observe on this machine (without
        --require the command runs unobserved)
  70    --require, and fairtrial itself is at fault
  75    --gate, and what ended the failed trial is proved and may be the
        infrastructure's: worth a retry
  78    --require, and a setting is wrong
  126   COMMAND is there but cannot be executed
  127   COMMAND was not found

examples:
  fairtrial run -- claude -p "fix the failing test"
  fairtrial run --run nightly --task django-123 --json verdict.json --gate \\
      -- mini -t "…"
  fairtrial run --upstream anthropic=https://gateway.example/anthropic \\
      -- claude -p "…"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the user asked for; None is *not given*.  `upstreams` and `routes` are (name, URL) pairs in order."""

    command: tuple[str, ...]
    run: str | None = None
    name: str | None = None
    task: str | None = None
    try_: int | None = None
    headroom: float | None = None
    upstreams: tuple[tuple[str, str], ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    via: Literal["base-url", "connect"] = "base-url"
    adapt: bool = False
    store: str | None = None
    json: str | None = None
    gate: bool = False
    control: bool = False
    require: bool = False
    quiet: bool = False
    verbose: bool = False


def parse(arguments: Sequence[str]) -> RunOptions:
    """Options and COMMAND.  Everything after the first `--`, or from the first word that is no option, is COMMAND.

    Raises `UsageError` (status 2) for what argparse cannot know: no command, an unknown provider, a malformed URL,
    an option that another one makes meaningless.
    """
    ours, command = _split(list(arguments))
    space = build_parser().parse_args(ours)
    command = [*space.command, *command]
    if not command:
        raise UsageError("There is no command to run.", remedy="Write it after `--`: fairtrial run -- COMMAND …")
    beside = [name for name in ("upstream", "route", "adapt") if getattr(space, name)]
    if space.via == "connect" and beside:
        raise UsageError(
            f"--{beside[0]} has no meaning with --via connect: the command keeps its own addresses.",
            remedy=f"Leave --{beside[0]} out, or say --via base-url.",
        )
    if space.headroom is not None and not 0 < space.headroom < 1e6:
        raise UsageError(
            f"--headroom {space.headroom:g} is no factor.",
            remedy="Give ceiling ÷ declared as a positive number, such as 3.",
        )
    if space.try_ is not None and space.try_ < 1:
        raise UsageError(f"--try {space.try_} is no repetition.", remedy="Count from 1.")
    if space.json and space.store and os.path.realpath(space.json) == os.path.realpath(space.store):
        raise UsageError(
            f"--json {space.json} is the store: the record would be written over it.",
            remedy="Name another file, such as --json trial.json.",
        )
    return RunOptions(
        command=tuple(command),
        run=space.run,
        name=space.name,
        task=space.task,
        try_=space.try_,
        headroom=space.headroom,
        upstreams=tuple(upstream_pair(text) for text in space.upstream),
        routes=tuple(route_pair(text) for text in space.route),
        via=space.via,
        adapt=space.adapt,
        store=space.store,
        json=space.json,
        gate=space.gate,
        control=space.control,
        require=space.require,
        quiet=space.quiet,
        verbose=space.verbose,
    )


def upstream_pair(text: str) -> tuple[str, str]:
    """`NAME=URL` of --upstream, checked."""
    name, url = _pair("--upstream", text, "NAME=URL")
    if name not in PROVIDERS:
        import difflib

        near = difflib.get_close_matches(name, PROVIDERS, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"--upstream knows {', '.join(PROVIDERS)}, not {name}.",
            remedy=f"{hint}For another API name the variable its client reads: --route VARIABLE={url}",
        )
    return name, url


def route_pair(text: str) -> tuple[str, str]:
    """`VAR=URL` of --route, checked."""
    name, url = _pair("--route", text, "VAR=URL")
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"--route: {name!r} is no name of a variable.", remedy="Write --route VAR=URL.")
    return name, url


class _Parser(argparse.ArgumentParser):
    """argparse, but what is wrong with a line is a sentence with a remedy."""

    def error(self, message: str) -> NoReturn:
        """As argparse, status 2."""
        what, _, rest = message.partition(": ")
        if what == "unrecognized arguments":
            import difflib

            word = rest.split()[0]
            known = [
                option
                for action in self._actions
                if action.help != argparse.SUPPRESS
                for option in action.option_strings
            ]
            near = difflib.get_close_matches(word.partition("=")[0], known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "Options of the command come after `--`."
            message = f"There is no option {word}. {hint}"
        self.exit(2, f"{self.prog}: {message[0].upper()}{message[1:]} (`{self.prog} --help` lists all options)\n")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 3") from None


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, such as 2") from None


def build_parser() -> argparse.ArgumentParser:
    """The parser, for help and for tests that compare it with the documentation."""
    parser = _Parser(
        prog="fairtrial run",
        usage="fairtrial run [options] -- COMMAND …",
        description="Run COMMAND with its model calls and containers observed; say afterwards what\nany failure was.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    naming = parser.add_argument_group("what this trial is called")
    naming.add_argument("--run", metavar="NAME", help="the configuration it belongs to; `trials --run NAME` lists them")
    naming.add_argument("--name", metavar="TRIAL", help="a name for people; the id is made by fairtrial")
    naming.add_argument("--task", metavar="TASK", help="the task it attempts")
    naming.add_argument("--try", metavar="N", dest="try_", type=_count, help="which repetition of the task, from 1")
    traffic = parser.add_argument_group("where the model's traffic goes")
    traffic.add_argument(
        "--upstream",
        metavar="NAME=URL",
        action="append",
        default=[],
        help=f"what is behind a door ({', '.join(PROVIDERS)}); default: what its variable holds, else the provider's",
    )
    traffic.add_argument(
        "--route",
        metavar="VAR=URL",
        action="append",
        default=[],
        help="set VAR to a door with URL behind it (repeatable)",
    )
    traffic.add_argument(
        "--via",
        choices=("base-url", "connect"),
        default="base-url",
        help="base-url (the default): *_BASE_URL lead to a door, calls are read. connect: HTTPS_PROXY leads to one and "
        "URLs stay; seen of each connection are name, connect, TLS, bytes, gaps, cuts",
    )
    traffic.add_argument(
        "--adapt",
        action="store_true",
        help="where the agent's own settings beat the environment, pass the door by its flag (a recorded mutation)",
    )
    traffic.add_argument(
        "--headroom",
        metavar="X",
        type=_number,
        help=argparse.SUPPRESS,  # recorded; applied once the Docker door is built
    )
    output = parser.add_argument_group("what comes out")
    output.add_argument(
        "--store", metavar="PATH", help="where it is kept (default: $FAIRTRIAL_STORE, else the state folder)"
    )
    output.add_argument(
        "--json",
        metavar="FILE",
        help="write the trial's record (fairtrial.trial/1) here; - is stdout, once COMMAND has ended",
    )
    output.add_argument(
        "--gate",
        action="store_true",
        help="exit 75 when it failed and the event that ended it is proved and may be the infrastructure's",
    )
    output.add_argument(
        "--control",
        action="store_true",
        help="let COMMAND say its trial's outcome at FAIRTRIAL_CONTROL_URL: recorded beside, never a proof",
    )
    output.add_argument("--require", action="store_true", help="do not run COMMAND when it cannot be observed")
    loudness = output.add_mutually_exclusive_group()
    loudness.add_argument("--quiet", action="store_true", help="say nothing when it passed")
    loudness.add_argument("--verbose", action="store_true", help="list beforehand what is changed for COMMAND")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Cut at the first `--`, unless COMMAND began before it (then that `--` is the command's own)."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    before = arguments[:cut]
    taking_value = {
        option
        for action in build_parser()._actions  # noqa: SLF001 - argparse has no public list of its options
        if action.option_strings and action.nargs != 0
        for option in action.option_strings
    }
    index = 0
    while index < len(before):
        word = before[index]
        if not word.startswith("-") or word == "-":
            return arguments, []
        index += 2 if word in taking_value else 1
    return before, arguments[cut + 1 :]


def _pair(option: str, text: str, shape: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not (name and equals and url):
        raise UsageError(f"{option} {text!r} is incomplete.", remedy=f"Write {option} {shape}.")
    from fairtrial.middleware.relay.environment import split_target

    if not _URL.fullmatch(url) or split_target(url) is None:
        raise UsageError(
            f"{option} {name}: {url!r} is no address.",
            remedy="Write it in full, such as https://host/path (http or https), or unix:///run/llm.sock.",
        )
    return name, url
