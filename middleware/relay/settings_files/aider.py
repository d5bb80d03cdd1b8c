"""Where aider takes an OpenAI-compatible address from that beats the environment.

In: aider's arguments, its folders, and files through a callable.  Out: `Findings` with the file (or the command line)
and the address that win.  Looked at: `--openai-api-base` on the command line, then `.env` (loaded over the environment)
and `.aider.conf.yml`, each in the working folder, the root of the repository and the home folder.  Of the YAML only a
plain `openai-api-base: URL` line is read; other providers' addresses are not looked at.

**Source:** aider's documentation of its configuration file, `.env` and `--openai-api-base`; `.env` was run (0.86.2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.relay.environment import split_origin
from fairtrial.middleware.relay.settings_files.findings import FLAGS, Findings, Override, ReadText
from fairtrial.middleware.relay.settings_files.reading import short, upwards

OPTION: Final = FLAGS["aider"]
ON_THE_COMMAND_LINE: Final = "the command line"
_DOTENV: Final = re.compile(r"^\s*(?:export\s+)?(?:AIDER_)?OPENAI_API_BASE\s*=\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_YAML: Final = re.compile(r"^openai-api-base:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)


def find(at: int, arguments: Sequence[str], home: str, cwd: str, reader: ReadText) -> Findings:
    found = held(arguments, (cwd, list(upwards(cwd))[-1], home), reader)
    if found is None:
        return Findings(tool="aider", at=at)
    path, url = found
    why_not = None if split_origin(url) is not None else "It is no http(s) address"
    if path == ON_THE_COMMAND_LINE:
        why_not = f"Leave the option out, and paste `OPENAI_API_BASE={mask_url(url)} fairtrial run --` before the rest"
    override = Override(
        tool="aider",
        path=short(path, home),
        key="openai-api-base",
        url=url,
        door=None if why_not else "openai",
        why_not=why_not,
    )
    return Findings(tool="aider", at=at, overrides=(override,))


def held(
    arguments: Sequence[str], folders: Sequence[str], reader: Callable[[str], str | None]
) -> tuple[str, str] | None:
    """(path or `ON_THE_COMMAND_LINE`, address); `folders`: the strongest first."""
    for index, word in enumerate(arguments):
        if word.startswith(f"{OPTION}="):
            return ON_THE_COMMAND_LINE, word.partition("=")[2]
        if word == OPTION and index + 1 < len(arguments):
            return ON_THE_COMMAND_LINE, arguments[index + 1]
    for name, pattern in ((".env", _DOTENV), (".aider.conf.yml", _YAML)):
        for folder in folders:
            path = os.path.join(folder, name)
            found = pattern.findall(reader(path) or "")
            if found:
                return path, found[-1]
    return None
