"""Reads one large body from a connection straight into its place.

For a body of 10 MB this saves two copies, which cost more than reading it. The connection is the
lane's before and after: an upload never takes a byte beyond the body.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast


class Owner(Protocol):
    """Whose connection it is."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        ...

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        ...

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        ...


class Upload(asyncio.BufferedProtocol):
    """A connection's protocol for the length of one body."""

    def __init__(
        self, owner: Owner, begun: bytes, length: int, whole: Callable[[bytes], None]
    ) -> None:
        """`begun` is what has come of the `length` bytes; `whole` is called with all of them."""
        self._owner = owner
        self._buffer = bytearray(length)
        self._buffer[: len(begun)] = begun
        self._left = memoryview(self._buffer)[len(begun) :]
        self._whole = whole

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        del sizehint
        return self._left

    def buffer_updated(self, nbytes: int) -> None:
        """They have come."""
        self._left = self._left[nbytes:]
        if not self._left:
            # Whoever reads it takes any kind of bytes; to make it `bytes` would be a third copy.
            self._whole(cast("bytes", self._buffer))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._left.release()
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """An earlier answer isn't read yet."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """It is."""
        self._owner.resume_writing()
