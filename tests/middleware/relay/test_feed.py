"""The feed never blocks, never raises, and counts every loss."""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time

import pytest

from fairtrial.middleware.relay.feed import FLUSH_BYTES, RESERVE_BYTES, FeedSender, LoopLag, suspended_ns
from fairtrial.middleware.wire.feed import HEAD, Decoder, Flag, Kind, Record


def pair() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    far.setblocking(False)
    return near, far


def drain(far: socket.socket, decoder: Decoder) -> list[Record]:
    records: list[Record] = []
    try:
        while data := far.recv(1 << 20):
            records += decoder.feed(data)
    except BlockingIOError:
        pass
    return records


async def until(far: socket.socket, decoder: Decoder, count: int) -> list[Record]:
    records: list[Record] = []
    deadline = time.monotonic() + 5
    while len(records) < count:
        records += drain(far, decoder)
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        await asyncio.sleep(0.001)
    return records


async def test_records_arrive_in_order_in_a_batch() -> None:
    near, far = pair()
    feed = FeedSender(near)
    for number in range(100):
        feed.record(Kind.RESPONSE_DATA, b"x" * number, conn=1, msg=number, flags=0, t_ns=number + 1)
    feed.record_json(Kind.NOTE, {"event": "e"})
    records = await until(far, Decoder(), 101)
    assert [record.msg for record in records[:100]] == list(range(100))
    assert [record.t_ns for record in records[:100]] == list(range(1, 101))
    assert records[100].json() == {"event": "e"}
    feed.close()
    far.close()


async def test_when_full_body_bytes_go_first_and_control_records_stay() -> None:
    feed = FeedSender(None, limit_bytes=10_000)
    for number in range(20):
        feed.record(Kind.RESPONSE_HEAD, b"head", conn=1, msg=number)
        feed.record(Kind.RESPONSE_DATA, b"d" * 1000, conn=1, msg=number)
    near, far = pair()
    feed.attach(near)
    records = await until(far, Decoder(), 40)
    heads = [record for record in records if record.kind == Kind.RESPONSE_HEAD]
    whole = [record for record in records if record.kind == Kind.RESPONSE_DATA and not record.flags]
    dropped = [record for record in records if record.flags & Flag.DROPPED]
    assert len(heads) == 20
    assert len(whole) + len(dropped) == 20
    assert dropped
    assert all(int.from_bytes(record.payload, "big") == 1000 for record in dropped)
    assert feed.stats.dropped_bytes == 1000 * len(dropped)
    feed.close()
    far.close()


async def test_what_finds_no_room_at_all_is_counted_in_a_lost_record() -> None:
    feed = FeedSender(None, limit_bytes=1000)
    payload = b"h" * 50_000
    for _ in range(100):
        feed.record(Kind.RESPONSE_HEAD, payload)
    near, far = pair()
    feed.attach(near)
    decoder = Decoder()
    kept = RESERVE_BYTES // 50_000
    records = await until(far, decoder, kept)
    feed.record_json(Kind.NOTE, {"event": "room again"})
    while not any(record.kind == Kind.LOST for record in records):
        records += await until(far, decoder, 1)
    lost = sum(int(str(record.json()["records"])) for record in records if record.kind == Kind.LOST)
    heads = sum(record.kind == Kind.RESPONSE_HEAD for record in records)
    assert lost + heads == 100
    assert feed.stats.lost_records == lost
    assert feed.stats.lost_bytes == lost * (50_000 + HEAD.size)
    feed.close()
    far.close()


async def test_a_slow_reader_gets_whole_records_only() -> None:
    near, far = pair()
    feed = FeedSender(near, limit_bytes=20_000)
    decoder = Decoder()
    got: list[Record] = []
    for number in range(2000):
        feed.record(Kind.REQUEST_DATA, os.urandom(700), conn=7, msg=number)
        if number % 10 == 0:
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                got += decoder.feed(far.recv(1000))
    got += await until(far, decoder, 2000 - len(got))
    assert [record.msg for record in got] == list(range(2000))
    assert all(record.conn == 7 for record in got)
    assert feed.stats.dropped_records == sum(bool(record.flags & Flag.DROPPED) for record in got)
    feed.close()
    far.close()


