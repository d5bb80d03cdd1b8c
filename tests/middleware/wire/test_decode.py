"""Encodings are undone on the copy, in any pieces, within bounds, and never with an exception."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire.decode import MAX_DECODED_BYTES, MAX_RATIO, RATIO_FROM_BYTES, BodyDecoder, decode_whole

TEXT = b'{"delta":"hello world"}\n' * 300


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


ENCODED = {
    "gzip": gzip.compress(TEXT[:3000]) + gzip.compress(TEXT[3000:]),
    "deflate": zlib.compress(TEXT),
    "Deflate": raw_deflate(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT[:3000]) + zstandard.ZstdCompressor().compress(TEXT[3000:]),
    "gzip, br": brotli.compress(gzip.compress(TEXT)),
    "identity": TEXT,
}


def decoded(encoding: str | None, pieces: list[bytes]) -> tuple[bytes, str | None]:
    decoder = BodyDecoder(encoding)
    return b"".join(out for piece in pieces for out in decoder.feed(piece)), decoder.failed


@given(encoding=st.sampled_from(sorted(ENCODED)), size=st.integers(1, 4000))
def test_any_cut_is_decoded_to_the_same_bytes(encoding: str, size: int) -> None:
    body = ENCODED[encoding]
    assert decoded(encoding, [body[i : i + size] for i in range(0, len(body), size)]) == (TEXT, None)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_given_up_within_the_bounds(encoding: str) -> None:
    zeros = bytes(200 << 20)
    pack: dict[str, Callable[[], bytes]] = {
        "gzip": lambda: gzip.compress(zeros),
        "deflate": lambda: zlib.compress(zeros),
        "br": lambda: brotli.compress(zeros, quality=4),
        "zstd": lambda: zstandard.ZstdCompressor().compress(zeros),
    }
    body = pack[encoding]()
    decoder = BodyDecoder(encoding)
    largest = total = 0
    for i in range(0, len(body), 4096):
        for piece in decoder.feed(body[i : i + 4096]):
            largest, total = max(largest, len(piece)), total + len(piece)
    assert decoder.failed is not None
    assert total <= 4 * RATIO_FROM_BYTES < MAX_DECODED_BYTES
    assert largest <= 1 << 20


def test_a_body_that_is_no_bomb_is_given_up_at_the_bound_too() -> None:
    """At a ratio of about 100, as of dull text, the bytes themselves are counted."""
    packed = gzip.compress(b"".join(b"%08d" % (n // 40) for n in range((72 << 20) // 8)), 6)
    assert MAX_DECODED_BYTES // len(packed) < MAX_RATIO
    decoder = BodyDecoder("gzip")
    total = sum(len(piece) for i in range(0, len(packed), 65536) for piece in decoder.feed(packed[i : i + 65536]))
    assert decoder.failed == f"more than {MAX_DECODED_BYTES} decoded bytes"
    assert total <= MAX_DECODED_BYTES


@given(encoding=st.sampled_from(["gzip", "deflate", "br", "zstd"]), body=st.binary(max_size=300))
def test_corrupt_bodies_never_raise(encoding: str, body: bytes) -> None:
    decoded(encoding, [body, body])


def test_an_unknown_encoding_is_named_and_gives_nothing() -> None:
    assert decoded("rot13", [b"abc"]) == (b"", "content-encoding rot13 is not known")
    assert decode_whole(b"abc", "rot13") == (None, "content-encoding rot13 is not known")


def test_a_body_without_an_encoding_passes_as_it_is() -> None:
    assert decode_whole(b"abc", None) == (b"abc", None)
    assert BodyDecoder("identity").plain
