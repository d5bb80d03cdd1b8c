"""A fairtrial of this checkout in the place where deploy/ci/install.sh would have put one: saves its fifteen seconds.

`test_ci_scripts.py` runs the real installation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LISTS = ("requirements/runtime.txt", "requirements/build.txt", "fairtrial/__init__.py")


def checkouts_own(folder: Path) -> str:
    """A program `fairtrial` that runs this checkout whatever the environment says."""
    program = folder / "bin" / "fairtrial"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={os.getcwd()} exec {sys.executable} -m fairtrial "$@"\n')
    program.chmod(0o755)
    return str(program)


def as_installed(repo_root: Path, ftci_dir: Path, executable: str) -> None:
    """What install.sh takes for its own finished work: the program, and the checksum of the lists and the version."""
    (ftci_dir / "venv" / "bin").mkdir(parents=True)
    (ftci_dir / "venv" / "bin" / "fairtrial").symlink_to(executable)
    joined = b"".join((repo_root / name).read_bytes() for name in _LISTS)
    stamp = subprocess.run(["cksum"], input=joined, capture_output=True, check=True).stdout
    (ftci_dir / "venv" / ".fairtrial-lock").write_bytes(stamp)
