"""Clients that take too long, come in too great a number, or are there when the gateway ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.settings import Limits, Timeouts
from tests.support import scripted as s
from tests.support.clock import ManualClock, until
from tests.support.running import Running, running, settings_for

ROUND_S = 0.25  # the sweep's


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def rest(self) -> bytes:
        """Everything until the gateway closes."""
        async with asyncio.timeout(10):
            return await self._reader.read()

    async def answer(self) -> tuple[bytes, bytes]:
        """Head and body of an answer with a length."""
        async with asyncio.timeout(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            return head, await self._reader.readexactly(int(length))

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def client_of(gateway: Running) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def request(size: int = 10, sent: int | None = None, *fields: bytes) -> bytes:
    """A POST with a body of about `size` bytes, of which `sent` are sent."""
    body = json.dumps({"model": "m", "messages": [], "pad": "x" * size}).encode()
    head = b"".join(b"%b\r\n" % f for f in (b"host: x", b"content-length: %d" % len(body), *fields))
    return b"POST /v1/chat/completions HTTP/1.1\r\n%b\r\n%b" % (head, body[:sent])


@asynccontextmanager
async def standing(**changes: object) -> AsyncIterator[tuple[Running, s.Scripted, ManualClock]]:
    """A gateway whose time is in the test's hand, before one worker."""
    clock = ManualClock()
    async with (
        s.scripted() as worker,
        running(settings_for(worker.url, **changes), clock=clock) as gateway,
    ):
        yield gateway, worker, clock


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let so much time pass and a sweep see it."""
    clock.jump(seconds)
    await clock.advance(2 * ROUND_S)


async def owes(gateway: Running, what: str) -> None:
    """Wait until some client owes this."""
    await until(lambda: any(lane.waits_for() == what for lane in gateway.gateway.lanes._all))


async def seen(gateway: Running, count: int) -> None:
    """Wait until the gateway has taken up so many connections."""
    await until(lambda: len(gateway.gateway.lanes) == count)


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with standing() as (gateway, _, clock), client_of(gateway) as client:
        client.send(request())
        assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
        await pass_time(clock, 70)
        await seen(gateway, 1)
        await pass_time(clock, 10)
        assert await client.rest() == b""
        await seen(gateway, 0)


async def test_a_head_that_does_not_end_is_given_up() -> None:
    async with standing() as (gateway, _, clock):
        for head in (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n",
            b"GET / HTTP/1.1\r\nx: ",
        ):
            async with client_of(gateway) as client:
                client.send(head)
                await owes(gateway, "head")
                await pass_time(clock, 11)
                assert await client.rest() == b""


async def test_a_body_that_does_not_come_is_told_so_in_time() -> None:
    async with standing() as (gateway, worker, clock):
        memory = gateway.gateway.parts.desk.memory
        for size in (1000, 100_000, 3_000_000):
            async with client_of(gateway) as client:
                client.send(request(size, 500))
                await owes(gateway, "body")
                await pass_time(clock, 121)
                head, _, body = (await client.rest()).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 408 ")
                assert b"connection: close" in head
                assert json.loads(body)["error"]["code"] == "body_timeout"
                assert memory.held == 0
        assert worker.seen == []


async def test_a_client_that_stops_reading_is_cut() -> None:
    async with standing() as (gateway, worker, clock), client_of(gateway) as client:
        flood = [s.chunk(s.delta("x" * 60_000)) for _ in range(400)]
        worker.scripts.append([s.STREAM_HEAD, *flood])
        client.send(request())
        await owes(gateway, "reading")
        await pass_time(clock, 121)
        await seen(gateway, 0)
        await worker.until(lambda: worker.closed_by_peer == 1)
        assert gateway.gateway.parts.desk.live == 0


async def test_connections_beyond_the_limit_are_refused_in_words() -> None:
    async with (
        standing(limits=Limits(connections=2)) as (gateway, _, _),
        client_of(gateway),
        client_of(gateway) as second,
    ):
        await seen(gateway, 2)
        async with client_of(gateway) as third:
            head, _, body = (await third.rest()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert json.loads(body)["error"]["code"] == "too_many_connections"
        second.close()
        await seen(gateway, 1)
        async with client_of(gateway) as fourth:
            fourth.send(request())
            assert (await fourth.answer())[0].startswith(b"HTTP/1.1 200")


async def test_bodies_beyond_the_memory_are_refused_and_what_is_held_returns() -> None:
    async with standing(limits=Limits(body_memory_bytes=200_000)) as (gateway, worker, clock):
        memory = gateway.gateway.parts.desk.memory
        async with client_of(gateway) as first, client_of(gateway) as second:
            first.send(request(150_000, 500))
            await until(lambda: memory.held > 150_000)
            second.send(request(150_000, 140_000))
            head, body = await second.answer()
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in head
            assert json.loads(body)["error"]["code"] == "body_memory_full"
            await pass_time(clock, 3)  # what it still sends is read, for a while
            assert await second.rest() == b""
            first.close()
            await until(lambda: memory.held == 0)
        async with client_of(gateway) as third:
            third.send(request(150_000))
            assert (await third.answer())[0].startswith(b"HTTP/1.1 200")
        await until(lambda: memory.held == 0)
        assert len(worker.seen) == 1


async def test_draining_lets_answers_end_and_nothing_else() -> None:
    timeouts = Timeouts(drain_delay_s=5.0, drain_timeout_s=60.0)
    async with standing(timeouts=timeouts) as (gateway, worker, clock):
        worker.scripts += [[s.WAIT, s.answer()]] * 2
        async with client_of(gateway) as idle, client_of(gateway) as busy:
            busy.send(request())
            await worker.until(lambda: len(worker.seen) == 1)
            await seen(gateway, 2)
            gateway.gateway.stop()
            await until(lambda: gateway.gateway.parts.status.draining)
            async with client_of(gateway) as late:  # a balancer needs its time to see it
                late.send(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
                assert (await late.answer())[0].startswith(b"HTTP/1.1 503 ")
            for _ in range(110):
                await clock.advance(0.05)
            assert await idle.rest() == b""
            worker.release()
            head, body = await busy.answer()
            assert b"connection: close" in head
            assert body == s.ANSWER
            assert await busy.rest() == b""


async def test_what_does_not_end_while_draining_is_cut() -> None:
    timeouts = Timeouts(drain_timeout_s=2.0)
    async with standing(timeouts=timeouts) as (gateway, worker, clock):
        worker.scripts.append([s.STREAM_HEAD, s.chunk(s.delta("a")), s.HANG])
        worker.default = (s.HANG,)
        async with client_of(gateway) as streaming, client_of(gateway) as waiting:
            streaming.send(request())
            await worker.until(lambda: len(worker.seen) == 1)
            waiting.send(request())
            await worker.until(lambda: len(worker.seen) == 2)
            gateway.gateway.stop()
            await until(lambda: gateway.gateway.parts.status.draining)
            for _ in range(60):
                await clock.advance(0.05)
            stream = await streaming.rest()
            assert b'"gateway_stopping"' in stream
            assert b"[DONE]" not in stream
            assert not stream.endswith(b"0\r\n\r\n")
            head, _, body = (await waiting.rest()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert json.loads(body)["error"]["code"] == "gateway_stopping"
            await worker.until(lambda: worker.closed_by_peer == 2)
