"""The ports as a test plays them: every call is checked against the port's contract and noted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.dispatch.desk import BodyMemory, Desk
from gateway.dispatch.exchange import Exchange
from gateway.errors import GatewayError, UnknownModel, UpstreamFailed
from gateway.requests import Fields, Record, RequestHead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.ports import Part, Receiver

SSE = [(b"Content-Type", b"text/event-stream")]
JSON = [(b"Content-Type", b"application/json")]


@dataclass
class Sink:
    """`gateway.ports.ReplySink`: fails on a call that breaks the contract."""

    status: int = 0
    fields: Fields = field(default_factory=list)
    length: int | None = None
    body: bytes = b""
    refused: GatewayError | None = None
    begun: bool = False
    end: str = ""  # "whole", "cut", "refused", or "" while it goes on
    left: bool = False  # the client has gone: nothing may come any more
    on_write: Callable[[], None] | None = None

    def refuse(self, error: GatewayError, request_id: bytes) -> None:
        assert request_id
        assert not self.begun
        self._open()
        self.refused, self.status, self.end = error, error.status, "refused"

    def begin(
        self, status: int, fields: Fields, length: int | None, data: bytes, *, last: bool
    ) -> None:
        assert not self.begun
        self.begun = True
        self.status, self.fields, self.length = status, fields, length
        self.write(data, last=last)

    def write(self, data: bytes, *, last: bool) -> None:
        self._open()
        assert self.begun
        self.body += data
        if last:
            assert self.length in (None, len(self.body))
            self.end = "whole"
        if self.on_write is not None:
            self.on_write()

    def cut(self) -> None:
        self._open()
        assert self.begun
        self.end = "cut"

    def _open(self) -> None:
        assert not self.end
        assert not self.left


class Call:
    """`gateway.ports.Call`, and the worker's hand on the other side of it."""

    def __init__(self, worker: Worker, body: bytes, receiver: Receiver) -> None:
        self.worker, self.body, self.receiver = worker, body, receiver
        self.status = 0
        self.fields: Fields = []
        self.length: int | None = None
        self.ends_by_close = False
        self.open = True
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def abort(self) -> None:
        assert self.open
        self.open = False

    def head(
        self, status: int, fields: Fields, *, length: int | None = None, by_close: bool = False
    ) -> Call:
        self.status, self.fields, self.length, self.ends_by_close = status, fields, length, by_close
        return self

    def tell(self, *chunks: bytes, done: bool = False) -> None:
        """One read."""
        assert self.open
        self.open = not done
        self.receiver.receive(self, list(chunks), done=done)

    def lose(self, failure: UpstreamFailed) -> None:
        assert self.open
        self.open = False
        self.receiver.lost(failure)


class Worker:
    """`gateway.ports.Worker`; every place must be given back just once."""

    def __init__(self, name: str = "w", *, upstream: str | None = None) -> None:
        self.name = name
        self.takes_stream_options: bool | None = None
        self.upstream = upstream
        self.running = 0
        self.ejected_until = 0.0
        self.calls: list[Call] = []
        self.judged: list[tuple[UpstreamFailed | None, int]] = []

    def upstream_model(self, model: str) -> str:
        return self.upstream or model

    def send(self, path: bytes, fields: bytes, body: Sequence[Part], receiver: Receiver) -> Call:
        assert path.startswith(b"/")
        assert b"x-request-id: " in fields
        self.running += 1
        self.calls.append(Call(self, b"".join(body), receiver))
        return self.calls[-1]

    def release(self, failure: UpstreamFailed | None, status: int) -> None:
        self.running -= 1
        assert self.running >= 0
        self.judged.append((failure, status))

    @property
    def call(self) -> Call:
        """The last one."""
        return self.calls[-1]


class Fleet:
    """`gateway.ports.Fleet` and `Pool`: one model, `m`, at these workers, in order."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers

    def pool(self, model: str) -> Fleet | None:
        return self if model == "m" else None

    def unknown(self, model: str) -> GatewayError:
        return UnknownModel(f"no {model}")

    def choose(self, now: float, tried: object | None, *, well: bool = False) -> Worker | None:
        for worker in self.workers:
            if worker is not tried and not (well and worker.ejected_until > now):
                return worker
        return None


@dataclass
class Log:
    """`gateway.ports.RequestLog`."""

    records: list[Record] = field(default_factory=list)

    def ended(self, record: Record) -> None:
        self.records.append(record)


class Played:
    """One exchange between a played client and played workers."""

    def __init__(
        self,
        *workers: Worker,
        path: bytes = b"/v1/chat/completions",
        content_type: bytes = b"application/json",
        now: Callable[[], float] | None = None,
    ) -> None:
        self.workers = workers or (Worker(),)
        self.time = 1.0
        self.log = Log()
        self.memory = BodyMemory(1 << 30)
        ids = iter(range(1, 1000))
        self.desk = Desk(
            fleet=Fleet(self.workers),
            log=self.log,
            memory=self.memory,
            now=now or (lambda: self.time),
            new_id=lambda: b"req-%d" % next(ids),
        )
        self.sink = Sink()
        head = RequestHead(path)
        head.content_type = content_type
        self.exchange = Exchange(self.desk, self.sink, head)

    @property
    def call(self) -> Call:
        """The one that is open."""
        (call,) = [c for w in self.workers for c in w.calls if c.open]
        return call

    def take(self, body: bytes) -> Played:
        self.exchange.take(body, self.memory.take(len(body)))
        return self

    @property
    def record(self) -> Record:
        """How it was remembered, once it has settled."""
        (record,) = self.log.records
        return record

    def check_settled(self) -> None:
        """Nothing is left of it anywhere."""
        assert len(self.log.records) == 1
        assert self.desk.live == 0
        assert self.memory.held == 0
        assert [w.running for w in self.workers] == [0] * len(self.workers)
        assert not [c for w in self.workers for c in w.calls if c.open]
        assert self.sink.end or self.sink.left
