"""Nouns that travel between the floors.

A request's head, a worker's answer, and the record of how it went.
"""

import msgspec

from gateway.errors import Outcome
from policies.model import Usage

# A status is of the class that begins at or below it (RFC 9110, section 15).
SUCCESS, REDIRECTION, CLIENT_ERROR, SERVER_ERROR = 200, 300, 400, 500

Fields = list[tuple[bytes, bytes]]  # header fields in order, names as they were written


class RequestHead:
    """What the front knows of a request before its body.

    A lane keeps one per connection and uses it again while the client sends the same head; so
    nothing may be written to it but `length`.

    Attributes:
        path: as the client wrote it, with its query; ASCII.
        forward: the header fields for the worker, rendered, each with its line end.
        length: of the body, in bytes.
        keep: whether the client's connection stays open after the answer.
        client_id: the client's own `x-request-id`, if it sent one.
    """

    __slots__ = ("client_id", "content_type", "forward", "keep", "length", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.forward = b""
        self.length = -1
        self.keep = True
        self.client_id = b""
        self.content_type = b""


class Record(msgspec.Struct):
    """One request as it is remembered when it has ended.

    Times are seconds on the gateway's clock; 0 = never happened.

    `t0` body complete · `t_sent` handed to the worker (the last attempt) · `t_first` first byte of
    its answer · `t_last` its last byte · `t_end` settled.
    """

    id: bytes
    client_id: bytes
    path: bytes
    t0: float
    model: str = ""
    stream: bool = False
    worker: str = ""
    attempts: int = 0
    status: int = 0
    outcome: Outcome = Outcome.OK
    code: str = ""  # of the error, if one of ours ended it
    usage: Usage | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    t_sent: float = 0.0
    t_first: float = 0.0
    t_last: float = 0.0
    t_end: float = 0.0
