"""How long a lane waits for its client, how many there may be, and how they end."""

import pytest

from gateway.front.lanes import LINGER_S, Patience
from gateway.front.upload import Upload
from tests.support.client import GET, post
from tests.support.fakes import JSON
from tests.support.lane_house import House, Wire

BODY = b'{"model":"m","messages":[]}'
POST = post(BODY)
MB = 1 << 20
LARGE = post(b'{"model":"m","messages":["%b"]}' % (b"x" * MB))  # read by an Upload
MIDDLE = post(b'{"model":"m","messages":["%b"]}' % (b"x" * 70_000))  # counted, read by the lane


def _cut(wire: Wire) -> bool:
    return wire.aborted


def _closed(wire: Wire) -> bool:
    return wire.closing and not wire.aborted


# Idle


def test_a_connection_that_never_spoke():
    house = House()
    wire = house.connect()
    house.pass_time(75)
    assert not wire.closing
    house.pass_time(0.5)
    assert _closed(wire)
    house.check_empty()


def test_idleness_begins_with_the_end_of_an_answer():
    house = House()
    wire = house.connect()
    house.pass_time(60)
    wire.send(POST)
    house.pass_time(500)  # the worker takes its time
    house.answer()
    house.pass_time(75)
    assert not wire.closing
    house.pass_time(0.5)
    assert _closed(wire)
    assert wire.statuses == [200]
    house.check_empty()


# Heads


@pytest.mark.parametrize("head", [POST[:1], POST[:30], POST[:60], b"GET / HTTP/1.1\r\nx: "])
def test_a_head_that_does_not_end(head: bytes):
    house = House()
    wire = house.connect()
    house.pass_time(60)  # not counted: it hadn't begun
    wire.send(head)
    house.pass_time(10)
    assert not wire.closing
    house.pass_time(0.5)
    assert _closed(wire)
    house.check_empty()


def test_a_head_byte_by_byte_has_no_more_time():
    house = House()
    wire = house.connect()
    for n in range(21):
        wire.send(POST[n : n + 1])
        house.pass_time(0.5)
    assert _closed(wire)


def test_each_head_has_its_own_time():
    house = House()
    wire = house.connect()
    for _ in range(5):
        wire.send(POST[:50])
        house.pass_time(9)
        wire.send(POST[50:])
        house.answer()
    assert wire.statuses == [200] * 5


# Bodies


@pytest.mark.parametrize("request_", [POST, MIDDLE, LARGE], ids=["small", "middle", "large"])
def test_a_body_that_does_not_end(request_: bytes):
    house = House()
    wire = house.connect()
    wire.send(request_[:-20])
    house.pass_time(120)
    assert not wire.closing
    wire.send(request_[-20:-10])  # more of it gives no more time
    house.pass_time(0.5)
    assert wire.statuses == [408]
    assert b"connection: close" in wire.out
    assert _closed(wire)
    assert [record.status for record in house.log.records] == [408]
    house.check_empty()


@pytest.mark.parametrize("request_", [POST, MIDDLE, LARGE], ids=["small", "middle", "large"])
def test_a_body_in_time(request_: bytes):
    house = House()
    wire = house.connect()
    wire.send(request_[:-20])
    house.pass_time(119)
    wire.send(request_[-20:-10])
    assert not house.worker.calls
    wire.send(request_[-10:] + POST)
    assert house.worker.call.body == request_.partition(b"\r\n\r\n")[2]
    house.answer()
    house.answer()
    assert wire.statuses == [200, 200]


def test_a_large_body_is_read_into_its_place():
    house = House()
    wire = house.connect()
    wire.send(LARGE[:500])
    assert isinstance(wire.protocol, Upload)
    wire.send(LARGE[500:])
    assert not isinstance(wire.protocol, Upload)
    assert not wire.reading_paused


# Reading


def test_one_that_stops_reading_is_cut():
    house = House()
    wire = house.connect()
    wire.send(POST)
    house.pass_time(1000)
    house.worker.call.head(200, JSON).tell(b"a")
    wire.stop_reading()
    house.pass_time(120)
    assert not wire.closing
    assert house.worker.call.paused
    house.pass_time(0.5)
    assert _cut(wire)
    house.check_empty()


def test_one_that_reads_now_and_then_is_not():
    house = House()
    wire = house.connect()
    wire.send(POST)
    call = house.worker.call.head(200, JSON)
    for _ in range(5):
        call.tell(b"a")
        wire.stop_reading()
        assert call.paused
        house.pass_time(119)
        wire.read_on()
        assert not call.paused
    call.tell(b"b", done=True)
    assert wire.out.endswith(b"1\r\na\r\n" * 5 + b"1\r\nb\r\n0\r\n\r\n")
    assert not wire.closing


