"""Time. Every other module takes a `Clock` or a `now`; nobody else reads the time or sleeps."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The time as the shells see it."""

    def now(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `now` has advanced by `seconds`."""
        ...


class SystemClock:
    """The machine's clock."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)
