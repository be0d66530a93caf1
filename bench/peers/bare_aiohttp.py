"""A minimal aiohttp reverse proxy on uvloop: the yardstick of the bounds in bounds.py.

usage: bare_aiohttp.py PORT UPSTREAM_URL

It parses the body, forwards it, relays the answer and reads its usage; no keys, no queue, no
metrics, no log. Keep it as fast as plain aiohttp goes: a slow yardstick flatters us.
"""

import asyncio
import sys

import aiohttp
import orjson
import uvloop
from aiohttp import web

PORT, UPSTREAM = int(sys.argv[1]), sys.argv[2].rstrip("/")
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream", "cache-control": "no-cache"}
USAGE = {"requests": 0, "completion_tokens": 0}


async def proxy(request):
    raw = await request.read()
    body = orjson.loads(raw) if raw else {}
    USAGE["requests"] += 1
    session = request.app["session"]
    url = UPSTREAM + request.path
    async with session.request(request.method, url, data=raw or None, headers=JSON) as up:
        if body.get("stream"):
            return await relay(request, up)
        data = await up.read()
        if up.status == 200 and raw:
            usage = orjson.loads(data).get("usage") or {}
            USAGE["completion_tokens"] += usage.get("completion_tokens", 0)
        headers = {"content-type": up.headers["content-type"]}
        return web.Response(body=data, status=up.status, headers=headers)


async def relay(request, up):
    out = web.StreamResponse(status=up.status, headers=SSE)
    await out.prepare(request)
    async for chunk in up.content.iter_any():
        if chunk.find(b'"usage":{') >= 0:
            USAGE["completion_tokens"] += 1
        await out.write(chunk)
    await out.write_eof()
    return out


async def client_session(app):
    app["session"] = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )
    yield
    await app["session"].close()


async def main():
    app = web.Application(client_max_size=64 << 20)
    app.cleanup_ctx.append(client_session)
    app.router.add_route("*", "/{path:.*}", proxy)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT, backlog=4096).start()
    await asyncio.Event().wait()


uvloop.run(main())
