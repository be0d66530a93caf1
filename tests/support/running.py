"""A gateway inside the test's own loop, on a free port, with everything in reach."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.app.run import Gateway
from gateway.clock import SystemClock
from gateway.settings import Limits, Listen, Log, PoolSettings, Settings, Timeouts, WorkerSettings
from tests.support.clock import ManualClock


@dataclass
class Running:
    """A gateway that listens."""

    gateway: Gateway
    said: list[str]

    @property
    def port(self) -> int:
        return self.gateway.addresses[0][1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def settings_for(*urls: str, **changes: object) -> Settings:
    """Settings of a gateway before `urls`, which tell their own models; the log is off."""
    workers = tuple(WorkerSettings(url=url) for url in urls)
    base = Settings(
        pools=(PoolSettings(name="default", workers=workers),),
        listen=Listen("127.0.0.1", 0),
        log=Log(requests=False),
        timeouts=Timeouts(drain_timeout_s=2.0),
        limits=Limits(),
    )
    return replace(base, **changes)


@asynccontextmanager
async def running(
    settings: Settings, *, with_lane: bool = True, clock: object = None
) -> AsyncIterator[Running]:
    """Start it, wait until it listens, stop it at the end."""
    said: list[str] = []
    gateway = Gateway(settings, clock or SystemClock(), said.append)
    life = asyncio.create_task(gateway.run(with_lane=with_lane))
    ready = asyncio.create_task(gateway.ready.wait())
    await asyncio.wait({life, ready}, return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        ready.cancel()
        life.result()
    try:
        yield Running(gateway, said)
    finally:
        gateway.stop()
        gateway.stop()
        while isinstance(clock, ManualClock) and not life.done():
            await clock.advance(0.05)  # it may be asleep by this clock
        await life
