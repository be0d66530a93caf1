"""A request's body from aiohttp: unpacked, within the limit of size, time and memory."""

import asyncio

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.dispatch.desk import COUNTED_BYTES, BodyMemory
from gateway.errors import (
    BodyTimedOut,
    BodyTooLarge,
    GatewayError,
    MalformedBody,
    UnsupportedEncoding,
)

# What aiohttp unpacks without further libraries.
_ENCODINGS = frozenset(("", "identity", "gzip", "deflate"))


async def read(
    request: web.Request, *, memory: BodyMemory, max_bytes: int, timeout_s: float
) -> tuple[bytes, int]:
    """The whole body, and what it took of `memory`; the caller gives that back.

    Raises:
        GatewayError: too large (also once unpacked), too slow, packed in an unknown way, broken, or
            no memory for it.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise UnsupportedEncoding(
            "Request bodies may be sent plain or with content-encoding gzip or deflate.",
            param="content-encoding",
        )
    _check(request.content_length or 0, max_bytes)
    held = memory.take(request.content_length or 0)
    try:
        async with asyncio.timeout(timeout_s or None):
            body, more = await _collect(request, memory, max_bytes, held)
    except TimeoutError as e:
        memory.give_back(held)
        raise BodyTimedOut("The request's body did not arrive in time.") from e
    except (ClientPayloadError, HttpProcessingError) as e:
        memory.give_back(held)
        raise MalformedBody(
            "The request's body is broken: it ends early, or isn't packed as it says."
        ) from e
    except (GatewayError, asyncio.CancelledError):
        memory.give_back(held)
        raise
    return body, held + more


async def _collect(
    request: web.Request, memory: BodyMemory, max_bytes: int, held: int
) -> tuple[bytes, int]:
    """The body, and what it took of `memory` beyond `held`; after an error it has taken nothing."""
    parts: list[bytes] = []
    size = taken = 0
    try:
        async for chunk in request.content.iter_any():
            size += len(chunk)
            _check(size, max_bytes)
            if size - held - taken >= COUNTED_BYTES:
                taken += memory.take(size - held - taken)
            parts.append(chunk)
    except BaseException:
        memory.give_back(taken)
        raise
    return b"".join(parts), taken


def _check(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        msg = f"The request's body is larger than the limit of {max_bytes} bytes."
        raise BodyTooLarge(msg)
