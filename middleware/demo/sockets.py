"""The server's side of a WebSocket, as bytes: the stand-in speaks the Responses API over it too.

In: the headers of a handshake and what the client sends. Out: the bytes of the 101, the client's messages, and frames
to send. Sans-IO; framing and permessage-deflate are wsproto's. `link.py` reads, writes and ends.
"""

from __future__ import annotations

from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol, Opcode
from wsproto.utilities import generate_accept_token


class ServerSide:
    """One connection. `deflate` off refuses compression."""

    def __init__(self, key: str, offers: str, *, deflate: bool = True) -> None:
        agreed: list[Extension] = []
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines.append(f"Sec-WebSocket-Accept: {generate_accept_token(key.encode()).decode()}")
        offer = next(
            (part.strip() for part in offers.split(",") if part.strip().startswith(PerMessageDeflate.name)), ""
        )
        if deflate and offer:
            extension = PerMessageDeflate()
            accepted = extension.accept(offer)
            if isinstance(accepted, str):
                agreed.append(extension)
                lines.append("Sec-WebSocket-Extensions: " + "; ".join(filter(None, [extension.name, accepted])))
        self.head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        """The answer to the handshake."""
        self.replies = bytearray()
        """Pongs and the answer to a close, to be sent."""
        self.closed = False
        """The client has closed."""
        self._frames = FrameProtocol(client=False, extensions=agreed)
        self._parts = bytearray()

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete. Raises wsproto's ParseFailed for what are no frames."""
        messages: list[bytes] = []
        self._frames.receive_bytes(data)
        for frame in self._frames.received_frames():
            match frame.opcode:
                case Opcode.TEXT | Opcode.BINARY | Opcode.CONTINUATION:
                    payload = frame.payload
                    self._parts += payload.encode() if isinstance(payload, str) else bytes(payload)  # type: ignore[arg-type]
                    if frame.frame_finished and frame.message_finished:
                        messages.append(bytes(self._parts))
                        self._parts.clear()
                case Opcode.PING:
                    self.replies += self._frames.pong(bytes(frame.payload))  # type: ignore[arg-type]
                case Opcode.CLOSE:
                    self.replies += self._frames.close(1000)
                    self.closed = True
                case _:
                    pass
        return messages

    def text(self, payload: bytes) -> bytes:
        """One text message."""
        return bytes(self._frames.send_data(payload.decode("utf-8", "replace"), fin=True))
