"""What a client sees of HTTP: fields both ways, errors in its own words, paths, models."""

import msgspec
import pytest

from tests.support.client import GET, Response, chunked, connected, post
from tests.support.fronts import both_fronts, on_uvloop, stand, without
from tests.support.scripted import DONE_EVENT, LAST_CHUNK, STREAM_HEAD, answer, chunk, delta

BODY = b'{"model":"m","messages":[]}'
HOT = b"/v1/chat/completions"
RELAYED = b"/v1/rerank"

# Fields that must not reach a worker, nor come back from one.
DENIED = [
    b"Authorization: Bearer client-key",
    b"Api-Key: client-key",
    b"X-Api-Key: client-key",
    b"Cookie: a=b",
    b"Baggage: a=b",
    b"Accept-Encoding: gzip, br",
    b"Keep-Alive: timeout=5",
    b"Proxy-Authorization: Basic eA==",
    b"Proxy-Connection: keep-alive",
    b"TE: trailers",
    b"X-Request-Id: mine",
    b"X-Tiergate-Tier: realtime",
    b"x-tiergate-anything: 1",
]
DENIED_BACK = [
    b"Keep-Alive: timeout=5",
    b"Proxy-Authenticate: Basic",
    b"Set-Cookie: a=b",
    b"X-Request-Id: the worker's",
    b"X-Tiergate-Tier: realtime",
    b"Trailer: x-sum",
]
# Fields that nobody here knows: their names, bytes, order and number stay.
UNKNOWN = [
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"X-Session-ID", b"abc"),
    (b"x-twice", b"1"),
    (b"X-Twice", b"2"),
    (b"x-twice", b"1"),
    (b"x-empty", b""),
    (b"x-odd", b'a,b;c="d" \t e: f'),
    (b"x-utf8", "zwölf €".encode()),
    (b"OpenAI-Organization", b"org-1"),
    (b"anthropic-version", b"2023-06-01"),
    (b"accept", b"text/event-stream"),
]


def _lines(fields: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [b"%b: %b" % field for field in fields]


def _error(response: Response) -> dict[str, object]:
    assert response.values(b"content-type") == [b"application/json"]
    return msgspec.json.decode(response.body)["error"]


# Fields to the worker


@both_fronts
@pytest.mark.parametrize("path", [HOT, RELAYED])
@on_uvloop
async def test_fields_that_end_here(lane: bool, path: bytes):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(BODY, *DENIED, path=path))
        assert (await client.response()).status == 200
        client.send(post(BODY, b"Connection: x-drop, X-Too", b"X-Drop: 1", b"x-too: 2", path=path))
        assert (await client.response()).status == 200
    first, second = worker.seen
    usual = (b"host", b"content-type", b"content-length")
    assert without(first.fields, *usual) == [
        (b"accept-encoding", b"identity"),
        *((b"x-request-id", v) for v in first.values(b"x-request-id")),
    ]
    assert first.values(b"host") == [worker.url.removeprefix("http://").encode()]
    assert first.values(b"x-request-id") != [b"mine"]
    assert len(first.values(b"x-request-id")) == 1
    assert not second.values(b"x-drop")
    assert not second.values(b"x-too")
    assert not second.values(b"connection")


@both_fronts
@pytest.mark.parametrize("path", [HOT, RELAYED])
@on_uvloop
async def test_unknown_fields_reach_the_worker(lane: bool, path: bytes):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(BODY, *_lines(UNKNOWN), path=path))
        assert (await client.response()).status == 200
        client.send(chunked(BODY, fields=tuple(_lines(UNKNOWN)), path=path))
        assert (await client.response()).status == 200
    ours = (b"host", b"accept-encoding", b"content-type", b"content-length", b"x-request-id")
    for seen in worker.seen:
        assert without(seen.fields, *ours) == UNKNOWN
        assert seen.values(b"content-type") == [b"application/json"]
        assert seen.values(b"content-length") == [b"%d" % len(BODY)]
        assert not seen.values(b"transfer-encoding")


# Fields from the worker


