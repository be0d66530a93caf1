"""Nothing holds up the event loop: CPU time of each of its turns, measured in the gateway."""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
import uvloop

from tests.support import scripted as s
from tests.support.running import running, settings_for

LIMIT_S = 0.005
LIMIT_LARGE_BODY_S = 0.020


class Watchdog:
    """The longest turn of a loop, in CPU seconds of its thread: all callbacks that ran in it."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._last = 0.0
        self._on = True

    def watch(self) -> None:
        """To be called on the loop; it goes on until `stop`."""
        now = time.thread_time()
        if self._last:
            self.worst = max(self.worst, now - self._last)
        self._last = now
        if self._on:
            asyncio.get_running_loop().call_soon(self.watch)

    def stop(self) -> None:
        self._on = False


class Served:
    """A gateway and its worker, in a thread of their own each, so that only theirs is measured."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.url = ""
        self._watchdog = watchdog
        self._ready = threading.Event()
        self._end: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._threads = [threading.Thread(target=asyncio.run, args=(self._work(),))]
        self._threads[0].start()
        assert self._ready.wait(10)
        self._ready.clear()
        self._threads.append(threading.Thread(target=uvloop.run, args=(self._serve(),)))
        self._threads[1].start()
        assert self._ready.wait(10)

    async def _work(self) -> None:
        stream = (s.STREAM_HEAD, *(s.chunk(s.delta("word " * 20)) for _ in range(300)))
        end = (s.chunk(s.delta("", "stop")), s.chunk(s.USAGE_EVENT), s.chunk(s.DONE_EVENT))
        async with s.scripted(scripts=[(*stream, *end, s.LAST_CHUNK)] * 5) as worker:
            self.worker_url = worker.url
            await self._until_the_end()

    async def _serve(self) -> None:
        async with running(settings_for(self.worker_url)) as gateway:
            self.url = gateway.url
            self._watchdog.watch()
            await self._until_the_end()
            self._watchdog.stop()

    async def _until_the_end(self) -> None:
        end = asyncio.Event()
        self._end.append((asyncio.get_running_loop(), end))
        self._ready.set()
        await end.wait()

    def close(self) -> None:
        for (loop, end), thread in reversed(list(zip(self._end, self._threads, strict=True))):
            loop.call_soon_threadsafe(end.set)
            thread.join(10)

    def ask(self, path: str = "/v1/chat/completions", **members: object) -> bytes:
        body = json.dumps({"model": "m", "messages": [], **members}).encode()
        request = urllib.request.Request(self.url + path, body, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()


@pytest.fixture
def watchdog() -> Watchdog:
    return Watchdog()


@pytest.fixture
def served(watchdog: Watchdog) -> Iterator[Served]:
    gateway = Served(watchdog)
    gateway.ask(stream=True)  # first uses compile and cache
    watchdog.worst = 0.0
    yield gateway
    gateway.close()


def test_no_callback_of_requests_and_streams_takes_long(served: Served, watchdog: Watchdog) -> None:
    for _ in range(4):
        assert b"[DONE]" in served.ask(stream=True)
    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/rerank") * 10:
        assert b"choices" in served.ask(path)
    assert watchdog.worst < LIMIT_S


def test_a_large_body_takes_no_longer_than_it_must(served: Served, watchdog: Watchdog) -> None:
    for _ in range(3):
        served.ask(image="iVBORw0KGgoAAAANSUhE" * 524288)
    assert watchdog.worst < LIMIT_LARGE_BODY_S
