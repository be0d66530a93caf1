"""What a path means for the relay.

Its dialect, whether usage must be asked for, how a finished stream looks.
"""

from dataclasses import dataclass

from gateway.wire import dialect
from gateway.wire.dialect import Dialect


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request.

    Attributes:
        asks_usage: a stream tells its usage only if `stream_options` says so.
        knows_end: a stream without its dialect's end mark was cut.
    """

    dialect: Dialect
    asks_usage: bool = False
    knows_end: bool = False


CHAT = COMPLETIONS = Route(dialect.OPENAI, asks_usage=True, knows_end=True)
PLAIN = Route(dialect.OPENAI)
RESPONSES = Route(dialect.RESPONSES, knows_end=True)
MESSAGES = Route(dialect.ANTHROPIC, knows_end=True)
ANTHROPIC_PLAIN = Route(dialect.ANTHROPIC)

_ROUTES = {
    b"/v1/chat/completions": CHAT,
    b"/v1/completions": COMPLETIONS,
    b"/v1/embeddings": PLAIN,
    b"/v1/responses": RESPONSES,
    b"/v1/messages": MESSAGES,
}


def of_path(path: bytes) -> Route:
    """The route of a request path, query and trailing slash allowed."""
    route = _ROUTES.get(path)
    if route is None:
        bare = path.partition(b"?")[0].rstrip(b"/")
        route = _ROUTES.get(bare)
        if route is None:
            route = ANTHROPIC_PLAIN if dialect.of_path(bare) is dialect.ANTHROPIC else PLAIN
    return route
