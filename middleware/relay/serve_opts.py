"""The command line of `fairtrial serve`: the one place that defines its options.

In: the arguments after `serve`.  Out: a frozen `ServeOptions`; argparse itself ends the process for `--help` (0) and
for a malformed line (2).  Each option overrides one setting of `[serve]` (`core/config/`).  `cli/` forwards its
`serve` here unread, so that the relay process never loads typer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.config import Leaf
from fairtrial.middleware.core.errors import UsageError

_EPILOG: Final = """\
Point a client's base URL at a door, with the trial's name in the path:
  ANTHROPIC_BASE_URL=http://127.0.0.1:8790/t/django-123
Settings may stand in the file (--config, $FAIRTRIAL_CONFIG) or in the
environment (FAIRTRIAL_SERVE__PORT=9000); fairtrial config show lists all.

SIGTERM drains: no new connections, open calls end or are cut after --drain
seconds, verdicts and traces are handed over; a second signal ends at once.

exit status: 0 drained; 2 the line above; 69 this machine refused something
(a port in use); 78 a setting is wrong; 128+N ended at once by signal N

examples:
  fairtrial serve --upstream anthropic=https://api.anthropic.com
  fairtrial serve --upstream anthropic=https://api.anthropic.com \\
      --upstream openai=https://api.openai.com \\
      --listen openai=unix:/run/fairtrial/openai.sock
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What the user asked for; None is *not given*.  `upstreams` and `listen` are pairs; the name "" means all."""

    config: str | None = None
    upstreams: tuple[tuple[str, str], ...] = ()
    listen: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, Leaf], ...] = ()
    """Other settings by their keys."""


def parse(arguments: Sequence[str]) -> ServeOptions:
    """Raises `UsageError` for what argparse cannot know."""
    space = build_parser().parse_args(arguments)
    return ServeOptions(
        config=space.config,
        upstreams=tuple(_pair(text) for text in space.upstream),
        listen=tuple(_place(text) for text in space.listen),
        settings=(
            ("store.path", space.store),
            ("serve.run", space.run),
            ("serve.health", space.health),
            ("serve.drain_s", space.drain),
            ("serve.idle_s", space.idle),
            ("serve.unguarded", True if space.unguarded else None),
        ),
    )


def build_parser() -> argparse.ArgumentParser:
    """For `parse`, and for whoever prints the help."""
    parser = argparse.ArgumentParser(
        prog="fairtrial serve",
        description="A long-lived door for each model API: agents talk through it, trials are told\napart and judged.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="settings to read instead of $FAIRTRIAL_CONFIG")
    add("--upstream", metavar="NAME=URL", action="append", default=[], help="a model API; may be repeated")
    add(
        "--listen",
        metavar="[NAME=]ADDR",
        action="append",
        default=[],
        help="HOST:PORT or unix:/PATH of an upstream's door; without NAME: HOST:PORT of the first door",
    )
    add("--health", metavar="ADDR", help="HOST:PORT of /healthz, /readyz, /startupz, or off")
    add("--store", metavar="PATH", help="the SQLite file")
    add("--run", metavar="NAME", help="the run that the trials belong to")
    add("--drain", metavar="S", type=float, help="seconds that open calls may go on after SIGTERM")
    add("--idle", metavar="S", type=float, help="seconds without a call after which a trial is closed")
    add("--unguarded", action="store_true", help="beyond loopback without a secret: whoever reaches a door may use it")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals or not name or "/" in name:
        raise UsageError(
            f"--upstream {text!r} has no name.", remedy="Such as: --upstream anthropic=https://api.anthropic.com"
        )
    return name, url


def _place(text: str) -> tuple[str, str]:
    name, equals, place = text.partition("=")
    return (name, place) if equals else ("", text)