def _answers(*fields: bytes) -> list[bytes]:
    """With a length, chunked, and as a stream: one script each."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    more = b"".join(b"%b\r\n" % field for field in fields)
    return [
        answer(BODY, "200 OK", *fields),
        head + more + b"transfer-encoding: chunked\r\n\r\n" + chunk(BODY) + LAST_CHUNK,
        STREAM_HEAD[:-2] + more + b"\r\n" + chunk(delta("hi", "stop") + DONE_EVENT) + LAST_CHUNK,
    ]


@both_fronts
@pytest.mark.parametrize("path", [HOT, RELAYED])
@on_uvloop
async def test_fields_of_the_worker_that_end_here(lane: bool, path: bytes):
    dropped = [*DENIED_BACK, b"Connection: keep-alive, X-Drop", b"x-drop: 1"]
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        for script in _answers(*dropped):
            worker.scripts = [[script]]
            client.send(post(BODY, path=path))
            response = await client.response()
            assert response.status == 200
            names = [name.lower() for name, _ in response.fields]
            framing = {b"content-length", b"transfer-encoding"}
            assert len(framing & set(names)) == 1
            assert names.count(b"x-request-id") == 1
            assert response.values(b"x-request-id") == worker.seen[-1].values(b"x-request-id")
            extra = {b"content-type", b"x-request-id", b"date", b"server"} | framing
            assert not set(names) - extra, names


@both_fronts
@pytest.mark.parametrize("path", [HOT, RELAYED])
@on_uvloop
async def test_unknown_fields_of_the_worker_reach_the_client(lane: bool, path: bytes):
    more = [*UNKNOWN, (b"Server", b"uvicorn"), (b"Date", b"today"), (b"x-ratelimit-limit", b"5")]
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        for script in _answers(*_lines(more)):
            worker.scripts = [[script]]
            client.send(post(BODY, path=path))
            response = await client.response()
            rest = (b"content-type", b"content-length", b"transfer-encoding", b"x-request-id")
            assert without(response.fields, *rest) == more


@both_fronts
@on_uvloop
async def test_every_answer_has_an_id_of_its_own(lane: bool):
    ids = set()
    async with stand(lane) as (_, gateway):
        for wire in (
            post(BODY),
            post(BODY, path=RELAYED),
            post(b"{"),
            post(b'{"model":"x"}'),
            GET % b"/nothing",
            GET % b"/v1/models/x",
            post(BODY, b"content-encoding: br"),
        ):
            async with connected(gateway.port) as client:
                client.send(wire)
                (request_id,) = (await client.response()).values(b"x-request-id")
                assert request_id.startswith(b"req-")
                ids.add(request_id)
    assert len(ids) == 7


# Errors


@both_fronts
@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        (HOT, b'{"model":"x","messages":[]}', 404, "model_not_found", "model"),
        (b"/v1/completions", b'{"model":"x"}', 404, "model_not_found", "model"),
        (b"/v1/embeddings", b'{"model":"x"}', 404, "model_not_found", "model"),
        (b"/v1/rerank", b'{"model":"x"}', 404, "model_not_found", "model"),
        (HOT, b'{"model":', 400, "invalid_body", None),
        (HOT, b"", 400, "invalid_body", None),
        (HOT, b"[]", 400, "invalid_body", None),
        (HOT, b'"m"', 400, "invalid_body", None),
        (HOT, b"\xff\xfe", 400, "invalid_body", None),
        (HOT, b'{"messages":[]}', 400, "invalid_body", "model"),
        (HOT, b'{"model":5}', 400, "invalid_body", "model"),
        (HOT, b'{"model":null}', 400, "invalid_body", "model"),
    ],
)
@on_uvloop
async def test_errors_in_openai_shape(
    lane: bool, path: bytes, body: bytes, status: int, code: str, param: str | None
):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(body, path=path))
        response = await client.response()
        error = _error(response)
        assert (response.status, error["code"]) == (status, code), error
        assert error["param"] == param
        assert error["type"] == "invalid_request_error"
        assert error["message"]
        client.send(post(BODY))  # the connection goes on
        assert (await client.response()).status == 200
    assert len(worker.seen) == 1


@both_fronts
@on_uvloop
async def test_errors_in_anthropic_shape(lane: bool):
    async with stand(lane) as (_, gateway), connected(gateway.port) as client:
        for body, status, kind in (
            (b'{"model":"x"}', 404, "not_found_error"),
            (b"{", 400, "invalid_request_error"),
        ):
            client.send(post(body, path=b"/v1/messages"))
            response = await client.response()
            said = msgspec.json.decode(response.body)
            assert response.status == status
            assert said["type"] == "error"
            assert said["error"]["type"] == kind
            assert said["error"]["message"]


@both_fronts
@on_uvloop
async def test_errors_of_responses_are_openai_errors(lane: bool):
    async with stand(lane) as (_, gateway), connected(gateway.port) as client:
        client.send(post(b'{"model":"x"}', path=b"/v1/responses"))
        response = await client.response()
        assert response.status == 404
        assert _error(response)["code"] == "model_not_found"


@both_fronts
@pytest.mark.parametrize(
    ("method", "path", "hint"),
    [
        (b"POST", b"/chat/completions", "/v1/chat/completions"),
        (b"POST", b"/v1/v1/chat/completions", "/v1/chat/completions"),
        (b"GET", b"/models", "/v1/models"),
        (b"GET", b"/", "/v1/chat/completions"),
        (b"GET", b"/v1", "/v1/chat/completions"),
        (b"POST", b"/nothing", "/v1/chat/completions"),
        (b"DELETE", b"/v1/nothing", "/v1/models"),
    ],
)
@on_uvloop
async def test_a_wrong_path_is_told_what_would_be_right(
    lane: bool, method: bytes, path: bytes, hint: str
):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(BODY, method=method, path=path))
        response = await client.response()
        assert response.status == 404
        assert _error(response)["code"] == "unknown_route"
        assert hint in str(_error(response)["message"])
    assert not worker.seen


@both_fronts
@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        (b"GET", HOT, "POST"),
        (b"PUT", b"/v1/completions", "POST"),
        (b"DELETE", b"/v1/embeddings", "POST"),
        (b"PATCH", b"/v1/responses", "POST"),
        (b"OPTIONS", b"/v1/completions", "POST"),
        (b"GET", b"/rerank", "POST"),
        (b"POST", b"/v1/models", "GET"),
        (b"POST", b"/v1/models/", "GET"),
        (b"POST", b"/v1/models/m", "GET"),
        (b"DELETE", b"/v1/models/m", "GET"),
        (b"DELETE", b"/livez", "GET"),
    ],
)
@on_uvloop
async def test_a_wrong_method_is_told_the_right_one(
    lane: bool, method: bytes, path: bytes, right: str
):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(BODY, method=method, path=path))
        response = await client.response()
        assert response.status == 405
        assert _error(response)["code"] == "method_not_allowed"
        assert right in str(_error(response)["message"])
        assert response.values(b"allow") == [right.encode()]
    assert not worker.seen


# Paths


@both_fronts
@pytest.mark.parametrize("path", [HOT, RELAYED, b"/v1/embeddings", b"/rerank", b"/v2/rerank"])
@on_uvloop
async def test_a_slash_behind_the_path_is_dropped(lane: bool, path: bytes):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        for written in (path, path + b"/", path + b"?a=b%20c&d", path + b"/?a=b"):
            client.send(post(BODY, path=written))
            assert (await client.response()).status == 200
    targets = [seen.line.split(b" ")[1] for seen in worker.seen]
    assert targets == [path, path, path + b"?a=b%20c&d", path + b"?a=b"]


CONTROL = [
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up", "/abort_requests"),
    *(
        "/reset_prefix_cache",
        "/collective_rpc",
        "/start_profile",
        "/update_weights",
        "/flush_cache",
    ),
    *("/invocations", "/pause", "/metrics", "/slots/0", "/models/load", "/api/pull", "/api/delete"),
    *("/v1/files", "/v1/batches", "/v1/files/x/content", "/v1/admin/x", "/admin/x"),
    *("/v2/repository/models/m/load", "/v2/repository/index", "/v2/logging", "/v2/trace/setting"),
    *("/v2/systemsharedmemory/region/r/register", "/v1/model/load", "/v1/internal/model/load"),
    *("/v1/../sleep", "/v1/x/../../sleep", "/v1/%2e%2e/sleep", "/v1/%2E%2E%2Fsleep", "/v1//sleep"),
    *("/v1/./sleep", "//sleep", "/v1/..;/sleep", "/v1/..%5csleep", "/v1/\\..\\sleep"),
    *("/v1/load%5flora_adapter", "/v1/LOAD_LORA_ADAPTER", "/v1//load_lora_adapter"),
    *(
        "/v1/load_lora_adapter/",
        "/v1/load_lora_adapter?x=/v1/responses",
        "/v1/responses/../../sleep",
    ),
]


@both_fronts
@pytest.mark.parametrize("path", CONTROL)
@on_uvloop
async def test_control_paths_never_reach_a_worker(lane: bool, path: str):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(BODY, path=path.encode()))
        response = await client.response()
        assert response.status in (404, 405)
        assert _error(response)
    assert not worker.seen


# Models


@both_fronts
@on_uvloop
async def test_models(lane: bool):
    name = "org/family/m:7b"
    async with stand(lane, model=name) as (_, gateway), connected(gateway.port) as client:
        for path in (b"/v1/models", b"/v1/models/"):
            client.send(GET % path)
            response = await client.response()
            assert response.status == 200
            listed = msgspec.json.decode(response.body)
            assert listed["object"] == "list"
            assert [card["id"] for card in listed["data"]] == [name]
        for path in (b"org/family/m:7b", b"org%2Ffamily%2Fm:7b", b"org/family/m%3A7b/"):
            client.send(GET % (b"/v1/models/" + path))
            response = await client.response()
            assert response.status == 200, path
            assert msgspec.json.decode(response.body)["id"] == name
        for path in (b"org/family", b"org", b"x", b"org/family/m:7b/x"):
            client.send(GET % (b"/v1/models/" + path))
            response = await client.response()
            assert response.status == 404
            assert _error(response)["code"] == "model_not_found"
            assert _error(response)["param"] == "model"
