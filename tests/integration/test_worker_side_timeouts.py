"""Workers that take too long: an error in the caller's words, before and amid an answer."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gateway.settings import PoolSettings, Timeouts, WorkerSettings
from tests.support.client import connected, post
from tests.support.clock import ManualClock
from tests.support.scripted import HANG, STREAM_HEAD, answer, chunk, delta, scripted
from tests.support.stand import CHAT, STREAMING, body, reply, standing

PATHS = [*STREAMING, b"/v1/embeddings"]
DROPPED = Timeouts(connect_s=0.1)


def kind_of_error(path: bytes) -> str:
    return "timeout_error" if path == b"/v1/messages" else "server_error"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("said", [[], [STREAM_HEAD], [b"HTTP/1.1 200"]])
async def test_no_first_byte_is_a_504(path: bytes, streams: bool, said: list):
    clock = ManualClock()
    async with standing(clock=clock) as stand, connected(stand.running.port) as client:
        stand.worker.default = [*said, HANG]
        client.send(post(body(stream=streams), path=path))
        await stand.worker.until(lambda: stand.worker.seen)
        clock.jump(Timeouts().first_byte_s + 1)
        await clock.advance(0.5)
        got = await reply(client)
        assert (got.status, got.whole) == (504, True)
        assert got.error["type"] == kind_of_error(path)
        assert "no first byte within 600 s" in got.error["message"]
        await stand.worker.until(lambda: stand.worker.closed_by_peer == 1)
        assert stand.settled()


@pytest.mark.parametrize("path", STREAMING)
@pytest.mark.parametrize("limit", ["between_bytes_s", "total_s"])
async def test_a_stream_that_stops_ends_with_an_error_event(path: bytes, limit: str):
    clock = ManualClock()
    timeouts = Timeouts(**{"between_bytes_s": 0, "total_s": 0, limit: 30})
    async with (
        standing(clock=clock, timeouts=timeouts) as stand,
        connected(stand.running.port) as client,
    ):
        first = b'data: {"sequence_number":4}\n\n'
        stand.worker.default = [STREAM_HEAD, chunk(first + b"data: to"), HANG]
        client.send(post(body(stream=True), path=path))
        await client.until(lambda: first in client.received)
        clock.jump(29)
        await clock.advance(0.5)
        assert not client.ended
        await clock.advance(1)
        got = await reply(client)
        assert not got.whole
        assert got.body.startswith(first)
        message = got.last_event
        message = message.get("error", message)["message"]
        assert "within 30 s" in message
        await stand.worker.until(lambda: stand.worker.closed_by_peer == 1)
        assert stand.settled()


async def test_an_answer_that_stops_is_cut():
    clock = ManualClock()
    async with standing(clock=clock) as stand, connected(stand.running.port) as client:
        stand.worker.default = [answer()[:-3], HANG]
        client.send(post(body()))
        await client.until(lambda: b"usage" in client.received)
        clock.jump(Timeouts().between_bytes_s + 1)
        await clock.advance(0.5)
        assert not (await reply(client)).whole


async def test_a_client_that_stops_reading_is_not_the_workers_fault():
    clock = ManualClock()
    timeouts = Timeouts(request_body_s=0)  # the client may take its time
    async with (
        standing(clock=clock, timeouts=timeouts) as stand,
        connected(stand.running.port, receive_buffer=4096) as client,
    ):
        said = b"".join(delta(f"token {i}") for i in range(1000)) * 200
        stand.worker.default = [STREAM_HEAD, chunk(said), HANG]
        client.transport.pause_reading()
        client.send(post(body(stream=True)))
        busy = stand.running.gateway.parts.fleet.workers[0].endpoint.busy
        await stand.worker.until(lambda: any(call._paused for call in busy))
        clock.jump(Timeouts().between_bytes_s + 1)
        await clock.advance(0.5)
        assert busy
        client.transport.resume_reading()
        await client.until(lambda: len(client.received) > len(said))
        assert busy
        clock.jump(Timeouts().between_bytes_s + 1)
        await clock.advance(0.5)
        await client.closed()
        assert b"no further byte" in client.received[-500:]


# ---- connecting


@contextmanager
def dropping() -> Iterator[int]:
    """A port of a machine that is too busy to accept: further connections get no answer at all."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address[1]


@pytest.mark.parametrize("path", PATHS)
async def test_no_connection_is_a_504(path: bytes):
    with dropping() as port:
        workers = (WorkerSettings(url=f"http://127.0.0.1:{port}"),)
        pools = (PoolSettings(name="p", model="m", workers=workers),)
        async with scripted() as unused, standing(unused, pools=pools, timeouts=DROPPED) as stand:
            got = await stand.ask(path=path)
            assert got.status == 504
            assert got.error["type"] == kind_of_error(path)
            assert "no connection within 0.1 s" in got.error["message"]
            assert stand.settled()


async def test_no_tls_handshake_is_one_too():
    async with scripted() as silent:  # it waits for a request and gets none
        workers = (WorkerSettings(url=silent.url.replace("http:", "https:")),)
        pools = (PoolSettings(name="p", model="m", workers=workers),)
        async with standing(silent, pools=pools, timeouts=DROPPED) as stand:
            got = await stand.ask()
            assert (got.status, got.error["code"]) == (504, "worker_timeout")
            await silent.until(lambda: silent.open == 0)


async def test_another_worker_answers_for_one_that_drops():
    with dropping() as port:
        async with scripted() as well:
            urls = (f"http://127.0.0.1:{port}", well.url)
            workers = tuple(WorkerSettings(url=url) for url in urls)
            pools = (PoolSettings(name="p", model="m", workers=workers),)
            async with standing(well, pools=pools, timeouts=DROPPED) as stand:
                for _ in range(10):
                    assert (await stand.ask(path=CHAT)).status == 200
