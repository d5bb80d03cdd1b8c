"""One declaration of a file, for the tests of kinds."""

from __future__ import annotations

from pathlib import Path

from fairtrial.middleware.doctor.declared import Declared, all_flags
from fairtrial.middleware.doctor.files import examine_files


def declared(folder: Path, text: str, name: str = "x.yaml") -> list[Declared]:
    """What the file declares; fails when it cannot be read."""
    (folder / name).write_text(text)
    (report,) = examine_files([str(folder / name)])
    assert report.problem is None, report.problem
    return list(report.declared)


def flags(one: Declared) -> str:
    """All flags as one text."""
    return " | ".join(flag.text for flag in all_flags(one))
