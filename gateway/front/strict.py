"""Heads that can be read in one way only; nothing else is read here.

Promises: `parse` takes a head only if aiohttp would take it too and would see the same message in
it: its end beyond doubt, every field a plain one. What it doesn't take is not refused: aiohttp
judges it. It refuses to be clever: never widen the subset for speed.
"""

import re

from gateway.front.heads import NOT_FORWARDED, OURS, client_id
from gateway.requests import RequestHead

HOT_PATHS = (b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings")
HOT = frozenset(b"POST %b HTTP/1.1\r\n" % path for path in HOT_PATHS)
LONGEST_LINE = max(map(len, HOT))
MAX_HEAD_BYTES = 8190  # what aiohttp takes in one field: a larger head is its to judge
MAX_FIELDS = 128  # what aiohttp takes in one head

# Fields that leave the end of a message, or the meaning of its body, to more rules than are kept
# here, or that aiohttp refuses.
_FOREIGN = frozenset(
    (
        b"content-encoding",
        b"expect",
        b"http2-settings",
        b"proxy-authorization",
        b"proxy-connection",  # a second Connection, to some
        b"sec-websocket-key1",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# Fields that are read here, or that aiohttp refuses to see twice.
_ONCE = frozenset(
    (
        b"connection",
        b"content-length",
        b"content-location",
        b"content-range",
        b"content-type",
        b"etag",
        b"host",
        b"max-forwards",
        b"server",
        b"user-agent",
        b"x-request-id",
    )
)
_METHOD = re.compile(rb"[A-Z]{1,20}( |\Z)").match
_DIGITS = re.compile(rb"[0-9]{1,11}").fullmatch
_BLOCK = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)+").fullmatch

# The usual spelling of a length; a head that spells it otherwise is just not remembered.
usual_length = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,11})\r\n").search


def parse(data: bytes, line: int, end: int) -> RequestHead | None:
    """The head of a request that is surely ours, else None.

    `data[:line]` is the request line, one of `HOT`; `data[end:end + 4]` the empty line.
    """
    block = data[line : end + 2]
    if _BLOCK(block) is None or block.count(b"\n") > MAX_FIELDS:
        return None
    once: dict[bytes, bytes] = {}
    forward: list[bytes] = []
    for field in block[:-2].split(b"\r\n"):
        name, _, value = field.partition(b":")
        name = name.lower()
        if name in _FOREIGN:
            return None
        if name in _ONCE:
            if name in once:
                return None
            once[name] = value.strip(b" \t")
        if name not in NOT_FORWARDED and not name.startswith(OURS):
            forward.append(field)
    connection = once.get(b"connection", b"keep-alive").lower()
    length = once.get(b"content-length", b"")
    kind = once.get(b"content-type", b"")
    known = connection in (b"close", b"keep-alive") and _DIGITS(length) is not None
    if not known or b"host" not in once or kind[:10].lower() == b"multipart/":
        return None
    forward.append(b"")
    head = RequestHead(data[5 : line - 11])
    head.forward = b"\r\n".join(forward)
    head.length = int(length)
    head.keep = connection == b"keep-alive"
    head.content_type = kind
    head.client_id = client_id(once.get(b"x-request-id", b""))
    return head


def may_become_a_head(data: bytes) -> bool:
    """Whether `data` looks like the beginning of a head, of whatever request, and no more."""
    return (
        len(data) < MAX_HEAD_BYTES
        and _METHOD(data) is not None
        and b"\r\n\r\n" not in data
        and data.count(b"\n") == data.count(b"\r\n")
    )
