"""The request log.

One JSON object a line for every request that has ended. It holds no prompt, no answer, no key.

Lines are handed to a writer thread in groups, so that a slow reader of our output never holds up a
request. If it falls behind by more than `MAX_WAITING_BYTES`, lines are dropped and counted, and the
count is logged.
"""

import queue
import threading
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from gateway.clock import Clock
from gateway.errors import Outcome
from gateway.requests import Record

MAX_WAITING_BYTES = 8 << 20


class _Times(msgspec.Struct, omit_defaults=True):
    """Milliseconds.

    The four parts add up to `total`; `ttft` is the first two and the wait for the first byte.
    """

    total: float
    before: float = 0.0  # body complete → handed to the worker
    upstream: float = 0.0  # → last byte of its answer
    after: float = 0.0  # → settled
    ttft: float = 0.0


class _Line(msgspec.Struct, omit_defaults=True):
    at: str
    id: str
    path: str
    status: int
    outcome: Outcome
    ms: _Times
    model: str = ""
    stream: bool = False
    worker: str = ""
    attempts: int = 0
    code: str = ""
    client_id: str = ""
    usage: dict[str, int] | None = None
    bytes_in: int = 0
    bytes_out: int = 0


class RequestLog:
    """Writes records as lines (`gateway.ports.RequestLog`)."""

    def __init__(self, clock: Clock, out: BinaryIO) -> None:
        self.dropped = 0
        self._encode = msgspec.json.Encoder().encode
        self._now_to_wall = clock.wall() - clock.now()
        self._second = -1
        self._second_text = ""
        self._lines: list[bytes] = []
        self._waiting = 0
        self._groups: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write, args=(out,), daemon=True, name="request-log"
        )
        self._writer.start()

    def ended(self, record: Record) -> None:
        """See `gateway.ports.RequestLog`."""
        self._lines.append(self._encode(self._line(record)))

    def flush(self) -> None:
        """Hand the lines gathered so far to the writer. To be called a few times a second."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        if self._waiting > MAX_WAITING_BYTES:
            self.dropped += len(lines)
            return
        if self.dropped:
            lines.append(self._encode({"log_lines_dropped": self.dropped}))
            self.dropped = 0
        lines.append(b"")
        group = b"\n".join(lines)
        self._waiting += len(group)
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
            except (OSError, ValueError):
                pass  # nobody reads our output any more; requests go on
            self._waiting -= len(group)

    def _line(self, record: Record) -> _Line:
        t0, sent, end = record.t0, record.t_sent, record.t_end
        times = _Times(_ms(end - t0))
        if sent:
            last = record.t_last or end
            times.before = _ms(sent - t0)
            times.upstream = _ms(last - sent)
            times.after = _ms(end - last)
        if record.t_first:
            times.ttft = _ms(record.t_first - t0)
        usage = record.usage
        return _Line(
            at=self._at(end),
            id=record.id.decode(),
            path=record.path.decode("utf-8", "replace"),
            status=record.status,
            outcome=record.outcome,
            ms=times,
            model=record.model[:200],
            stream=record.stream,
            worker=record.worker,
            attempts=record.attempts,
            code=record.code,
            client_id=record.client_id.decode("utf-8", "replace"),
            usage=None
            if usage is None
            else {k: v for k in usage.__struct_fields__ if (v := getattr(usage, k)) is not None},
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
        )

    def _at(self, now: float) -> str:
        """RFC 3339 in UTC, to the millisecond; the part up to the second is made once a second."""
        wall = now + self._now_to_wall
        second = int(wall)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        return f"{self._second_text}{int((wall - second) * 1000):03d}Z"


class Silent:
    """No request log (`gateway.ports.RequestLog`)."""

    def ended(self, record: Record) -> None:
        """See `gateway.ports.RequestLog`."""

    def flush(self) -> None:
        """Nothing to hand on."""

    def close(self) -> None:
        """Nothing to end."""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
