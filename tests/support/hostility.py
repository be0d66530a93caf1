"""Clients and a worker that do harm at random moments, from a seed; and what a process has open."""

import asyncio
import contextlib
import gc
import json
import os
import random
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.dispatch.exchange import Exchange
from gateway.front.bridge import Bridge
from gateway.front.lane import Lane
from gateway.workers.upstream import Connection
from tests.support.client import Client, Cut, connected, post
from tests.support.scripted import (
    CLOSE,
    HANG,
    LAST_CHUNK,
    RESET,
    STREAM_HEAD,
    Script,
    Seen,
    answer,
    chunk,
)
from tests.support.stand import STREAMING, body, reply

PATHS = (*STREAMING, b"/v1/embeddings", b"/v1/rerank")
AT_ONCE = 40
BY_CLOSE = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


async def many(job: Callable[[], Awaitable[None]], count: int) -> None:
    """Do it so often, some at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def run() -> None:
        async with gate:
            await job()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(run())


class Plans:
    """What the worker plays for each request, by the name that the request has in its body."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self._scripts: dict[str, Script] = {}
        self._made = 0

    def add(self, script: Script) -> str:
        """Returns the name."""
        self._made += 1
        name = f"r{self._made}"
        self._scripts[name] = script
        return name

    def __call__(self, seen: Seen) -> Script:
        return self._scripts[json.loads(seen.body)["user"]]

    def forget(self) -> None:
        self._scripts.clear()

    def pieces(self, data: bytes) -> list[bytes]:
        """`data` in one to three pieces."""
        at = sorted(self.dice.randrange(len(data) + 1) for _ in range(self.dice.randrange(3)))
        return [p for p in (data[i:j] for i, j in zip([0, *at], [*at, None], strict=True)) if p]


# ---- workers that break off


def _whole_answer(dice: random.Random, path: bytes, *, streams: bool) -> tuple[bytes, bytes]:
    """As it is sent, and its body."""
    if not streams or path not in STREAMING:
        said = json.dumps({"x": "y" * dice.choice((0, 10, 10_000))}).encode()
        return answer(said), said
    events = [b'data: {"n":%d}\n\n' % i for i in range(dice.randrange(1, 20))]
    events.append(STREAMING[path])
    if dice.random() < 0.2:
        return BY_CLOSE + b"".join(events), b"".join(events)
    return STREAM_HEAD + b"".join(map(chunk, events)) + LAST_CHUNK, b"".join(events)


async def upstream_cuts(port: int, plans: Plans, count: int) -> Counter[str]:
    """So many requests whose answer breaks off somewhere; none may look whole that isn't."""
    ends: Counter[str] = Counter()

    async def one() -> None:
        dice = plans.dice
        path, streams = dice.choice(PATHS), dice.random() < 0.6
        sent, said = _whole_answer(dice, path, streams=streams)
        if dice.random() < 0.9:
            sent = sent[: dice.randrange(len(sent))]
        end = dice.choice((CLOSE, RESET))
        name = plans.add([*plans.pieces(sent), end])
        async with connected(port) as client:
            client.send(post(body(stream=streams, user=name), path=path))
            got = await reply(client)
        ends[f"{got.status} {'whole' if got.whole else 'cut'}"] += 1
        if got.status == 200 and got.whole:
            assert got.body.rstrip() == said.rstrip()  # an end mark needs no blank line behind it
        else:
            assert got.status in (200, 502)
            assert not got.body.endswith(STREAMING.get(path, b"\0")) or not streams

    await many(one, count)
    return ends


# ---- clients that leave


async def hang_ups(port: int, plans: Plans, count: int) -> Counter[str]:
    """So many clients that leave: in the middle of their request, waiting, in the middle of it."""
    ends: Counter[str] = Counter()

    async def one() -> None:
        dice = plans.dice
        path, streams = dice.choice(PATHS), dice.random() < 0.6
        sent, _ = _whole_answer(dice, path, streams=streams)
        script = [*plans.pieces(sent[: dice.randrange(len(sent))]), HANG]
        name = plans.add(dice.choice((script, [HANG])))
        padding = "x" * dice.choice((0, 0, 1000, 100_000))
        request = post(body(stream=streams, user=name, input=padding), path=path)
        moment = dice.choice(("sending", "sent", "a turn later", "the first byte"))
        async with connected(port) as client:
            client.send(request[: dice.randrange(len(request))] if moment == "sending" else request)
            await _wait(client, dice, moment)
            _leave(client, dice)
        ends[moment] += 1

    await many(one, count)
    return ends


