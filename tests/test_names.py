"""Every span, attribute and metric name lives in `middleware/core/semconv.py`; elsewhere the constant is imported."""

import ast
import re
from pathlib import Path

from tests.test_layout import modules

HOME = Path("middleware/core/semconv.py")
TELEMETRY_NAME = re.compile(r"(fairtrial|gen_ai)\.[a-z0-9_.]+|fairtrial_[a-z0-9_]+")
MODULE_PATH = re.compile(r"fairtrial\.(middleware|collectors|exporters|__main__)(\.|$)")


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the constants that are docstrings or other bare strings."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def telemetry_names(text: str) -> list[tuple[int, str]]:
    """Line and value of each string literal (also within f-strings) that is, or begins, a telemetry name."""
    tree = ast.parse(text)
    bare = docstrings(tree)
    return sorted(
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
        if TELEMETRY_NAME.fullmatch(node.value) and not MODULE_PATH.match(node.value)
    )


def test_telemetry_names_are_written_in_one_file_only(repo_root: Path) -> None:
    found = [
        f"{source}:{line}: {value}"
        for source in modules(repo_root)
        if source != HOME
        for line, value in telemetry_names((repo_root / source).read_text())
    ]
    assert found == [], f"import the constant from {HOME}"


def test_the_search_sees_literals_and_parts_of_f_strings_but_not_modules_schemas_or_prose() -> None:
    text = '''
"""fairtrial.step.index"""
a = "gen_ai.request.model"
b = f"fairtrial.limit.{a}"
c = "fairtrial_oom_kills_total"
d = "fairtrial.collectors.cgroup"
e = "fairtrial.trial/1"
f = "fairtrial.step.index is a name"
'''
    assert [line for line, _ in telemetry_names(text)] == [3, 4, 5]
