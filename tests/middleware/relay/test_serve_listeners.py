"""Sockets of a serve: inherited ones go to their upstream, the others are bound, and none is left open by a failure."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fairtrial.middleware.core import config
from fairtrial.middleware.core.errors import ConfigError, HostError
from fairtrial.middleware.relay.serve import Listeners, open_listeners
from fairtrial.middleware.relay.serve_plan import ServePlan, plan

TWO = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}


def planned(**serve: object) -> ServePlan:
    return plan(config.load({"serve": {"port": 0, "health": "off", **serve}}, {}, {}), {"HOME": "/nowhere"}, "/")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(closing: ExitStack, host: str = "127.0.0.1") -> socket.socket:
    return closing.enter_context(socket.create_server((host, 0)))


def opened(closing: ExitStack, plan: ServePlan, inherited: list[tuple[str, socket.socket]]) -> Listeners:
    found = open_listeners(plan, inherited)
    for _, sock, _ in found:
        closing.enter_context(sock)
    return found


def test_a_name_may_have_several_sockets(closing: ExitStack) -> None:
    first, second = listening(closing), listening(closing)
    found = opened(closing, planned(upstreams=TWO), [("b", first), ("b", second)])
    by_name = {(upstream.name if upstream else "", inherited) for upstream, _, inherited in found}
    assert by_name == {("a", False), ("b", True)}
    assert len(found) == 3


def test_the_health_port_is_inherited_too(closing: ExitStack) -> None:
    sock = listening(closing)
    found = opened(closing, planned(upstreams=TWO, health="127.0.0.1:0"), [("health", sock)])
    assert [(upstream, mine is sock) for upstream, mine, _ in found if upstream is None] == [(None, True)]


def test_a_socket_that_belongs_to_nobody_is_refused(closing: ExitStack) -> None:
    with pytest.raises(ConfigError, match="belongs to no upstream") as caught:
        opened(closing, planned(upstreams=TWO), [("fairtrial.socket", listening(closing))])
    assert "FileDescriptorName=" in caught.value.remedy


def test_an_inherited_socket_beyond_loopback_wants_a_secret(closing: ExitStack) -> None:
    wide = listening(closing, "0.0.0.0")
    with pytest.raises(ConfigError, match="no secret is asked for"):
        opened(closing, planned(upstreams=TWO), [("a", wide)])
    found = opened(closing, planned(upstreams=TWO, access_token="0123456789abcdef"), [("a", wide)])
    assert len(found) == 2


def test_a_port_in_use_closes_what_was_opened_before(closing: ExitStack) -> None:
    taken = listening(closing)
    port = taken.getsockname()[1]
    other = listening(closing)
    free = other.getsockname()[1]
    other.close()
    made = planned(upstreams=TWO, listen={"a": f"127.0.0.1:{free}", "b": f"127.0.0.1:{port}"})
    with pytest.raises(HostError, match=f"The door for b cannot listen on 127.0.0.1:{port}") as caught:
        open_listeners(made, [])
    assert "serve.listen.b" in caught.value.remedy
    socket.create_server(("127.0.0.1", free)).close()
