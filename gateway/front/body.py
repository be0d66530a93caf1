"""A request's body from aiohttp: unpacked, within the limit of size, time and memory."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.dispatch.desk import COUNTED_BYTES, BodyMemory
from gateway.errors import BodyTimedOut, BodyTooLarge, MalformedBody, UnsupportedEncoding

_PLAIN = frozenset(("", "identity"))
_PACKED = frozenset(("gzip", "deflate"))
STEP_BYTES = 256 << 10  # unpacked at once: a thousand times what came may be in it


async def read(
    request: web.Request, *, memory: BodyMemory, max_bytes: int, deadline: asyncio.Timeout
) -> tuple[bytes, int]:
    """The whole body, and what it took of `memory`; the caller gives that back.

    Raises:
        GatewayError: too large (also once unpacked), too slow, packed in an unknown way, broken, or
            no memory for it.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _PLAIN and encoding not in _PACKED:
        raise UnsupportedEncoding(
            "Request bodies may be sent plain or with content-encoding gzip or deflate.",
            param="content-encoding",
        )
    if (request.content_length or 0) > max_bytes:
        raise too_large(max_bytes)
    unpack = Unpacking(encoding) if encoding in _PACKED else None
    held = Held(memory, request.content_length or 0)
    try:
        async with deadline:
            body = await _collect(request.content.iter_any(), unpack, held, max_bytes)
    except BaseException as e:
        held.give_back()
        if isinstance(e, TimeoutError):
            raise BodyTimedOut("The request's body did not arrive in time.") from e
        if isinstance(e, ClientPayloadError | HttpProcessingError | zlib.error):
            raise MalformedBody(
                "The request's body is broken: it ends early, or isn't packed as it says."
            ) from e
        raise
    return body, held.size


class Held:
    """What one body has taken of the memory for all."""

    def __init__(self, memory: BodyMemory, expected: int) -> None:
        self._memory = memory
        self.size = memory.take(expected)

    def cover(self, size: int) -> None:
        """Take more if the body has grown to `size`."""
        if size - self.size >= COUNTED_BYTES:
            self.size += self._memory.take(size - self.size)

    def give_back(self) -> None:
        """The body is dropped."""
        self._memory.give_back(self.size)


async def _collect(
    chunks: AsyncIterator[bytes], unpack: "Unpacking | None", held: Held, max_bytes: int
) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        for piece in (chunk,) if unpack is None else unpack.pieces(chunk):
            size += len(piece)
            if size > max_bytes:
                raise too_large(max_bytes)
            held.cover(size)
            parts.append(piece)
            if unpack is not None and len(piece) == STEP_BYTES:
                await asyncio.sleep(0)  # noqa: TID251  (a turn for the others; no time passes)
    if unpack is not None:
        unpack.end()
    return b"".join(parts)


class Unpacking:
    """A body packed by gzip or zlib.

    Not left to aiohttp: it would also unpack what is only read to be thrown away, and it takes a
    gzip stream that was cut for a whole one.
    """

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding == "gzip"
        self._decoder: Any = None  # zlib's class has no public name

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What is packed in the next `chunk`, a step at a time. Raises zlib.error."""
        decoder = self._decoder
        more = bool(chunk)
        while more:
            if decoder is None or (
                decoder.eof and self._gzip
            ):  # one gzip stream may follow another
                self._decoder = decoder = zlib.decompressobj(self._window(chunk))
            elif decoder.eof:
                raise MalformedBody("Bytes follow what is packed in the request's body.")
            piece = decoder.decompress(chunk, STEP_BYTES)
            chunk = decoder.unconsumed_tail or decoder.unused_data
            more = bool(chunk) or (len(piece) == STEP_BYTES and not decoder.eof)
            yield piece

    def end(self) -> None:
        """The body has ended. Raises MalformedBody if that was too early."""
        if self._decoder is None or not self._decoder.eof:
            raise MalformedBody("The request's body ends before what is packed in it.")

    def _window(self, data: bytes) -> int:
        """The wrapping for zlib to expect; `deflate` is sent with zlib's, and by some with none."""
        if self._gzip:
            return 16 + zlib.MAX_WBITS
        return zlib.MAX_WBITS if data[0] & 15 == zlib.DEFLATED else -zlib.MAX_WBITS


def too_large(max_bytes: int) -> BodyTooLarge:
    """The refusal that names the limit."""
    return BodyTooLarge(f"The request's body is larger than the limit of {max_bytes} bytes.")