async def test_a_dead_reader_is_told_once_and_a_new_one_begins_at_a_record() -> None:
    told: list[int] = []
    near, far = pair()
    feed = FeedSender(near, on_dead=lambda: told.append(1))
    while feed.waiting_bytes < 1_000_000:  # until the socket takes no more
        feed.record(Kind.REQUEST_DATA, b"z" * 100_000)
        feed.flush_now()
    far.close()
    deadline = time.monotonic() + 5
    while not told:
        feed.record(Kind.REQUEST_DATA, b"z", msg=1000)
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
    assert told == [1]
    assert not feed.attached
    feed.record_json(Kind.NOTE, {"event": "for the next one"})
    near, far = pair()
    feed.attach(near)
    decoder = Decoder()
    records = await until(far, decoder, 2)
    while records[-1].kind != Kind.NOTE:
        records += await until(far, decoder, 1)
    assert any(record.kind == Kind.LOST for record in records)
    assert told == [1]
    feed.close()
    far.close()


async def test_what_was_in_hand_when_the_reader_died_is_counted_and_its_room_is_free_again() -> None:
    near, far = socket.socketpair()
    sender = FeedSender(near)
    far.close()
    for _ in range(20):
        sender.record(Kind.NOTE, b"x" * 1000, 1)
    sender.flush_now()
    assert sender.stats.deaths == 1
    assert sender.stats.lost_records == 20
    assert sender.waiting_bytes == 0
    sender.close()


def test_it_takes_records_before_a_loop_runs_and_drains_without_one() -> None:
    near, far = pair()
    feed = FeedSender(near)
    feed.record_json(Kind.HELLO, {"protocol": 1})
    assert feed.drain(1.0)
    assert json.loads(drain(far, Decoder())[0].payload) == {"protocol": 1}
    feed.close()
    far.close()


def test_draining_gives_up_at_its_deadline() -> None:
    near, far = pair()
    feed = FeedSender(near, limit_bytes=1 << 26)
    for _ in range(4):
        feed.record(Kind.REQUEST_DATA, b"x" * 15_000_000)
    began = time.monotonic()
    assert feed.drain(0.1) is False
    assert time.monotonic() - began < 1
    feed.close()
    far.close()


def test_nothing_that_is_recorded_raises() -> None:
    feed = FeedSender(None)
    feed.record(Kind.NOTE, None)  # type: ignore[arg-type]
    feed.record_json(Kind.NOTE, {"x": object()})
    feed.record(Kind.REQUEST_DATA, b"x", conn=-1)
    assert feed.stats.swallowed == 2


async def test_the_lag_of_the_loop_is_noticed() -> None:
    seen: list[float] = []
    lag = LoopLag(asyncio.get_running_loop(), seen.append)
    lag.start()
    lag.start()
    time.sleep(0.12)
    assert lag.overdue_s() > 0.03
    deadline = time.monotonic() + 2
    while not seen and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    lag.stop()
    assert seen[0] > 0.05
    assert lag.overdue_s() == 0.0


async def test_a_lag_is_told_before_what_came_in_it_once() -> None:
    """A reply that is read in the very turn that was late would else be told, and over, before the lag."""
    seen: list[float] = []
    lag = LoopLag(asyncio.get_running_loop(), seen.append)
    lag.look(time.monotonic_ns())
    lag.start()
    lag.look(time.monotonic_ns())
    assert seen == []
    time.sleep(0.12)
    lag.look(time.monotonic_ns())
    assert len(seen) == 1
    assert seen[0] > 0.05
    lag.look(time.monotonic_ns())
    lag.stop()
    await asyncio.sleep(0.06)
    assert len(seen) == 1


