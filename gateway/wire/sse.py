"""Server-sent events: where one ends, what a stream of them says, how one is written.

Bytes in, values out: nothing here waits or knows what an event means. The rules are those of the
WHATWG HTML standard, section "Server-sent events": a line ends by LF, CRLF or CR, an event by a
blank line, and a stream may mix them.
"""

import re
from collections.abc import Iterator

import msgspec

COMMENT = b": keep-alive\n\n"  # clients skip it; it keeps proxies and read timeouts from giving up

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_MAX_RETRY_DIGITS = 15


class EventTooLarge(ValueError):  # noqa: N818 - named by what happened, as the error tree
    """An event is over the decoder's limit; the decoder can't be used any more."""


class Event(msgspec.Struct, frozen=True):
    """One dispatched event.

    Attributes:
        event: its type.
        data: the values of its `data` lines, joined by LF.
        id: the last id the stream set, in this event or an earlier one.
        retry_ms: the reconnection time set since the event before, in milliseconds.
    """

    event: str
    data: str
    id: str = ""
    retry_ms: int | None = None


# -------------------------------------------------------------------------------- ends of events


def whole(data: bytes, known: int = 0) -> int:
    r"""Return the index just after the last complete event in `data`, 0 if there is none.

    A stream cut at these indexes and joined again is the same stream, and no event is torn. A CR as
    the very last byte may be half of a CRLF that the next read completes. Then the line before
    decides: after one that ended by CR alone (`\r\r`) the CR counts as whole, so a stream of CRs
    isn't held back; after any other (`\n\r`, `\r\n\r`) it waits for its LF. Only a stream that
    mixes CR with CRLF can have a CRLF parted by that, and then reads as one blank line more.

    Args:
        data: bytes of a stream, beginning where an event begins.
        known: so many bytes at the start of `data` were already found to hold no complete event;
            spares a large event that comes in many reads from being searched anew at each.
    """
    if data.endswith((b"\n\n", b"\r\n\r\n")):
        return len(data)
    start = max(known - 2, 0)
    found = data.rfind(b"\n\n", start)
    end = found + 2 if found >= 0 else 0
    if b"\r" in data:
        end = max(end, _whole_by_cr(data, start))
    return end or _leading_line_end(data)


def _whole_by_cr(data: bytes, start: int) -> int:
    """Return the index after the last blank line that holds a CR, 0 if there is none."""
    end = 0
    found = data.rfind(b"\r\r", start)
    if found >= 0:
        end = found + 2
        if data.startswith(b"\n", end):
            end += 1
    found = data.rfind(b"\n\r", start, len(data) - 1)
    if found >= 0:
        end = max(end, found + (3 if data[found + 2] == _LF else 2))
    return end


def _leading_line_end(data: bytes) -> int:
    """Return the length of the line end that `data` begins with: an event of nothing."""
    if data.startswith((b"\n", b"\r\n")):
        return data.index(b"\n") + 1
    return int(data.startswith(b"\r") and len(data) > 1)


def split(data: bytes) -> Iterator[bytes]:
    """Yield the events of `data`, each with its blank line; what follows the last one comes last.

    Joined they are `data`.
    """
    start = 0
    if b"\r" in data:
        for blank in _BLANK_LINE.finditer(data):
            yield data[start : blank.end()]
            start = blank.end()
    else:
        while (end := data.find(b"\n\n", start) + 2) > 1:
            yield data[start:end]
            start = end
    if start < len(data):
        yield data[start:]


def payload(event: bytes) -> bytes:
    """Return what the `data` lines of one event say, joined by LF; empty if it has none."""
    lines = event.removeprefix(_BOM).splitlines()
    return b"\n".join([line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")])


# --------------------------------------------------------------------------------------- decoding


class Decoder:
    """Reads a stream that comes in pieces of any size, cut anywhere.

    Bytes that aren't UTF-8 are read as U+FFFD, as the standard says. An event that isn't finished
    when the stream ends is never dispatched.

    Args:
        max_event_bytes: how much of one event may be held, its unfinished line included; comments
            don't count once they are whole.
    """

    __slots__ = ("_after_cr", "_data", "_event", "_held", "_id", "_limit", "_line", "_retry_ms",
                 "_size", "_started")  # fmt: skip

    def __init__(self, max_event_bytes: int = 4 << 20) -> None:
        self._limit = max_event_bytes
        self._started = False  # the place of a byte order mark is behind us
        self._held = b""  # what may yet become a byte order mark
        self._after_cr = False  # an LF that comes now belongs to the CR before it
        self._line: list[bytes] = []  # pieces of the unfinished line
        self._size = 0  # bytes of the unfinished event, the unfinished line included
        self._data: list[bytes] = []
        self._event = b""
        self._id = b""
        self._retry_ms: int | None = None

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of the stream; return the events they complete.

        Raises:
            EventTooLarge: an event is over the limit.
        """
        if not self._started:
            data = self._skip_mark(data)
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        events = []
        for line in data.splitlines(keepends=True):
            if not line.endswith((b"\n", b"\r")):
                self._line.append(line)
                self._grow(len(line))
            elif (event := self._take(line.rstrip(b"\r\n"))) is not None:
                events.append(event)
        if data:
            self._after_cr = data.endswith(b"\r")
        return events

    def _skip_mark(self, data: bytes) -> bytes:
        data = self._held + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._held = data
            return b""
        self._started = True
        self._held = b""
        return data.removeprefix(_BOM)

    def _take(self, end: bytes) -> Event | None:
        """Take in the end of a line, without its line end."""
        line = end
        if self._line:
            line = b"".join([*self._line, end])
            self._size -= len(line) - len(end)
            self._line.clear()
        if not line:
            return self._dispatch()
        if not line.startswith(b":"):
            self._grow(len(line))
            name, _, value = line.partition(b":")
            self._set(name, value.removeprefix(b" "))
        return None

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            msg = f"an event of the stream is larger than {self._limit} bytes"
            raise EventTooLarge(msg)

    def _set(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self._retry_ms = int(value)

    def _dispatch(self) -> Event | None:
        event = None
        if self._data:
            event = Event(
                self._event.decode(errors="replace") or "message",
                b"\n".join(self._data).decode(errors="replace"),
                self._id.decode(errors="replace"),
                self._retry_ms,
            )
            self._data.clear()
            self._retry_ms = None
        self._event = b""
        self._size = 0
        return event


# --------------------------------------------------------------------------------------- encoding


def encode(data: bytes, event: bytes = b"") -> bytes:
    """Return one event. `data` is split at its line ends, which a reader gets back as LF.

    Args:
        data: what it says, UTF-8.
        event: its type, without line ends; empty = no `event` line.
    """
    head = b"event: %b\n" % event if event else b""
    if b"\n" in data or b"\r" in data:
        return head + b"".join([b"data: %b\n" % line for line in _LINE_END.split(data)]) + b"\n"
    return b"%bdata: %b\n\n" % (head, data)
