"""Errors to responses.

The one place where a `GatewayError` gets its status, header fields and body.
"""

import math

from gateway.errors import GatewayError, MethodNotAllowed
from gateway.requests import Fields
from gateway.wire import dialect

# The official SDKs wait for at most a minute; beyond it a retry is pointless, and they are told so.
LONGEST_USEFUL_WAIT_S = 60


def render(error: GatewayError, path: bytes, request_id: bytes) -> tuple[int, Fields, bytes]:
    """Status, header fields without framing, and body of `error`, in the dialect of `path`."""
    body = dialect.of_path(path).body(error)
    fields: Fields = [(b"content-type", b"application/json"), (b"x-request-id", request_id)]
    if isinstance(error, MethodNotAllowed):
        fields.append((b"allow", error.allow.encode()))
    if error.retry_after_s is not None:
        fields.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        if error.retry_after_s > LONGEST_USEFUL_WAIT_S:
            fields.append((b"x-should-retry", b"false"))
    return error.status, fields, body
