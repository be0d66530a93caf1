"""What the cases of the corpus are made of."""

from dataclasses import dataclass

BODY = b'{"model":"m","messages":[]}'
# A request that must never be seen as one: it stands inside the body of another.
HIDDEN_BODY = b'{"model":"m","hidden":true}'
HIDDEN = (
    b"POST /v1/completions HTTP/1.1\r\nhost: hidden\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(HIDDEN_BODY), HIDDEN_BODY)
)


@dataclass(frozen=True)
class Case:
    """Bytes of one connection.

    Attributes:
        name: what is odd about them.
        wire: the bytes.
        reaches: how many requests in them reach a worker. (Less, if a cut puts something bad into
            the same read: aiohttp then drops what came before it.)
        resumes: whether a plain request behind them is answered.
    """

    name: str
    wire: bytes
    reaches: int
    resumes: bool = True


def refused(name: str, wire: bytes) -> Case:
    """Nothing in it is let through, and the connection ends."""
    return Case(name, wire, 0, resumes=False)


def head(*lines: bytes) -> bytes:
    """Lines and the empty line."""
    return b"\r\n".join(lines) + b"\r\n\r\n"


def post_with(*fields: bytes, body: bytes = BODY, line: bytes | None = None) -> bytes:
    """A request with these fields beside host and type; no length unless they hold one."""
    return (
        head(
            line or b"POST /v1/chat/completions HTTP/1.1",
            b"host: gateway",
            b"content-type: application/json",
            *fields,
        )
        + body
    )


def length(body: bytes = BODY) -> bytes:
    return b"content-length: %d" % len(body)


def plain(*fields: bytes, body: bytes = BODY, line: bytes | None = None) -> bytes:
    """The same with its length, which stands last."""
    return post_with(*fields, length(body), body=body, line=line)