def test_the_time_asleep_is_a_number_of_nanoseconds() -> None:
    assert suspended_ns() == pytest.approx(suspended_ns(), abs=1_000_000)


async def test_who_has_something_to_say_is_asked_before_the_hand_over() -> None:
    near, far = pair()
    feed = FeedSender(near)
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        feed.record(Kind.NOTE, b"{}", t_ns=5)

    feed.before_hand_over = ask
    assert feed.will_hand_over()
    assert feed.will_hand_over()
    assert not asked
    records = await until(far, Decoder(), 1)
    assert [record.t_ns for record in records] == [5]
    assert asked == [1]
    feed.close()
    far.close()


async def test_full_batches_do_not_keep_anybody_from_being_asked() -> None:
    near, far = pair()
    feed = FeedSender(near)
    asked = asyncio.Event()
    feed.before_hand_over = asked.set
    assert feed.will_hand_over()
    for _ in range(3):
        feed.record(Kind.RESPONSE_DATA, bytes(FLUSH_BYTES))
    await asyncio.wait_for(asked.wait(), 5)
    feed.close()
    far.close()


async def test_no_hand_over_is_promised_while_nobody_reads_or_the_socket_is_full() -> None:
    feed = FeedSender(None)
    assert not feed.will_hand_over()
    near, far = pair()
    feed.attach(near)
    while feed.will_hand_over():
        feed.record(Kind.RESPONSE_DATA, bytes(FLUSH_BYTES))
    assert feed.waiting_bytes
    feed.close()
    assert not feed.will_hand_over()
    far.close()


async def test_closing_asks_once_more_so_that_nobody_waits_for_ever() -> None:
    near, far = pair()
    feed = FeedSender(near)
    asked: list[int] = []
    feed.before_hand_over = lambda: asked.append(1)
    assert feed.will_hand_over()
    feed.close()
    assert asked == [1]
    far.close()


async def test_a_whole_message_is_one_record_on_the_way_and_its_parts_at_the_other_end() -> None:
    near, far = pair()
    feed = FeedSender(near)
    feed.record_whole(Kind.REQUEST_HEAD, b"HEADbody", 4, conn=3, msg=2, t_ns=9)
    feed.record_whole(Kind.RESPONSE_HEAD, b"HEAD", 4, conn=3, msg=2, t_ns=10)
    sent = feed.waiting_bytes
    records = await until(far, Decoder(), 5)
    assert sent == 2 * HEAD.size + 12
    assert [(record.kind, record.payload) for record in records] == [
        (Kind.REQUEST_HEAD, b"HEAD"),
        (Kind.REQUEST_DATA, b"body"),
        (Kind.REQUEST_END, b'{"wire_bytes":8,"complete":true}'),
        (Kind.RESPONSE_HEAD, b"HEAD"),
        (Kind.RESPONSE_END, b'{"wire_bytes":4,"complete":true,"how":"framed"}'),
    ]
    assert {(record.conn, record.msg, record.flags) for record in records} == {(3, 2, 0)}
    assert [record.t_ns for record in records] == [9, 9, 9, 10, 10]
    feed.close()
    far.close()


async def test_a_whole_message_that_finds_no_room_loses_its_body_only() -> None:
    feed = FeedSender(None, limit_bytes=1000)
    feed.record_whole(Kind.REQUEST_HEAD, b"HEAD" + bytes(2000), 4, conn=1, msg=1, t_ns=5)
    feed.record_whole(Kind.REQUEST_HEAD, b"h" * 70_000 + b"b", 70_000, conn=1, msg=2, t_ns=5)  # an uncommon head
    near, far = pair()
    feed.attach(near)
    records = await until(far, Decoder(), 6)
    kinds = [(record.kind, record.flags, record.msg) for record in records]
    first = [(Kind.REQUEST_HEAD, 0, 1), (Kind.REQUEST_DATA, Flag.DROPPED, 1), (Kind.REQUEST_END, 0, 1)]
    second = [(Kind.REQUEST_HEAD, 0, 2), (Kind.REQUEST_DATA, Flag.DROPPED, 2), (Kind.REQUEST_END, 0, 2)]
    assert kinds == first + second
    assert int.from_bytes(records[1].payload, "big") == 2000
    assert len(records[3].payload) == 70_000
    feed.close()
    far.close()


