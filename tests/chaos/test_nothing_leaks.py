"""Thousands of requests that go wrong, and nothing is left of any: tasks, files, counts, memory.

1,000 answers that break off, 1,000 clients that leave at random moments, 500 requests that make no
sense; then everything is as it was before the first of them.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from gateway.settings import Timeouts
from tests.support.clock import steady, until
from tests.support.hostility import (
    Plans,
    files_of,
    hang_ups,
    malformed,
    objects,
    threads_of,
    upstream_cuts,
)
from tests.support.scripted import Scripted, answer, scripted
from tests.support.served import served
from tests.support.stand import Stand, standing

SEED = 20261130
CUTS, HANG_UPS, MALFORMED = 1000, 1000, 500
SOON = Timeouts(worker_idle_s=0.2, drain_timeout_s=2.0)


def counts(stand: Stand) -> dict[str, object]:
    """Everything that the gateway counts, and what this process has open."""
    gateway = stand.running.gateway
    parts = gateway.parts
    return {
        "exchanges": parts.desk.live,
        "body memory": parts.desk.memory.held,
        "running": [w.running for w in parts.fleet.workers],
        "busy": [len(w.endpoint.busy) for w in parts.fleet.workers],
        "idle": [len(w.endpoint.idle) for w in parts.fleet.workers],
        "lanes": len(gateway.lanes),
        "aiohttp": gateway.lanes.others,
        "worker's connections": sum(w.open for w in stand.workers),
        "tasks": len(asyncio.all_tasks()),
        "files": files_of(),
    }


async def settles_as(stand: Stand, before: dict[str, object], seconds: float = 10.0) -> None:
    """Everything is again as it was before, soon."""
    try:
        await until(lambda: counts(stand) == before, seconds)
    except TimeoutError:
        assert counts(stand) == before


async def hostile(port: int, worker: Scripted, share: float, dice: random.Random) -> None:
    """All three kinds, in their numbers."""
    plans = Plans(dice)
    worker.plan = plans
    ends = await upstream_cuts(port, plans, int(CUTS * share))
    assert min(ends["502 whole"], ends["200 cut"], ends["200 whole"]) > 0
    plans.forget()
    ends = await hang_ups(port, plans, int(HANG_UPS * share))
    assert len(ends) == 4
    plans.forget()
    worker.plan = lambda seen: [answer()]
    ends = await malformed(port, plans, int(MALFORMED * share))
    assert ends["400"] > 0
    worker.plan = None
    worker.seen.clear()


async def well(stand: Stand) -> None:
    """Some requests that go well, through both doors."""
    for path in (b"/v1/chat/completions", b"/v1/messages"):
        assert (await stand.ask(path=path)).status == 200


async def check(stand: Stand, dice: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    await well(stand)
    before, alive = await steady(lambda: counts(stand)), objects()
    await hostile(stand.running.port, stand.worker, 1.0, dice)
    await settles_as(stand, before)
    await well(stand)
    await settles_as(stand, before)
    assert [record.getMessage() for record in caplog.records] == []  # none of it is our fault
    left = objects() - alive
    assert left == Counter(), left


@pytest.mark.parametrize("with_lane", [True, False], ids=["lane", "bridge"])
async def test_nothing_is_left_in_the_process(with_lane: bool, caplog: pytest.LogCaptureFixture):
    async with standing(with_lane=with_lane, timeouts=SOON) as stand:
        await check(stand, random.Random(SEED), caplog)


async def test_nothing_is_left_of_a_process(tmp_path: Path):
    """The same seen from outside: the gateway as its users run it."""
    async with scripted() as worker:
        config = tmp_path / "gateway.yaml"
        config.write_text(
            f"pools: {{p: {{model: m, workers: ['{worker.url}']}}}}\n"
            "timeouts: {worker_idle: 200ms}\n"
        )
        manager = served("--config", str(config))
        gateway = await asyncio.to_thread(manager.__enter__)
        try:
            pid, port = gateway.program.pid, int(gateway.url.rpartition(":")[2])
            dice = random.Random(SEED)
            await hostile(port, worker, 0.1, dice)  # what is made once is made now
            before = await steady(lambda: (files_of(pid), threads_of(pid), worker.open))
            assert before[2] == 0
            await hostile(port, worker, 1.0, dice)
            await until(lambda: (files_of(pid), threads_of(pid), worker.open) == before, 20)
        finally:
            await asyncio.to_thread(manager.__exit__, None, None, None)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
async def test_nothing_is_left_over_many_seeds(seed: int, caplog: pytest.LogCaptureFixture):
    async with standing(timeouts=SOON) as stand:
        await check(stand, random.Random(seed), caplog)
