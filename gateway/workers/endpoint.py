"""All connections to one address, with or without a request, and how long each may take."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.errors import Stopping, WorkerTimedOut
from gateway.ports import Part, Receiver
from gateway.workers.upstream import Connection

# A worker that closed so many connections in a row right after a streamed answer, without having
# said so, will go on doing it (llama.cpp's server does): its connections aren't kept after streams.
UNSAID_CLOSES = 3

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a worker may take, in seconds; 0 = as long as it likes.

    Attributes:
        connect: until the connection stands, TLS included.
        first_byte: from the request sent to the first byte of the answer's body.
        between_bytes: between two reads of the body, while the client takes them.
        total: from the request sent to the end of the answer.
        idle: how long a connection without a request is kept, 0 = not at all. vLLM closes its own
            after 5 s.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    between_bytes: float = 120.0
    total: float = 3600.0
    idle: float = 4.0


class Endpoint:
    """All connections to one address.

    Attributes:
        busy: connections with a request, those being made included.
        idle: connections without one, the least recently used first.
        unsaid_closes: closes in a row, right after a streamed answer, that the worker hadn't
            announced.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        timeouts: Timeouts,
        now: Callable[[], float],
        spawn: Spawn,
    ) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.timeouts = timeouts
        self.now = now
        self.busy: set[Connection] = set()
        self.idle: list[Connection] = []
        self.unsaid_closes = 0
        self.spawn = spawn

    def send(self, parts: Sequence[Part], receiver: Receiver) -> Connection:
        """Send a whole request, head and body; the connection used last is used again."""
        idle = self.idle
        while idle:
            connection = idle.pop()
            if connection.stands():
                self.busy.add(connection)
                connection.carry(parts, receiver)
                return connection
        connection = Connection(self)
        connection.carry(parts, receiver)
        connection.start()
        return connection

    def keeps(self, *, streamed: bool) -> bool:
        """Whether a connection is worth keeping after such an answer."""
        if not self.timeouts.idle:
            return False
        return not (streamed and self.unsaid_closes >= UNSAID_CLOSES)

    def heard_at(self) -> float:
        """When a call that is still under way last brought a byte of its answer; 0 = none did."""
        return max((connection.heard_at() for connection in self.busy), default=0.0)

    def forget(self, connection: Connection) -> None:
        """An idle connection is gone."""
        if connection in self.idle:
            self.idle.remove(connection)

    def sweep(self, now: float) -> None:
        """Fail the calls that have overrun a limit, close the connections that idled too long."""
        for connection in list(self.busy):
            why = connection.expired(now, self.timeouts)
            if why:
                connection.fail(WorkerTimedOut(f"The worker gave {why}."))
        limit = self.timeouts.idle
        stale = [c for c in self.idle if now - c.heard_at() > limit]
        for connection in stale:
            self.idle.remove(connection)
            connection.close()

    def close(self) -> None:
        """Close everything; calls in hand are told."""
        for connection in list(self.busy):
            connection.fail(Stopping("The gateway is stopping. Retry elsewhere, or in a moment."))
        while self.idle:
            self.idle.pop().close()
