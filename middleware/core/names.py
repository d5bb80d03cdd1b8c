"""How a harness's names become others' names: one spelling for those who look a trial up by its containers.

In: a name.  Out: the name that a tool makes of it.  Pure.  **Source:** reference page harnesses.md section 8.
"""

from __future__ import annotations

import re
from typing import Final

ENVIRONMENT: Final = "__env"
"""What Harbor puts behind a trial's name for the session of its environment; `__agent` for the agent's."""
AGENT: Final = "__agent"
_NO_PROJECT: Final = re.compile(r"[^a-z0-9_-]")


def project_of(session: str) -> str:
    """The compose project that Harbor makes of a session id."""
    name = _NO_PROJECT.sub("-", session.lower())
    return name if name[:1].isalnum() else f"0{name}"
