"""`fairtrial run`, from the first line to the last: a process that ends as the command ends.

In: `RunOptions` and the environment.  Order: block signals, start the observer (not waited for), prepare
(`prepare.py`), open the doors, start the command at once, relay, hear the verdict (`session.py`), leave with the
command's own status (`child.py`).  Most is imported late: the observer's interpreter starts while ours loads the rest.

What fails before the command starts makes the run *unobserved*: fairtrial says why and becomes the command, unless
`--require`.  After that nothing of ours ends before the command.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.errors import CommandError, FairtrialError, OwnBug
from fairtrial.middleware.core.places import state_folder
from fairtrial.middleware.relay import child, signals
from fairtrial.middleware.relay.observer_link import OBSERVER, Launched, Launcher, log_file
from fairtrial.middleware.relay.runopts import RunOptions
from fairtrial.middleware.relay.saying import say


def run(
    options: RunOptions, *, environ: Mapping[str, str] | None = None, observer_command: Sequence[str] = OBSERVER
) -> NoReturn:
    """Run the command, observed where possible, and end as it ends."""
    began = clock.now()
    mask = signals.block()
    environ = dict(os.environ) if environ is None else environ
    observer: Launched | None = None
    try:
        launcher = Launcher(observer_command, environ, log_file(state_folder(environ)))
        observer = launcher.launch()
        from fairtrial.middleware.relay.prepare import prepare

        prepared = prepare(options, environ, mask=mask, began=began)
        from fairtrial.middleware.relay.session import Session

        session = Session(prepared, launcher, observer)
        session.open()
    except FairtrialError as error:
        _unobserved(options, environ, mask, error, observer)
    except Exception as error:  # noqa: BLE001 - whatever we did wrong, the command is not to suffer for it
        _unobserved(options, environ, mask, OwnBug(f"fairtrial failed at its start: {error!r}."), observer)
    child.leave(session.run())


def _unobserved(
    options: RunOptions,
    environ: Mapping[str, str],
    mask: Collection[int],
    error: FairtrialError,
    observer: Launched | None,
) -> NoReturn:
    """Say why, and become the command, unless the run was required to be observed."""
    if observer is not None:
        observer.sock.close()  # without a HELLO the observer ends by itself
    if options.require:
        say(str(error))
        say("The command was not started (--require).")
        child.leave(child.ExitStatus(exit_code=error.exit_code))
    say(str(error))
    say("The command runs unobserved.")
    try:
        child.replace_ourselves(options.command, environ, mask=mask)
    except CommandError as failure:
        say(str(failure))
        child.leave(child.ExitStatus(exit_code=failure.exit_code))
