"""`fairtrial run`, from the first line to the last: a process that ends as the command ends.

In: the arguments after `run`.  Order: block signals, start the observer (not waited for), read the line, prepare
(`prepare.py`), open the doors, start the command at once, relay, hear the verdict (`session.py`), leave with the
command's own status (`child.py`).  Most is imported late: the observer's interpreter starts while ours loads the rest.

What fails before the command starts makes the run *unobserved*: fairtrial says why and becomes the command, unless
`--require`.  After that nothing of ours ends before the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from fairtrial.middleware.core.errors import CommandError, FairtrialError, OwnBug, UsageError
from fairtrial.middleware.core.places import state_folder
from fairtrial.middleware.relay import signals
from fairtrial.middleware.relay.launcher import OBSERVER, Launched, Launcher, control_listener, log_file
from fairtrial.middleware.relay.saying import say

if TYPE_CHECKING:
    from fairtrial.middleware.relay.runopts import RunOptions


class Early(NamedTuple):
    """What is done before the command line is read: signals are blocked, the observer's interpreter starts.

    `observer` None: it could not be started, and `failure` says why.
    """

    mask: Collection[int]
    environ: Mapping[str, str]
    launcher: Launcher
    observer: Launched | None
    failure: FairtrialError | None


def begin(
    environ: Mapping[str, str] | None = None, observer_command: Sequence[str] = OBSERVER, *, control: bool = False
) -> Early:
    """The first thing of a run.  Never raises for what the machine refuses.  `control`: with a control API."""
    mask = signals.block()
    environ = dict(os.environ) if environ is None else environ
    launcher = Launcher(
        observer_command, environ, log_file(state_folder(environ)), control_listener() if control else None
    )
    try:
        return Early(mask, environ, launcher, launcher.launch(), None)
    except FairtrialError as error:
        return Early(mask, environ, launcher, None, error)


def main(arguments: Sequence[str], *, observer_command: Sequence[str] = OBSERVER) -> NoReturn:
    """`fairtrial run ARGUMENTS`.  A line that cannot be understood ends with status 2."""
    early = None
    if not {"-h", "--help"} & set(arguments):
        ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
        early = begin(observer_command=observer_command, control="--control" in ours)
    from fairtrial.middleware.relay import runopts

    try:
        options = runopts.parse(arguments)
    except UsageError as error:
        say(str(error), prefix="fairtrial run: ")
        sys.exit(error.exit_code)
    run(options, early, observer_command=observer_command)


def run(options: RunOptions, early: Early | None = None, *, observer_command: Sequence[str] = OBSERVER) -> NoReturn:
    """Run the command, observed where possible, and end as it ends."""
    if early is None:
        early = begin(observer_command=observer_command, control=options.control)
    from fairtrial.middleware.core import clock
    from fairtrial.middleware.relay import child

    began = clock.now()
    try:
        if early.observer is None:
            raise early.failure or OwnBug("The observer was not started.")
        from fairtrial.middleware.relay.prepare import prepare

        prepared = prepare(options, early.environ, mask=early.mask, began=began)
        from fairtrial.middleware.relay import loops

        loops.load()
        from fairtrial.middleware.relay.session import Session

        session = Session(prepared, early.launcher, early.observer)
        session.open()
    except FairtrialError as error:
        _unobserved(options, early, error)
    except Exception as error:  # noqa: BLE001 - whatever we did wrong, the command is not to suffer for it
        _unobserved(options, early, OwnBug(f"fairtrial failed at its start: {error!r}."))
    child.leave(session.run())


def _unobserved(options: RunOptions, early: Early, error: FairtrialError) -> NoReturn:
    """Say why, and become the command, unless the run was required to be observed."""
    if early.observer is not None:
        early.observer.sock.close()  # without a HELLO the observer ends by itself
    from fairtrial.middleware.relay import child

    if options.require or _required_by_settings(early.environ):
        say(str(error))
        say(f"The command was not started ({'--require' if options.require else 'run.require'}).")
        child.leave(child.ExitStatus(exit_code=error.exit_code))
    say(str(error))
    say("The command runs unobserved.")
    try:
        child.replace_ourselves(options.command, early.environ, mask=early.mask)
    except CommandError as failure:
        say(str(failure))
        child.leave(child.ExitStatus(exit_code=failure.exit_code))


def _required_by_settings(environ: Mapping[str, str]) -> bool:
    """`run.require`; settings that cannot be read require nothing."""
    from fairtrial.middleware.core import config

    try:
        return config.read(environ, {}).run.require
    except FairtrialError:
        return False
