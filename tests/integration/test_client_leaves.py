"""Clients that leave, and clients that don't read.

Promise: within 250 ms of a client hanging up its worker is told, whatever the path, whatever the
state; and nothing of the request is left.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gateway.settings import Limits
from tests.support.client import chunked, connected, post
from tests.support.clock import ManualClock
from tests.support.fronts import both_fronts, on_uvloop, settled, stand, until
from tests.support.running import Running
from tests.support.scripted import HANG, STREAM_HEAD, Scripted, chunk, delta

BOUND_S = 0.25
MB = 1 << 20

_JSON = b'{"model":"m","messages":[],"stream":true}'
_FORM = (
    b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    + b"RIFF" * 500
    + b"\r\n--b--\r\n"
)
REQUESTS = {
    "chat": post(_JSON),
    "completions": post(_JSON, path=b"/v1/completions"),
    "embeddings": post(_JSON, path=b"/v1/embeddings"),
    "responses": post(_JSON, path=b"/v1/responses"),
    "messages": post(_JSON, path=b"/v1/messages"),
    "rerank": post(_JSON, path=b"/v1/rerank"),
    "transcriptions": post(_FORM, path=b"/v1/audio/transcriptions").replace(
        b"application/json", b"multipart/form-data; boundary=b"
    ),
    "chunked": chunked(_JSON),
}
every_request = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)

WAITING = (HANG,)
STREAMING = (STREAM_HEAD, chunk(delta("a")), HANG)
HALF_SENT = (b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 9999\r\n\r\nhalf", HANG)
HEAD_ONLY = (STREAM_HEAD, HANG)


@asynccontextmanager
async def told_in_time(worker: Scripted) -> AsyncIterator[None]:
    """What happens inside makes a connection of the worker's close, in time."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    yield
    await worker.until(lambda: worker.closed_by_peer == 1)
    assert loop.time() - start < BOUND_S


# Hanging up


@both_fronts
@every_request
@on_uvloop
async def test_with_half_of_the_body_sent(lane: bool, request_: bytes):
    async with stand(lane) as (worker, gateway):
        desk = gateway.gateway.parts.desk
        async with connected(gateway.port) as client:
            client.send(request_[:-20])
            await until(lambda: bool(desk.live or _owes(gateway) == "body"))
            client.hang_up()
            await settled(gateway)
            await until(lambda: not _connections(gateway))
    assert not worker.seen


@both_fronts
@every_request
@on_uvloop
async def test_while_waiting_for_the_first_byte(lane: bool, request_: bytes):
    async with stand(lane, script=WAITING) as (worker, gateway), connected(gateway.port) as client:
        client.send(request_)
        await worker.until(lambda: len(worker.seen) == 1)
        async with told_in_time(worker):
            client.hang_up()
        await settled(gateway)


