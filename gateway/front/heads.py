"""Which header fields of a request go on to the worker.

One list, for the lane and for the bridge.
"""

from collections.abc import Iterable

from gateway.requests import RequestHead

# Ends at this hop; is rendered anew; is a credential for us, not for the worker; or is ours to
# read.
NOT_FORWARDED = frozenset(
    (
        b"accept-encoding",
        b"api-key",
        b"authorization",
        b"baggage",
        b"close",  # no field may be called like the option of Connection
        b"connection",
        b"content-encoding",
        b"content-length",
        b"cookie",
        b"expect",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
        b"x-request-id",
    )
)
OURS = b"x-tiergate-"
MAX_CLIENT_ID_BYTES = 512


def client_id(value: bytes) -> bytes:
    """The client's own request id, as far as it is fit for a log."""
    return value[:MAX_CLIENT_ID_BYTES]


def bridge_head(path: bytes, raw: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    """The head of a request that aiohttp has parsed, fields named in `Connection` left out."""
    head = RequestHead(path)
    fields = [(name.lower(), name, value) for name, value in raw]
    named = {
        part.strip().lower()
        for low, _, value in fields
        if low == b"connection"
        for part in value.split(b",")
    }
    forward = []
    for low, name, value in fields:
        if low == b"content-type":
            head.content_type = value
        elif low == b"x-request-id":
            head.client_id = client_id(value)
        if low not in NOT_FORWARDED and low not in named and not low.startswith(OURS):
            forward.append(b"%b: %b\r\n" % (name, value))
    head.forward = b"".join(forward)
    return head
