"""`fairtrial doctor PATH…`: what files of a project declare of resources and time, and what is wrong with it.

In: files, and folders that are looked through.  Out: one `FileReport` each; a file that cannot be read is one sentence
and stops no other.  YAML is read as YAML 1.2 (so `on:` of a workflow is a text), a stream of documents whole.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import Node, ScalarNode, SequenceNode

from fairtrial.middleware.doctor.declared import Declared, all_flags, headroom, summary
from fairtrial.middleware.doctor.findings import screen_width
from fairtrial.middleware.doctor.kinds import KINDS
from fairtrial.middleware.report.words import wrapped

SUFFIXES: Final = (".toml", ".yaml", ".yml")
MAX_BYTES: Final = 4 << 20
_MAX_FILES: Final = 5_000
_HELM: Final = re.compile(r"\{\{(?!\{)[^{}]*\}\}")
_SKIPPED: Final = frozenset({".git", ".venv", "node_modules", "__pycache__", ".tox"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One file: what it declares, or why that is not known.  `kind` None and no `problem`: none of the kinds known."""

    path: str
    kind: str | None = None
    declared: tuple[Declared, ...] = ()
    problem: str | None = None

    def record(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "path": self.path,
            "kind": self.kind,
            "problem": self.problem,
            "declared": [_record(d) for d in self.declared],
        }


def looks_like_files(words: Sequence[str]) -> bool:
    """Whether the words after `doctor` are files and folders to read, not a command to start."""
    return bool(words) and all(_is_place(word) for word in words)


def _is_place(word: str) -> bool:
    """What can be started is a command, also where a folder has its name (which `name/` means); what is not there is a
    path if it is written as one."""
    if word.endswith((*SUFFIXES, os.sep)) or word in (".", ".."):
        return True
    return (os.sep in word or os.path.exists(word)) and shutil.which(word) is None


def examine_files(words: Sequence[str]) -> list[FileReport]:
    """Read each; of a folder those that are of a known kind, and those that cannot be read."""
    reports: list[FileReport] = []
    for word in words:
        if os.path.isdir(word):
            found = [_examine(path) for path in _inside(Path(word))]
            reports += [report for report in found if report.kind is not None or report.problem is not None]
        else:
            reports.append(_examine(Path(word)))
    return reports


def _inside(folder: Path) -> Iterator[Path]:
    count = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            if name == "task.toml" or name.endswith(SUFFIXES[1:]):
                count += 1
                if count > _MAX_FILES:
                    return
                yield Path(parent, name)


def _examine(path: Path) -> FileReport:
    shown = str(path)
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            return FileReport(path=shown, problem="is no regular file")
        if about.st_size > MAX_BYTES:
            return FileReport(path=shown, problem=f"is larger than {MAX_BYTES >> 20} MiB: no such file is read")
        documents = list(_documents(path))
    except OSError as error:
        return FileReport(path=shown, problem=f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return FileReport(path=shown, problem="is no text in UTF-8")
    except _Template:
        return FileReport(path=shown, problem="is a template ({{ … }}): render it first, and have the result read")
    except (YAMLError, tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        return FileReport(
            path=shown, problem=f"is no valid {'TOML' if path.suffix == '.toml' else 'YAML'}: {_short(error)}"
        )
    kind: str | None = None
    declared: list[Declared] = []
    try:
        for document in documents:
            for name, (recognises, read) in KINDS.items():
                if recognises(path.name, document):
                    kind = kind or name
                    declared += read(document)
                    break
    except (ValueError, OverflowError) as error:
        return FileReport(path=shown, kind=kind, problem=f"cannot be understood: {error}")
    return FileReport(path=shown, kind=kind, declared=tuple(declared))


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        yield tomllib.loads(text)
        return
    try:
        for document in _yaml().load_all(text):
            if isinstance(document, dict):
                yield cast("Mapping[str, Any]", document)
    except YAMLError as error:
        if _HELM.search(text):
            raise _Template from error
        raise


class _Template(Exception):
    """YAML only when something has filled it in."""


def _yaml() -> YAML:
    """A reader to which a tag that it does not know (`!reference`, `!reset`, `!Ref`) is no error: its value counts."""
    reader = YAML(typ="safe", pure=True)

    class Constructor(SafeConstructor):
        """Its own, so that no other reader of this process gets the rule."""

    def plain(self: SafeConstructor, suffix: str, node: Node) -> object:
        del suffix
        if isinstance(node, ScalarNode):
            return self.construct_scalar(node)
        build = self.construct_sequence if isinstance(node, SequenceNode) else self.construct_mapping
        return build(node, deep=True)

    Constructor.add_multi_constructor("!", plain)
    reader.Constructor = Constructor
    return reader


def _short(error: Exception) -> str:
    """What, and where; the parser's own drawing of the line is left out."""
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{what} (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else str(what)


def print_files(reports: Sequence[FileReport]) -> None:
    """A line of numbers for each task, service, container or job, its flags below."""
    width = screen_width()
    for report in reports:
        print(f"{report.path}{f' ({report.kind})' if report.kind else ''}")
        if report.problem is not None:
            print("\n".join(wrapped(report.problem, width, indent="  ", hang="    ")))
        elif report.kind is None:
            print("  is none of: " + ", ".join(KINDS))
        elif not report.declared:
            print("  declares no task, service, container or job")
        for declared in report.declared:
            print("\n".join(wrapped(f"{declared.name}: {summary(declared)}", width, indent="  ", hang="      ")))
            for flag in all_flags(declared):
                remedy = f" → {flag.remedy}" if flag.remedy else ""
                print("\n".join(wrapped(f"! {flag.text}{remedy}", width, indent="    ", hang="      ")))
    flagged = sum(1 for report in reports for declared in report.declared for _ in all_flags(declared))
    units = sum(len(report.declared) for report in reports)
    unread = sum(1 for report in reports if report.problem is not None)
    print(f"{units} declared, {flagged} flags" + (f", {unread} could not be read" if unread else ""))


def _record(declared: Declared) -> dict[str, object]:
    return {
        "name": declared.name,
        "memory": {
            "floor": declared.memory_floor,
            "ceiling": declared.memory_ceiling,
            "headroom": headroom(declared.memory_floor, declared.memory_ceiling),
            "swap": declared.swap,
        },
        "cpu": {
            "floor": declared.cpu_floor,
            "ceiling": declared.cpu_ceiling,
            "headroom": headroom(declared.cpu_floor, declared.cpu_ceiling),
        },
        "time": dict(declared.times),
        "flags": [{"text": flag.text, "remedy": flag.remedy} for flag in all_flags(declared)],
    }
