"""How lanes end, one by one and all together, and how they are handed over."""

from tests.support.client import GET, post
from tests.support.lane_house import ANSWER, House, Wire

BODY = b'{"model":"m","messages":[]}'
POST = post(BODY)
MIDDLE = post(b'{"model":"m","messages":["%b"]}' % (b"x" * 70_000))  # counted, read by the lane
LARGE = post(b'{"model":"m","messages":["%b"]}' % (b"x" * (1 << 20)))  # read by an Upload


def _cut(wire: Wire) -> bool:
    return wire.aborted


def _closed(wire: Wire) -> bool:
    return wire.closing and not wire.aborted


def test_draining():
    house = House()
    idle, busy, sending, begun, refused = (house.connect() for _ in range(5))
    for wire in (idle, busy):
        wire.send(POST)
        house.answer()
    busy.send(POST)
    call = house.worker.call
    sending.send(MIDDLE[:-20])
    begun.send(POST[:40])
    house.lanes.drain()
    assert _closed(idle)
    assert not refused.out
    assert _closed(refused)  # had sent nothing
    call.head(200, [], length=2).tell(b"ok", done=True)
    assert busy.out.endswith(b"connection: close\r\ncontent-length: 2\r\n\r\nok")
    assert _closed(busy)
    for wire, rest in ((sending, MIDDLE[-20:]), (begun, POST[40:])):
        wire.send(rest)
        house.answer()
        assert wire.statuses == [200]
        assert b"connection: close" in wire.out
        assert _closed(wire)
    house.check_empty()


def test_draining_closes_behind_what_is_unread():
    house = House()
    done, said = house.connect(), house.connect()
    done.send(POST)
    done.stop_reading()
    house.answer()
    said.send(post(BODY, b"connection: close"))
    said.stop_reading()
    house.answer()
    assert said.closing
    house.lanes.drain()
    for wire in (done, said):
        assert wire.closing
        assert not wire.aborted
        wire.hang_up()  # it has read everything, and the transport is done
    house.check_empty()


def test_draining_amid_a_stream():
    house = House()
    wire = house.connect()
    wire.send(POST + POST)
    call = house.worker.call.head(200, [])
    call.tell(b"a")
    house.lanes.drain()
    call.tell(b"b", done=True)
    assert wire.out.endswith(b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
    assert _closed(wire)
    assert len(house.worker.calls) == 1  # the one sent ahead isn't taken any more
    house.check_empty()


def test_cutting_all():
    house = House()
    wires = [house.connect() for _ in range(4)]
    wires[1].send(POST)
    wires[2].send(LARGE[:-20])
    wires[3].send(POST[:20])
    house.lanes.close()
    assert all(map(_cut, wires))
    house.check_empty()


# The seam


def test_handing_over():
    house = House()
    wire = house.connect()
    wire.send(POST)
    wire.send(GET % b"/livez")
    wire.send(POST)
    assert not house.handed  # not before the answer is out
    house.answer(ANSWER)
    (aiohttp,) = house.handed
    assert aiohttp.heard == ["made", "data"]
    assert aiohttp.data == GET % b"/livez" + POST
    assert wire.protocol is aiohttp
    assert not len(house.lanes)
    house.pass_time(1000)
    assert not wire.closing


def test_handing_over_while_an_answer_is_unread():
    house = House()
    wire = house.connect()
    wire.send(POST)
    wire.stop_reading()
    house.answer()
    wire.send(GET % b"/livez")
    (aiohttp,) = house.handed
    assert aiohttp.heard == ["made", "pause", "data"]
