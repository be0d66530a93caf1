"""Hundreds of thousands of mixed requests: the memory of the gateway stays what it is."""

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Client, connected, post
from tests.support.hostility import PATHS
from tests.support.scripted import (
    CLOSE,
    DONE_EVENT,
    RESET,
    STREAM_HEAD,
    USAGE_EVENT,
    Script,
    Seen,
    answer,
    chunk,
    delta,
    scripted,
    streamed,
)
from tests.support.served import served
from tests.support.stand import STREAMING, body, reply

SEED = 20261130
CLIENTS = 16
WARM_UP, ROUND, ROUNDS = 60_000, 50_000, 4
MOST_GROWTH = 1 << 20  # bytes per 100,000 requests

PLAIN = [answer()]
LARGE = [answer(b"x" * 300_000)]
NO = [answer(b'{"error":{"message":"no"}}', "400 Bad Request")]
CUT = [STREAM_HEAD, chunk(delta("a")), CLOSE]
GONE = [RESET]
STREAM = streamed(*[delta("token")] * 5, delta("", "stop"), USAGE_EVENT, DONE_EVENT)
ENDS = {path: streamed(delta("a"), end) for path, end in STREAMING.items()}


def plan(seen: Seen) -> Script:
    """What the request asks to be played."""
    asked = json.loads(seen.body)
    path = seen.line.split()[1]
    return {
        "no": NO,
        "cut": CUT,
        "gone": GONE,
        "large": LARGE,
        "stream": ENDS.get(path, STREAM),
        "plain": PLAIN,
    }[asked["play"]]


def requests(dice: random.Random) -> tuple[bytes, bool]:
    """One request, and whether its client stays for the answer."""
    play = dice.choices(
        ("plain", "stream", "no", "cut", "gone", "large"), weights=(50, 40, 4, 3, 2, 1)
    )[0]
    path = dice.choice(PATHS) if play in ("plain", "stream", "no") else PATHS[0]
    model = f"unknown-{dice.random()}" if dice.random() < 0.02 else "m"
    fields: dict[str, object] = {"user": f"{dice.random()}", "play": play}
    if dice.random() < 0.01:
        fields["input"] = "x" * 200_000
    sent = body(model, stream=play in ("stream", "cut"), **fields)
    if dice.random() < 0.01:
        sent = sent[:-5]
    named = b"x-request-id: %d" % dice.randrange(1 << 60)
    return post(sent, named, path=path), dice.random() < 0.98


async def load(port: int, count: int, dice: random.Random) -> None:
    """So many requests, on connections that are kept as long as they last."""
    left = iter(range(count))

    async def one_client() -> None:
        more = True
        while more:
            async with connected(port) as client:
                more = await until_it_ends(client, left, dice)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(one_client())


async def until_it_ends(client: Client, left: Iterator[int], dice: random.Random) -> bool:
    """Requests on one connection, one after the other; whether there are more to send."""
    for _ in left:
        request, stays = requests(dice)
        client.send(request)
        if not stays:
            return True
        got = await reply(client)
        if not got.whole or got.head.closes or client.ended:
            return True
    return False


def resident(process: int) -> int:
    """Bytes of memory that a process has now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_memory_stays_what_it_is(tmp_path: Path):
    async with scripted(plan=plan) as worker, contextlib.AsyncExitStack() as stack:
        manager = served(worker.url)
        gateway = await asyncio.to_thread(manager.__enter__)
        stack.push_async_callback(asyncio.to_thread, manager.__exit__, None, None, None)
        port, pid = int(gateway.url.rpartition(":")[2]), gateway.program.pid
        dice = random.Random(SEED)
        sizes = []
        for count in (WARM_UP, *[ROUND] * ROUNDS):
            await load(port, count, dice)
            worker.seen.clear()
            sizes.append(resident(pid))
        growth = (sizes[-1] - sizes[0]) * 100_000 / (ROUND * ROUNDS)
        shown = ", ".join(f"{size / 1e6:.1f}" for size in sizes)
        print(f"resident MB: {shown}; {growth / 1e6:.2f} MB per 100,000 requests")
        assert growth < MOST_GROWTH, shown
