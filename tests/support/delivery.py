"""Bytes delivered to a gateway in just these pieces, and all that came of it.

A server reads what the kernel has for it. To test a cut at a certain byte, the next piece may only
be sent once the server has read the last one; the kernel is asked, so no time has to pass.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.client import Client, Cut, Response, connected, post
from tests.support.clock import ManualClock
from tests.support.running import Running
from tests.support.scripted import Scripted

CEILING_S = 10.0
PATIENCE_S = 130.0  # more than the settings' for a body, less than for a worker
SWEEP_S = 0.3
TURNS = 300  # of the loop, with nothing new: nothing more comes by itself
_BYTES_RECEIVED = 128  # of `tcpi_bytes_received` in the kernel's `struct tcp_info`

# Answered if the connection goes on, in words that show which answer it is.
NEXT = post(b'{"model":"next","messages":[]}')
# Neither a head nor a chunk: whatever a server waits for, this ends it.
POISON = b"\r\n\r\n\0\1\r\n\r\n" * 40

Answered = tuple[int, str, bytes]
Arrived = tuple[bytes, tuple[tuple[bytes, bytes], ...], bytes]


@dataclass(frozen=True)
class Outcome:
    """What a client saw, and what the worker got.

    Attributes:
        answers: status, content type and body of each answer, ids left out.
        end: how the connection went on behind them: "closed", "said close", "cut" in an answer, or
            "open".
        arrived: line, fields and body of each request at the worker, ids left out.
    """

    answers: tuple[Answered, ...]
    end: str
    arrived: tuple[Arrived, ...]

    @property
    def statuses(self) -> list[int]:
        return [status for status, _, _ in self.answers]

    @property
    def resumed(self) -> bool:
        """Whether the request behind was answered."""
        return any(b"`next`" in body for _, _, body in self.answers)


async def deliver(
    running: Running, worker: Scripted, clock: ManualClock, pieces: Sequence[bytes]
) -> Outcome:
    """Send `pieces` on a new connection, each once the last was read, and wait for the end."""
    worker.seen.clear()
    async with connected(running.port) as client:
        await send_in_pieces(running, client, pieces)
        answers, end = await _everything(client, clock)
    arrived = tuple(_arrived(seen.line, seen.fields, seen.body) for seen in worker.seen)
    return Outcome(tuple(map(_answered, answers)), end, arrived)


async def send_in_pieces(running: Running, client: Client, pieces: Sequence[bytes]) -> None:
    """Send each piece once the server has read the one before; less, if it closes."""
    if len(pieces) == 1:
        client.send(pieces[0])
        return
    async with asyncio.timeout(CEILING_S):
        server = await server_side(running, client)
        sent = 0
        for piece in pieces:
            client.send(piece)
            sent += len(piece)
            await _turns(lambda sent=sent: _has_read(server, sent) or client.ended)


async def _everything(client: Client, clock: ManualClock) -> tuple[list[Response], str]:
    """All answers until the server closes, or says that it will."""
    answers: list[Response] = []
    urges = iter((_lose_patience, _poison))
    while True:
        reading = asyncio.ensure_future(client.response(CEILING_S))
        while not reading.done() and not await _turns(reading.done):
            urge = next(urges, None)
            if urge is None:
                break
            await urge(client, clock)
        try:
            answers.append(await reading)
        except Cut:
            return answers, "cut" if client.received else "closed"
        except TimeoutError:
            return answers, "open"
        if answers[-1].closes:
            return answers, "said close"
        if b"`next`" in answers[-1].body:
            client.send(POISON)


async def _lose_patience(client: Client, clock: ManualClock) -> None:
    """The server waits for more than was sent: let it have waited for long."""
    clock.jump(PATIENCE_S)
    await clock.advance(SWEEP_S)


async def _poison(client: Client, clock: ManualClock) -> None:
    client.send(POISON)


async def _turns(enough: Callable[[], bool]) -> bool:
    """Let the loop turn until `enough()`; False if that won't come by itself."""
    for _ in range(TURNS):
        if enough():
            return True
        await asyncio.sleep(0)
    return False


def _answered(response: Response) -> Answered:
    kind = b",".join(response.values(b"content-type")).decode("latin-1")
    body = response.body
    if kind.startswith("text/plain"):  # aiohttp's: shows what it had read of the offending line
        body = body.partition(b"\n")[0]
    return response.status, kind, body


def _arrived(line: bytes, fields: list[tuple[bytes, bytes]], body: bytes) -> Arrived:
    kept = tuple((n, v) for n, v in fields if n.lower() != b"x-request-id")
    return line, kept, body


async def server_side(running: Running, client: Client) -> asyncio.Transport:
    """The gateway's end of this client's connection."""
    me = client.transport.get_extra_info("sockname")
    lanes = running.gateway.lanes
    while True:
        transports = [lane._transport for lane in lanes._all]  # type: ignore[attr-defined]
        transports += [handler.transport for handler in lanes.to_aiohttp.connections]  # type: ignore[attr-defined]
        for transport in transports:
            if transport is not None and transport.get_extra_info("peername") == me:
                return transport
        await asyncio.sleep(0)


def _has_read(server: asyncio.Transport, count: int) -> bool:
    """Whether `count` bytes came, and none of them waits in the kernel."""
    if server.is_closing():
        return True
    raw = socket.socket(fileno=server.get_extra_info("socket").fileno())
    try:
        info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        waiting = struct.unpack("i", fcntl.ioctl(raw, termios.FIONREAD, b"\0" * 4))[0]
    finally:
        raw.detach()
    return waiting == 0 and struct.unpack_from("Q", info, _BYTES_RECEIVED)[0] >= count
