"""The engine's conversations: heads that change, tunnels, blindness, refusals, and faults of our own."""

import socket
import threading

import pytest

from fairtrial.middleware.relay.again import Said
from fairtrial.middleware.relay.framing import ResponseFramer
from fairtrial.middleware.relay.settings import RelaySettings
from fairtrial.middleware.wire.feed import Flag, Kind
from tests.middleware.relay.rig import (
    TOKEN,
    Rig,
    eventually,
    fill,
    read_all,
    read_exactly,
    read_head,
    request,
    reset,
    running,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def upgrade() -> bytes:
    return request("GET", "/v1/responses", b"", "Connection: keep-alive, Upgrade", "Upgrade: websocket")


def test_the_token_is_cut_the_base_path_prepended_and_nothing_else_changed(loop_kind: str) -> None:
    with running(loop_kind, base="/api/anthropic/") as rig:
        client = rig.client()
        client.sendall(
            b"POST /t/%s/v1/messages?beta=true HTTP/1.1\r\nhOsT:localhost:1\r\nA: 1\r\na:  2 \r\n"
            b"x-fairtrial-trial: t\r\nX-Claude: \xe9\r\nContent-Length: 2\r\n\r\n{}" % TOKEN.encode()
        )
        up = rig.upstream.accept()
        assert read_head(up) == (
            b"POST /api/anthropic/v1/messages?beta=true HTTP/1.1\r\nhOsT:127.0.0.1:%d\r\nA: 1\r\na:  2 \r\n"
            b"X-Claude: \xe9\r\nContent-Length: 2\r\n\r\n" % rig.upstream.port
        )
        client.close()
        rig.no_pair_open()


def test_the_trial_may_differ_from_request_to_request_and_junk_passes_without_one(rig: Rig) -> None:
    rig.relay.add_token("f" * 32, "trial-2")
    client = rig.client()
    up = None
    for path, wanted in (
        (b"/t/" + TOKEN.encode() + b"/a%3Ab", b"/a%3Ab"),
        (b"/t/" + b"f" * 32 + b"/b", b"/b"),
        (b"/t/" + b"e" * 32 + b"/c", b"/t/" + b"e" * 32 + b"/c"),
        (b"/d", b"/d"),
    ):
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        up = up or rig.upstream.accept()
        assert read_head(up).startswith(b"GET " + wanted + b" HTTP/1.1\r\n")
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    trials = [note.json() for note in rig.observer.of(Kind.NOTE, conn=1)]
    assert [(note["trial"], note["token"]) for note in trials] == [
        ("trial-1", "known"),
        ("trial-2", "known"),
        (None, None),
    ]
    assert [note.msg for note in rig.observer.of(Kind.NOTE, conn=1)] == [1, 2, 3]


def test_a_get_behind_a_head_is_framed_as_its_own_message(rig: Rig) -> None:
    client = rig.client()
    client.sendall(request("HEAD", "/api/hello") + request("GET", "/v1/models"))
    up = rig.upstream.accept()
    read_head(up)
    read_head(up)
    both = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + OK
    up.sendall(both)
    assert read_exactly(client, len(both)) == both
    client.close()
    rig.no_pair_open()
    assert rig.observer.joined(Kind.RESPONSE_DATA, msg=1) == b""
    assert rig.observer.joined(Kind.RESPONSE_DATA, msg=2) == b"ok"


def test_expect_100_continue_is_the_upstreams_to_answer(any_rig: Rig) -> None:
    """T68: not answered here."""
    client = any_rig.client()
    client.sendall(request("POST", "/v1/files", b"", "Expect: 100-continue", "Content-Length: 5"))
    up = any_rig.upstream.accept()
    assert b"Expect: 100-continue" in read_head(up)
    up.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert read_head(client) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(b"12345")
    assert read_exactly(up, 5) == b"12345"
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    any_rig.no_pair_open()
    interim, final = any_rig.observer.of(Kind.RESPONSE_HEAD)
    assert interim.flags == Flag.INTERIM
    assert final.flags == 0


def test_an_upgrade_becomes_a_tunnel_with_the_leftovers_of_both_heads(any_rig: Rig) -> None:
    client = any_rig.client()
    client.sendall(upgrade() + b"early bytes")
    up = any_rig.upstream.accept()
    read_head(up)
    up.settimeout(0.1)
    with pytest.raises(TimeoutError):  # held: nobody knows yet whose bytes these are
        up.recv(1)
    up.settimeout(10)
    up.sendall(SWITCH + b"PRI * HTTP/2.0")
    assert read_exactly(up, 11) == b"early bytes"
    assert read_exactly(client, len(SWITCH) + 14) == SWITCH + b"PRI * HTTP/2.0"
    client.sendall(b"\x00\xffGET / HTTP/1.1\n\n")
    assert read_exactly(up, 18) == b"\x00\xffGET / HTTP/1.1\n\n"
    up.sendall(b"down")
    assert read_exactly(client, 4) == b"down"
    client.close()
    read_all(up)
    up.close()
    any_rig.no_pair_open()
    assert any_rig.observer.joined(Kind.TUNNEL_UP) == b"early bytes\x00\xffGET / HTTP/1.1\n\n"
    assert any_rig.observer.joined(Kind.TUNNEL_DOWN) == b"PRI * HTTP/2.0down"


def test_a_tunnel_forwards_half_closes_and_ends_with_the_second(any_rig: Rig) -> None:
    """T10: a half-close is no disconnect."""
    client = any_rig.client()
    client.sendall(upgrade())
    up = any_rig.upstream.accept()
    read_head(up)
    up.sendall(SWITCH)
    read_exactly(client, len(SWITCH))
    client.sendall(b"stdin")
    client.shutdown(socket.SHUT_WR)
    assert read_all(up) == (b"stdin", "fin")
    if any_rig.upstream.tls:
        up.sendall(b"after the half-close")
        assert read_exactly(client, 20) == b"after the half-close"
        reset(up)
        assert read_all(client)[1] == "rst"
    else:
        up.sendall(b"after the half-close")
        up.close()
        assert read_all(client) == (b"after the half-close", "fin")
    any_rig.no_pair_open()


def test_a_tunnel_that_the_client_resets_is_reset_behind_its_last_bytes(rig: Rig) -> None:
    client = rig.client()
    client.sendall(upgrade())
    up = rig.upstream.accept()
    read_head(up)
    up.sendall(SWITCH)
    read_exactly(client, len(SWITCH))
    go = threading.Event()
    rig.loop.call_soon_threadsafe(go.wait)  # the relay sees bytes and RST at once
    client.sendall(b"x" * 30_000)
    reset(client)
    go.set()
    got, how = read_all(up)
    assert (len(got), how) == (30_000, "rst")
    rig.no_pair_open()


def test_a_refused_upgrade_gives_the_held_requests_back_to_http(rig: Rig) -> None:
    client = rig.client()
    client.sendall(upgrade() + request("GET", "/after"))
    up = rig.upstream.accept()
    read_head(up)
    refusal = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"
    up.sendall(refusal)
    assert read_exactly(client, len(refusal)) == refusal
    assert read_head(up).startswith(b"GET /after HTTP/1.1\r\n")
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    assert rig.observer.of(Kind.TUNNEL_UP) == []


def test_what_is_held_behind_an_upgrade_is_bounded(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(held_bytes=10_000)) as rig:
        client = rig.client()
        client.sendall(upgrade())
        up = rig.upstream.accept()
        read_head(up)
        sent = fill(client)
        held = rig.in_loop(lambda: next(iter(rig.relay._pairs.values()))._requests.held_bytes)
        assert isinstance(held, int)
        assert 10_000 < held < 200_000
        up.sendall(SWITCH)
        assert read_exactly(up, len(sent)) == sent
        reset(client)
        read_all(up)
        up.close()
        rig.no_pair_open()


def test_a_deep_pipeline_is_held_back(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(pipeline_depth=4)) as rig:
        client = rig.client()
        one = request("GET")
        sender = threading.Thread(target=client.sendall, args=(one * 3000,))
        sender.start()
        up = rig.upstream.accept()
        for _ in range(3000):
            read_head(up)
            up.sendall(OK)
            assert read_exactly(client, len(OK)) == OK
        sender.join(10)
        client.close()
        rig.no_pair_open()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /t/%s/x HTTP/1.1\nHost: a\n\n",
        b"GET /t/%s/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /t/%s/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ],
)
def test_under_run_a_bad_head_passes_blindly_with_its_prefix_cut(rig: Rig, head: bytes) -> None:
    client = rig.client()
    client.sendall(head % TOKEN.encode())
    up = rig.upstream.accept()
    host = b"127.0.0.1:%d" % rig.upstream.port
    expected = (
        (head % b"")
        .replace(b"/t//x", b"/x")
        .replace(b"Host: a", b"Host: " + host)
        .replace(b"Host: b", b"Host: " + host)
    )
    assert read_exactly(up, len(expected)) == expected
    client.sendall(b"\x00anything")
    assert read_exactly(up, 9) == b"\x00anything"
    up.sendall(b"no http at all")
    assert read_exactly(client, 14) == b"no http at all"
    client.shutdown(socket.SHUT_WR)
    assert read_all(up) == (b"", "fin")
    up.close()
    assert read_all(client) == (b"", "fin")
    rig.no_pair_open()
    assert rig.relay.counters.blind >= 1
    assert rig.observer.of(Kind.BLIND)[0].json()["side"] == "request"


