"""The end of a gateway as its clients see it, on both fronts."""

import asyncio
import socket

import pytest

from gateway.settings import Timeouts
from tests.support.client import GET, connected, post
from tests.support.clock import ManualClock
from tests.support.delivery import server_side
from tests.support.fronts import both_fronts, on_uvloop, stand, until
from tests.support.running import Running
from tests.support.scripted import HANG, STREAM_HEAD, WAIT, answer, chunk, delta

BODY = b'{"model":"m","messages":[]}'
MB = 1 << 20
HOT = b"/v1/chat/completions"
RELAYED = b"/v1/rerank"
every_path = pytest.mark.parametrize("path", [HOT, RELAYED])


async def _stop(gateway: Running) -> None:
    gateway.gateway.stop()
    await until(lambda: gateway.gateway.parts.status.draining)


async def _pass(clock: ManualClock, seconds: float) -> None:
    """Time in the steps in which the end is waited for."""
    for _ in range(round(seconds / 0.05) + 1):
        await clock.advance(0.05)


def _ended(gateway: Running) -> bool:
    return gateway.said[-1].startswith("stopped")


async def _is_refused(port: int) -> bool:
    try:
        async with connected(port):
            return False
    except ConnectionRefusedError:
        return True


@both_fronts
@on_uvloop
async def test_during_the_delay_requests_are_taken(lane: bool):
    clock, timeouts = ManualClock(), Timeouts(drain_delay_s=5.0)
    async with stand(lane, clock=clock, timeouts=timeouts) as (_, gateway):
        async with connected(gateway.port) as old:
            old.send(GET % b"/readyz")
            assert (await old.response()).status == 200
            await _stop(gateway)
            for wire, status in (
                (GET % b"/readyz", 503),
                (GET % b"/livez", 200),
                (post(BODY), 200),
                (post(BODY, path=RELAYED), 200),
            ):
                old.send(wire)
                response = await old.response()
                assert (response.status, response.closes) == (status, False)
                async with connected(gateway.port) as new:
                    new.send(wire)
                    assert (await new.response()).status == status
            await _pass(clock, 5.1)
            assert await _is_refused(gateway.port)
        await _pass(clock, 1)
        await until(lambda: _ended(gateway))