async def _wait(client: Client, dice: random.Random, moment: str) -> None:
    if moment == "a turn later":
        for _ in range(dice.randrange(20)):
            await asyncio.sleep(0)
    elif moment == "the first byte":
        with contextlib.suppress(TimeoutError):  # if there is none
            await client.until(lambda: client.ended or client.received, 0.05)


def _leave(client: Client, dice: random.Random) -> None:
    """By FIN, by RST, or by both, one after the other."""
    how = dice.randrange(3)
    if how == 0:
        client.transport.close()
    elif how == 1:
        raw = client.transport.get_extra_info("socket")
        raw.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER
        client.transport.abort()
    else:
        client.transport.write_eof()


# ---- requests that make no sense

_BODY = b'{"model": "m", "stream": true, "user": "none"}'
_GOOD = post(_BODY)


def _nonsense(dice: random.Random) -> bytes:
    kinds: list[Callable[[], bytes]] = [
        lambda: dice.randbytes(dice.randrange(1, 300)),
        lambda: _mutated(dice, _GOOD),
        lambda: _mutated(dice, _GOOD),
        lambda: _GOOD[: dice.randrange(1, len(_GOOD))],
        lambda: post(dice.randbytes(dice.randrange(100))),
        lambda: post(b"[" * dice.choice((10, 100_000))),
        lambda: post(b'{"model": %b}' % dice.choice((b"1", b"null", b'"none"', b"{}", b'"\xff"'))),
        lambda: post(_BODY[: dice.randrange(len(_BODY))]),
        lambda: post(_BODY, b"content-length: 3"),
        lambda: post(_BODY, b"transfer-encoding: chunked"),
        lambda: post(_BODY, b"host: again"),
        lambda: post(_BODY, b"x: " + b"y" * 40_000),
        lambda: post(_BODY, b"content-encoding: gzip"),
        lambda: post(_BODY, b"content-encoding: br"),
        lambda: post(_BODY, b"expect: 100-continue", b"connection: close"),
        lambda: post(
            _BODY, path=dice.choice((b"/", b"/v1/nowhere", b"/v1/%2e%2e/x", b"*", b"/v1"))
        ),
        lambda: post(_BODY, method=dice.choice((b"GET", b"PUT", b"DELETE", b"PATCH", b"X"))),
        lambda: _GOOD.replace(
            b"HTTP/1.1", dice.choice((b"HTTP/1.0", b"HTTP/0.9", b"HTTP/3", b"x"))
        ),
        lambda: _GOOD.replace(b"application/json", b"multipart/form-data; boundary=x"),
        lambda: _chunks(dice.choice((b"zz\r\n", b"-1\r\n", b"5\r\nab", b"2\r\n{}0\r\n\r\n"))),
        lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 9,
        lambda: b"\x16\x03\x01\x02\x00" + dice.randbytes(200),
    ]
    return dice.choice(kinds)()


def _mutated(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        changed[dice.randrange(len(changed))] = dice.choice((dice.randrange(256), 10, 13, 0, 32))
    return bytes(changed)


def _chunks(rest: bytes) -> bytes:
    head, _, _ = post(b"", b"transfer-encoding: chunked").partition(b"content-length")
    return head + b"x: y\r\n\r\n" + rest


async def malformed(port: int, plans: Plans, count: int) -> Counter[str]:
    """So many requests of which none can be answered well, but by chance."""
    ends: Counter[str] = Counter()

    async def one() -> None:
        request = _nonsense(plans.dice)
        async with connected(port) as client:
            client.send(request)
            try:
                await client.until(lambda: client.ended or client.received, 0.5)
            except TimeoutError:
                ends["no answer"] += 1
                return
            try:
                head = await client.head(0.5)
                ends[str(head.status)] += 1
                assert head.status != 500, request
            except (Cut, TimeoutError):
                ends["closed"] += 1

    await many(one, count)
    return ends


# ---- what is open


def files_of(process: int | str = "self") -> Counter[str]:
    """The open files of a process, by kind."""
    kinds: Counter[str] = Counter()
    folder = Path(f"/proc/{process}/fd")
    for name in os.listdir(folder):  # noqa: PTH208  (names only; each may be gone by now)
        try:
            kinds[str((folder / name).readlink()).partition(":")[0]] += 1
        except FileNotFoundError:
            continue
    return kinds


def threads_of(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/task"))  # noqa: PTH208


def objects() -> Counter[str]:
    """Objects of which each request or connection has its own, alive in this process."""
    gc.collect()
    kinds = (Exchange, Bridge, Lane, Connection)
    return Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, kinds))