def test_under_run_a_broken_chunked_body_passes_blindly(rig: Rig) -> None:
    client = rig.client()
    client.sendall(request("POST", "/x", b"", "Transfer-Encoding: chunked") + b"3\r\nabc\r\nnot a size\r\nrest")
    up = rig.upstream.accept()
    read_head(up)
    assert read_exactly(up, 24) == b"3\r\nabc\r\nnot a size\r\nrest"[:24]
    client.close()
    read_all(up)
    up.close()
    rig.no_pair_open()


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"ICY 200 OK\r\n\r\nmusic",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nwhat",
    ],
)
def test_a_response_that_cannot_be_framed_passes_blindly_and_later_requests_are_still_rewritten(
    rig: Rig, response: bytes
) -> None:
    client = rig.client()
    client.sendall(request("GET", "/one"))
    up = rig.upstream.accept()
    read_head(up)
    up.sendall(response)
    assert read_exactly(client, len(response)) == response
    client.sendall(request("GET", "/two"))
    assert read_head(up).startswith(b"GET /two HTTP/1.1\r\n")
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    read_all(up)
    rig.no_pair_open()
    assert rig.relay.counters.blind == 1
    assert rig.observer.of(Kind.BLIND)[0].json()["side"] == "response"


def test_a_shared_door_refuses_a_bad_head_before_the_upstream_is_dialled(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True)) as rig:
        client = rig.client()
        client.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        got, how = read_all(client)
        assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"two Host lines" in got
        assert how == "fin"
        client.close()
        rig.no_pair_open()
        assert rig.observer.of(Kind.DIAL) == []
        assert rig.relay.counters.refused == 1


