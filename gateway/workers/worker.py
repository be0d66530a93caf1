"""One model server: its connections, what was learnt of it, and how it stands."""

import ssl
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from gateway.errors import OutOfFiles, Stopping, UpstreamFailed, WorkerTimedOut, WorkerUnreachable
from gateway.ports import Part, Receiver
from gateway.requests import SERVER_ERROR
from gateway.workers.breaker import Breaker
from gateway.workers.endpoint import Endpoint, Spawn, Timeouts
from gateway.workers.upstream import Connection

Card = dict[str, object]  # a model as `/v1/models` lists it


class Worker:
    """A model server (`gateway.ports.Worker`).

    Attributes:
        running: requests that it has from us now.
        takes_stream_options: whether it accepts that field; None = not known yet.
        listed: the models it told last, each as it describes it; None before it told any.
    """

    __slots__ = (
        "_answered_at",
        "_breaker",
        "_constant",
        "_now",
        "_prefix",
        "_upstream_models",
        "endpoint",
        "listed",
        "name",
        "running",
        "takes_stream_options",
    )

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        timeouts: Timeouts,
        now: Callable[[], float],
        spawn: Spawn,
    ) -> None:
        """`url` has a scheme, a host and perhaps a port and a path prefix, nothing else."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        host = parts.hostname or ""
        self.name = url
        self.endpoint = Endpoint(
            host,
            port,
            tls=ssl.create_default_context() if secure else None,
            timeouts=timeouts,
            now=now,
            spawn=spawn,
        )
        self.running = 0
        self._answered_at = 0.0
        self.takes_stream_options: bool | None = None
        self.listed: list[Card] | None = None
        self._upstream_models: dict[str, str] = {}
        self._breaker = Breaker()
        self._now = now
        self._prefix = parts.path.rstrip("/").encode()
        key = b"authorization: Bearer %b\r\n" % api_key.encode() if api_key else b""
        # Compressed answers couldn't be scanned for usage as they pass.
        self._constant = b" HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\n%b" % (
            parts.netloc.encode(),
            key,
        )

    @property
    def ejected_until(self) -> float:
        """See `policies.place.WorkerRow`."""
        return self._breaker.ejected_until

    @property
    def well(self) -> bool:
        """Whether it answers, as far as is known."""
        return self._breaker.well(self._now())

    def serves(self, model: str, upstream: str) -> None:
        """Requests for the public `model` go to it under the name `upstream`."""
        self._upstream_models[model] = upstream

    def upstream_model(self, model: str) -> str:
        """See `gateway.ports.Worker`."""
        return self._upstream_models.get(model, model)

    def send(
        self, path: bytes, fields: bytes, body: Sequence[Part], receiver: Receiver
    ) -> Connection:
        """See `gateway.ports.Worker`."""
        self.running += 1
        length = len(body[0]) if len(body) == 1 else sum(map(len, body))
        head = b"POST %b%b%b%bcontent-length: %d\r\n\r\n" % (
            self._prefix,
            path,
            self._constant,
            fields,
            length,
        )
        return self.endpoint.send((head, *body), receiver)

    def get(self, path: bytes, receiver: Receiver) -> Connection:
        """Start a GET for ourselves; it doesn't count as running."""
        head = b"GET %b%b%b\r\n" % (self._prefix, path, self._constant)
        return self.endpoint.send((head,), receiver)

    def release(self, failure: UpstreamFailed | None, status: int) -> None:
        """See `gateway.ports.Worker`. Neither failure nor status: the client left."""
        self.running -= 1
        if isinstance(failure, OutOfFiles | Stopping):
            return
        if isinstance(failure, WorkerUnreachable):
            self._unreachable()
        elif failure is not None or status >= SERVER_ERROR:
            self._breaker.failed(self._now())
        elif status:
            self._answered_at = self._now()
            self._breaker.succeeded()

    def probed(self, failure: UpstreamFailed | None, status: int, since: float) -> None:
        """Take the outcome of a probe, sent at `since`, into account."""
        if isinstance(failure, OutOfFiles | Stopping):
            return
        if isinstance(failure, WorkerUnreachable):
            self._unreachable()
        elif (
            isinstance(failure, WorkerTimedOut)
            and max(self._answered_at, self.endpoint.heard_at()) < since
        ):
            self._breaker.hangs(self._now())
        elif failure is not None or status >= SERVER_ERROR:
            self._breaker.probe_failed(self._now())
        else:
            self._breaker.probe_answered()

    def _unreachable(self) -> None:
        """What comes back may be another server: its habits are found out anew."""
        self._breaker.unreachable(self._now())
        self.takes_stream_options = None
        self.endpoint.unsaid_closes = 0