@both_fronts
@every_request
@on_uvloop
async def test_between_head_and_first_byte(lane: bool, request_: bytes):
    async with (
        stand(lane, script=HEAD_ONLY) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(request_)
        await worker.until(lambda: len(worker.seen) == 1)
        async with told_in_time(worker):
            client.hang_up()
        await settled(gateway)


@both_fronts
@every_request
@on_uvloop
async def test_amid_a_stream(lane: bool, request_: bytes):
    async with (
        stand(lane, script=STREAMING) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(request_)
        await client.head()
        assert await client.chunk() == delta("a")
        async with told_in_time(worker):
            client.hang_up()
        await settled(gateway)


@both_fronts
@every_request
@on_uvloop
async def test_amid_a_body(lane: bool, request_: bytes):
    async with (
        stand(lane, script=HALF_SENT) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(request_)
        await client.head()
        assert await client.take(4) == b"half"
        async with told_in_time(worker):
            client.hang_up()
        await settled(gateway)


@both_fronts
@on_uvloop
async def test_with_another_request_sent_ahead(lane: bool):
    async with (
        stand(lane, script=STREAMING) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(REQUESTS["chat"] * 3)
        await client.head()
        async with told_in_time(worker):
            client.hang_up()
        await settled(gateway)
    assert len(worker.seen) == 1


@both_fronts
@pytest.mark.parametrize("script", [WAITING, STREAMING], ids=["waiting", "streaming"])
@on_uvloop
async def test_closing_one_half_is_hanging_up(lane: bool, script: tuple[object, ...]):
    """The first thing a leaving client's kernel sends looks just like it."""
    async with stand(lane, script=script) as (worker, gateway), connected(gateway.port) as client:
        client.send(REQUESTS["chat"])
        await worker.until(lambda: len(worker.seen) == 1)
        async with told_in_time(worker):
            client.transport.write_eof()
        await client.closed()
        await settled(gateway)


@both_fronts
@on_uvloop
async def test_an_answer_is_whole_before_one_half_closes(lane: bool):
    async with stand(lane) as (_, gateway), connected(gateway.port) as client:
        client.send(REQUESTS["embeddings"])
        assert (await client.response()).status == 200
        client.transport.write_eof()
        await client.closed()
        assert not client.received
        assert client.error is None


# Not reading


class Fountain:
    """A script that never ends; counts what the worker could send."""

    def __init__(self, chunks: int = 1 << 30) -> None:
        self.chunks = chunks
        self.sent = 0
        self._piece = chunk(delta("x" * 60_000))

    def __iter__(self) -> Iterator[bytes]:
        yield STREAM_HEAD
        for _ in range(self.chunks):
            self.sent += len(self._piece)
            yield self._piece
        yield chunk(delta("", "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n"


async def _plateau(fountain: Fountain) -> int:
    """How much the worker could send, once it can't send more."""
    async with asyncio.timeout(10):
        while True:
            before = fountain.sent
            for _ in range(20):
                await asyncio.sleep(0.002)
            if before == fountain.sent > 0:
                return before


BOUNDED = 24 * MB  # four kernel buffers, which grow by themselves, and a few reads of ours


@both_fronts
@on_uvloop
async def test_a_client_that_does_not_read_stops_the_worker(lane: bool):
    chunks = 2000
    fountain = Fountain(chunks)
    async with stand(lane, script=fountain) as (_, gateway):
        async with connected(gateway.port, receive_buffer=8192) as client:
            client.transport.pause_reading()
            client.send(REQUESTS["chat"])
            stopped = await _plateau(fountain)
            assert stopped < BOUNDED < chunks * 60_000
            client.transport.resume_reading()
            await client.head()
            size = 0
            while piece := await client.chunk():
                size += len(piece)
            assert size > chunks * 60_000
        await settled(gateway)


@both_fronts
@on_uvloop
async def test_hanging_up_without_reading(lane: bool):
    fountain = Fountain()
    async with (
        stand(lane, script=fountain) as (worker, gateway),
        connected(gateway.port, receive_buffer=8192) as client,
    ):
        client.transport.pause_reading()
        client.send(REQUESTS["chat"])
        await _plateau(fountain)
        loop = asyncio.get_running_loop()
        start = loop.time()
        client.hang_up()
        await worker.until(lambda: worker.closed_by_peer == 1)
        assert loop.time() - start < BOUND_S
        await settled(gateway)


@both_fronts
@on_uvloop
async def test_one_that_never_reads_again_is_cut(lane: bool):
    fountain, clock = Fountain(), ManualClock()
    async with (
        stand(lane, script=fountain, clock=clock) as (worker, gateway),
        connected(gateway.port, receive_buffer=8192) as client,
    ):
        client.transport.pause_reading()
        client.send(REQUESTS["chat"])
        await _plateau(fountain)
        clock.jump(119)
        await clock.advance(0.5)
        assert not worker.closed_by_peer
        clock.jump(2)
        await clock.advance(0.5)
        await worker.until(lambda: worker.closed_by_peer == 1)
        await settled(gateway)
        await until(lambda: not _connections(gateway))


@both_fronts
@on_uvloop
async def test_one_that_reads_now_and_then_is_not_cut(lane: bool):
    fountain, clock = Fountain(), ManualClock()
    async with (
        stand(lane, script=fountain, clock=clock) as (worker, gateway),
        connected(gateway.port, receive_buffer=8192) as client,
    ):
        client.send(REQUESTS["chat"])
        await client.head()
        for _ in range(4):
            client.transport.pause_reading()
            stopped = await _plateau(fountain)
            clock.jump(100)
            await clock.advance(0.5)
            client.transport.resume_reading()
            await until(lambda stopped=stopped: fountain.sent > stopped + MB)
        assert not worker.closed_by_peer
        assert not client.ended


@both_fronts
@on_uvloop
async def test_a_body_that_does_not_come_is_given_up(lane: bool):
    clock = ManualClock()
    for wire in (REQUESTS["chat"], REQUESTS["responses"], REQUESTS["chunked"]):
        async with stand(lane, clock=clock, limits=Limits()) as (worker, gateway):
            async with connected(gateway.port) as client:
                client.send(wire[:-8])
                await until(lambda: _owes(gateway) == "body")
                clock.jump(119)
                await clock.advance(0.5)
                assert _owes(gateway) == "body"
                clock.jump(2)
                await clock.advance(0.5)
                response = await client.response()
                assert response.status == 408
                assert response.closes
            await settled(gateway)
        assert not worker.seen


def _connections(gateway: Running) -> int:
    lanes = gateway.gateway.lanes
    return len(lanes) + len(lanes.to_aiohttp.connections)  # type: ignore[attr-defined]


def _owes(gateway: Running) -> str:
    """What the only client owes."""
    parts, lanes = gateway.gateway.parts, gateway.gateway.lanes
    owing = [lane.waits_for() for lane in lanes._all] + [b.waits_for for b in parts.bridged._busy]
    return owing[0] if owing else ""
