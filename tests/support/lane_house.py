"""Lanes without sockets: played transports, a played aiohttp, a worker in the test's hand."""

import asyncio
import itertools
from collections.abc import Callable

from gateway.dispatch.desk import BodyMemory, Desk
from gateway.front.lane import Lane
from gateway.front.lanes import Lanes, Patience
from tests.support.clock import ManualClock
from tests.support.fakes import JSON, Fleet, Log, Worker

ANSWER = b'{"answer":1}'


class Wire(asyncio.Transport):
    """One client's end: what was written to it, and whether it was closed or cut.

    Attributes:
        unread: the client holds up what was written, so closing waits for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.closing = self.aborted = self.unread = self.reading_paused = False
        self.protocol: asyncio.BaseProtocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closing
        self.out += data

    def writelines(self, list_of_data: object) -> None:
        self.write(b"".join(list_of_data))  # type: ignore[arg-type]

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        first, self.closing = not self.closing, True
        if first and not self.unread:
            self.protocol.connection_lost(None)

    def abort(self) -> None:
        first, self.aborted = not self.aborted, True
        self.closing = True
        if first:
            self.protocol.connection_lost(None)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    # the test calls

    def send(self, data: bytes) -> None:
        """The client sends, and the gateway reads it at once."""
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            while data and isinstance(self.protocol, asyncio.BufferedProtocol):
                room = self.protocol.get_buffer(-1)
                count = min(len(data), len(room))
                room[:count] = data[:count]  # type: ignore[index]
                self.protocol.buffer_updated(count)
                data = data[count:]
        if data:
            self.protocol.data_received(data)  # type: ignore[attr-defined]

    def stop_reading(self) -> None:
        self.unread = True
        self.protocol.pause_writing()

    def read_on(self) -> None:
        self.unread = False
        self.protocol.resume_writing()

    def hang_up(self) -> None:
        self.closing = True
        self.protocol.connection_lost(None)

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.out.split(b"HTTP/1.1 ")[1:]]


class Aiohttp(asyncio.Protocol):
    """What took over a connection."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.heard.append("made")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def data_received(self, data: bytes) -> None:
        self.heard.append("data")
        self.data += data


class House:
    """Lanes, and what is around them."""

    def __init__(
        self,
        *,
        patience: Patience | None = None,
        connections: int = 1000,
        memory: int = 1 << 30,
        max_body: int = 32 << 20,
    ) -> None:
        self.clock = ManualClock()
        self.worker = Worker()
        self.log = Log()
        self.memory = BodyMemory(memory)
        ids = itertools.count(1)
        self.desk = Desk(
            fleet=Fleet([self.worker]),
            log=self.log,
            memory=self.memory,
            now=self.clock.now,
            new_id=lambda: b"req-%d" % next(ids),
        )
        self.handed: list[Aiohttp] = []
        self.soon: list[Callable[[], None]] = []
        self.lanes = Lanes(
            desk=self.desk,
            to_aiohttp=self._to_aiohttp,
            call_soon=self.soon.append,
            patience=patience or Patience(),
            max_body_bytes=max_body,
            max_connections=connections,
        )

    def _to_aiohttp(self) -> asyncio.Protocol:
        self.handed.append(Aiohttp())
        return self.handed[-1]

    def connect(self) -> Wire:
        wire = Wire()
        wire.protocol = Lane(self.lanes)
        wire.protocol.connection_made(wire)
        return wire

    def pass_time(self, seconds: float) -> None:
        """So much time, and then a sweep."""
        self.clock.jump(seconds)
        self.lanes.sweep(self.clock.now(), len(self.handed))

    def answer(self, body: bytes = ANSWER) -> None:
        """The worker answers what it was sent last; then the loop turns."""
        call = self.worker.call.head(200, JSON, length=len(body))
        call.tell(body, done=True)
        self.turn()

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def check_empty(self) -> None:
        """Nothing of any request or connection is left."""
        assert not len(self.lanes)
        assert self.desk.live == 0
        assert self.memory.held == 0
        assert self.worker.running == 0
        assert not any(call.open for call in self.worker.calls)
