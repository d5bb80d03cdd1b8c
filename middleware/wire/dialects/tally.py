"""What a reply has said so far: the shape that dialects fill and `wire/outcome.py` reads.  No content, no judgement."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairtrial.middleware.core.observations import ToolUse


@dataclass(slots=True)
class Tally:
    """What a reply has said so far."""

    content_type: str | None = None
    html: bool = False
    request_id: str | None = None
    provider_id: bool | None = None
    retry_after: float | None = None
    should_retry: bool | None = None
    error_type: str | None = None
    error_in_stream: bool = False
    error_names: list[str] = field(default_factory=list[str])
    model: str | None = None
    declined_model: str | None = None
    response_id: str | None = None
    stop_reason: str | None = None
    server_first_token: float | None = None
    server_queue: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    usage_partial: bool | None = None
    tool_calls: list[ToolUse] = field(default_factory=list[ToolUse])
    open_tool_calls: int = 0
    text_digest: str | None = None
    text_chars: int | None = None
    typed_digests: list[str] = field(default_factory=list[str])
    terminator: bool | None = None
    started_content: bool = False
    events: int | None = None
    pings: int | None = None
    first_token_ns: int | None = None
    unread_frames: int = 0
    """Frames that were too long or not what the API promises."""
