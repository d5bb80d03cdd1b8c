"""What a user reads names only what a user has: no private page, no place of a machine; links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fairtrial.middleware import cli
from fairtrial.middleware.core import config
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.relay import runopts

PRIVATE = re.compile(r"\bVERDICTS\b|\bDESIGN\b|\bRECORDS(?:\.md)?\b|design page")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def pages(root: Path) -> list[Path]:
    """Every page that is meant for users and contributors."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "tests").rglob("*.md")])


def test_no_page_names_a_private_document(repo_root: Path) -> None:
    found = [
        f"{page.relative_to(repo_root)}:{number}: {line.strip()[:80]}"
        for page in pages(repo_root)
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert found == []


def test_no_sentence_setting_or_help_names_a_private_document() -> None:
    texts = [text for cause in CAUSES.values() for text in (cause.note, cause.template, cause.advice)]
    texts += [setting.doc for setting in config.describe(config.Effective(config.Config(), {}))]
    texts.append(runopts.build_parser().format_help())
    assert [text for text in texts if PRIVATE.search(text)] == []


def test_every_link_of_a_page_leads_to_a_file(repo_root: Path) -> None:
    broken = [
        f"{page.relative_to(repo_root)} → {target}"
        for page in pages(repo_root)
        for target in LINK.findall(page.read_text())
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_option_in_the_readme_is_one(repo_root: Path) -> None:
    """A word such as `--gate` in the README is an option of some command of ours, or of a program that it calls."""
    readme = (repo_root / "README.md").read_text()
    ours = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", readme))
    known = {option for action in runopts.build_parser()._actions for option in action.option_strings}
    others = {"--only", "--replay", "--network", "--label", "--set", "--help", "--from-container", "--format"}
    assert ours - known - others == set()


def test_every_run_line_of_readme_and_help_can_be_followed(repo_root: Path) -> None:
    text = (repo_root / "README.md").read_text() + runopts.build_parser().format_help().replace("\\\n", "")
    lines = re.findall(r"^ *(fairtrial run -[^#\n]*)", text, re.MULTILINE)
    inline = [line for line in re.findall(r"`(fairtrial run [^`\n]*)`", text) if " -- " in line]
    assert len(lines) >= 5
    assert inline
    for line in (*lines, *inline):
        assert runopts.parse(shlex.split(line)[2:]).command


def test_every_other_command_of_the_readme_exists(repo_root: Path) -> None:
    readme = (repo_root / "README.md").read_text()
    said = set(re.findall(r"(?:^|`)fairtrial ([a-z]+(?: (?:show|store|harbor)\b)?)", readme, re.MULTILINE))
    groups = {group.name: group.typer_instance for group in cli.app.registered_groups}
    known = {(c.name or getattr(c.callback, "__name__", "")) for c in cli.app.registered_commands}
    known |= {f"{name} {c.name}" for name, g in groups.items() if g for c in g.registered_commands}
    assert said - known == {"stands"}, "the first words of a paragraph that begins with our name"
    assert said & known


@pytest.mark.parametrize("name", ["README.md", "docs/formats.md"])
def test_every_file_named_in_code_style_is_there(repo_root: Path, name: str) -> None:
    text = (repo_root / name).read_text()
    named = re.findall(r"`((?:middleware|collectors|exporters|docs|tests)/[\w./-]+)`", text)
    assert [path for path in named if not (repo_root / path).exists()] == []
