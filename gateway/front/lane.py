"""The fast lane: plain HTTP/1.1 POSTs to the hot paths, read without a framework.

Promises: it answers only requests whose head `gateway.front.strict` could read. Anything else is
handed to aiohttp at the border between two requests, with the whole connection and for good.
"""

import asyncio

from gateway.dispatch.exchange import Exchange
from gateway.errors import BodyTimedOut, GatewayError
from gateway.front import refusals, strict
from gateway.front.lanes import Lanes
from gateway.front.upload import Upload
from gateway.requests import Fields, RequestHead

MAX_AHEAD_BYTES = 64 << 10  # of pipelined requests, kept while one is answered
UPLOAD_BYTES = 128 << 10  # of a body that is worth a buffer of its own
JOINED_BYTES = 64 << 10  # up to here one copy is cheaper than a second buffer for the kernel

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    408: b"Request Timeout",
    413: b"Content Too Large",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}
_STATUS = {status: b"HTTP/1.1 %d %b\r\n" % (status, why) for status, why in _REASONS.items()}


class Lane(asyncio.Protocol):
    """One client connection; also the sink of its exchange (`gateway.ports.ReplySink`).

    Attributes:
        since: when it last began to wait for something from the client.
    """

    __slots__ = (
        "_ahead",
        "_chunked",
        "_discards",
        "_exchange",
        "_head",
        "_held",
        "_keep",
        "_lanes",
        "_missing",
        "_parts",
        "_path",
        "_paused",
        "_seen",
        "_seen_head",
        "_transport",
        "since",
    )

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._ahead = self._path = b""
        self._head: RequestHead | None = None
        self._parts: list[bytes] = []
        self._missing = self._held = 0
        self._exchange: Exchange | None = None
        self._paused = self._chunked = self._discards = False
        self._keep = True
        self._seen = b""
        self._seen_head: RequestHead | None = None
        self.since = lanes.now()

    # the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register, unless the house is full."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        error = self._lanes.enter(self)
        if error is not None:
            self._keep = False
            self.refuse(error, self._lanes.desk.new_id())

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone: whatever is in hand ends."""
        del exc
        self._lanes.leave(self)
        self._ahead = b""
        self._drop_body()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abort()

    def eof_received(self) -> bool:
        """The client has ended its side, which is how one that hangs up looks: it has gone."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abort()
        return False

    def data_received(self, data: bytes) -> None:
        """More of a body, a request sent ahead, or the next request."""
        if self._discards:
            return
        if self._head is not None:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing <= 0:
                self._body_is_whole(self._head)
        elif self._exchange is not None:
            self._keep_ahead(data)
        elif self._ahead:
            data, self._ahead = self._ahead + data, b""
            self._next(data)
        else:
            self.since = self._lanes.now()
            self._next(data)

    def pause_writing(self) -> None:
        """The client reads slower than the worker writes."""
        self._paused = True
        self.since = self._lanes.now()
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False
        if self._exchange is not None:
            self._exchange.resume()
        elif self._ahead:
            self._go_on()

    # one request after the other

    def _next(self, data: bytes) -> None:
        """`data` begins at the border between two requests."""
        line = data.find(b"\n", 0, strict.LONGEST_LINE) + 1
        if data[:line] in strict.HOT:
            end = data.find(b"\r\n\r\n", line - 2, strict.MAX_HEAD_BYTES)
            if end >= 0:
                head = self._parsed(data, line, end)
                if head is not None and head.length <= self._lanes.max_body_bytes:
                    self._take(head, data, end + 4)
                    return
        if strict.may_become_a_head(data):
            self._ahead = data  # aiohttp has no limit of time for the rest of it, the lane has
        else:
            self._hand_over(data)

    def _parsed(self, data: bytes, line: int, end: int) -> RequestHead | None:
        """The head, from memory if the client sent the same one before, but for the length."""
        found = strict.usual_length(data, line - 2, end + 2)
        if found is None:
            return strict.parse(data, line, end)
        start, stop = found.span(1)
        key = data[:start] + data[stop:end]
        head = self._seen_head
        if head is not None and key == self._seen:
            head.length = int(found[1])
            return head
        head = strict.parse(data, line, end)
        self._seen, self._seen_head = key, head
        return head

    def _take(self, head: RequestHead, data: bytes, at: int) -> None:
        """The head is ours, and its body begins at `data[at]`."""
        self._keep = head.keep and not self._lanes.draining
        self._path = head.path
        try:
            self._held = self._lanes.memory.take(head.length)
        except GatewayError as error:
            self._discards = True  # the body isn't read, so nothing behind it can be
            self._keep = False
            self._exchange = exchange = Exchange(self._lanes.desk, self, head)
            exchange.refuse(error)
            return
        stop = at + head.length
        if len(data) < stop:
            self._head = head
            self.since = self._lanes.now()
            if head.length < UPLOAD_BYTES:
                self._parts = [data[at:]]
                self._missing = stop - len(data)
            else:
                self._read_by(Upload(self, data[at:], head.length, self._uploaded))
            return
        if len(data) > stop:
            self._ahead = data[stop:]
        self._run(head, data[at:stop])

    def _read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol read on. It may read in another way, so reading begins anew."""
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def _uploaded(self, body: bytes) -> None:
        head, self._head = self._head, None
        self._read_by(self)
        if head is not None:  # else the sweep has given up on it
            self._run(head, body)

    def _body_is_whole(self, head: RequestHead) -> None:
        body = b"".join(self._parts)
        self._parts = []
        self._head = None
        if self._missing:
            self._ahead, body = body[self._missing :], body[: self._missing]
        self._run(head, body)

    def _run(self, head: RequestHead, body: bytes) -> None:
        self._exchange = exchange = Exchange(self._lanes.desk, self, head)
        if self._paused:
            exchange.pause()
        held, self._held = self._held, 0
        exchange.take(body, held)

    def _hand_over(self, data: bytes) -> None:
        """Give the connection to aiohttp, at a border between two requests, for good."""
        transport = self._transport
        protocol = self._lanes.hand_over(self)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._paused:  # else the later resume would be one too many for it
            protocol.pause_writing()
        protocol.data_received(data)

    def _ended(self) -> None:
        """The answer is out: the connection closes, or goes on to the next request."""
        self._exchange = None
        self.since = self._lanes.now()
        if self._discards:
            return  # closing on unread bytes would take the answer back; the sweep closes
        if not self._keep or self._lanes.draining:
            self._transport.close()
        elif self._ahead and not self._paused:
            self._lanes.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._ahead and self._exchange is None and not self._transport.is_closing():
            data, self._ahead = self._ahead, b""
            self._next(data)

    def _keep_ahead(self, data: bytes) -> None:
        """A request sent ahead waits. Reading goes on, or a hang-up wouldn't be seen."""
        self._ahead += data
        if len(self._ahead) > MAX_AHEAD_BYTES:
            self._ahead = b""
            self._keep = False  # the client may send these again: it was promised no answer
            self._discards = True

    def _drop_body(self) -> None:
        """Forget a body that won't become whole."""
        self._head = None
        self._parts = []
        if self._held:
            self._lanes.memory.give_back(self._held)
            self._held = 0

    # the registry calls

    def waits_for(self) -> str:
        """What the client owes, a key of `Lanes.limits`; empty while it is being answered."""
        if self._paused or self._transport.is_closing():
            return "reading"
        if self._exchange is not None:
            return ""
        if self._discards:
            return "close"
        if self._head is not None:
            return "body"
        return "head" if self._ahead else "request"

    def idle(self) -> bool:
        """Whether it waits for a request, though an answer may still be unread."""
        if self._exchange is not None or self._head is not None:
            return False
        return not (self._ahead or self._discards or self._transport.is_closing())

    def give_up(self) -> None:
        """The client has taken too long for what it owes."""
        head = self._head
        self._drop_body()
        self._keep = False
        if head is not None:
            exchange = Exchange(self._lanes.desk, self, head)
            exchange.refuse(BodyTimedOut("The request's body did not arrive in time."))
        elif self._exchange is not None or self._transport.is_closing():
            self._transport.abort()  # it doesn't read, so there is no polite way
        else:
            self._transport.close()

    def close(self) -> None:
        """Cut the connection, whatever is in hand."""
        self._transport.abort()

    # the exchange calls

    def refuse(self, error: GatewayError, request_id: bytes) -> None:
        """See `gateway.ports.ReplySink`."""
        status, fields, body = refusals.render(error, self._path, request_id)
        self.begin(status, fields, len(body), body, last=True)

    def begin(
        self, status: int, fields: Fields, length: int | None, data: bytes, *, last: bool
    ) -> None:
        """See `gateway.ports.ReplySink`."""
        out = [_STATUS.get(status) or b"HTTP/1.1 %d -\r\n" % status]
        out += [b"%b: %b\r\n" % field for field in fields]
        if not self._keep or self._lanes.draining:
            self._keep = False
            out.append(b"connection: close\r\n")
        bodiless = status in (204, 304)
        self._chunked = length is None and not bodiless
        if self._chunked:
            out.append(b"transfer-encoding: chunked\r\n\r\n")
            data = _chunk(data, last=last)
        elif bodiless:
            out.append(b"\r\n")
        else:
            out.append(b"content-length: %d\r\n\r\n" % (length or 0))
        if len(data) < JOINED_BYTES:
            out.append(data)
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines((b"".join(out), data))
        if last:
            self._ended()

    def write(self, data: bytes, *, last: bool) -> None:
        """See `gateway.ports.ReplySink`."""
        if self._chunked and not last and 0 < len(data) < JOINED_BYTES:  # nearly every one
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        if not self._chunked:
            if data:
                self._transport.write(data)
        elif len(data) < JOINED_BYTES:
            if data or last:
                self._transport.write(_chunk(data, last=last))
        else:
            end = b"\r\n0\r\n\r\n" if last else b"\r\n"
            self._transport.writelines((b"%x\r\n" % len(data), data, end))
        if last:
            self._ended()

    def cut(self) -> None:
        """See `gateway.ports.ReplySink`.

        No last chunk, no full length: a broken answer looks broken.
        """
        self._keep = False
        self._ended()


def _chunk(data: bytes, *, last: bool) -> bytes:
    """One chunk, and behind it the last one."""
    if not data:
        return b"0\r\n\r\n" if last else b""
    return (b"%x\r\n%b\r\n0\r\n\r\n" if last else b"%x\r\n%b\r\n") % (len(data), data)
