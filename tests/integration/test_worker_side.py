"""Workers that misbehave: whatever one sends, it harms no request but its own, and that visibly."""

import json
from collections.abc import AsyncIterator

import pytest

from gateway.settings import Timeouts
from tests.support.client import connected, post
from tests.support.scripted import (
    ANSWER,
    CLOSE,
    HANG,
    RESET,
    STREAM_HEAD,
    WAIT,
    answer,
    chunk,
    scripted,
)
from tests.support.stand import Stand, body, standing

POISON = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON"


@pytest.fixture(params=["lane", "bridge"])
async def stand(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with standing(with_lane=request.param == "lane") as stand:
        yield stand
        await stand.worker.until(stand.settled)


async def ask_well(stand: Stand) -> None:
    """One more request, which must be answered with its own answer."""
    reply = await stand.ask()
    assert (reply.status, reply.body, reply.whole) == (200, ANSWER, True)


# ---- what comes behind an answer


async def test_the_second_of_two_answers_goes_to_nobody(stand: Stand):
    stand.worker.scripts.append([answer() + POISON])
    await ask_well(stand)
    await ask_well(stand)


@pytest.mark.parametrize("rest", [POISON, POISON[:9]])
async def test_nor_does_one_that_comes_later(rest: bytes):
    async with standing(timeouts=Timeouts(worker_idle_s=3600, drain_timeout_s=1.0)) as stand:
        stand.worker.scripts.append([answer(), WAIT, rest, HANG])
        await ask_well(stand)
        stand.worker.release()
        await stand.worker.until(lambda: stand.worker.closed_by_peer == 1)
        await ask_well(stand)


@pytest.mark.parametrize(
    "rest", [b"HTTP/1.1 200 OK\r\ncontent-le", b"H", b"\0", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
async def test_half_an_answer_behind(stand: Stand, rest: bytes):
    stand.worker.scripts.append([answer() + rest])
    await ask_well(stand)
    await ask_well(stand)


async def test_a_body_longer_than_it_says(stand: Stand):
    stand.worker.scripts.append([answer().replace(b"length: %d" % len(ANSWER), b"length: 5")])
    reply = await stand.ask()
    assert (reply.status, reply.body) == (200, ANSWER[:5])
    await ask_well(stand)


async def test_a_body_where_there_can_be_none(stand: Stand):
    stand.worker.scripts.append([b"HTTP/1.1 204 No Content\r\ncontent-length: 6\r\n\r\nPOISON"])
    reply = await stand.ask()
    assert (reply.status, reply.body) == (204, b"")
    await ask_well(stand)


# ---- odd but readable


async def test_answers_that_are_none_yet(stand: Stand):
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    stand.worker.scripts += [[early + answer()], [early, answer()]]
    for _ in range(2):
        reply = await stand.ask()
        assert (reply.status, reply.body) == (200, ANSWER)
        assert not reply.values(b"link")


async def test_204(stand: Stand):
    stand.worker.scripts.append([b"HTTP/1.1 204 No Content\r\n\r\n"])
    reply = await stand.ask()
    assert (reply.status, reply.body) == (204, b"")
    assert not reply.values(b"transfer-encoding")
    await ask_well(stand)


async def test_a_body_that_ends_with_its_connection(stand: Stand):
    head = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n"
    stand.worker.scripts.append([head + ANSWER[:10], ANSWER[10:], CLOSE])
    reply = await stand.ask()
    assert (reply.body, reply.whole) == (ANSWER, True)


async def test_no_body_at_all(stand: Stand):
    stand.worker.scripts.append([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"])
    reply = await stand.ask()
    assert (reply.status, reply.body, reply.whole) == (200, b"", True)


async def test_chunks_with_extensions_and_trailers(stand: Stand):
    parts = [
        STREAM_HEAD.replace(b"text/event-stream", b"application/json"),
        b'1;x="y"\r\n{\r\n',
        b"1\r\n}\r\n0\r\nx-trailer: 1\r\n\r\n",
    ]
    stand.worker.scripts += [parts, [b"".join(parts)]]
    for _ in range(2):
        reply = await stand.ask()
        assert (reply.body, reply.whole) == (b"{}", True)
        assert not reply.values(b"x-trailer")
    await ask_well(stand)


async def test_fields_that_end_here_and_fields_that_pass(stand: Stand):
    ending = [
        b"connection: keep-alive, x-named",
        b"keep-alive: timeout=5",
        b"x-named: 1",
        b"x-request-id: theirs",
        b"x-tiergate-worker: 1",
        b"set-cookie: a=b",
        b"proxy-authenticate: x",
        b"upgrade: h2c",
    ]
    passing = [b"x-own: 1", b"x-own: 2", b"openai-processing-ms: 7", b"Cache-Control: no-store"]
    stand.worker.default = [answer(ANSWER, "200 OK", *ending, *passing)]
    for _ in range(2):
        reply = await stand.ask()
        shown = [b"%b: %b" % field for field in reply.head.fields]
        assert not set(ending) & set(shown)
        assert [field for field in shown if field in passing] == passing
        (our_id,) = reply.values(b"x-request-id")
        assert our_id.startswith(b"req-")
        assert len(reply.values(b"content-length")) == 1
    assert len({seen.connection for seen in stand.worker.seen}) == 1


async def test_a_large_head(stand: Stand):
    stand.worker.scripts.append([answer(ANSWER, "200 OK", b"x-large: " + b"x" * 20_000)])
    reply = await stand.ask()
    assert len(reply.values(b"x-large")[0]) == 20_000


# ---- not to be read

UNREADABLE = {
    "no HTTP": b"nonsense\r\n\r\n",
    "bare CR in a field": b"HTTP/1.1 200 OK\r\nx: a\rb: c\r\ncontent-length: 0\r\n\r\n",
    "NUL in a field": b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
    "folded field": b"HTTP/1.1 200 OK\r\nx: a\r\n b: c\r\ncontent-length: 0\r\n\r\n",
    "lines ended by LF": b"HTTP/1.1 200 OK\nx: a\ncontent-length: 0\n\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
    "one length twice": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nabcde",
    "length with chunked": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n"
    b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "length of no number": b"HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nabcde",
    "length beyond all": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nabcde",
    "huge head": b"HTTP/1.1 200 OK\r\nx: " + b"x" * (1 << 20) + b"\r\ncontent-length: 0\r\n\r\n",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n\0\0",
    "bad chunk size": STREAM_HEAD + b"zz\r\ndata",
}


@pytest.mark.parametrize("sent", UNREADABLE.values(), ids=UNREADABLE)
async def test_nonsense_is_a_502(stand: Stand, sent: bytes):
    stand.worker.scripts.append([sent, HANG])
    reply = await stand.ask()
    assert reply.status == 502
    assert reply.error["code"] == "worker_spoke_nonsense"
    await ask_well(stand)
    assert len(stand.worker.seen) == 2  # it is not sent again


# ---- breaking off


@pytest.mark.parametrize("end", [CLOSE, RESET])
async def test_a_short_body_looks_short(stand: Stand, end: object):
    stand.worker.scripts.append([b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", end])
    reply = await stand.ask()
    assert (reply.status, reply.body, reply.whole) == (200, b"short", False)
    assert reply.values(b"content-length") == [b"100"]


@pytest.mark.parametrize("end", [CLOSE, RESET])
async def test_a_chunked_body_without_its_last_chunk(stand: Stand, end: object):
    head = STREAM_HEAD.replace(b"text/event-stream", b"application/json")
    stand.worker.scripts.append([head + chunk(b'{"a":'), end])
    reply = await stand.ask()
    assert (reply.status, reply.body, reply.whole) == (200, b'{"a":', False)


async def test_a_body_that_ends_by_a_reset(stand: Stand):
    stand.worker.scripts.append([b"HTTP/1.0 200 OK\r\n\r\nabc", WAIT, RESET])
    async with connected(stand.running.port) as client:
        client.send(post(body()))
        await client.head()
        stand.worker.release()
        await client.closed()
        assert not bytes(client.received).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-le"])
async def test_nothing_or_half_a_head_is_a_502(stand: Stand, end: object, sent: bytes):
    stand.worker.default = [sent, end]
    reply = await stand.ask()
    assert reply.status == 502
    assert reply.error["code"] == "worker_hung_up"


# ---- connections


async def test_a_stale_connection_costs_one_unseen_retry(stand: Stand):
    await ask_well(stand)
    stand.worker.scripts.append([CLOSE])
    await ask_well(stand)
    first, second, third = (seen.connection for seen in stand.worker.seen)
    assert first == second != third
    stand.worker.scripts += [[RESET], [RESET]]  # and not two
    assert (await stand.ask()).status == 502


async def test_connections_are_used_again(stand: Stand):
    for _ in range(200):
        await ask_well(stand)
    assert stand.worker.connections <= 3
    stand.worker.default = [STREAM_HEAD, chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]
    for _ in range(50):
        assert (await stand.stream()).whole
    assert stand.worker.connections <= 4


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
async def test_but_not_one_that_is_to_be_closed(stand: Stand, version: bytes):
    close = b"" if version == b"HTTP/1.0" else b"connection: close"
    closing = answer(ANSWER, "200 OK", *([close] if close else [])).replace(b"HTTP/1.1", version)
    stand.worker.default = [closing]  # it says so and doesn't do it
    for _ in range(3):
        await ask_well(stand)
    assert len({seen.connection for seen in stand.worker.seen}) == 3


async def test_an_idle_connection_is_closed_after_a_while():
    async with standing(timeouts=Timeouts(worker_idle_s=0.1, drain_timeout_s=1.0)) as stand:
        await ask_well(stand)
        await stand.worker.until(lambda: stand.worker.open == 0)
        await ask_well(stand)


@pytest.mark.parametrize("end", [HANG, CLOSE])
async def test_a_413_while_the_body_is_being_sent(stand: Stand, end: object):
    """The worker reads no further, so most of the body is still in our hands when it answers."""
    stand.worker.reads_bodies = False
    no = (
        b'{"error":{"message":"too large","type":"invalid_request_error","param":null,"code":null}}'
    )
    stand.worker.scripts.append([answer(no, "413 Payload Too Large"), end])
    reply = await stand.ask(body(input="x" * (20 << 20)))
    assert reply.status == 413
    assert json.loads(reply.body) == json.loads(no)
    assert not stand.running.gateway.parts.fleet.workers[0].endpoint.idle
    stand.worker.reads_bodies = True
    await ask_well(stand)
    assert stand.worker.seen[0].connection != stand.worker.seen[1].connection


async def test_a_worker_that_closes_without_a_word():
    async with scripted() as worker, standing(worker) as stand:
        worker.default = [answer(), CLOSE]
        for _ in range(20):
            await ask_well(stand)
        assert len(worker.seen) >= 20
