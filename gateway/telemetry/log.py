"""The request log: one JSON object a line for every request that has ended.

It holds no prompt, no answer, no key; a path stands without its query, where some clients put one.
Lines are handed to a writer thread in groups, so that a slow reader of our output never holds up a
request. If it falls behind by more than `MAX_WAITING_BYTES`, lines are dropped and counted, and the
count is logged.
"""

import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from gateway.clock import Clock
from gateway.requests import Record

MAX_WAITING_BYTES = 8 << 20
MAX_KNOWN = 512  # descriptions of requests that are kept rendered
MAX_CHARS = 200  # of a path or a model: both are the client's words

_encode = msgspec.json.Encoder().encode


class RequestLog:
    """Writes records as lines (`gateway.ports.RequestLog`).

    A line's `ms` has four parts that add up to `total`: `before` the request was handed to a
    worker, `upstream` until the last byte of its answer, `after` until it was settled; beside them
    `ttft`, from the whole request to the first byte of the answer.
    """

    def __init__(
        self, clock: Clock, out: BinaryIO, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """`say` tells the operator, from the writer's thread."""
        self.dropped = 0
        self._say = say
        self._now_to_wall = clock.wall() - clock.now()
        self._second = -1
        self._second_text = b""
        self._known: dict[tuple[object, ...], bytes] = {}
        self._lines: list[bytes] = []
        self._given = self._taken = 0  # bytes; each is changed by one thread only
        self._groups: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write, args=(out,), daemon=True, name="request-log"
        )
        self._writer.start()

    def ended(self, record: Record) -> None:
        """See `gateway.ports.RequestLog`."""
        t0, end, first = record.t0, record.t_end, record.t_first
        sent = record.t_sent or end
        last = record.t_last or end
        client_id = record.client_id
        self._lines.append(
            b'{"at":"%b","id":"%b",%b,"ms":{"total":%.3f,"before":%.3f,"upstream":%.3f,'
            b'"after":%.3f,"ttft":%.3f},"bytes_in":%d,"bytes_out":%d%b%b}\n'
            % (
                self._at(end),
                record.id,
                self._description(record),
                (end - t0) * 1e3,
                (sent - t0) * 1e3,
                (last - sent) * 1e3,
                (end - last) * 1e3,
                (first - t0) * 1e3 if first else 0.0,
                record.bytes_in,
                record.bytes_out,
                b"" if record.usage is None else b',"usage":%b' % _encode(record.usage),
                b',"client_id":%b' % _encode(client_id.decode("utf-8", "replace"))
                if client_id
                else b"",
            )
        )

    def flush(self) -> None:
        """Hand the lines gathered so far to the writer. To be called a few times a second."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        if self._given - self._taken > MAX_WAITING_BYTES:
            self.dropped += len(lines)
            return
        if self.dropped:
            lines.append(b'{"log_lines_dropped":%d}\n' % self.dropped)
            self.dropped = 0
        group = b"".join(lines)
        self._given += len(group)
        self._groups.put(group)

    def close(self) -> None:
        """Write what is left, and end the writer; waits for at most a second."""
        self.flush()
        self._groups.put(None)
        self._writer.join(1.0)

    def _write(self, out: BinaryIO) -> None:
        while (group := self._groups.get()) is not None:
            try:
                out.write(group)
                out.flush()
            except (OSError, ValueError) as error:  # nobody reads us any more; requests go on
                if not self.dropped:
                    self._say(f"request log: lines are dropped, it can't be written: {error}")
                self.dropped += group.count(b"\n")
            self._taken += len(group)

    def _description(self, record: Record) -> bytes:
        """Members that many requests share, rendered once for all of them."""
        path, model = record.path, record.model
        if len(path) > MAX_CHARS or b"?" in path:
            path = path.partition(b"?")[0][:MAX_CHARS]
        if len(model) > MAX_CHARS:
            model = model[:MAX_CHARS]
        key = (
            path,
            model,
            record.worker,
            record.status,
            record.outcome,
            record.code,
            record.stream,
            record.attempts,
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = _encode(_described(record, path, model))[1:-1]
        return known

    def _at(self, now: float) -> bytes:
        """RFC 3339 in UTC, to the millisecond; the part up to the second is made once a second."""
        wall = now + self._now_to_wall
        second = int(wall)
        if second != self._second:
            self._second = second
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._second_text = text.encode()
        return b"%b.%03dZ" % (self._second_text, (wall - second) * 1000)


class Silent:
    """No request log (`gateway.ports.RequestLog`)."""

    def ended(self, record: Record) -> None:
        """See `gateway.ports.RequestLog`."""

    def flush(self) -> None:
        """Nothing to hand on."""

    def close(self) -> None:
        """Nothing to end."""


def _described(record: Record, path: bytes, model: str) -> dict[str, object]:
    members: dict[str, object] = {
        "path": path.decode("utf-8", "replace"),
        "status": record.status,
        "outcome": record.outcome,
        "stream": record.stream,
        "model": model,
        "worker": record.worker,
        "attempts": record.attempts,
    }
    if record.code:
        members["code"] = record.code
    return members
