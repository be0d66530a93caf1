"""The same connections inside TLS: the hand-over, large bodies, hang-ups."""

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.settings import Limits, Timeouts, Tls
from tests.support.client import GET, connected, post
from tests.support.fronts import both_fronts, on_uvloop, settled, stand, until
from tests.support.scripted import (
    DONE_EVENT,
    HANG,
    LAST_CHUNK,
    STREAM_HEAD,
    answer,
    chunk,
    delta,
)
from tests.support.tls import make_certificate

BODY = b'{"model":"m","messages":[]}'
BOUND_S = 0.25
STREAM = (STREAM_HEAD, chunk(delta("hi", "stop") + DONE_EVENT) + LAST_CHUNK)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls(pair: tuple[Path, Path]) -> Tls:
    return Tls(str(pair[0]), str(pair[1]))


@pytest.fixture
def trust(pair: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pair[0]))


@both_fronts
@on_uvloop
async def test_over_the_seam(lane: bool, tls: Tls, trust: ssl.SSLContext):
    async with stand(lane, tls=tls) as (worker, gateway), connected(gateway.port, tls=trust) as c:
        assert gateway.said[-1].startswith("listening on https://")
        c.send(post(BODY))
        assert (await c.response()).status == 200
        c.send(post(BODY) * 2 + GET % b"/v1/models" + post(BODY) + GET % b"/nothing" + post(BODY))
        assert [(await c.response()).status for _ in range(6)] == [200, 200, 200, 200, 404, 200]
        worker.scripts = [STREAM]
        c.send(post(BODY))
        response = await c.response()
        assert response.body == delta("hi", "stop") + DONE_EVENT
    assert len(worker.seen) == 6


@both_fronts
@on_uvloop
async def test_byte_by_byte(lane: bool, tls: Tls, trust: ssl.SSLContext):
    async with stand(lane, tls=tls) as (worker, gateway), connected(gateway.port, tls=trust) as c:
        wire = post(BODY) + GET % b"/livez"
        for n in range(len(wire)):
            c.send(wire[n : n + 1])
            await asyncio.sleep(0)
        assert [(await c.response()).status for _ in range(2)] == [200, 200]
    assert [seen.body for seen in worker.seen] == [BODY]


@both_fronts
@on_uvloop
async def test_large_bodies_both_ways(lane: bool, tls: Tls, trust: ssl.SSLContext):
    large = b'{"model":"m","messages":["%b"]}' % (b"x" * 3_000_000)
    script = (answer(large),)
    async with stand(lane, tls=tls, script=script) as (worker, gateway):
        async with connected(gateway.port, tls=trust) as c:
            for _ in range(2):
                c.send(post(large) + post(BODY) + GET % b"/livez")
                answers = [await c.response() for _ in range(3)]
                c.send(post(large))
                answers.append(await c.response())
                assert [a.status for a in answers] == [200] * 4
                assert answers[0].body == answers[1].body == answers[3].body == large
        await settled(gateway)
    assert [len(seen.body) for seen in worker.seen] == [len(large), len(BODY), len(large)] * 2


@both_fronts
@on_uvloop
async def test_too_large(lane: bool, tls: Tls, trust: ssl.SSLContext):
    limits = Limits(body_bytes=1 << 20)
    async with stand(lane, tls=tls, limits=limits) as (_, gateway):
        async with connected(gateway.port, tls=trust) as c:
            c.send(post(bytes(2 << 20)))
            response = await c.response()
            assert response.status == 413
            assert b"1048576" in response.body
        await settled(gateway)


@both_fronts
@pytest.mark.parametrize("polite", [True, False], ids=["close-notify", "torn"])
@pytest.mark.parametrize("script", [(HANG,), (STREAM_HEAD, chunk(delta("a")), HANG)])
@on_uvloop
async def test_hanging_up(lane: bool, polite: bool, script: tuple, tls: Tls, trust: ssl.SSLContext):
    loop = asyncio.get_running_loop()
    async with stand(lane, tls=tls, script=script) as (worker, gateway):
        async with connected(gateway.port, tls=trust) as c:
            c.send(post(BODY))
            await worker.until(lambda: len(worker.seen) == 1)
            start = loop.time()
            (c.transport.close if polite else c.transport.abort)()
            await worker.until(lambda: worker.closed_by_peer == 1)
            assert loop.time() - start < BOUND_S
        await settled(gateway)


@both_fronts
@on_uvloop
async def test_a_client_that_does_not_read(lane: bool, tls: Tls, trust: ssl.SSLContext):
    count = 600
    script = (STREAM_HEAD, *[chunk(delta("x" * 60_000))] * count, *STREAM[1:])
    async with stand(lane, tls=tls, script=script) as (_, gateway):
        async with connected(gateway.port, tls=trust, receive_buffer=8192) as c:
            c.transport.pause_reading()
            c.send(post(BODY))
            endpoint = gateway.gateway.parts.fleet.workers[0].endpoint
            await until(lambda: any(call._paused for call in endpoint.busy))
            c.transport.resume_reading()
            response = await c.response()
            assert len(response.body) > count * 60_000
        await settled(gateway)


@both_fronts
@pytest.mark.parametrize("offered", [["h2", "http/1.1"], ["http/1.1"], ["h2"]])
@on_uvloop
async def test_only_http_1_is_offered(
    lane: bool, offered: list[str], tls: Tls, trust: ssl.SSLContext
):
    trust.set_alpn_protocols(offered)
    async with stand(lane, tls=tls) as (_, gateway), connected(gateway.port, tls=trust) as c:
        chosen = c.transport.get_extra_info("ssl_object").selected_alpn_protocol()
        assert chosen == ("http/1.1" if "http/1.1" in offered else None)


@both_fronts
@pytest.mark.parametrize("wire", [post(BODY), b"\0" * 100, b"\x16\x03\x01\x02\x00\x01", b"\n" * 20])
@on_uvloop
async def test_plain_bytes_on_a_port_of_tls(lane: bool, wire: bytes, tls: Tls):
    async with stand(lane, tls=tls) as (worker, gateway), connected(gateway.port) as c:
        c.send(wire)
        if not wire.startswith(b"\x16"):
            await c.closed()
        assert not len(gateway.gateway.lanes)
    assert not worker.seen


@both_fronts
@on_uvloop
async def test_a_handshake_that_does_not_come(lane: bool, tls: Tls):
    timeouts = Timeouts(request_head_s=0.05)
    async with (
        stand(lane, tls=tls, timeouts=timeouts) as (_, gateway),
        connected(gateway.port) as c,
    ):
        await c.closed()
