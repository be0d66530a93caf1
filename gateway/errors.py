"""The error tree: what can go wrong with a request, with its status and its words.

A class says whose fault it was and when it happened: `BadRequest` and `Rejected` cost nothing and
never reached a worker; `UpstreamFailed` did. Only `front.refusals` turns one into a response; a
message says what to do, and never holds a secret, a prompt or a stack.
"""

from enum import StrEnum
from typing import ClassVar


class Outcome(StrEnum):
    """How a request ended: the label in logs and metrics."""

    OK = "ok"
    WORKER_REFUSED = "worker_refused"  # the worker answered with a 4xx of its own
    WORKER_ERROR = "worker_error"  # it answered with a 5xx, or with an error in its stream
    BAD_REQUEST = "bad_request"
    REJECTED = "rejected"
    UPSTREAM_FAILED = "upstream_failed"
    STREAM_BROKEN = "stream_broken"
    CLIENT_GONE = "client_gone"
    STOPPED = "stopped"  # the gateway ended before the answer did
    INTERNAL = "internal"


class GatewayError(Exception):
    """A request that ends without a worker's answer.

    Attributes:
        message: for the caller: what was wrong and what would be right.
        param: the field of the request that is at fault.
        retry_after_s: after how many seconds a retry may do better.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    kind: ClassVar[str] = "server_error"  # `type` of an OpenAI error
    outcome: ClassVar[Outcome] = Outcome.INTERNAL

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class InternalError(GatewayError):
    """A fault of ours; the details are in our log, not in the answer."""


class BadRequest(GatewayError):
    """The caller's request is wrong as it stands; sending it again changes nothing."""

    status = 400
    code = "invalid_request"
    kind = "invalid_request_error"
    outcome = Outcome.BAD_REQUEST


class MalformedBody(BadRequest):
    """The body isn't what the endpoint takes."""

    code = "invalid_body"


class UnknownModel(BadRequest):
    """No pool serves the model that was asked for."""

    status = 404
    code = "model_not_found"


class UnknownRoute(BadRequest):
    """There is nothing at this path."""

    status = 404
    code = "unknown_route"


class MethodNotAllowed(BadRequest):
    """The path exists, but only for the method `allow`."""

    status = 405
    code = "method_not_allowed"

    def __init__(
        self,
        message: str,
        *,
        allow: str = "POST",
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)
        self.allow = allow


class BodyTimedOut(BadRequest):
    """The request's body didn't arrive in time."""

    status = 408
    code = "body_timeout"


class BodyTooLarge(BadRequest):
    """The body, unpacked, is over the limit."""

    status = 413
    code = "body_too_large"


class UnsupportedEncoding(BadRequest):
    """The body is compressed in a way that isn't understood."""

    status = 415
    code = "unsupported_content_encoding"


class Rejected(GatewayError):
    """Refused at the door for want of room; nothing was spent, a retry is safe."""

    status = 503
    code = "overloaded"
    outcome = Outcome.REJECTED


class NoWorker(Rejected):
    """No worker of the pool can take the request now."""

    code = "no_worker"


class OutOfMemory(Rejected):
    """The bodies held at this moment fill the memory set aside for them."""

    code = "body_memory_full"


class TooManyConnections(Rejected):
    """The connection limit is reached."""

    code = "too_many_connections"


class UpstreamFailed(GatewayError):
    """The request was sent to a worker, and the worker failed it."""

    status = 502
    code = "worker_failed"
    outcome = Outcome.UPSTREAM_FAILED


class WorkerUnreachable(UpstreamFailed):
    """No connection to the worker could be made; it never saw the request."""

    code = "worker_unreachable"


class ConnectTimedOut(WorkerUnreachable):
    """No connection to the worker stood in time."""

    status = 504
    code = "worker_timeout"


class OutOfFiles(UpstreamFailed):
    """The gateway may open no further file, so no further connection: no worker's fault."""

    status = 503
    code = "out_of_files"
    outcome = Outcome.REJECTED


class Stopping(UpstreamFailed):
    """The gateway ends before the answer does: no worker's fault either."""

    status = 503
    code = "gateway_stopping"
    outcome = Outcome.STOPPED


class WorkerHungUp(UpstreamFailed):
    """The worker closed the connection before its answer was whole."""

    code = "worker_hung_up"


class WorkerSpokeNonsense(UpstreamFailed):
    """What the worker sent isn't HTTP, or breaks its framing rules."""

    code = "worker_spoke_nonsense"


class WorkerTimedOut(UpstreamFailed):
    """The worker took longer than the settings allow."""

    status = 504
    code = "worker_timeout"


class ConfigError(Exception):
    """A configuration that can't be used; its text lists every problem, a line each."""
