"""The table of dialects: one file per model API, one line here.

The first that claims a request reads it; where two claim the same path (model lists, greetings), the door's provider
decides.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.wire.dialects.anthropic_messages import AnthropicMessages
from fairtrial.middleware.wire.dialects.base import Dialect
from fairtrial.middleware.wire.dialects.bedrock import Bedrock
from fairtrial.middleware.wire.dialects.gemini import Gemini
from fairtrial.middleware.wire.dialects.ollama import Ollama
from fairtrial.middleware.wire.dialects.openai_chat import OpenAIChat
from fairtrial.middleware.wire.dialects.openai_responses import OpenAIResponses
from fairtrial.middleware.wire.dialects.unknown import Unknown
from fairtrial.middleware.wire.dialects.vertex import VertexClaude

UNKNOWN: Final[Dialect] = Unknown()

DIALECTS: Final[tuple[Dialect, ...]] = (
    AnthropicMessages(),
    OpenAIChat(),
    OpenAIResponses(),
    Gemini(),
    Ollama(),
    VertexClaude(),
    Bedrock(),
)


def choose(method: str, path: str, provider: str | None = None) -> Dialect:
    """The dialect of a request; `path` is without trial token and query, `provider` is what the door leads to."""
    claiming = [dialect for dialect in DIALECTS if dialect.claims(method, path)]
    for dialect in claiming:
        if provider is not None and dialect.provider == provider:
            return dialect
    return claiming[0] if claiming else UNKNOWN
