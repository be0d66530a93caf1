"""What every exchange needs, once.

The fleet, the log, the clock, ids, and the memory set aside for bodies.
"""

from collections.abc import Callable

from gateway.errors import OutOfMemory
from gateway.ports import Fleet, RequestLog

# Smaller bodies aren't counted: a connection holds one, and connections have a limit of their own.
COUNTED_BYTES = 64 << 10


class BodyMemory:
    """Bytes of request bodies held at this moment, those still being read included."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.held = 0
        self.limit = limit

    def take(self, size: int) -> int:
        """Set `size` bytes aside; returns what must be given back.

        Raises:
            OutOfMemory: they don't fit beside what is held.
        """
        if size < COUNTED_BYTES:
            return 0
        if self.held + size > self.limit:
            raise OutOfMemory(
                "The gateway holds as many large requests as it may. Retry in a moment.",
                retry_after_s=1.0,
            )
        self.held += size
        return size

    def give_back(self, size: int) -> None:
        """Free what `take` returned."""
        self.held -= size


class Desk:
    """Where exchanges find what they need.

    Attributes:
        live: exchanges that have begun and not yet settled.
    """

    __slots__ = ("fleet", "live", "log", "memory", "new_id", "now")

    def __init__(
        self,
        *,
        fleet: Fleet,
        log: RequestLog,
        memory: BodyMemory,
        now: Callable[[], float],
        new_id: Callable[[], bytes],
    ) -> None:
        self.fleet = fleet
        self.log = log
        self.memory = memory
        self.now = now
        self.new_id = new_id
        self.live = 0
