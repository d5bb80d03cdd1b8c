"""The tree keeps its promises: tests mirror the rooms, modules say what they are, the name plate holds links only.

A module is tested by `test_<name>.py` in the same place under tests/, or by a file there that imports it, or imports
the module of its folder that uses it: a family of small modules may be tested through its front. A test file in a
room's place is named after a module or after the folder.
"""

import ast
from pathlib import Path

import pytest

ROOMS = ("middleware", "collectors", "exporters")

# Sources that no test in their place can reach, each with the reason. Keep it short.
UNTWINNED: dict[str, str] = {}

# Test files (patterns) about something that spans a room, each with the reason why no module's name fits. Few, please.
TOPICS: dict[str, str] = {
    "tests/collectors/test_live_containers.py": "all collectors on a real engine",
    "tests/middleware/attribution/test_infra_proved.py": "every way to the worst possible mistake, over all rules",
    "tests/middleware/attribution/test_whose_doing.py": "what an agent can bring about alone, over all rules",
    "tests/middleware/relay/test_bytes_*.py": "bytes and endings through the relay, beside a direct run",
}

# What may lie in a room beside Python modules.
DATA_SUFFIXES = {".sql", ".j2", ".html", ".css", ".json", ".toml", ".md"}


def modules(root: Path) -> list[Path]:
    """Every Python file of the rooms, relative to the repository."""
    return sorted(path.relative_to(root) for room in ROOMS for path in (root / room).rglob("*.py"))


def has_code(path: Path) -> bool:
    """True if a module defines something: a signpost of docstring, imports and a table has no test of its own."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for node in ast.walk(ast.parse(path.read_text()))
    )


def twins(root: Path, source: Path) -> list[Path]:
    """Test files of a source: `test_<name>.py`, or `test_<name>_<aspect>.py` when one file is not enough."""
    folder = root / "tests" / source.parent
    stem = (source.parent.name if source.stem == "__init__" else source.stem).lstrip("_")
    return sorted({*folder.glob(f"test_{stem}.py"), *folder.glob(f"test_{stem}_*.py")})


def imported_by(path: Path) -> set[str]:
    """Modules of ours that a file imports, `from package import module` included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def name_of(source: Path) -> str:
    """The import name of a source."""
    return ".".join(("fairtrial", *source.with_suffix("").parts)).removesuffix(".__init__")


def reached(root: Path, folder: Path) -> set[str]:
    """Modules that the tests in a folder's place import, and what these import within that folder."""
    names = {name for path in (root / "tests" / folder).glob("test_*.py") for name in imported_by(path)}
    siblings = {name_of(path.relative_to(root)): imported_by(path) for path in (root / folder).glob("*.py")}
    waiting = list(names)
    while waiting:
        found = siblings.get(waiting.pop(), set()) & siblings.keys() - names
        names |= found
        waiting += found
    return names


def test_every_module_of_a_room_has_a_test_in_the_same_place(repo_root: Path) -> None:
    sources = modules(repo_root)
    tested = set[str]().union(*(reached(repo_root, folder) for folder in {source.parent for source in sources}))
    missing = [
        str(source)
        for source in sources
        if has_code(repo_root / source) and not twins(repo_root, source) and str(source) not in UNTWINNED
        if name_of(source) not in tested
    ]
    assert missing == [], "write tests/<same path>/test_<name>.py, or test it in a file there that imports it"


def test_every_test_file_of_a_room_has_a_source_in_the_same_place(repo_root: Path) -> None:
    known = {twin for source in modules(repo_root) for twin in twins(repo_root, source)}
    orphans = [
        str(path.relative_to(repo_root))
        for room in ROOMS
        for path in sorted((repo_root / "tests" / room).rglob("test_*.py"))
        if path not in known and not path.stem.removeprefix("test_").startswith(path.parent.name)
        if not any(path.relative_to(repo_root).match(pattern) for pattern in TOPICS)
    ]
    assert orphans == [], "name a test file after the module that it tests"


def test_the_lists_of_exceptions_name_only_files_that_exist(repo_root: Path) -> None:
    assert [name for name in (*UNTWINNED, *TOPICS) if not any(repo_root.glob(name))] == []


def test_every_module_says_what_it_is(repo_root: Path) -> None:
    sources = [*modules(repo_root), Path("fairtrial/__init__.py"), Path("fairtrial/__main__.py")]
    sources += [path.relative_to(repo_root) for path in (repo_root / "tests").rglob("*.py")]
    silent = [
        str(source)
        for source in sources
        if source.name != "__init__.py" or source.parts[0] != "tests"
        if not (ast.get_docstring(ast.parse((repo_root / source).read_text())) or "").strip()
    ]
    assert silent == [], "open with a docstring: what comes in, what goes out, what it does not do"


@pytest.mark.parametrize("room", ROOMS)
def test_the_name_plate_links_to_the_room(repo_root: Path, room: str) -> None:
    link = repo_root / "fairtrial" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room


def test_the_name_plate_holds_no_code_of_its_own(repo_root: Path) -> None:
    names = {path.name for path in (repo_root / "fairtrial").iterdir()} - {"__pycache__"}
    assert names == {"__init__.py", "__main__.py", "py.typed", *ROOMS}


def test_rooms_hold_modules_and_known_kinds_of_data_only(repo_root: Path) -> None:
    strangers = [
        str(path.relative_to(repo_root))
        for room in ROOMS
        for path in sorted((repo_root / room).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".py", *DATA_SUFFIXES}
    ]
    assert strangers == []


def test_every_folder_with_modules_is_a_package(repo_root: Path) -> None:
    folders = {source.parent for source in modules(repo_root)}
    assert [str(folder) for folder in sorted(folders) if not (repo_root / folder / "__init__.py").exists()] == []
