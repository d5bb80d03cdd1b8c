"""A head that is said again goes upstream as if it were judged and rewritten anew, or is left to the general way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.relay.again import Said, can_be_said_again
from fairtrial.middleware.relay.heads import BadHead, read_request_head, rewrite

LINES = (
    b"Host: h", b"X-A: 1", b"cOntent-Length:  %d ", b"X-Content-Length: 7", b"x-fairtrial-trial: t",
    b"X-Fairtrial-Content-Length: 3",
)  # fmt: skip


def head_of(order: list[bytes], target: bytes, length: object) -> bytes:
    lines = b"\r\n".join(order).replace(b"%d", str(length).encode())
    return b"POST %s HTTP/1.1\r\n" % target + lines + b"\r\n\r\n"


def sent(data: bytes, extra: bytes = b"") -> bytes | None:
    """What the general way sends upstream for one read that is one whole request; None if it is not one."""
    end = data.index(b"\r\n\r\n") + 4
    try:
        head = read_request_head(data[:end])
    except BadHead:
        return None
    if head.length_bytes != len(data) - end:
        return None
    return rewrite(head, b"/base/v1", b"api.example", extra) + data[end:]


def said_of(raw: bytes, extra: bytes = b"") -> Said:
    head = read_request_head(raw)
    return Said(head, rewrite(head, b"/base/v1", b"api.example", extra), "trial-1", 7)


@given(
    order=st.permutations(LINES),
    other=st.permutations(LINES),
    targets=st.lists(st.sampled_from((b"/a", b"/b", b"/cc")), min_size=2, max_size=2),
    first=st.integers(1, 120),
    lengths=st.lists(st.integers(0, 120), min_size=1, max_size=8),
    extra=st.sampled_from((b"", b"Proxy-Authorization: Basic eA==\r\n")),
    off=st.integers(-1, 1),
)
def test_what_is_sent_is_what_the_general_way_sends(
    order: list[bytes],
    other: list[bytes],
    targets: list[bytes],
    first: int,
    lengths: list[int],
    extra: bytes,
    off: int,
) -> None:
    said = said_of(head_of(order, targets[0], first), extra)
    for length in lengths:
        body = b"0123456789" * 20
        for lines, target in ((order, targets[0]), (other, targets[0]), (order, targets[1])):
            data = head_of(lines, target, length) + body[: max(0, length + off)]
            new = said.again(data)
            if new is not None:
                assert new == sent(data, extra)
            elif lines == order and target == targets[0] and off == 0:
                assert not length or len(str(length)) != len(str(first))


FREE = (b"Idempotency-Key: ", b"X-Fairtrial-Key: ", b"Host: ", b"Connection: ", b"Key: ", b"content-length-key: ")


@given(
    order=st.permutations((b"Host: h", b"X-A: 1", b"Content-Length: %d", b"x-fairtrial-trial: t", b"Key: 111")),
    name=st.sampled_from(FREE),
    at=st.integers(0, 5),
    values=st.lists(st.text("0123456789", min_size=3, max_size=3).map(str.encode), min_size=3, max_size=6),
    odd=st.sampled_from((b"a b", b"a\rb", b"a\nb", b"\r\nX", b"a\0b", b"a\x7fb", b"\xe9aa", b" aa", b"aa ", b"aa")),
)
def test_a_value_that_is_new_each_time_is_passed_on_as_the_general_way_does(
    order: list[bytes], name: bytes, at: int, values: list[bytes], odd: bytes
) -> None:
    said: Said | None = None
    for value in (*values, odd, values[0]):
        data = head_of([*order[:at], name + value, *order[at:]], b"/a", 3) + b"abc"
        new = said.again(data) if said is not None else None
        if new is not None:
            assert new == sent(data)
            continue
        try:
            head = read_request_head(data[:-3])
        except BadHead:
            continue
        if can_be_said_again(head):
            said = Said(head, rewrite(head, b"/base/v1", b"api.example"), None, 0, said)


@pytest.mark.parametrize("name", FREE)
def test_a_value_that_is_new_each_time_is_known_as_such_from_the_second_head_on(name: bytes) -> None:
    may_be_free = name in (b"Idempotency-Key: ", b"Key: ", b"content-length-key: ")
    said: Said | None = None
    for number in range(5):
        lines = [b"Content-Length: %d", name + b"key-%03d" % number]
        raw = head_of(lines if name == b"Host: " else [b"Host: h", *lines], b"/a", 4)
        new = said.again(raw + b"body") if said is not None else None
        assert (new is not None) == (may_be_free and number > 1)
        if new is None:
            head = read_request_head(raw)
            said = Said(head, rewrite(head, b"/base/v1", b"api.example"), None, 0, said)
        else:
            assert new == sent(raw + b"body")


@pytest.mark.parametrize("odd", [b"a b", b"a\rb", b"a\nb", b"\r\nX", b"a\0b", b"a\x7fb", b"\xe9aa", b" aa", b"aa "])
def test_a_free_value_ends_no_line_and_no_judgement(odd: bytes) -> None:
    said: Said | None = None
    for value in (b"123", b"456"):
        head = read_request_head(head_of([b"Host: h", b"Content-Length: %d", b"Key: " + value], b"/a", 4))
        said = Said(head, rewrite(head, b"/base/v1", b"api.example"), None, 0, said)
    assert said is not None
    assert said.again(head_of([b"Host: h", b"Content-Length: %d", b"Key: 789"], b"/a", 4) + b"body") is not None
    assert said.again(head_of([b"Host: h", b"Content-Length: %d", b"Key: " + odd], b"/a", 4) + b"body") is None


def test_a_line_of_ours_that_looks_like_the_one_before_it_is_no_free_value() -> None:
    """What is taken out must not be taken for what stays, though both have the same bytes at their end."""
    said: Said | None = None
    for kept, ours in ((b"1", b"1"), (b"2", b"2"), (b"2", b"3")):
        lines = [b"Host: h", b"Key: " + kept, b"x-fairtrial-Key: " + ours, b"Content-Length: %d"]
        data = head_of(lines, b"/a", 4) + b"body"
        new = said.again(data) if said is not None else None
        assert new in (None, sent(data))
        head = read_request_head(data[:-4])
        said = Said(head, rewrite(head, b"/base/v1", b"api.example"), None, 0, said)


def test_heads_that_differ_in_many_values_are_not_the_same_head() -> None:
    names = [b"X-%d: " % number for number in range(5)]
    said: Said | None = None
    for value in (b"1", b"2", b"3"):
        raw = head_of([b"Host: h", b"Content-Length: %d", *(name + value for name in names)], b"/a", 4)
        assert said is None or said.again(raw + b"body") is None
        head = read_request_head(raw)
        said = Said(head, rewrite(head, b"/base/v1", b"api.example"), None, 0, said)


@pytest.mark.parametrize(
    "digits", [b"+9", b"1_", b"-1", b"0x", b"\xb2\xb2", b"9,", b"", b"00000000000000000009\r\nX: "]
)
def test_a_length_that_is_no_number_is_left_to_the_general_way(digits: bytes) -> None:
    good = head_of(list(LINES), b"/a", 9)
    said = said_of(good)
    assert said.again(good + b"b" * 9) is not None
    bad = good.replace(b"Length:  9 ", b"Length:  " + digits + b" ")
    assert bad != good
    assert said.again(bad + b"b" * 9) is None


def test_more_or_less_than_one_request_is_left_to_the_general_way() -> None:
    good = head_of(list(LINES), b"/a", 9) + b"b" * 9
    said = said_of(good[:-9])
    for data in (b"", good[:-1], good + b"G", good + good, b"\r\n" + good, good[:40]):
        assert said.again(data) is None
    new = said.again(good)
    assert new is not None
    assert b"fairtrial" not in new.lower()


def test_it_keeps_whose_the_head_is() -> None:
    raw = head_of(list(LINES), b"/a", 9)
    said = said_of(raw)
    assert (said.head_bytes, said.method, said.trial, said.generation) == (len(raw), b"POST", "trial-1", 7)


def test_only_a_head_with_one_length_and_no_tunnel_behind_it_can_be_said_again() -> None:
    lines = b" HTTP/1.1\r\nHost: h\r\n"
    assert can_be_said_again(read_request_head(b"POST /" + lines + b"Content-Length: 1\r\n\r\n"))
    for method, line in (
        (b"GET", b""),
        (b"POST", b"Content-Length: 0\r\n"),
        (b"POST", b"Transfer-Encoding: chunked\r\n"),
        (b"POST", b"Content-Length: 1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"),
        (b"\r\nPOST", b"Content-Length: 1\r\n"),
    ):
        assert not can_be_said_again(read_request_head(method + b" /" + lines + line + b"\r\n"))
