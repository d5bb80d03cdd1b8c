"""What can go wrong, sorted by whose hands can mend it.

In: what was seen and where.  Out: exceptions whose text is a sentence for a person and whose `remedy` says what
to type or change.  One base class per owner of the fault:

=====================  ==========================================  ===================================
owner                  class                                       exit status when nothing else runs
=====================  ==========================================  ===================================
the user's settings    `ConfigError`, `UsageError`                 78 EX_CONFIG, 2 (as argparse)
the machine            `HostError` (ports, folders, processes)     69 EX_UNAVAILABLE
a model API            `UpstreamError`                             69 EX_UNAVAILABLE
a container runtime    `RuntimeUnavailable`                        69 EX_UNAVAILABLE
ourselves              `OwnBug`                                    70 EX_SOFTWARE
=====================  ==========================================  ===================================

`CommandError` is none of these: the command itself could not be started; it has the shell's status, 127 or 126.
Start-up fails fast; after start-up nothing here ends the process: the agent's run goes on wherever it can.

**Source:** sysexits(3) for the numbers; POSIX.1-2017 Shell Command Language 2.8.2 for 126 and 127.
"""

from __future__ import annotations

from typing import ClassVar, Final

EX_USAGE: Final = 2
"""What argparse ends with; kept, since people test for it."""
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70
EX_TEMPFAIL: Final = 75
"""`--gate`: the failure was the infrastructure's, a retry is worth it."""
EX_CONFIG: Final = 78
EX_CANNOT_EXECUTE: Final = 126
EX_NOT_FOUND: Final = 127


class FairtrialError(Exception):
    """Base of all; `what` says what was seen, where, and what was expected; `remedy` what to do now."""

    owner: ClassVar[str] = "fairtrial"
    exit_code: int = EX_SOFTWARE

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}" if self.remedy else self.what


class ConfigError(FairtrialError):
    """A setting cannot be used.  `key` is its dotted name, `source` the file or variable it came from."""

    owner = "operator"
    exit_code = EX_CONFIG

    def __init__(self, what: str, *, remedy: str, key: str | None = None, source: str | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.key = key
        self.source = source


class UsageError(FairtrialError):
    """The command line asks for something that cannot be done."""

    owner = "operator"
    exit_code = EX_USAGE


class HostError(FairtrialError):
    """This machine refused something that fairtrial needs: a port, a folder, a process.  `errno` where known."""

    owner = "infra"
    exit_code = EX_UNAVAILABLE

    def __init__(self, what: str, *, remedy: str, errno: int | None = None, path: str | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.errno = errno
        self.path = path


class UpstreamError(FairtrialError):
    """A model API's address cannot be used as an upstream.  `upstream` is its name."""

    owner = "operator"
    exit_code = EX_UNAVAILABLE

    def __init__(self, what: str, *, remedy: str, upstream: str | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.upstream = upstream


class RuntimeUnavailable(FairtrialError):
    """A container runtime does not answer or cannot be used.  `address` is where it was looked for."""

    owner = "infra"
    exit_code = EX_UNAVAILABLE

    def __init__(self, what: str, *, remedy: str, address: str | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.address = address


class StoreError(FairtrialError):
    """The store cannot be opened, read or written.  `path` is the file."""

    owner = "infra"
    exit_code = EX_UNAVAILABLE

    def __init__(self, what: str, *, remedy: str, path: str | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.path = path


class CommandError(FairtrialError):
    """The command could not be started.  `exit_code` is what a shell would give: 127 not found, 126 not executable."""

    owner = "operator"

    def __init__(self, what: str, *, remedy: str, exit_code: int, errno: int | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.exit_code = exit_code
        self.errno = errno


class OwnBug(FairtrialError):
    """Something that cannot happen did.  Please report it."""

    owner = "fairtrial"
    exit_code = EX_SOFTWARE

    def __init__(self, what: str, *, remedy: str = "Please report this with the lines above.") -> None:
        super().__init__(what, remedy=remedy)