def test_a_request_sent_ahead_waits_until_the_answer_is_read():
    house = House()
    wire = house.connect()
    wire.send(POST + post(BODY + b" "))
    wire.stop_reading()
    house.answer()
    house.pass_time(100)  # longer than a head may take
    assert not wire.closing
    assert len(house.worker.calls) == 1
    wire.read_on()
    assert len(house.worker.calls) == 2
    house.answer()
    assert wire.statuses == [200, 200]


def test_the_end_of_an_answer_that_is_never_read():
    house = House()
    wire = house.connect()
    wire.send(POST)
    wire.stop_reading()
    house.answer()
    house.pass_time(120)
    assert not wire.closing
    house.pass_time(0.5)
    assert wire.closing
    assert not wire.aborted  # what is unread may still be read
    house.pass_time(0.5)
    assert _cut(wire)
    house.check_empty()


# Refusals that linger


def test_no_memory_for_a_body():
    house = House(memory=100_000)
    first, second = house.connect(), house.connect()
    first.send(MIDDLE[:-20])
    second.send(MIDDLE[:-20])
    assert second.statuses == [503]
    assert b"retry-after: 1\r\n" in second.out
    assert b"connection: close" in second.out
    assert b"body_memory_full" in second.out
    for _ in range(3):
        second.send(MIDDLE * 3)  # it sends on, and nothing of that is a request
    house.pass_time(LINGER_S)
    assert not second.closing  # a close would take the answer back
    house.pass_time(0.1)
    assert _closed(second)
    assert not house.worker.calls
    first.send(MIDDLE[-20:])
    house.answer()
    assert first.statuses == [200]
    assert house.memory.held == 0


def test_too_much_sent_ahead():
    house = House()
    wire = house.connect()
    wire.send(POST + POST)
    for _ in range(20):
        wire.send(MIDDLE)
    house.answer()
    assert wire.statuses == [200]
    assert b"connection: close" in wire.out
    house.pass_time(LINGER_S + 0.1)
    assert _closed(wire)
    assert len(house.worker.calls) == 1
    house.check_empty()


# Numbers


def test_a_limit_on_connections():
    house = House(connections=3)
    wires = [house.connect() for _ in range(3)]
    refused = house.connect()
    assert refused.statuses == [503]
    assert b"too_many_connections" in refused.out
    assert b"x-request-id: req-" in refused.out
    assert b"retry-after: 1\r\n" in refused.out
    assert _closed(refused)
    wires[0].hang_up()
    again = house.connect()
    assert not again.closing
    again.send(POST)
    house.answer()
    assert again.statuses == [200]


def test_connections_that_were_handed_over_count():
    house = House(connections=3)
    for _ in range(2):
        house.connect().send(GET % b"/livez")
    assert len(house.handed) == 2
    assert not len(house.lanes)
    assert not house.connect().closing
    assert house.connect().closing
    house.handed.pop()  # gone; aiohttp knows, and the next sweep asks it
    house.pass_time(0.25)
    assert not house.connect().closing


@pytest.mark.parametrize("size", [70_000, MB])
@pytest.mark.parametrize(
    "way", ["answered", "refused", "left amid", "left waiting", "given up", "cut", "worker lost"]
)
def test_memory_is_given_back_whatever_happens(way: str, size: int):
    house = House()
    wire = house.connect()
    model = b"x" if way == "refused" else b"m"
    request = post(b'{"model":"%b","messages":["%b"]}' % (model, b"x" * size))
    whole = way not in ("left amid", "given up")
    wire.send(request if whole else request[:-20])
    assert house.memory.held > size or way == "refused"
    match way:
        case "answered":
            house.answer()
        case "left amid" | "left waiting":
            wire.hang_up()
        case "given up":
            house.pass_time(121)
        case "cut":
            house.lanes.close()
        case "worker lost":
            call = house.worker.call.head(200, [], length=5)
            call.tell(b"ab", done=False)
    assert house.memory.held == 0
    if not wire.closing:
        wire.hang_up()
    house.check_empty()


def test_no_limits():
    house = House(patience=Patience(head=0, body=0, request=0))
    idle, head, body, reading = (house.connect() for _ in range(4))
    head.send(POST[:20])
    body.send(POST[:-5])
    reading.send(POST)
    reading.stop_reading()
    house.pass_time(10_000_000)
    assert not any(wire.closing for wire in (idle, head, body, reading))
