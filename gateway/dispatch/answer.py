"""What becomes of a worker's answer on its way to the client, read by read.

Promises: a stream passes in whole events, unchanged but for a usage event that the client didn't
ask for; any other body passes as it comes; a worker's error is brought to the shape that SDKs read.
Usage is read as it passes.
"""

from typing import Protocol

from gateway.dispatch.route import Route
from gateway.ports import Call
from gateway.requests import CLIENT_ERROR, Fields
from gateway.wire import openai, sse, usage
from policies.model import Usage

MAX_EVENT_BYTES = 1 << 20  # a longer event passes in pieces, unread
MAX_READ_BYTES = 256 << 10  # of a body that is read whole for its usage
TAIL_BYTES = 16 << 10  # of a longer one
MAX_ERROR_BYTES = 256 << 10

# What ends at this hop, is rendered anew by the sink, or is ours to say.
_KEPT_BACK = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"transfer-encoding",
        b"content-length",
        b"trailer",
        b"upgrade",
        b"te",
        b"set-cookie",
        b"x-request-id",
    )
)


class Answer(Protocol):
    """One answer as it passes.

    Attributes:
        length: of the body for the client, once `feed` has returned something; None = not known.
        rewritten: the body is our JSON, not the worker's bytes.
    """

    length: int | None
    rewritten: bool

    @property
    def usage(self) -> Usage | None:
        """What the worker has told so far."""
        ...

    @property
    def failed(self) -> bool:
        """Whether the worker said that it failed, by its status or in its stream."""
        ...

    def feed(self, data: bytes, *, done: bool) -> bytes | None:
        """What to pass on of one read; None = the answer can't begin yet."""
        ...

    def whole(self, *, trusted: bool) -> bool:
        """Whether the answer reached its end. `trusted`: the framing says so."""
        ...


class Streamed:
    """Server-sent events.

    Attributes:
        last: the last piece that was passed on, in whole events.
    """

    __slots__ = ("_previous", "_rest", "_route", "_scanner", "last", "length", "rewritten")

    def __init__(self, route: Route, *, strip: bool) -> None:
        self._route = route
        self._scanner = usage.UsageScanner(strip)
        self._rest = self.last = self._previous = b""
        self.length: int | None = None
        self.rewritten = False

    @property
    def usage(self) -> Usage | None:
        """See `Answer`."""
        return self._scanner.usage

    @property
    def failed(self) -> bool:
        """See `Answer`."""
        return self._scanner.failed

    def feed(self, data: bytes, *, done: bool) -> bytes:
        """See `Answer`. An event that isn't whole waits for its rest."""
        if self._rest or not data.endswith(b"\n\n"):
            data = self._cut(data, done=done)
        if b'"usage"' in data or b'"error"' in data:  # as the scanner would ask; a call costs more
            data = self._scanner.scan(data)
        if data:
            self._previous = self.last
            self.last = data
        return data

    def _cut(self, data: bytes, *, done: bool) -> bytes:
        """What is whole of the rest and `data`; unless that was all, what isn't waits."""
        known = len(self._rest)
        if known:
            data = self._rest + data
            self._rest = b""
        end = sse.whole(data, known)
        if end != len(data) and not done and len(data) - end < MAX_EVENT_BYTES:
            self._rest = data[end:]
            data = data[:end]
        return data

    def whole(self, *, trusted: bool) -> bool:
        """See `Answer`. A dialect's end mark outranks the framing."""
        if trusted and not self._route.knows_end:
            return True
        return self._route.dialect.ended(self.last, self._previous)

    def torn(self) -> int:
        """How many bytes at the end of what was passed on are of an event that isn't whole."""
        return len(self.last) - sse.whole(self.last)

    def without_torn(self) -> bytes:
        """The last piece without them, if they aren't to be passed on after all."""
        self.last = self.last[: sse.whole(self.last)]
        return self.last


class Plain:
    """A body that isn't a stream of events."""

    __slots__ = ("_parts", "_size", "failed", "length", "rewritten")

    def __init__(self, length: int | None, *, failed: bool) -> None:
        self.length = length
        self.failed = failed
        self.rewritten = False
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def usage(self) -> Usage | None:
        """See `Answer`; read when asked for, which is at the end."""
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._size <= MAX_READ_BYTES:
            return usage.usage_of_answer(body)
        return usage.usage_of_tail(body)

    def feed(self, data: bytes, *, done: bool) -> bytes:
        """See `Answer`."""
        del done
        if data:
            self._size += len(data)
            self._parts.append(data)
            if self._size > MAX_READ_BYTES and len(self._parts) > 1:
                self._parts = [b"".join(self._parts)[-TAIL_BYTES:]]
        return data

    def whole(self, *, trusted: bool) -> bool:
        """See `Answer`. A body that ends with its connection is taken at its word."""
        del trusted
        return True


class Failed:
    """The body of a worker's 4xx or 5xx: read whole, passed on in the shape that SDKs read."""

    __slots__ = ("_parts", "_passing", "_route", "_size", "_status", "length", "rewritten")

    failed = True

    def __init__(self, route: Route, status: int) -> None:
        self._route = route
        self._status = status
        self._parts: list[bytes] = []
        self._size = 0
        self._passing = False
        self.length: int | None = None
        self.rewritten = False

    @property
    def usage(self) -> Usage | None:
        """See `Answer`: a failure is charged nothing."""
        return None

    def feed(self, data: bytes, *, done: bool) -> bytes | None:
        """See `Answer`."""
        if self._passing:
            return data
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_ERROR_BYTES:  # no error object: let it pass as it is
            self._passing = True
            return b"".join(self._parts)
        if not done:
            return None
        said = b"".join(self._parts)
        body = openai.normalise_error(self._status, said, self._route.dialect)
        self.length = len(body)
        self.rewritten = body is not said
        return body

    def whole(self, *, trusted: bool) -> bool:
        """See `Answer`."""
        del trusted
        return True


def answer_for(call: Call, route: Route, *, strip: bool) -> Answer:
    """How the answer of `call` is passed on.

    What is compressed, though we asked not to, is left alone.
    """
    failed = call.status >= CLIENT_ERROR
    if _is_encoded(call):
        return Plain(call.length, failed=failed)
    if failed:
        return Failed(route, call.status)
    if is_stream(call):
        return Streamed(route, strip=strip)
    return Plain(call.length, failed=False)


def _is_encoded(call: Call) -> bool:
    for name, value in call.fields:
        if len(name) == len(b"content-encoding") and name.lower() == b"content-encoding":
            return value.strip().lower() not in (b"", b"identity")
    return False


def is_stream(call: Call) -> bool:
    """Whether the answer is a stream of server-sent events."""
    for name, value in call.fields:
        if len(name) == len(b"content-type") and name.lower() == b"content-type":
            return value[:17].lower() == b"text/event-stream"
    return False


def answer_fields(call: Call, request_id: bytes, *, rewritten: bool) -> Fields:
    """The header fields for the client; `rewritten`: of a body that is our JSON."""
    named: frozenset[bytes] = frozenset()
    fields: Fields = []
    for field in call.fields:
        name = field[0].lower()
        if name in _KEPT_BACK:
            if name == b"connection":
                named = frozenset(part.strip().lower() for part in field[1].split(b","))
        elif not name.startswith(b"x-tiergate-"):
            fields.append(field)
    if named:
        fields = [field for field in fields if field[0].lower() not in named]
    if rewritten:
        fields = [field for field in fields if field[0].lower() != b"content-type"]
        fields.append((b"content-type", b"application/json"))
    fields.append((b"x-request-id", request_id))
    return fields