async def test_more_records_than_one_call_takes_arrive_in_order() -> None:
    near, far = pair()
    feed = FeedSender(None)
    for number in range(3000):
        feed.record(Kind.RESPONSE_DATA, b"x" * (number % 300), conn=1, msg=number, t_ns=1)
    feed.attach(near)
    records = await until(far, Decoder(), 3000)
    assert [(record.msg, len(record.payload)) for record in records] == [(n, n % 300) for n in range(3000)]
    assert feed.waiting_bytes == 0
    feed.close()
    far.close()


@pytest.mark.parametrize("somebody", [True, False], ids=["slow reader", "no reader"])
async def test_what_waits_for_a_reader_is_no_crowd_of_objects_and_arrives_in_order(somebody: bool) -> None:
    """Small objects between those of the traffic would keep the heap as high as the backlog was, once it is gone."""
    near, far = pair()
    feed = FeedSender(near if somebody else None, limit_bytes=1 << 26)
    before = sys.getallocatedblocks()
    for number in range(60_000):
        feed.record(Kind.RESPONSE_DATA, b"%0400d" % number, conn=1, msg=number, t_ns=1)
    assert feed.waiting_bytes > 6_000_000
    assert sys.getallocatedblocks() - before < 10_000
    if not somebody:
        feed.attach(near)
    records = await until(far, Decoder(), 60_000)
    assert [(record.msg, int(record.payload)) for record in records] == [(n, n) for n in range(60_000)]
    assert (feed.waiting_bytes, feed.stats.lost_records) == (0, 0)
    feed.close()
    far.close()


async def test_of_a_backlog_only_what_was_in_hand_is_lost_with_its_reader() -> None:
    near, far = pair()
    feed = FeedSender(near, limit_bytes=1 << 26)
    count = 40_000
    for number in range(count):
        feed.record(Kind.RESPONSE_DATA, bytes(400), conn=1, msg=number, t_ns=1)
    heard = len(drain(far, Decoder()))
    far.close()
    feed.flush_now()
    assert not feed.attached
    near, far = pair()
    feed.attach(near)
    decoder, records = Decoder(), list[Record]()
    while not any(record.kind == Kind.LOST for record in records):  # it is the last: it was told when all else waited
        records += await until(far, decoder, 1)
    numbers = [record.msg for record in records if record.kind != Kind.LOST]
    (lost,) = (record.json() for record in records if record.kind == Kind.LOST)
    assert numbers == list(range(numbers[0], count))
    assert lost["records"] == feed.stats.lost_records
    assert 0 <= numbers[0] - heard <= feed.stats.lost_records < 1024
    assert feed.waiting_bytes == 0
    feed.close()
    far.close()


async def test_a_whole_message_for_which_there_is_no_room_at_all_is_counted() -> None:
    feed = FeedSender(None, limit_bytes=1000)
    feed.record(Kind.RESPONSE_HEAD, bytes(RESERVE_BYTES))
    feed.record_whole(Kind.REQUEST_HEAD, bytes(1000), 990, conn=1, msg=1, t_ns=5)
    feed.record_whole(Kind.REQUEST_HEAD, bytes(1000), 1000, conn=1, msg=2, t_ns=5)
    assert feed.stats.lost_records == 3 + 2
    near, far = pair()
    feed.attach(near)
    decoder = Decoder()
    await until(far, decoder, 1)
    feed.record_whole(Kind.REQUEST_HEAD, b"head", 4, conn=1, msg=3, t_ns=5)
    records = await until(far, decoder, 3)
    assert [record.kind for record in records] == [Kind.LOST, Kind.REQUEST_HEAD, Kind.REQUEST_END]
    assert records[0].json()["records"] == 5
    feed.close()
    far.close()
