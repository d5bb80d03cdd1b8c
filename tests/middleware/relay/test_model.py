"""What a model door makes of targets and of bytes that are no head."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.ends import HangupWatch
from fairtrial.middleware.relay.heads import read_request_head
from fairtrial.middleware.relay.model import ModelDoor, RunTokens
from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings, Upstream

TOKENS = RunTokens()
TOKENS.add("tok", "trial-1")


def make_door(url: str, settings: RelaySettings | None = None) -> Iterator[ModelDoor]:
    loop = asyncio.new_event_loop()
    watch = HangupWatch(loop)
    upstream = Upstream.parse("x", url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield ModelDoor(upstream, Dialler(loop, watch, upstream, settings or RelaySettings()), listener, TOKENS)
    watch.close()
    loop.close()


@pytest.fixture
def door() -> Iterator[ModelDoor]:
    yield from make_door("http://up:81/api/anthropic")


@pytest.fixture
def root_door() -> Iterator[ModelDoor]:
    yield from make_door("https://up")


@pytest.fixture
def proxied_door() -> Iterator[ModelDoor]:
    yield from make_door(
        "http://up:81/base", RelaySettings(proxy=ProxySettings(http_proxy="http://user:word@proxy:3128"))
    )


def target_of(door: ModelDoor, target: bytes) -> tuple[bytes, str | None]:
    head, trial = door.rewrite(read_request_head(b"GET " + target + b" HTTP/1.1\r\nHost: door\r\n\r\n"))
    return head.split(b" ")[1], trial


@pytest.mark.parametrize(
    "target, wanted, trial",
    [
        (b"/t/tok/v1/messages?beta=true", b"/api/anthropic/v1/messages?beta=true", "trial-1"),
        (b"/t/tok/v1/a%3Ab", b"/api/anthropic/v1/a%3Ab", "trial-1"),
        (b"/t/tok", b"/api/anthropic", "trial-1"),
        (b"/t/tok/", b"/api/anthropic/", "trial-1"),
        (b"/t/tok?x=/t/tok/", b"/api/anthropic?x=/t/tok/", "trial-1"),
        (b"/t/tok.task-7/v1/messages", b"/api/anthropic/v1/messages", "trial-1"),
        (b"/t/tok.a.b%20c/v1", b"/api/anthropic/v1", "trial-1"),
        (b"/t/tok.?x", b"/api/anthropic?x", "trial-1"),
        (b"/t/.tok/v1", b"/api/anthropic/t/.tok/v1", None),
        (b"/t/tokk.a/v1", b"/api/anthropic/t/tokk.a/v1", None),
        (b"/t/unknown.tok/v1", b"/api/anthropic/t/unknown.tok/v1", None),
        (b"/t/unknown/v1", b"/api/anthropic/t/unknown/v1", None),
        (b"/t/", b"/api/anthropic/t/", None),
        (b"/v1", b"/api/anthropic/v1", None),
        (b"*", b"*", None),
        (b"http://elsewhere/t/tok/x", b"http://elsewhere/t/tok/x", None),
    ],
)
def test_the_path_carries_the_token_and_never_chooses_the_upstream(
    door: ModelDoor, target: bytes, wanted: bytes, trial: str | None
) -> None:
    assert target_of(door, target) == (wanted, trial)


def test_a_door_taken_for_a_proxy_answers_as_the_door(door: ModelDoor) -> None:
    assert target_of(door, b"http://127.0.0.1:%d/t/tok/v1" % door.port) == (b"/api/anthropic/v1", "trial-1")
    assert target_of(door, b"http://127.0.0.1:%d" % door.port) == (b"/api/anthropic/", None)
    assert target_of(door, b"http://127.0.0.1:%d1/x" % door.port)[0].startswith(b"http://")


def test_an_upstream_at_the_root_gets_a_path_of_its_own(root_door: ModelDoor) -> None:
    assert target_of(root_door, b"/t/tok")[0] == b"/"
    assert target_of(root_door, b"/t/tok?a")[0] == b"/?a"
    assert target_of(root_door, b"/t/tok//x/../y")[0] == b"//x/../y"


def test_behind_a_proxy_for_plain_http_targets_are_absolute_and_credentials_are_added(proxied_door: ModelDoor) -> None:
    head, trial = proxied_door.rewrite(read_request_head(b"GET /t/tok/v1 HTTP/1.1\r\nHost: door\r\nA: b\r\n\r\n"))
    assert trial == "trial-1"
    assert head == (
        b"GET http://up:81/base/v1 HTTP/1.1\r\nProxy-Authorization: Basic dXNlcjp3b3Jk\r\nHost: up:81\r\nA: b\r\n\r\n"
    )


@pytest.mark.parametrize("line", [b"GET http://169.254.169.254/latest HTTP/1.1", b"CONNECT intranet:22 HTTP/1.1"])
def test_somebody_elses_target_gets_no_credentials_of_the_proxy(proxied_door: ModelDoor, line: bytes) -> None:
    head, trial = proxied_door.rewrite(read_request_head(line + b"\r\nHost: door\r\n\r\n"))
    assert (head, trial) == (line + b"\r\nHost: up:81\r\n\r\n", None)


def test_the_url_for_the_child_holds_the_token(door: ModelDoor) -> None:
    assert door.url("tok") == f"http://127.0.0.1:{door.port}/t/tok"


@pytest.mark.parametrize(
    "rest, wanted",
    [
        (
            b"GET /t/tok/x HTTP/1.1\nHOST: door\nA: host: y\n\nHost: body\n",
            b"GET /api/anthropic/x HTTP/1.1\nHOST: up:81\nA: host: y\n\nHost: body\n",
        ),
        (b"\x16\x03\x01\x00", b"\x16\x03\x01\x00"),
        (b"", b""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (b"GET /t/tok/half", b"GET /api/anthropic/half"),
    ],
)
def test_bytes_that_are_no_good_head_keep_everything_but_prefix_and_host(
    door: ModelDoor, rest: bytes, wanted: bytes
) -> None:
    assert door.rewrite_loosely(rest) == wanted