def test_a_shared_door_refuses_behind_the_responses_in_flight(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True)) as rig:
        client = rig.client()
        client.sendall(request("GET", "/good") + b"GET /bad HTTP/1.1\nHost: x\n\n")
        up = rig.upstream.accept()
        assert read_head(up).startswith(b"GET /good")
        up.sendall(OK[:-1])
        assert read_exactly(client, len(OK) - 1) == OK[:-1]
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(10)
        up.sendall(OK[-1:])
        got, _ = read_all(client)
        assert got.startswith(b"kHTTP/1.1 400 Bad Request\r\n")
        assert read_all(up) == (b"", "fin")
        client.close()
        rig.no_pair_open()


def test_a_shared_door_aborts_both_sides_when_a_body_is_broken(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True)) as rig:
        client = rig.client()
        client.sendall(request("POST", "/x", b"", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
        up = rig.upstream.accept()
        read_head(up)
        read_exactly(up, 8)
        client.sendall(b"bad\nchunk")
        assert read_all(client) == (b"", "rst")
        assert read_all(up) == (b"", "rst")
        rig.no_pair_open()
        end = rig.observer.wait(Kind.RESPONSE_END)[0].json()
        assert (end["first"], end["how"]) == ("fairtrial", "aborted")


def test_a_shared_door_refuses_a_head_that_dawdles(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True, head_timeout_s=0.1)) as rig:
        client = rig.client()
        client.sendall(b"GET /x HTTP/1.1\r\nHost:")
        got, _ = read_all(client)
        assert b"dawdles" in got
        client.close()
        rig.no_pair_open()


def test_a_failed_dial_is_a_reset_without_a_byte(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        rig.upstream.listener.close()
        client = rig.client()
        client.sendall(request(body=b"{}"))
        assert read_all(client) == (b"", "rst")
        rig.no_pair_open()
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        assert (dial["ok"], dial["stage"], dial["errno"]) == (False, "connect", 111)
        close = rig.observer.wait(Kind.CLOSE)[0].json()
        assert (close["first"], close["how"], close["in_flight"]) == ("upstream", "dial", 1)


def test_a_request_whose_dial_failed_is_recorded_as_far_as_it_was_sent(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        rig.upstream.listener.close()
        client = rig.client()
        rig.observer.wait(Kind.OPEN)
        body = b"x" * 240_000  # four reads; the dial has failed before the last
        held = threading.Event()
        rig.loop.call_soon_threadsafe(held.wait)
        client.sendall(request(body=body))
        held.set()
        assert read_all(client) == (b"", "rst")
        rig.no_pair_open()
        assert rig.observer.joined(Kind.REQUEST_DATA) == body
        assert [record.json()["complete"] for record in rig.observer.of(Kind.REQUEST_END)] == [True]
        close = rig.observer.wait(Kind.CLOSE)[0].json()
        assert (close["first"], close["how"]) == ("upstream", "dial")


def test_the_upstream_is_dialled_at_the_first_head_not_at_accept(rig: Rig) -> None:
    client = rig.client()
    rig.observer.wait(Kind.OPEN)
    client.sendall(b"GET /t/unfinished HTTP/1.1\r\n")
    rig.upstream.listener.settimeout(0.15)
    with pytest.raises(TimeoutError):
        rig.upstream.listener.accept()
    client.close()
    rig.no_pair_open()


def test_a_fault_in_observing_costs_sight_and_not_a_byte(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: ResponseFramer, _data: bytes) -> list[object]:
        raise ZeroDivisionError

    monkeypatch.setattr(ResponseFramer, "take_whole", broken)
    client = rig.client()
    for _ in range(2):
        client.sendall(request("GET"))
        up = rig.upstream.open[0] if rig.upstream.open else rig.upstream.accept()
        read_head(up)
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    assert rig.relay.counters.swallowed == 1
    rig.relay.counters.swallowed = 0


def broken_reading(*_: object, **__: object) -> object:
    raise ZeroDivisionError


def test_a_fault_in_framing_requests_costs_sight_and_not_a_byte(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.middleware.relay.request_framing.read_request_head", broken_reading)
    client = rig.client()
    client.sendall(request("POST", "/v1/x", b"abc")[:20])
    rig.observer.wait(Kind.OPEN)
    client.sendall(request("POST", "/v1/x", b"abc")[20:])
    up = rig.upstream.accept()
    head = read_head(up)
    assert head.startswith(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % rig.upstream.port)
    assert read_exactly(up, 3) == b"abc"
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.sendall(b"whatever follows")
    assert read_exactly(up, 16) == b"whatever follows"
    client.close()
    up.close()
    rig.no_pair_open()
    (blind,) = rig.observer.wait(Kind.BLIND)
    assert blind.json() == {"side": "request", "reason": "a fault of fairtrial's in framing: ZeroDivisionError"}
    assert rig.relay.counters.blind == 1
    assert rig.relay.counters.swallowed in (1, 2)  # asked once more when the whole head came in one read
    rig.relay.counters.swallowed = 0


def test_a_fault_in_framing_requests_is_refused_at_a_shared_door(
    loop_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairtrial.middleware.relay.request_framing.read_request_head", broken_reading)
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True)) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        got, how = read_all(client)
        assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert how == "fin"
        client.close()
        rig.no_pair_open()
        assert rig.observer.of(Kind.DIAL) == []
        assert rig.relay.counters.swallowed > 0
        rig.relay.counters.swallowed = 0


@pytest.mark.parametrize("what", ["again", "__init__"])
def test_a_fault_in_remembering_a_head_costs_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(Said, what, broken_reading)
    client = rig.client()
    up = None
    for _ in range(3):
        client.sendall(request(body=b"{}"))
        up = up or rig.upstream.accept()
        assert b"fairtrial" not in read_head(up)
        assert read_exactly(up, 2) == b"{}"
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    assert rig.observer.joined(Kind.REQUEST_DATA) == b"{}" * 3
    assert rig.relay.counters.swallowed > 0
    rig.relay.counters.swallowed = 0


def test_a_head_that_is_said_again_is_asked_about_again_once_a_token_came(rig: Rig) -> None:
    client = rig.client()
    up = None
    other = "f" * 32
    for number in range(4):
        if number == 2:
            rig.in_loop(lambda: rig.relay.add_token(other, "trial-2"))
        client.sendall(request(body=b"{}").replace(TOKEN.encode(), other.encode()))
        up = up or rig.upstream.accept()
        wanted = b"POST /t/%s/v1/messages " % other.encode() if number < 2 else b"POST /v1/messages "
        assert read_head(up).startswith(wanted)
        assert read_exactly(up, 2) == b"{}"
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    trials = [record.json()["trial"] for record in rig.observer.of(Kind.NOTE) if record.json()["event"] == "trial"]
    assert trials == [None, "trial-2"]


def test_a_fault_in_the_engine_closes_both_sides(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.client()
    client.sendall(request("GET"))
    up = rig.upstream.accept()
    read_head(up)

    def broken(*_: object) -> tuple[bytes, str | None]:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.door, "rewrite", broken)
    client.sendall(request("GET"))
    assert read_all(client)[1] == "rst"
    assert read_all(up)[1] == "rst"
    rig.no_pair_open()
    assert rig.observer.wait(Kind.CLOSE)[0].json()["first"] == "fairtrial"
    assert rig.relay.counters.swallowed == 1
    rig.relay.counters.swallowed = 0


def test_a_dead_observer_changes_nothing_for_the_traffic(rig: Rig) -> None:
    rig.observer.sock.shutdown(socket.SHUT_RDWR)
    client = rig.client()
    up = None
    for _ in range(50):
        client.sendall(request("GET"))
        up = up or rig.upstream.accept()
        read_head(up)
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    eventually(lambda: rig.feed.stats.deaths == 1, "the death was not noticed")


def test_an_observer_that_does_not_read_costs_copies_and_not_a_byte(loop_kind: str) -> None:
    """T40: who does not take what is told holds nobody up."""
    with running(loop_kind) as rig:
        stuck, other = socket.socketpair()
        rig.in_loop(lambda: rig.feed.attach(stuck))
        client = rig.client()
        client.sendall(request("GET"))
        up = rig.upstream.accept()
        read_head(up)
        size = 40_000_000
        body = bytes(range(256)) * (size // 256)
        sender = threading.Thread(target=up.sendall, args=(b"HTTP/1.1 200 OK\r\n\r\n" + body,))
        sender.start()
        assert read_exactly(client, 19 + len(body))[19:] == body
        sender.join(10)
        assert rig.feed.stats.dropped_bytes > 20_000_000
        assert rig.feed.waiting_bytes < 10 * 1024 * 1024
        client.close()
        rig.no_pair_open()
        other.close()
