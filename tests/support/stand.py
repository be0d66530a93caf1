"""A gateway before scripted workers, and questions asked of it."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tests.support.client import Client, Cut, Response, connected, post
from tests.support.running import Running, running, settings_for
from tests.support.scripted import Scripted, scripted

CHAT = b"/v1/chat/completions"
# Each endpoint that streams, with the end mark of its dialect.
STREAMING = {
    CHAT: b"data: [DONE]\n\n",
    b"/v1/completions": b"data: [DONE]\n\n",
    b"/v1/responses": b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    b"/v1/messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}


def body(model: str = "m", **fields: object) -> bytes:
    return json.dumps({"model": model, **fields}).encode()


@dataclass
class Reply:
    """What came of a request, whole or not."""

    head: Response
    body: bytes
    whole: bool

    @property
    def status(self) -> int:
        return self.head.status

    def values(self, name: bytes) -> list[bytes]:
        return self.head.values(name)

    @property
    def error(self) -> dict:
        """The error of an error body."""
        return json.loads(self.body)["error"]

    @property
    def last_event(self) -> dict:
        """The data of the last event, which must be whole and stand alone."""
        assert self.body.endswith(b"\n\n")
        event = self.body.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
        (data,) = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
        return json.loads(data)


async def reply(client: Client) -> Reply:
    """The next answer, even if it breaks off."""
    head = await client.head()
    if head.values(b"transfer-encoding"):
        assert not head.values(b"content-length")
        got = bytearray()
        try:
            while chunk := await client.chunk():
                got += chunk
        except Cut:
            return Reply(head, bytes(got), whole=False)
        return Reply(head, bytes(got), whole=True)
    length = int((head.values(b"content-length") or [b"0"])[0])
    try:
        return Reply(head, await client.take(length), whole=True)
    except Cut as cut:
        return Reply(head, cut.args[0], whole=False)


@dataclass
class Stand:
    """A gateway and its workers."""

    running: Running
    workers: list[Scripted]

    @property
    def worker(self) -> Scripted:
        """The first, mostly the only one."""
        return self.workers[0]

    async def ask(self, data: bytes | None = None, *fields: bytes, path: bytes = CHAT) -> Reply:
        """One request on a connection of its own."""
        async with connected(self.running.port) as client:
            client.send(post(body() if data is None else data, *fields, path=path))
            return await reply(client)

    async def stream(self, *fields: bytes, path: bytes = CHAT, **more: object) -> Reply:
        """The same for a stream."""
        return await self.ask(body(stream=True, **more), *fields, path=path)

    async def get(self, path: bytes) -> Reply:
        async with connected(self.running.port) as client:
            client.send(b"GET %b HTTP/1.1\r\nhost: gateway\r\n\r\n" % path)
            return await reply(client)

    def settled(self) -> bool:
        """Whether nothing is left of any request."""
        parts = self.running.gateway.parts
        return (
            parts.desk.live == 0
            and parts.desk.memory.held == 0
            and not any(w.running or w.endpoint.busy for w in parts.fleet.workers)
        )


@asynccontextmanager
async def standing(
    *workers: Scripted, with_lane: bool = True, clock: object = None, **settings: object
) -> AsyncIterator[Stand]:
    """A gateway before these running workers; before one of its own, if there are none."""
    async with AsyncExitStack() as stack:
        played = list(workers) or [await stack.enter_async_context(scripted())]
        urls = [worker.url for worker in played]
        gateway = await stack.enter_async_context(
            running(settings_for(*urls, **settings), with_lane=with_lane, clock=clock)
        )
        yield Stand(gateway, played)
