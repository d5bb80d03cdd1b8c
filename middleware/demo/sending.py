"""An answer goes out, whole or as a stream, with the fault that hits it.

In: the answer, the fault, the link.  Out: bytes, and on the call how it ended.  Which fault hits which call is told by
`faults.py` and the server.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from fairtrial.middleware.demo.answers import Answer, error_body, error_frame, failed_frame, ping_frame
from fairtrial.middleware.demo.asked import Asked
from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.link import Link
from fairtrial.middleware.demo.reply import Reply
from fairtrial.middleware.demo.script import Step

_GARBAGE = "<html>\n<head><title>Welcome</title></head>\n<body><h1>It works!</h1></body>\n</html>\n"


async def instead(link: Link, fault: Fault, asked: Asked, call: Call, reply: Reply) -> bool:
    """Carry out a fault that replaces the answer or delays its head; True when nothing is left to send."""
    match fault.kind:
        case "close":
            call.ended = "fin"
        case "rst":
            await link.end("rst")
            call.ended = "rst"
        case "stall_headers":
            await link.pause(fault.duration_s)
            return False
        case "garbage":
            page = (fault.body or _GARBAGE).encode()
            await reply.whole(fault.shown_status, page, fault.headers, "text/html; charset=utf-8")
        case "http":
            body = error_body(asked.api, fault.shown_type, fault.shown_message, call.request_id)
            await reply.whole(fault.shown_status, body, fault.headers)
        case "json_error":
            await reply.whole(200, error_body(asked.api, fault.shown_type, fault.shown_message, call.request_id))
        case "error_event" | "failed" if not asked.stream:
            await reply.whole(200, error_body(asked.api, fault.shown_type, fault.shown_message, call.request_id))
        case _:
            return False
    return True


async def send_json(link: Link, ready: Answer, fault: Fault | None, call: Call, reply: Reply) -> None:
    """Send the answer as one body."""
    kind = fault.kind if fault else None
    if fault is None or kind not in {"stall", "cut", "slow"}:
        await reply.whole(200, ready.body)
        call.usage = ready.usage
        return
    body = await reply.head_for_whole(200, ready.body)
    if kind == "slow":
        size = max(1, -(-len(body) // 16))
        for start in range(0, len(body), size):
            await reply.write(body[start : start + size])
            await link.pause(fault.interval_s)
    else:
        half = len(body) // 2
        await reply.write(body[:half])
        if kind == "cut":
            await link.end(fault.ending)
            call.ended = fault.ending
            return
        await link.pause(fault.duration_s)
        await reply.write(body[half:])
    call.usage = ready.usage


async def send_stream(
    link: Link, ready: Answer, fault: Fault | None, asked: Asked, step: Step, call: Call, reply: Reply
) -> None:
    """Send the answer event by event."""
    await reply.head_for_stream()
    gap_s = fault.interval_s if fault and fault.kind == "slow" else step.event_gap_s
    at = fault.after_events if fault else -1
    for number, frame in enumerate((*ready.frames, b"")):
        if fault is not None and number == min(at, len(ready.frames)):
            match fault.kind:
                case "stall":
                    await link.pause(fault.duration_s)
                case "pings":
                    async for _ in _every(link, fault.interval_s, fault.duration_s):
                        await reply.chunk(ping_frame(asked.api))
                case "error_event":
                    await reply.chunk(error_frame(asked.api, fault.shown_type, fault.shown_message, number))
                    await reply.end_of_stream()
                    return
                case "failed":
                    said = (fault.shown_type, fault.shown_message, number)
                    await reply.chunk(failed_frame(asked, *said, reply.unique))
                    await reply.end_of_stream()
                    return
                case "short":
                    await reply.end_of_stream()
                    call.ended = "short"
                    return
                case "cut":
                    await reply.half_chunk(frame)
                    await link.end(fault.ending)
                    call.ended = fault.ending
                    return
                case _:
                    pass
        if not frame:
            break
        if number and gap_s:
            await link.pause(gap_s)
        await reply.chunk(frame)
        call.events_sent += 1
    await reply.end_of_stream()
    call.usage = ready.usage


async def _every(link: Link, interval_s: float, duration_s: float | None) -> AsyncIterator[None]:
    """Yield now and after each interval until the duration is over (None: until the client leaves)."""
    started = time.monotonic()
    while duration_s is None or time.monotonic() - started < duration_s:
        yield
        await link.pause(interval_s)
