"""The same exchange behind an aiohttp handler, for whatever isn't the lane's.

Chunked and compressed bodies, Expect, HTTP/1.0, every relayed path.

Promises: the handler returns only after the exchange has settled; a client that goes away aborts
it; one that doesn't send or read on is given up by the same sweep as in the lane.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress

from aiohttp import web
from multidict import CIMultiDict

from gateway.dispatch.desk import Desk
from gateway.dispatch.exchange import Exchange
from gateway.errors import GatewayError
from gateway.front import body as bodies
from gateway.front import refusals
from gateway.front.heads import bridge_head
from gateway.front.lanes import Patience
from gateway.requests import Fields

BUFFER_BYTES = 64 << 10  # beyond it the worker is paused


class Bridge:
    """A sink that an aiohttp handler drains (`gateway.ports.ReplySink`).

    Attributes:
        closes: the connection ends with this answer.
        exchange: whose sink it is.
        since: when it last began to wait for something from the client.
        waits_for: what the client owes, a key of `Bridged.limits`; empty = nothing.
        deadline: for reading the body; due when the sweep says so.
    """

    def __init__(self, request: web.Request, path: bytes, bridged: "Bridged") -> None:
        self.closes = False
        self.exchange: Exchange | None = None
        self.since = bridged.now()
        self.waits_for = "body"
        self.deadline = asyncio.timeout(None)
        self._bridged = bridged
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
        headers = CIMultiDict((n.decode("latin-1"), _text(v)) for n, v in fields)
        headers.setdefault("Server", "tiergate")
        response = web.StreamResponse(status=status, headers=headers)
        if length is not None:
            response.content_length = length
        if self.closes or self._bridged.draining:
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
        self.waits_for = ""
        await self._wake.wait()
        response = self._response
        assert response is not None  # noqa: S101  (a sink hears `refuse` or `begin` first)
        with suppress(ConnectionError):  # the client has gone, and aiohttp hasn't cancelled us yet
            await self._drain_into(response)
        return response

    async def _drain_into(self, response: web.StreamResponse) -> None:
        await response.prepare(self._request)
        while True:
            self._wake.clear()
            data, self._parts, self._size = b"".join(self._parts), [], 0
            if data:
                await self._written(response.write(data))
            if self._parts:
                continue
            if self._broken:
                self._close_unfinished()
                return
            if self._last:
                await self._written(response.write_eof())
                return
            if self._paused:
                self._paused = False
                if self.exchange is not None:
                    self.exchange.resume()
            await self._wake.wait()

    async def _written(self, write: Awaitable[None]) -> None:
        """Wait for the client to read on, for a limited time."""
        self.since = self._bridged.now()
        self.waits_for = "reading"
        await write
        self.waits_for = ""

    def give_up(self) -> None:
        """The client has taken too long for what it owes."""
        if self.waits_for == "body":
            self.deadline.reschedule(0.0)
        elif self._request.transport is not None:
            self._request.transport.abort()  # it doesn't read, so there is no polite way

    def _close_unfinished(self) -> None:
        """Close behind what was written, without a last chunk: a broken answer looks broken."""
        transport = self._request.transport
        if transport is not None:
            transport.close()


def _text(value: bytes) -> str:
    """A field's value for aiohttp, which writes UTF-8: that passes as it is, latin-1 doesn't."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


class Bridged:
    """Handlers for aiohttp's routes that lead to an exchange.

    Attributes:
        draining: answers close their connection.
        now: the gateway's clock.
        limits: how long a client may take for a body, and to read on; 0 = as long as it likes.
    """

    def __init__(self, desk: Desk, *, max_body_bytes: int, patience: Patience) -> None:
        self.draining = False
        self.now = desk.now
        self.limits = {"body": patience.body, "reading": patience.body}
        self._desk = desk
        self._max_body_bytes = max_body_bytes
        self._busy: set[Bridge] = set()

    def __len__(self) -> int:
        """Requests whose answer isn't written yet."""
        return len(self._busy)

    def sweep(self, now: float) -> None:
        """Give up on clients that have waited too long with what they owe."""
        for bridge in list(self._busy):
            limit = self.limits[bridge.waits_for] if bridge.waits_for else 0
            if limit and now - bridge.since > limit:
                bridge.give_up()

    async def relay(self, request: web.Request, path: bytes) -> web.StreamResponse:
        """Send the request on to the pool of the model that its body names."""
        with self._bridge(request, path) as (bridge, exchange):
            try:
                body, held = await bodies.read(
                    request,
                    memory=self._desk.memory,
                    max_bytes=self._max_body_bytes,
                    deadline=bridge.deadline,
                )
            except GatewayError as error:
                bridge.closes = True  # what is left of the body is in the way of the next request
                exchange.refuse(error)
            else:
                exchange.take(body, held)
                del body  # the exchange drops it when nothing can be sent again; so must we
            return await bridge.drain()

    async def refuse(
        self, request: web.Request, path: bytes, error: GatewayError
    ) -> web.StreamResponse:
        """Answer with `error`, and remember that."""
        with self._bridge(request, path) as (bridge, exchange):
            exchange.refuse(error)
            return await bridge.drain()

    @contextmanager
    def _bridge(self, request: web.Request, path: bytes) -> Iterator[tuple[Bridge, Exchange]]:
        """A bridge and its exchange for the time of a handler."""
        bridge = Bridge(request, path, self)
        exchange = Exchange(self._desk, bridge, bridge_head(path, request.raw_headers))
        bridge.exchange = exchange
        self._busy.add(bridge)
        try:
            yield bridge, exchange
        finally:
            self._busy.discard(bridge)
            exchange.abort()  # nothing, if it ended well
