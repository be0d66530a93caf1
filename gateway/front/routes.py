"""aiohttp's side of the front: which path leads where.

Everything that isn't a route of ours is answered with an error that says what would be right. A
POST is relayed if its path is one that model servers use for inference; their control paths (sleep,
adapters, aborts) are never reached through here.
"""

import re
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from gateway.errors import BadRequest, MethodNotAllowed, UnknownModel, UnknownRoute
from gateway.front.bridge import Bridged

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Inference paths of the servers in the field, outside /v1 and /v2.
_BARE = frozenset(
    (
        "/api/chat",
        "/api/embed",
        "/api/embeddings",
        "/api/generate",
        "/classify",
        "/detokenize",
        "/embed",
        "/embed_all",
        "/embed_sparse",
        "/embeddings",
        "/inference/v1/generate",
        "/infill",
        "/pooling",
        "/predict",
        "/rerank",
        "/score",
        "/similarity",
        "/tokenize",
    )
)
# Parts of paths under /v1 and /v2 that change a server or tell of it, or name what no pool holds.
_CONTROL = frozenset(
    (
        "abort_requests",
        "admin",
        "batches",
        "collective_rpc",
        "download",
        "files",
        "flush_cache",
        "internal",
        "load",
        "load_lora_adapter",
        "logging",
        "pause",
        "register",
        "repository",
        "reset_prefix_cache",
        "resume",
        "sleep",
        "start_profile",
        "stop_profile",
        "trace",
        "unload",
        "unload_lora_adapter",
        "unregister",
        "update_weights",
        "wake_up",
    )
)
_RELAYED = re.compile(r"/v[12](?!/v1/)(/[A-Za-z0-9_\-]+)+").fullmatch
_MODELS = re.compile(r"/v1/models(/|$)").match
_BASE = re.compile(r"(/v1)*/*")
_POSTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
)
_GETS = ("/v1/models", "/livez", "/readyz")


class Status:
    """What the health routes tell.

    Attributes:
        draining: shutting down; not ready for more.
        ready: whether a request could be served now.
        cards: the models as `/v1/models` lists them.
    """

    def __init__(
        self, *, ready: Callable[[], bool], cards: Callable[[], list[dict[str, object]]]
    ) -> None:
        self.draining = False
        self.ready = ready
        self.cards = cards


class Routes:
    """All routes over one set of exchanges."""

    def __init__(self, bridged: Bridged, status: Status) -> None:
        self._bridged = bridged
        self._status = status

    def application(self) -> web.Application:
        """The aiohttp application; by its catch-all route errors are ours, in each dialect."""
        app = web.Application()
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/", self.models)
        app.router.add_get("/v1/models/{id:.+}", self.model)
        app.router.add_route("*", "/{path:.*}", self.other)
        return app

    async def livez(self, request: web.Request) -> web.StreamResponse:
        """The process runs its loop."""
        del request
        return _json(200, {"status": "alive"})

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        """Requests are taken, and some model can be served."""
        del request
        if self._status.draining:
            return _json(503, {"status": "draining"})
        if not self._status.ready():
            return _json(503, {"status": "no worker is ready"})
        return _json(200, {"status": "ready"})

    async def models(self, request: web.Request) -> web.StreamResponse:
        """The models that can be asked for."""
        del request
        return _json(200, {"object": "list", "data": self._status.cards()})

    async def model(self, request: web.Request) -> web.StreamResponse:
        """One model; its name may hold slashes."""
        name = request.match_info["id"].rstrip("/")
        for card in self._status.cards():
            if card["id"] == name:
                return _json(200, card)
        error = UnknownModel(f"The model `{name[:100]}` does not exist here.", param="model")
        return await self._refuse(request, error)

    async def other(self, request: web.Request) -> web.StreamResponse:
        """A POST of inference, or an error with a hint."""
        raw, _, query = request.raw_path.partition("?")
        path = raw.rstrip("/") if raw != "/" else raw
        if request.method == "POST" and relayed(path):
            target = f"{path}?{query}" if query else path
            return await self._bridged.relay(request, target.encode())
        return await self._refuse(request, _what_is_wrong(request.method, path))

    async def _refuse(self, request: web.Request, error: BadRequest) -> web.StreamResponse:
        path = request.raw_path.encode("utf-8", "surrogateescape")
        return await self._bridged.refuse(request, path, error)


def relayed(path: str) -> bool:
    """Whether POSTs to `path` go to workers.

    Encoded or dotted paths don't: a server behind might read them otherwise.
    """
    if path in _BARE:
        return True
    if _RELAYED(path) is None or _MODELS(path) is not None:
        return False
    return _CONTROL.isdisjoint(path.lower().split("/"))


def _what_is_wrong(method: str, path: str) -> BadRequest:
    if method != "POST" and (path in _POSTS or path in _BARE):
        return MethodNotAllowed(f"{path} takes POST, not {method}.", allow="POST")
    if path in _GETS or _MODELS(path):
        return MethodNotAllowed(f"{path} takes GET, not {method}.", allow="GET")
    shown = f"{method} {path[:200]}"
    better = _BASE.sub("/v1/", path, count=1)
    if better != path and better in (*_POSTS, *_GETS):
        return UnknownRoute(
            f"There is nothing at {shown}. Did you mean {better}? A client's base URL ends in /v1."
        )
    known = ", ".join((*_POSTS, *_GETS))
    return UnknownRoute(f"There is nothing at {shown}. Try one of {known}.")


def _json(status: int, value: object) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json"
    )
