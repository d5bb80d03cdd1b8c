"""Both directions of a WebSocket are read as a real peer writes them, deflated or not, and never beyond the bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol, Opcode

from fairtrial.middleware.wire.websocket import MessageReader

AGREED = [None, "permessage-deflate", "permessage-deflate; client_no_context_takeover; server_no_context_takeover"]
WINDOWS = "permessage-deflate; server_max_window_bits=9; client_max_window_bits=10"


def peer(*, client: bool, extensions: str | None) -> FrameProtocol:
    """Writes frames as this side does."""
    agreed: list[Extension] = []
    if extensions is not None:
        deflate = PerMessageDeflate()
        deflate.finalize(extensions)
        agreed.append(deflate)
    return FrameProtocol(client=client, extensions=agreed)


def written(messages: list[str], *, client: bool, extensions: str | None) -> bytes:
    """Each message in two frames, a ping in the middle."""
    writer = peer(client=client, extensions=extensions)
    out = b""
    for text in messages:
        half = len(text) // 2
        out += bytes(writer.send_data(text[:half], fin=False)) + bytes(writer.ping(b"are you there"))
        out += bytes(writer.send_data(text[half:], fin=True))
    return out


def reader(*, client: bool, extensions: str | None, max_bytes: int = 1 << 20) -> MessageReader:
    return MessageReader(from_client=client, extensions=extensions, max_bytes=max_bytes)


@given(
    messages=st.lists(st.text(max_size=300), max_size=4),
    client=st.booleans(),
    extensions=st.sampled_from([*AGREED, WINDOWS]),
    size=st.integers(1, 200),
)
def test_any_cut_gives_the_messages(messages: list[str], client: bool, extensions: str | None, size: int) -> None:
    body = written(messages, client=client, extensions=extensions)
    framer = reader(client=client, extensions=extensions)
    found = [m for i in range(0, len(body), size) for m in framer.feed(body[i : i + size])]
    assert [m.decode() for m in found] == messages
    assert (framer.failed, framer.pending, framer.skipped) == (None, False, 0)


def test_a_close_ends_the_reading() -> None:
    writer = peer(client=True, extensions=None)
    body = bytes(writer.send_data("a", fin=True)) + bytes(writer.close(1000, "bye")) + b"anything"
    framer = reader(client=True, extensions=None)
    assert (framer.feed(body), framer.closed, framer.failed) == ([b"a"], True, None)
    assert framer.feed(b"more") == []


def test_a_message_beyond_the_bound_is_skipped_and_the_next_is_read() -> None:
    for extensions in AGREED:
        body = written(["x" * 5000, "next"], client=False, extensions=extensions)
        framer = reader(client=False, extensions=extensions, max_bytes=1000)
        assert (framer.feed(body), framer.skipped, framer.failed) == ([b"next"], 1, None)


def test_a_bomb_is_given_up() -> None:
    writer = peer(client=False, extensions=AGREED[1])
    bomb = bytes(writer.send_data(b"\0" * (64 << 20), fin=True))
    framer = reader(client=False, extensions=AGREED[1], max_bytes=8 << 20)
    assert framer.feed(bomb) == []
    assert framer.failed is not None
    assert framer._out < 8 << 20


@pytest.mark.parametrize("extensions", ["x-own", "permessage-deflate; client_max_window_bits=many"])
def test_an_extension_that_is_not_known_is_not_guessed_at(extensions: str) -> None:
    framer = reader(client=True, extensions=extensions)
    assert framer.failed is not None
    assert framer.feed(b"\x81\x80\0\0\0\0") == []


def test_frames_of_the_other_side_are_no_frames_of_this_one() -> None:
    framer = reader(client=True, extensions=None)
    assert framer.feed(written(["a"], client=False, extensions=None)) == []
    assert framer.failed is not None


@given(junk=st.lists(st.binary(max_size=60), max_size=6), client=st.booleans(), extensions=st.sampled_from(AGREED))
def test_junk_never_raises(junk: list[bytes], client: bool, extensions: str | None) -> None:
    framer = reader(client=client, extensions=extensions)
    for piece in junk:
        framer.feed(piece)


def test_binary_messages_are_messages() -> None:
    writer = peer(client=False, extensions=None)
    body = bytes(writer._serialize_frame(Opcode.BINARY, b"\xff\x00"))
    assert reader(client=False, extensions=None).feed(body) == [b"\xff\x00"]
