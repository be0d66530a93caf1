"""All lanes of the process.

Who is connected, who has waited too long, how many there may be, and how they end.

One sweep looks after all of them; no connection has a timer of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gateway.errors import GatewayError, TooManyConnections

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gateway.dispatch.desk import BodyMemory, Desk

# How long a client that was refused before it had sent everything may take to read that.
LINGER_S = 2.0


class Registered(Protocol):
    """What the registry needs of a lane."""

    since: float

    def waits_for(self) -> str:
        """What the client owes, a key of `Lanes.limits`; empty = nothing."""
        ...

    def idle(self) -> bool:
        """Whether nothing of a further request has come."""
        ...

    def give_up(self) -> None:
        """It took too long for that."""
        ...

    def close(self) -> None:
        """Cut it, whatever is in hand."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client may take, in seconds; 0 = as long as it likes.

    Attributes:
        head: for the head of a request, from its first byte.
        body: for its body, from the end of the head; also for reading on, once it has stopped to
            read an answer.
        request: between two requests.
    """

    head: float = 10.0
    body: float = 120.0
    request: float = 75.0


class Lanes:
    """The registry, and what every lane needs.

    Attributes:
        draining: answers close their connection, no further request is taken.
        now: the gateway's clock.
        others: connections that aiohttp has, counted at each sweep.
    """

    def __init__(
        self,
        *,
        desk: Desk,
        to_aiohttp: Callable[[], asyncio.Protocol],
        call_soon: Callable[..., Any],
        patience: Patience,
        max_body_bytes: int,
        max_connections: int,
    ) -> None:
        self.desk = desk
        self.memory: BodyMemory = desk.memory
        self.now = desk.now
        self.to_aiohttp = to_aiohttp
        self.call_soon = call_soon
        self.max_body_bytes = max_body_bytes
        self.draining = False
        self.others = 0
        self.limits = {
            "head": patience.head,
            "body": patience.body,
            "request": patience.request,
            "reading": patience.body,
            "close": LINGER_S,
        }
        self._max_connections = max_connections
        self._all: set[Registered] = set()

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, lane: Registered) -> GatewayError | None:
        """Take up a connection, or say why not."""
        if len(self._all) + self.others >= self._max_connections:
            return TooManyConnections(
                "The gateway has as many connections as it may. Retry in a moment.",
                retry_after_s=1.0,
            )
        self._all.add(lane)
        return None

    def leave(self, lane: Registered) -> None:
        """A connection is gone."""
        self._all.discard(lane)

    def hand_over(self, lane: Registered) -> asyncio.Protocol:
        """A connection goes to aiohttp: returns what reads it from here on."""
        self._all.discard(lane)
        self.others += 1  # until the next sweep has counted them
        return self.to_aiohttp()

    def sweep(self, now: float, others: int) -> None:
        """Give up on clients that have waited too long with what they owe."""
        self.others = others
        for lane in list(self._all):
            owed = lane.waits_for()
            limit = self.limits[owed] if owed else 0
            if limit and now - lane.since > limit:
                lane.give_up()

    def drain(self) -> None:
        """Close the connections that wait for a request; the others close behind their answer."""
        self.draining = True
        for lane in list(self._all):
            if lane.idle():
                lane.give_up()

    def close(self) -> None:
        """Cut every connection that is left."""
        for lane in list(self._all):
            lane.close()
