"""One direction of a WebSocket: the bytes of a tunnel become whole messages, however the bytes were cut.

In: bytes that one side sent after the 101, and the `Sec-WebSocket-Extensions` that the server agreed to.  Out: the
payload of each text or binary message, unmasked and inflated.  What this module does not do: judge the handshake, pair
the two directions, check UTF-8 (JSON decoders do), or answer pings; control frames are passed over, a close is noted.

It fails open: bytes that are no frames, an extension that is not known, or a payload that grows beyond all measure end
the reading, and `failed` says why.  Bounds: a message of more than `max_bytes` is skipped and counted in `skipped`;
inflated bytes are at most 600 times the bytes on the wire once 4 MiB are out, and one slice of 1 KiB is inflated at a
time, so what a bomb can make at once is 1 MiB.

**Source:** RFC 6455 sections 5 and 7, RFC 7692; framing by wsproto.
"""

from __future__ import annotations

import zlib
from typing import Final

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

from fairtrial.middleware.wire.decode import MAX_RATIO, RATIO_FROM_BYTES

_SLICE_BYTES: Final = 1 << 10
_NAME: Final = "permessage-deflate"
_DATA: Final = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION})


class _Inflate(Extension):
    """permessage-deflate for reading only.

    wsproto's own forgets that a message is deflated when a control frame stands between two of its frames.
    """

    name = _NAME

    def __init__(self, side: str, parameters: str) -> None:
        self._bits = zlib.MAX_WBITS
        self._forgets = False
        for parameter in parameters.split(";"):
            key, _, value = parameter.strip().partition("=")
            if key == f"{side}_max_window_bits":
                self._bits = int(value.strip(' "'))
                if not 8 <= self._bits <= zlib.MAX_WBITS:
                    raise ValueError(value)
            elif key == f"{side}_no_context_takeover":
                self._forgets = True
        self._stream = zlib.decompressobj(-max(9, self._bits))
        self._deflated: bool | None = None
        self._control = False

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool | str:
        return False  # nothing is negotiated here

    def frame_inbound_header(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002 - the library's signature
        opcode: Opcode,
        rsv: RsvBits,
        payload_length: int,  # noqa: ARG002
    ) -> CloseReason | RsvBits:
        self._control = opcode.iscontrol()
        if self._control:
            return RsvBits(False, False, False)
        if self._deflated is None:
            self._deflated = rsv.rsv1
        return RsvBits(True, False, False)

    def frame_inbound_payload_data(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002
        data: bytes,
    ) -> bytes | CloseReason:
        return data if self._control or not self._deflated else self._inflated(data)

    def frame_inbound_complete(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002
        fin: bool,
    ) -> bytes | CloseReason | None:
        if self._control or not fin:
            return None
        deflated, self._deflated = self._deflated, None
        if not deflated:
            return None
        # RFC 7692 section 7.2.2: the sender took these four bytes off.
        last = self._inflated(b"\0\0\xff\xff")
        if self._forgets:
            self._stream = zlib.decompressobj(-max(9, self._bits))
        return last

    def _inflated(self, data: bytes) -> bytes | CloseReason:
        if self._stream.eof:
            self._stream = zlib.decompressobj(-max(9, self._bits))
        try:
            return self._stream.decompress(data)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA


class MessageReader:
    """Incremental; one per direction.  `from_client`: the side whose frames are masked."""

    def __init__(self, *, from_client: bool, extensions: str | None, max_bytes: int) -> None:
        self.failed: str | None = None
        """Why nothing more is read; None while all is well."""
        self.skipped = 0
        """Messages that were longer than the bound and were not handed out."""
        self.closed = False
        """This side said that it closes."""
        self._max_bytes = max_bytes
        self._in = 0
        self._out = 0
        self._carry = bytearray()  # no list of pieces: a message may come as millions of frames
        self._within = False
        self._skipping = False
        agreed: list[Extension] = []
        for offer in (part.strip() for part in (extensions or "").split(",")):
            if not offer:
                continue
            name, _, said = offer.partition(";")
            if name.strip().lower() != _NAME or agreed:
                self.failed = f"extension {offer[:32]} is not known"
                continue
            side = "client" if from_client else "server"
            try:
                agreed.append(_Inflate(side, said))
            except ValueError:
                self.failed = f"the parameters of {_NAME} cannot be read"
        self._deflates = bool(agreed)
        self._decoder = FrameDecoder(client=not from_client, extensions=agreed)

    @property
    def pending(self) -> bool:
        """Whether a message is half there."""
        return self._within or self._skipping

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes, give the messages that they complete."""
        messages: list[bytes] = []
        step = _SLICE_BYTES if self._deflates else max(1, len(chunk))
        for start in range(0, len(chunk), step):
            if self.failed is not None or self.closed:
                break
            piece = chunk[start : start + step]
            self._in += len(piece)
            try:
                self._read(piece, messages)
            except Exception as error:  # noqa: BLE001 - bytes of strangers in a library: the copy is given up
                self._fail(f"cannot be framed: {type(error).__name__}")
        return messages

    def _read(self, piece: bytes, messages: list[bytes]) -> None:
        decoder = self._decoder
        decoder.receive_bytes(piece)
        while self.failed is None and (frame := decoder.process_buffer()) is not None:
            # The decoder calls the later pieces of any frame a continuation, also those of a control frame: these are
            # at most 125 bytes and come whole.
            if frame.opcode is Opcode.CLOSE:
                self.closed = True
                return
            if frame.opcode not in _DATA:
                continue
            payload = frame.payload if isinstance(frame.payload, bytes) else b""
            self._out += len(payload)
            if self._out > RATIO_FROM_BYTES and self._out > MAX_RATIO * self._in:
                self._fail(f"more than {MAX_RATIO} times its encoded size")
                return
            self._keep(payload)
            if frame.frame_finished and frame.message_finished:
                if not self._skipping:
                    messages.append(bytes(self._carry))
                self._let_go()

    def _keep(self, payload: bytes) -> None:
        if self._skipping:
            return
        if len(self._carry) + len(payload) > self._max_bytes:
            self._let_go()
            self._skipping = True
            self.skipped += 1
        else:
            self._within = True
            self._carry += payload

    def _let_go(self) -> None:
        self._carry.clear()
        self._within = self._skipping = False

    def _fail(self, why: str) -> None:
        self.failed = why
        self._let_go()
