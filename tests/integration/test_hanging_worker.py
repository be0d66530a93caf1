"""A worker that accepts and then says nothing must not keep its share of the requests."""

import asyncio
import json

import aiohttp
import pytest

from tests.support import scripted as s
from tests.support.clock import until
from tests.support.running import Running, running, settings_for


async def ask(client: aiohttp.ClientSession, gateway: Running) -> int:
    body = json.dumps({"model": "m", "messages": []})
    async with client.post(gateway.url + "/v1/chat/completions", data=body) as answer:
        await answer.read()
        return answer.status


async def test_a_worker_that_hangs_is_left_out_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.workers.discovery.PATIENCE_S", 0.2)
    monkeypatch.setattr("gateway.workers.discovery.EVERY_S", 0.1)
    monkeypatch.setattr("gateway.workers.discovery.EVERY_WHEN_ILL_S", 0.1)
    async with (
        s.scripted() as sick,
        s.scripted() as well,
        running(settings_for(sick.url, well.url)) as gateway,
        aiohttp.ClientSession() as client,
    ):
        first = gateway.gateway.parts.fleet.workers[0]
        now = gateway.gateway.parts.desk.now
        sick.listing, sick.default = (s.HANG,), (s.HANG,)
        await until(lambda: first.ejected_until > now())
        for _ in range(20):
            assert await asyncio.wait_for(ask(client, gateway), 2) == 200
        sick.listing, sick.default = None, well.default
        await until(lambda: first.well)
        before = len(sick.seen)
        await asyncio.gather(*(ask(client, gateway) for _ in range(20)))
        assert len(sick.seen) > before
