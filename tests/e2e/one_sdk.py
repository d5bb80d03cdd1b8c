"""One SDK as a whole agent: `python -m tests.e2e.one_sdk KIND`, a kind of `sdks.KINDS`.

In: ANTHROPIC_BASE_URL or OPENAI_BASE_URL. Out: `sdks.Spoken` as a line of JSON; exit status 0 when the SDK brought a
final turn, 1 when it raised. Only the SDK that speaks is loaded: each costs a second.
"""

from __future__ import annotations

import json
import os
import sys
import types
from dataclasses import asdict


def main() -> int:
    """Speak; say how it ended."""
    kind = sys.argv[1]
    ours, other = ("anthropic", "openai") if kind.startswith("messages") else ("openai", "anthropic")
    sys.modules[other] = types.ModuleType(other)
    from tests.e2e import sdks

    url = os.environ[f"{ours.upper()}_BASE_URL"].removesuffix("/v1")
    spoken = sdks.talk(kind, url)
    print(json.dumps(asdict(spoken)), flush=True)
    return 0 if spoken.text is not None else 1


if __name__ == "__main__":
    sys.exit(main())
