"""Streams from a real llama.cpp, whose manners are its own, through the gateway.

It promises to keep a connection open and closes it after every streamed answer, without a word.
And it notices that a caller has left only when it writes to that caller: so for an answer that has
not begun, these tests look at the gateway's connection, which must be closed all the same.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import httpx
import pytest

from tests.support.llama import MODEL, Llama
from tests.support.programs import until
from tests.support.served import Served, served

TOLD_S = 0.25  # from a client's leaving until the worker is told
LONG = 20_000  # tokens: half a minute of work
SSE = "text/event-stream"

# Path, and the field of the prompt with its value for a given length.
PROMPTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/completions": lambda text: {"prompt": text},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
}
every_path = pytest.mark.parametrize("path", PROMPTS)


def question(path: str, prompt: str, *, tokens: int, stream: bool) -> dict[str, Any]:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    return {"model": MODEL, limit: tokens, "stream": stream, **PROMPTS[path](prompt)}


# ---------------------------------------------------------------------------------- none are lost


@pytest.mark.parametrize("at_a_time", [1, 4])
async def test_200_streams_over_kept_connections(gateway: Served, at_a_time: int) -> None:
    path = "/v1/chat/completions"
    body = question(path, "hello", tokens=5, stream=True)
    turns = iter(range(200))

    async def ask_on(client: httpx.AsyncClient) -> int:
        whole = 0
        for _ in turns:
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            assert answer.text.endswith("data: [DONE]\n\n")
            whole += answer.text.count('"content":" ') == 5
        return whole

    limits = httpx.Limits(max_connections=at_a_time)
    async with httpx.AsyncClient(base_url=gateway.url, limits=limits, timeout=60) as client:
        whole = await asyncio.gather(*(ask_on(client) for _ in range(at_a_time)))
    assert sum(whole) == 200


async def test_more_answers_than_the_engine_gives_on_one_connection(gateway: Served) -> None:
    """It closes after 100."""
    body = question("/v1/chat/completions", "hello", tokens=1, stream=False)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for _ in range(250):
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text


async def test_whole_answers_and_streams_by_turns(gateway: Served) -> None:
    """A connection that brought a whole answer may be used again, one that streamed may not."""
    path = "/v1/chat/completions"
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for turn in range(100):
            body = question(path, "hello", tokens=2, stream=turn % 3 == 0)
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text


@every_path
async def test_a_stream_is_passed_on_untouched(gateway: Served, llama: Llama, path: str) -> None:
    """Byte for byte, but for what differs between two answers of the engine itself."""
    body = question(path, "hello", tokens=20, stream=True) | {"temperature": 0}
    async with httpx.AsyncClient(timeout=60) as client:
        await client.post(llama.url + path, json=body)  # then its cache is the same for both
        direct = await client.post(llama.url + path, json=body)
        through = await client.post(gateway.url + path, json=body)
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert comparable(through.text) == comparable(direct.text)


OWN = ("id", "created", "created_at", "completed_at", "item_id", "timings")


def comparable(stream: str) -> list[tuple[str, object]]:
    """The lines of a stream; their data without what is each answer's own."""

    def cleaned(value: object) -> object:
        if isinstance(value, dict):
            return {k: cleaned(v) for k, v in value.items() if k not in OWN}
        return [cleaned(v) for v in value] if isinstance(value, list) else value

    lines = [line.partition(": ") for line in stream.split("\n")]
    return [
        (name, cleaned(json.loads(value)) if value.startswith("{") else value)
        for name, _, value in lines
    ]


# --------------------------------------------------------------------------------- clients leaving


