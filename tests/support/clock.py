"""A clock that stands still until a test moves it."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_TURNS = 20  # of the loop after each wake-up: what was woken does what it does at once


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until `condition()` holds; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (nothing would set an event)
            await asyncio.sleep(0.005)


async def steady(look: Callable[[], T], seconds: float = 0.6) -> T:
    """What is seen, once it has stayed the same for so long."""
    seen, polls = look(), 0
    async with asyncio.timeout(30):
        while polls < seconds / 0.02:
            await asyncio.sleep(0.02)
            now = look()
            polls = polls + 1 if now == seen else 0
            seen = now
    return seen


class ManualClock:
    """`gateway.clock.Clock` in a test's hand."""

    def __init__(self, now: float = 1000.0, wall: float = 1_780_000_000.0) -> None:
        self._now = now
        self._offset = wall - now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._offset

    async def sleep(self, seconds: float) -> None:
        """Return once the test has moved the clock so far."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    def jump(self, seconds: float) -> None:
        """Let time pass for those who look at the clock; sleepers stay asleep."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass: whoever sleeps wakes in order, at his own moment, and gets to run."""
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not woken.done():
                woken.set_result(None)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        self._now = end
        await asyncio.sleep(0)  # or a loop that waits by advancing might never let others run
