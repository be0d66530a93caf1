"""A gateway and its worker for one test, on uvloop as in production, with the lane and without."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from gateway.clock import Clock
from tests.support.running import Running, running, settings_for
from tests.support.scripted import Script, Scripted, answer, scripted

PLAIN: Script = (answer(),)

both_fronts = pytest.mark.parametrize("lane", [True, False], ids=["lane", "aiohttp"])


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test as a plain function that runs on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


@asynccontextmanager
async def stand(
    lane: bool,
    *,
    script: Script = PLAIN,
    model: str = "m",
    clock: Clock | None = None,
    **settings: object,
) -> AsyncIterator[tuple[Scripted, Running]]:
    """One gateway before one worker; `settings` are changes."""
    async with (
        scripted(default=script, model=model) as worker,
        running(settings_for(worker.url, **settings), with_lane=lane, clock=clock) as gateway,
    ):
        yield worker, gateway


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Look at `condition` until it holds; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (most conditions are the kernel's)
            await asyncio.sleep(0.001)


async def settled(gateway: Running, seconds: float = 5.0) -> None:
    """Wait until nothing of any request is left: no exchange, no place, no memory."""
    parts = gateway.gateway.parts
    await until(
        lambda: not parts.desk.live and not parts.desk.memory.held and not len(parts.bridged),
        seconds,
    )
    assert [worker.running for worker in parts.fleet.workers] == [0] * len(parts.fleet.workers)


def without(fields: Iterable[tuple[bytes, bytes]], *names: bytes) -> list[tuple[bytes, bytes]]:
    """`fields` but for those of these names."""
    return [(name, value) for name, value in fields if name.lower() not in names]