class Client:
    """A client that sends one request and leaves without a word.

    Attributes:
        gateway: where it does so.
    """

    def __init__(self, gateway: Served) -> None:
        self.gateway = gateway
        self._connection = HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
        self._response: HTTPResponse | None = None

    def post(self, path: str, body: dict[str, Any], *, own_id: str = "") -> None:
        headers = {"content-type": "application/json"} | (
            {"x-request-id": own_id} if own_id else {}
        )
        self._connection.request("POST", path, json.dumps(body), headers)

    def read_events(self, count: int) -> None:
        self._response = self._connection.getresponse()
        assert self._response.getheader("content-type").startswith(SSE)
        for line in self._response:
            count -= line.startswith(b"data:")
            if not count:
                return
        pytest.fail("the stream ended")

    def leave(self) -> float:
        """Close the connection, and tell when."""
        left = time.monotonic()
        if self._response is not None:
            self._response.close()
        self._connection.close()
        return left


@pytest.fixture(scope="session")
def gateway_without_lane(llama: Llama) -> Iterator[Served]:
    """A gateway in which aiohttp serves all connections, as it does those that aren't simple."""
    with served(llama.url, "--no-lane") as running:
        yield running


@pytest.fixture(params=["gateway", "gateway_without_lane"])
def front(request: pytest.FixtureRequest) -> Served:
    """The gateway, by both of its ways in."""
    return request.getfixturevalue(request.param)


# The engine works far longer than `TOLD_S` on each of these requests: a gateway that let it finish
# would be found out.


@pytest.fixture
def client(front: Served, llama: Llama) -> Iterator[Client]:
    """With the engine idle before and after."""
    until(lambda: llama.busy() == 0, "the engine has nothing to do")
    client = Client(front)
    yield client
    client.leave()
    until(lambda: llama.busy() == 0, "the engine has nothing to do any more")


def seconds_until(condition: Callable[[], bool], since: float) -> float:
    """When the last look that didn't find it began: what a look itself takes doesn't count."""
    last = since
    while True:
        now = time.monotonic()
        if condition():
            return last - since
        last = now
        assert now - since < 5, "it never came"


def seconds_until_told(client: Client, llama: Llama) -> float:
    """Let the client leave, and see how long the connection that serves it lives on."""
    serving = client.gateway.connections_to(llama.url)
    assert serving
    left = client.leave()
    return seconds_until(lambda: bool(serving - client.gateway.connections_to(llama.url)), left)


@every_path
def test_leaving_in_the_middle_of_a_stream(client: Client, llama: Llama, path: str) -> None:
    client.post(path, question(path, "hello", tokens=LONG, stream=True))
    client.read_events(20)
    assert llama.busy() == 1
    left = client.leave()
    assert seconds_until(lambda: llama.busy() == 0, left) < TOLD_S


@every_path
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_before_the_first_token(
    client: Client, llama: Llama, path: str, *, stream: bool
) -> None:
    """While the engine reads a long prompt, for a second or more."""
    prompt = f"{time.monotonic_ns()} " + "a long story " * 600  # no beginning that it knows
    client.post(path, question(path, prompt, tokens=50, stream=stream))
    until(lambda: llama.busy() == 1, "the engine reads the prompt")
    assert seconds_until_told(client, llama) < TOLD_S


@every_path
def test_leaving_while_a_whole_answer_is_made(client: Client, llama: Llama, path: str) -> None:
    """Which takes the engine a second or so."""
    client.post(path, question(path, "hello", tokens=4000, stream=False))
    until(lambda: llama.busy() == 1, "the engine makes the answer")
    assert seconds_until_told(client, llama) < TOLD_S


def test_leaving_while_embeddings_are_made(client: Client, llama: Llama) -> None:
    """Which takes the engine a second or more."""
    texts = [f"{number} bottles " * 40 for number in range(60)]
    client.post("/v1/embeddings", {"model": MODEL, "input": texts})
    until(lambda: llama.busy() > 0, "the engine makes them")
    assert seconds_until_told(client, llama) < TOLD_S


@every_path
def test_a_departure_is_recorded_as_one(front: Served, client: Client, path: str) -> None:
    client.post(path, question(path, "hello", tokens=LONG, stream=True), own_id=f"left{path}")
    client.read_events(5)
    client.leave()

    def records() -> list[dict[str, Any]]:
        return [r for r in front.records() if r.get("client_id") == f"left{path}"]

    [record] = until(records, "a record is written", within_s=10)
    assert record["outcome"] == "client_gone"
