"""Every port of the gateway: what one floor needs of another without knowing it.

All of these are called on the event loop's thread, and none of them waits.
"""

from collections.abc import Sequence
from typing import Protocol

from gateway.errors import GatewayError, UpstreamFailed
from gateway.requests import Fields, Record

Part = bytes | memoryview


class ReplySink(Protocol):
    """Where an answer goes.

    `refuse`, or `begin` and any number of `write`; the end comes by `last=True` or `cut`.

    After its end a sink is called no more. It knows its own framing; the exchange doesn't.
    """

    def refuse(self, error: GatewayError, request_id: bytes) -> None:
        """Answer with one of our own errors; this is the whole answer."""
        ...

    def begin(
        self, status: int, fields: Fields, length: int | None, data: bytes, *, last: bool
    ) -> None:
        """The answer starts.

        `length` counts its whole body; None = unknown, it ends with `last`.
        """
        ...

    def write(self, data: bytes, *, last: bool) -> None:
        """More of the body; may be empty."""
        ...

    def cut(self) -> None:
        """The answer breaks off here; the client must be able to see that it isn't whole."""
        ...


class Call(Protocol):
    """One attempt at a worker, as its receiver sees it.

    Attributes:
        status: of the answer; 0 until its head is complete.
        fields: the head's fields.
        length: of the body by its head; None = chunked, or until the connection ends.
        ends_by_close: the body ends with the connection, so a cut can't be told from an end.
    """

    status: int
    fields: Fields
    length: int | None
    ends_by_close: bool

    def pause(self) -> None:
        """Stop reading from the worker."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...

    def abort(self) -> None:
        """Close the connection, which tells the worker; the receiver hears no more."""
        ...


class Receiver(Protocol):
    """Who hears a worker's answer. The end is told once: by `done=True` or by `lost`."""

    def receive(self, call: Call, chunks: list[bytes], *, done: bool) -> None:
        """What one read brought, without its framing. At the first call the head is complete."""
        ...

    def lost(self, failure: UpstreamFailed) -> None:
        """The answer will not come, or not come whole.

        Never heard before `Worker.send` returned.
        """
        ...


class Worker(Protocol):
    """A model server, as an exchange sees it.

    Attributes:
        name: for logs and people; holds no secret.
        takes_stream_options: whether it accepts that field; None = not known yet. The exchange
            learns it.
    """

    name: str
    takes_stream_options: bool | None

    def upstream_model(self, model: str) -> str:
        """The name under which it serves the public `model`."""
        ...

    def send(self, path: bytes, fields: bytes, body: Sequence[Part], receiver: Receiver) -> Call:
        """Start a POST. `fields` are rendered header fields; framing, host and key are added here.

        Counts the worker as busy with one more request until `release`.
        """
        ...

    def release(self, failure: UpstreamFailed | None, status: int) -> None:
        """The call has ended, by whatever way: the place is free, its health is judged."""
        ...


class Pool(Protocol):
    """The workers of one public model name."""

    def choose(self, now: float, tried: Worker | None, *, well: bool = False) -> Worker | None:
        """The worker for one more request, not `tried`; None = there is none.

        `well`: rather none than one that is left out for its failures.
        """
        ...


class Fleet(Protocol):
    """All pools."""

    def pool(self, model: str) -> Pool | None:
        """The pool of a public model name."""
        ...

    def unknown(self, model: str) -> GatewayError:
        """Why there is no pool for `model`, as a caller should hear it."""
        ...


class RequestLog(Protocol):
    """Who is told of every request that has ended."""

    def ended(self, record: Record) -> None:
        """Takes the record over."""
        ...
