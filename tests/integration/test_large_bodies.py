"""Large bodies are read straight into their place, whatever the loop, and end where they end."""

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from gateway.settings import Tls
from tests.support import scripted as s
from tests.support.running import Running, running, settings_for
from tests.support.tls import make_certificate

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
SIZES = (1 << 16, 200_000, 5_000_000)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def request(size: int) -> bytes:
    """A POST whose body has about `size` bytes."""
    body = json.dumps({"model": "m", "messages": [], "image": "x" * size}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


async def answer_on(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length))


async def large_small_large(
    gateway: Running, worker: s.Scripted, tls: ssl.SSLContext | None
) -> None:
    """Two requests in one go: the small one must be found right behind the large one. And on."""
    for size in SIZES:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, ssl=tls)
        writer.write(request(size) + request(10))
        assert await answer_on(reader) == s.ANSWER
        assert await answer_on(reader) == s.ANSWER
        writer.write(request(size))
        assert await answer_on(reader) == s.ANSWER
        got = [len(json.loads(seen.body)["image"]) for seen in worker.seen[-3:]]
        assert got == [size, 10, size]
        writer.close()
    parts = gateway.gateway.parts
    await worker.until(lambda: parts.desk.live == 0 and parts.desk.memory.held == 0)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_bodies_end_where_they_end(
    loop: Callable[[], asyncio.AbstractEventLoop], secure: bool, certificate: tuple[Path, Path]
) -> None:
    async def story() -> None:
        tls = None
        changes: dict[str, object] = {}
        if secure:
            tls = ssl.create_default_context(cafile=str(certificate[0]))
            tls.check_hostname = False
            changes["tls"] = Tls(str(certificate[0]), str(certificate[1]))
        async with s.scripted() as worker, running(settings_for(worker.url, **changes)) as gateway:
            await large_small_large(gateway, worker, tls)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_client_that_leaves_in_the_middle_leaves_nothing(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        async with s.scripted() as worker, running(settings_for(worker.url)) as gateway:
            parts, lanes = gateway.gateway.parts, gateway.gateway.lanes
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                writer.write(request(3_000_000)[:2_000_000])
                await writer.drain()
                writer.close()
            await worker.until(lambda: len(lanes) == 0 and parts.desk.memory.held == 0)
            assert worker.seen == []

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())