@both_fronts
@every_path
@on_uvloop
async def test_what_is_in_hand_is_finished(lane: bool, path: bytes):
    clock = ManualClock()
    script = (WAIT, answer(BODY))
    async with (
        stand(lane, clock=clock, script=script) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(post(BODY, path=path))
        await worker.until(lambda: len(worker.seen) == 1)
        await _stop(gateway)
        await _pass(clock, 1)
        assert not _ended(gateway)
        worker.release()
        response = await client.response()
        assert response.body == BODY
        assert response.closes
        await client.closed()
        await _pass(clock, 1)
        await until(lambda: _ended(gateway))
        assert gateway.said[-1] == "stopped with 0 requests cut off"


@both_fronts
@every_path
@on_uvloop
async def test_a_slow_reader_gets_all_of_its_answer(lane: bool, path: bytes):
    clock = ManualClock()
    large = b"x" * (24 * MB)  # more than the kernel takes
    script = (WAIT, answer(large))
    async with (
        stand(lane, clock=clock, script=script, timeouts=Timeouts()) as (worker, gateway),
        connected(gateway.port, receive_buffer=8192) as client,
    ):
        client.send(post(BODY, path=path))
        await worker.until(lambda: len(worker.seen) == 1)
        client.transport.pause_reading()
        await _stop(gateway)
        worker.release()
        await _pass(clock, 2)
        assert not _ended(gateway)
        client.transport.resume_reading()
        ticking = asyncio.ensure_future(_pass(clock, 20))
        response = await client.response()
        assert response.body == large
        ticking.cancel()
        await client.closed()
        await _pass(clock, 1)
        await until(lambda: _ended(gateway))


@both_fronts
@every_path
@on_uvloop
async def test_the_last_bytes_of_an_answer_are_waited_for(lane: bool, path: bytes):
    """A request has ended for the gateway before a slow client has read its answer."""
    clock = ManualClock()
    body = b"x" * 50_000  # less than what aiohttp or the lane wait for
    async with (
        stand(lane, clock=clock, script=(WAIT, answer(body)), timeouts=Timeouts()) as (
            worker,
            gateway,
        ),
        connected(gateway.port, receive_buffer=2048) as client,
    ):
        client.send(post(BODY, path=path))
        await worker.until(lambda: len(worker.seen) == 1)
        client.transport.pause_reading()
        raw = (await server_side(gateway, client)).get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await _stop(gateway)
        worker.release()
        await until(lambda: not gateway.gateway.parts.desk.live)
        await _pass(clock, 2)
        assert not _ended(gateway)
        client.transport.resume_reading()
        assert (await client.response()).body == body
        await client.closed()
        await _pass(clock, 1)
        await until(lambda: _ended(gateway))


@both_fronts
@every_path
@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "streaming"])
@on_uvloop
async def test_what_does_not_end_in_time_is_cut(lane: bool, path: bytes, waiting: bool):
    clock, timeouts = ManualClock(), Timeouts(drain_timeout_s=30.0)
    script = (HANG,) if waiting else (STREAM_HEAD, chunk(delta("a")), HANG)
    async with (
        stand(lane, clock=clock, script=script, timeouts=timeouts) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(post(BODY, path=path))
        if not waiting:
            await client.head()
            await client.chunk()
        await worker.until(lambda: len(worker.seen) == 1)
        await _stop(gateway)
        await _pass(clock, 29)
        assert not _ended(gateway)
        assert not client.ended
        await _pass(clock, 2)
        assert _ended(gateway)
        await client.closed()
        await worker.until(lambda: worker.closed_by_peer == 1)
        if waiting:
            response = await client.response()
            assert response.status == 503
            assert b"gateway_stopping" in response.body
        else:
            assert b"gateway_stopping" in client.received
            assert not client.received.endswith(b"0\r\n\r\n")  # a cut answer looks cut
            assert b"[DONE]" not in client.received


@both_fronts
@every_path
@on_uvloop
async def test_a_body_that_does_not_come_holds_up_nothing(lane: bool, path: bytes):
    clock, timeouts = ManualClock(), Timeouts(drain_timeout_s=30.0)
    async with (
        stand(lane, clock=clock, timeouts=timeouts) as (_, gateway),
        connected(gateway.port) as client,
    ):
        client.send(post(BODY, path=path)[:-5])
        await until(lambda: bool(gateway.gateway.lanes or gateway.gateway.parts.bridged))
        await _stop(gateway)
        await _pass(clock, 31)
        await until(lambda: _ended(gateway))
        await client.closed()


@both_fronts
@pytest.mark.parametrize("delay", [0.0, 60.0])
@on_uvloop
async def test_a_second_stop_ends_at_once(lane: bool, delay: float):
    clock, timeouts = ManualClock(), Timeouts(drain_delay_s=delay)
    async with (
        stand(lane, clock=clock, script=(HANG,), timeouts=timeouts) as (worker, gateway),
        connected(gateway.port) as client,
    ):
        client.send(post(BODY))
        await worker.until(lambda: len(worker.seen) == 1)
        await _stop(gateway)
        await _pass(clock, 1)
        assert not _ended(gateway)
        gateway.gateway.stop()
        await _pass(clock, 0.05)
        assert _ended(gateway)
        await client.closed()
        await worker.until(lambda: worker.closed_by_peer == 1)


@both_fronts
@on_uvloop
async def test_connections_without_a_request(lane: bool):
    """Those of the lane are closed at once; whoever uses one of aiohttp's is told to close it."""
    clock = ManualClock()
    script = (WAIT, answer(BODY))
    async with (
        stand(lane, clock=clock, script=script) as (worker, gateway),
        connected(gateway.port) as busy,
        connected(gateway.port) as idle,
        connected(gateway.port) as handed,
    ):
        busy.send(post(BODY))
        handed.send(GET % b"/livez")
        assert (await handed.response()).status == 200
        await worker.until(lambda: len(worker.seen) == 1)
        await _stop(gateway)
        await _pass(clock, 0.1)
        if lane:
            await idle.closed()
        handed.send(post(BODY, path=RELAYED))
        await worker.until(lambda: len(worker.seen) == 2)
        worker.release()
        assert (await handed.response()).closes
        assert (await busy.response()).closes
        await _pass(clock, 1)
        await until(lambda: _ended(gateway))
        await idle.closed()


# The kernel's part


@both_fronts
@on_uvloop
async def test_the_kernel_gives_up_on_who_takes_nothing(lane: bool):
    """The answer is written as a whole, so no sweep sees that it isn't read."""
    timeouts = Timeouts(request_body_s=0.3)
    body = b"x" * 50_000  # less than what aiohttp or the lane wait for
    async with (
        stand(lane, script=(WAIT, answer(body)), timeouts=timeouts) as (worker, gateway),
        connected(gateway.port, receive_buffer=2048) as client,
    ):
        client.transport.pause_reading()
        client.send(post(BODY, b"connection: close", path=RELAYED))
        await worker.until(lambda: len(worker.seen) == 1)
        raw = (await server_side(gateway, client)).get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        worker.release()
        await until(lambda: not _connections(gateway), 10)


@both_fronts
@on_uvloop
async def test_silent_clients_are_asked_whether_they_live(lane: bool):
    async with stand(lane) as (_, gateway), connected(gateway.port) as client:
        client.send(GET % b"/livez")
        assert (await client.response()).status == 200
        (handler,) = gateway.gateway.lanes.to_aiohttp.connections  # type: ignore[attr-defined]
        raw = handler.transport.get_extra_info("socket")
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000


def _connections(gateway: Running) -> int:
    lanes = gateway.gateway.lanes
    return len(lanes) + len(lanes.to_aiohttp.connections)  # type: ignore[attr-defined]
