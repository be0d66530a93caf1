"""A client of HTTP that sends any bytes, and reads answers strictly."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

CEILING_S = 10.0


class Cut(Exception):
    """The connection ended before the answer did."""


@dataclass
class Response:
    """An answer; `fields` in order, names as they were written."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes = b""

    def values(self, name: bytes) -> list[bytes]:
        return [v for n, v in self.fields if n.lower() == name]

    @property
    def closes(self) -> bool:
        return b"close" in (v.lower() for v in self.values(b"connection"))


class Client(asyncio.Protocol):
    """One connection. What was received stays readable after a reset, as it does in the kernel."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = False  # by the server: whatever it sent has been received
        self.error: Exception | None = None  # that ended it: a reset
        self.transport: asyncio.Transport
        self._changed = asyncio.Event()

    # the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def eof_received(self) -> None:
        self.ended = True
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.error = exc
        self._changed.set()

    # the test calls

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def hang_up(self) -> None:
        """As a client does that leaves: a FIN, or an RST if it left something unread."""
        self.transport.abort()

    async def until(self, condition: Callable[[], bool], seconds: float = CEILING_S) -> None:
        """Wait until `condition()` holds; it is looked at whenever something arrives."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def closed(self, seconds: float = CEILING_S) -> None:
        """Wait until the server has closed."""
        await self.until(lambda: self.ended, seconds)

    async def response(self, seconds: float = CEILING_S) -> Response:
        """The next answer, whole. Raises Cut if it breaks off."""
        response = await self.head(seconds)
        if response.status < 200 or response.status in (204, 304):
            return response
        if response.values(b"transfer-encoding"):
            assert not response.values(b"content-length"), "length and chunked at once"
            while chunk := await self.chunk(seconds):
                response.body += chunk
        elif lengths := response.values(b"content-length"):
            assert len(lengths) == 1, lengths
            response.body = await self.take(int(lengths[0]), seconds)
        else:
            await self.closed(seconds)
            response.body = bytes(self.received)
            self.received.clear()
        return response

    async def head(self, seconds: float = CEILING_S) -> Response:
        """The head of the next answer."""
        line, *rest = (await self.take_until(b"\r\n\r\n", seconds)).split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version.startswith(b"HTTP/"), line
        fields = []
        for field in rest:
            name, colon, value = field.partition(b":")
            assert colon, field
            assert name == name.strip(), field
            fields.append((name, value.strip()))
        return Response(int(status), fields)

    async def chunk(self, seconds: float = CEILING_S) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        size = int(await self.take_until(b"\r\n", seconds), 16)
        data = await self.take(size + 2, seconds)
        assert data.endswith(b"\r\n"), data[-20:]
        return data[:-2]

    async def take(self, count: int, seconds: float = CEILING_S) -> bytes:
        await self.until(lambda: len(self.received) >= count or self.ended, seconds)
        if len(self.received) < count:
            raise Cut(bytes(self.received))
        data = bytes(self.received[:count])
        del self.received[:count]
        return data

    async def take_until(self, mark: bytes, seconds: float = CEILING_S) -> bytes:
        """The bytes before `mark`, which is taken too."""
        await self.until(lambda: mark in self.received or self.ended, seconds)
        at = self.received.find(mark)
        if at < 0:
            raise Cut(bytes(self.received))
        data = bytes(self.received[:at])
        del self.received[: at + len(mark)]
        return data


@asynccontextmanager
async def connected(
    port: int, *, tls: ssl.SSLContext | None = None, receive_buffer: int = 0
) -> AsyncIterator[Client]:
    """A connection to `port` on this machine; `receive_buffer` asks the kernel for a small one."""
    loop = asyncio.get_running_loop()
    raw = socket.socket()
    raw.setblocking(False)
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    try:
        await loop.sock_connect(raw, ("127.0.0.1", port))
    except OSError:
        raw.close()
        raise
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _, client = await loop.create_connection(
        Client, sock=raw, ssl=tls, server_hostname="localhost" if tls else None
    )
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.transport.abort()


def post(
    body: bytes, *fields: bytes, path: bytes = b"/v1/chat/completions", method: bytes = b"POST"
) -> bytes:
    """A request with a length, as a plain client writes it."""
    lines = [
        b"%b %b HTTP/1.1" % (method, path),
        b"host: gateway",
        b"content-type: application/json",
        *fields,
        b"content-length: %d" % len(body),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(
    *pieces: bytes,
    fields: tuple[bytes, ...] = (),
    path: bytes = b"/v1/chat/completions",
) -> bytes:
    """A request with a chunk for each of `pieces`, and the last chunk."""
    lines = [
        b"POST %b HTTP/1.1" % path,
        b"host: gateway",
        b"content-type: application/json",
        *fields,
        b"transfer-encoding: chunked",
    ]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body + b"0\r\n\r\n"


GET = b"GET %b HTTP/1.1\r\nhost: gateway\r\n\r\n"
