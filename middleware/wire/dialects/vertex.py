"""Claude at Vertex AI: `POST …/publishers/anthropic/models/{model}:rawPredict` and `:streamRawPredict`.

In and out: see `base.py`.  Bodies and events are those of Anthropic Messages, and are read by that dialect: the
terminator is `message_stop`, or a `message_delta` with a stop reason.  What differs: the model stands in the path, a
stream is asked for by the path, refusals before the stream are Google's (`status` RESOURCE_EXHAUSTED, RetryInfo) or
Anthropic's, and no `request-id` is sent, so its absence says nothing.  `count-tokens:rawPredict` counts.

Not read: Gemini at Vertex (the Gemini dialect does), other publishers, batch prediction.

**Source:** reference page model-api.md section 1.3.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base, gemini
from fairtrial.middleware.wire.dialects.anthropic_messages import AnthropicMessages
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead

_PATH: Final = re.compile(r"/publishers/anthropic/models/([^/:]+):(rawPredict|streamRawPredict)\Z")
_COUNTING: Final = "count-tokens"
_MESSAGES: Final = AnthropicMessages()


class VertexClaude:
    """The dialect."""

    name = "vertex_claude"
    provider = "vertex"

    def claims(self, method: str, path: str) -> bool:
        """Predictions of Anthropic's models."""
        return method == "POST" and _PATH.search(unquote(path)) is not None

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Anthropic's facts, with the model and the wish for a stream from the path."""
        found = _PATH.search(unquote(path))
        if found is None:
            return base.bare_facts(head, "other")
        model, method = found.groups()
        if model == _COUNTING:
            return _MESSAGES.read_request(head, "/v1/messages/count_tokens", body)
        facts = _MESSAGES.read_request(head, "/v1/messages", body)
        return msgspec.structs.replace(
            facts, model=model[:200], stream=method == "streamRawPredict" or facts.stream is True
        )

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """Anthropic's reader, or one for a refusal of either house."""
        if head.status >= 400:
            return _Refusal(base.head_tally(head, None), status=head.status)
        reader = _MESSAGES.read_reply(head, request)
        reader.tally.provider_id = None
        return reader


class _Refusal(JsonReply):
    def _read(self, body: bytes) -> bool:  # noqa: ARG002 - a status of 400 or more has an error body
        return False

    def _read_error(self, body: bytes) -> None:
        try:
            value: object = msgspec.json.decode(body[: base.MAX_ARGUMENT_BYTES])
        except base.UNREADABLE:
            return
        if isinstance(value, list) and value:
            value = value[0]
        if not isinstance(value, dict):
            return
        error = value.get("error", value)
        if isinstance(error, dict) and "status" in error:
            gemini.note_error(self.tally, error, in_stream=False)
        else:
            base.note_error(self.tally, error, in_stream=False)
