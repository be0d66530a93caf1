"""The same exchange behind an aiohttp handler, for whatever isn't the lane's.

Chunked and compressed bodies, Expect, HTTP/1.0, every relayed path.

Promises: the handler returns only after the exchange has settled; a client that goes away aborts
it.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web
from multidict import CIMultiDict

from gateway.dispatch.desk import Desk
from gateway.dispatch.exchange import Exchange
from gateway.errors import GatewayError
from gateway.front import body as bodies
from gateway.front import refusals
from gateway.front.heads import bridge_head
from gateway.requests import Fields

BUFFER_BYTES = 64 << 10  # beyond it the worker is paused


class Bridge:
    """A sink that an aiohttp handler drains (`gateway.ports.ReplySink`).

    Attributes:
        closes: the connection ends with this answer.
        exchange: whose sink it is.
    """

    def __init__(self, request: web.Request, path: bytes, *, closes: bool) -> None:
        self.closes = closes
        self.exchange: Exchange | None = None
        self._request = request
        self._path = path
        self._parts: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._response: web.StreamResponse | None = None
        self._last = self._broken = self._paused = False

    def refuse(self, error: GatewayError, request_id: bytes) -> None:
        """See `gateway.ports.ReplySink`."""
        status, fields, body = refusals.render(error, self._path, request_id)
        self.begin(status, fields, len(body), body, last=True)

    def begin(
        self, status: int, fields: Fields, length: int | None, data: bytes, *, last: bool
    ) -> None:
        """See `gateway.ports.ReplySink`."""
        headers = CIMultiDict((n.decode("latin-1"), v.decode("latin-1")) for n, v in fields)
        headers.setdefault("Server", "tiergate")
        response = web.StreamResponse(status=status, headers=headers)
        if length is not None:
            response.content_length = length
        if self.closes:
            response.force_close()
        self._response = response
        self.write(data, last=last)

    def write(self, data: bytes, *, last: bool) -> None:
        """See `gateway.ports.ReplySink`."""
        if data:
            self._parts.append(data)
            self._size += len(data)
            if self._size > BUFFER_BYTES and not self._paused and self.exchange is not None:
                self._paused = True
                self.exchange.pause()
        self._last = last
        self._wake.set()

    def cut(self) -> None:
        """See `gateway.ports.ReplySink`."""
        self._broken = True
        self._wake.set()

    async def drain(self) -> web.StreamResponse:
        """Write what the exchange brings, until its end."""
        await self._wake.wait()
        response = self._response
        assert response is not None  # noqa: S101  (a sink hears `refuse` or `begin` first)
        await response.prepare(self._request)
        while True:
            self._wake.clear()
            data, self._parts, self._size = b"".join(self._parts), [], 0
            if data:
                await response.write(data)
            if self._parts:
                continue
            if self._broken:
                self._close_unfinished()
                return response
            if self._last:
                await response.write_eof()
                return response
            if self._paused:
                self._paused = False
                if self.exchange is not None:
                    self.exchange.resume()
            await self._wake.wait()

    def _close_unfinished(self) -> None:
        """Close behind what was written, without a last chunk: a broken answer looks broken."""
        transport = self._request.transport
        if transport is not None:
            transport.close()


class Bridged:
    """Handlers for aiohttp's routes that lead to an exchange."""

    def __init__(
        self,
        desk: Desk,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        draining: Callable[[], bool],
    ) -> None:
        self._desk = desk
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._draining = draining

    async def relay(self, request: web.Request, path: bytes) -> web.StreamResponse:
        """Send the request on to the pool of the model that its body names."""
        head = bridge_head(path, request.raw_headers)
        bridge = Bridge(request, path, closes=self._draining())
        bridge.exchange = exchange = Exchange(self._desk, bridge, head)
        try:
            try:
                body, held = await bodies.read(
                    request,
                    memory=self._desk.memory,
                    max_bytes=self._max_body_bytes,
                    timeout_s=self._body_timeout_s,
                )
            except GatewayError as error:
                bridge.closes = True  # what is left of the body is in the way of the next request
                exchange.refuse(error)
            else:
                exchange.take(body, held)
                del body  # the exchange drops it when nothing can be sent again; so must we
            return await bridge.drain()
        finally:
            exchange.abort()  # nothing, if it ended well

    async def refuse(
        self, request: web.Request, path: bytes, error: GatewayError
    ) -> web.StreamResponse:
        """Answer with `error`, and remember that."""
        bridge = Bridge(request, path, closes=self._draining())
        bridge.exchange = exchange = Exchange(
            self._desk, bridge, bridge_head(path, request.raw_headers)
        )
        exchange.refuse(error)
        return await bridge.drain()
