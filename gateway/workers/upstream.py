"""Connections to one worker: a keep-alive pool, one request at a time on each, callbacks only.

Promises: one read from the worker is one call of the receiver; whatever comes behind an answer
never reaches another request; a reused connection that dies before the first byte is retried once
on a fresh one, unseen by anyone; `abort` closes the socket at once, which is how a worker learns
that its client has gone.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING

import httptools

from gateway.errors import (
    ConnectTimedOut,
    OutOfFiles,
    UpstreamFailed,
    WorkerHungUp,
    WorkerSpokeNonsense,
    WorkerUnreachable,
)
from gateway.requests import SUCCESS, Fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.ports import Part, Receiver
    from gateway.workers.endpoint import Endpoint, Timeouts

MAX_HEAD_BYTES = 64 << 10
# A kept connection that a worker closes so soon after a stream was closed for the stream.
UNSAID_CLOSE_WITHIN_S = 1.0


class Connection(asyncio.Protocol):
    """One connection; while it carries a request, that request's call (`gateway.ports.Call`)."""

    __slots__ = (
        "_chunks",
        "_connecting",
        "_done",
        "_endpoint",
        "_head_bytes",
        "_head_done",
        "_keep",
        "_now",
        "_parser",
        "_parts",
        "_paused",
        "_receiver",
        "_reused",
        "_streamed",
        "_t_last",
        "_t_sent",
        "_transport",
        "ends_by_close",
        "fields",
        "length",
        "status",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._now = endpoint.now
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._paused = False

    # the endpoint and the receiver call

    def carry(self, parts: Sequence[Part], receiver: Receiver) -> None:
        """Take a request; it is sent now, or when the connection stands."""
        self._receiver = receiver
        self._parts: Sequence[Part] | None = parts
        self._chunks: list[bytes] = []
        self.fields: Fields = []
        self.length: int | None = None
        self.status = self._head_bytes = 0
        self._head_done = self._done = self._keep = self.ends_by_close = False
        self._t_sent = self._endpoint.now()
        self._t_last = 0.0
        if self._transport is not None:
            self._transport.writelines(parts)

    def pause(self) -> None:
        """See `gateway.ports.Call`."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """See `gateway.ports.Call`."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._t_last = self._endpoint.now()
            self._transport.resume_reading()

    def abort(self) -> None:
        """See `gateway.ports.Call`."""
        self._let_go()
        self._streamed = False  # that it closes now is no habit of the worker
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    def expired(self, now: float, limits: Timeouts) -> str:
        """Which limit the call has overrun, in words; empty if none."""
        waited = now - self._t_sent
        if limits.total and waited > limits.total:
            return f"no whole answer within {limits.total:g} s"
        if not self._t_last:
            late = bool(limits.first_byte) and waited > limits.first_byte
            return f"no first byte within {limits.first_byte:g} s" if late else ""
        if self._paused or not limits.between_bytes:
            return ""
        late = now - self._t_last > limits.between_bytes
        return f"no further byte within {limits.between_bytes:g} s" if late else ""

    def fail(self, failure: UpstreamFailed) -> None:
        """End the call from this side: close the connection and tell the receiver."""
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            receiver.lost(failure)

    def stands(self) -> bool:
        """Whether it can carry a request at once."""
        return self._transport is not None and not self._transport.is_closing()

    def heard_at(self) -> float:
        """When the last byte of an answer's body came; 0 = none has yet."""
        return self._t_last

    def close(self) -> None:
        """Close an idle connection."""
        self._streamed = False
        if self._transport is not None:
            self._transport.close()

    def start(self) -> None:
        """Begin to connect, in a task of its own."""
        self._transport = None
        self._reused = self._streamed = self._paused = False
        self._parser = httptools.HttpResponseParser(self)
        self._endpoint.busy.add(self)
        self._connecting = self._endpoint.spawn(self._connect())

    # the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was carried meanwhile."""
        self._transport = transport  # type: ignore[assignment]
        self._connecting = None
        if self._receiver is None or self._parts is None:  # aborted on the last step of connecting
            transport.abort()  # type: ignore[attr-defined]
        else:
            self._transport.writelines(self._parts)  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        """One read: parse it, and hand its body bytes to the receiver in one call."""
        receiver = self._receiver
        if receiver is None:  # a worker has nothing to say unasked
            self._endpoint.forget(self)
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._done:
                self.fail(WorkerSpokeNonsense("The worker's answer isn't valid HTTP."))
                return
            self._keep = False  # the answer is whole; the nonsense came behind it
        if not self._head_done:
            self._wait_for_head(len(data))
            return
        self._parts = None
        chunks = self._chunks
        if self._done:
            self._finish()
        elif not chunks and self._t_last:
            return
        if chunks:
            self._chunks = []
            self._t_last = self._now()
        receiver.receive(self, chunks, done=self._done)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever way it went: a call in hand ends, retried unseen if it can't have begun."""
        receiver = self._receiver
        if receiver is None:
            self._endpoint.forget(self)
            self._learn_from_close()
        elif self._reused and self._parts is not None and not self._head_bytes:
            self._learn_from_close()
            self.start()
        elif self._head_done and self.ends_by_close and exc is None:
            self._let_go()
            receiver.receive(self, [], done=True)
        else:
            self._let_go()
            receiver.lost(
                WorkerHungUp("The worker closed the connection before its answer was whole.")
            )

    # the parser calls

    def on_message_begin(self) -> None:
        """Bytes behind the answer are never another request's answer."""
        if self._done:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; those of a trailer are dropped, as the client was told of none."""
        if not self._head_done:
            self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole: find out how the body ends."""
        if self._done:
            return
        self.status = self._parser.get_status_code()
        if self.status < SUCCESS:
            return
        self._head_done = True
        length = chunked = None
        for name, value in self.fields:
            n = len(name)
            if n == len(b"content-length") and name.lower() == b"content-length":
                length = int(value)
            elif n == len(b"transfer-encoding") and name.lower() == b"transfer-encoding":
                chunked = True
        if not chunked:
            self.length = 0 if self.status in (204, 304) else length
            self.ends_by_close = self.length is None

    def on_body(self, data: bytes) -> None:
        """A piece of the body, unframed."""
        if not self._done:
            self._chunks.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole. The parser knows only here whether the connection stays."""
        if self._done:
            return
        if self.status < SUCCESS:  # 100 and 103 are no answers
            self.status = 0
            self.fields = []
        else:
            self._done = True
            self._keep = self._parser.should_keep_alive()

    # inner workings

    def _wait_for_head(self, size: int) -> None:
        """Bytes came, and the head isn't whole yet; but the worker has begun to answer."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self.fail(WorkerSpokeNonsense("The head of the worker's answer is too large."))

    async def _connect(self) -> None:
        """Make the connection, which sends what is carried; a failure is told to the receiver."""
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(endpoint.timeouts.connect or None):
                await asyncio.get_running_loop().create_connection(
                    lambda: self, endpoint.host, endpoint.port, ssl=endpoint.tls
                )
        except TimeoutError:
            self._connecting = None
            limit = endpoint.timeouts.connect
            self.fail(
                ConnectTimedOut(
                    f"The worker could not be reached: no connection within {limit:g} s."
                )
            )
        except (OSError, ValueError) as e:  # ValueError: a host that can't be a name
            self._connecting = None
            self.fail(_no_connection(e))

    def _finish(self) -> None:
        """The answer is whole: the connection waits for the next request, or is closed."""
        self._let_go()
        transport = self._transport
        assert transport is not None  # noqa: S101  (it just brought data)
        if self._paused:
            self.resume()
        if self._reused and self._streamed:
            self._endpoint.unsaid_closes = 0
        self._streamed = self.length is None
        unsent = transport.get_write_buffer_size()  # it answered before it had read the request
        if unsent:
            self.abort()
        elif (
            self._keep and not self.ends_by_close and self._endpoint.keeps(streamed=self._streamed)
        ):
            self._reused = True
            self._t_last = self._endpoint.now()
            self._endpoint.idle.append(self)
        else:
            self.close()

    def _let_go(self) -> None:
        self._receiver = self._parts = None
        self._endpoint.busy.discard(self)

    def _learn_from_close(self) -> None:
        """A kept connection was closed; at once after a stream, that is a habit worth knowing."""
        endpoint = self._endpoint
        if (
            self._streamed
            and endpoint.now() - max(self._t_last, self._t_sent) < UNSAID_CLOSE_WITHIN_S
        ):
            endpoint.unsaid_closes += 1


def _no_connection(e: OSError | ValueError) -> UpstreamFailed:
    """Whose fault it is that there is no connection."""
    if isinstance(e, OSError) and e.errno in (errno.EMFILE, errno.ENFILE):
        return OutOfFiles(
            "The gateway may open no more files. Raise its limit (ulimit -n), or retry later.",
            retry_after_s=1.0,
        )
    return WorkerUnreachable(f"The worker could not be reached: {_reason(e)}.")


def _reason(e: Exception) -> str:
    """What went wrong, without the address it went wrong at: callers needn't know that."""
    if isinstance(e, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted ({e.verify_message.partition(',')[0]})"
    if isinstance(e, ssl.SSLError):
        return f"TLS failed ({e.reason or 'no reason given'})"
    if isinstance(e, socket.gaierror | ValueError):
        return "its name can't be resolved"
    if isinstance(e, OSError) and e.errno:
        return os.strerror(e.errno).lower()
    if isinstance(e, ConnectionError):
        return "it closed the connection at once"
    return "none of its addresses answered"
