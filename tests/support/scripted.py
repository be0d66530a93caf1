"""A worker that answers byte for byte as it is told.

The only way to test what real servers do once in a thousand times.

It is a real server on a real socket. `/v1/models` lists one model, or answers as `models` says;
every POST takes the next script, or the default one. A script is a list of steps: bytes to send,
`CLOSE`, `RESET`, `WAIT` (until `release` is called), `HANG` (nothing more; the connection stays).
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum


class Step(Enum):
    """What a script does besides sending."""

    CLOSE = "close"
    RESET = "reset"
    WAIT = "wait"
    HANG = "hang"


CLOSE, RESET, WAIT, HANG = Step.CLOSE, Step.RESET, Step.WAIT, Step.HANG
Script = Sequence[bytes | Step]

ANSWER = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    }
).encode()


def answer(body: bytes = ANSWER, status: str = "200 OK", *fields: bytes) -> bytes:
    """A whole answer with a length."""
    head = b"".join(b"%b\r\n" % f for f in (b"content-type: application/json", *fields))
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status.encode(),
        head,
        len(body),
        body,
    )


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: object) -> bytes:
    """One data event."""
    return b"data: %b\n\n" % json.dumps(value).encode()


def delta(text: str, finish: str | None = None) -> bytes:
    """An event of a chat stream."""
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


USAGE_EVENT = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
DONE_EVENT = b"data: [DONE]\n\n"


def models(*names: str) -> bytes:
    """A whole answer that lists them."""
    return answer(json.dumps({"object": "list", "data": [{"id": n} for n in names]}).encode())


def streamed(*events: bytes) -> Script:
    """A whole stream, an event a chunk."""
    return (STREAM_HEAD, *map(chunk, events), LAST_CHUNK)


@dataclass
class Seen:
    """A request as it arrived."""

    connection: int
    line: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        return [v for n, v in self.fields if n.lower() == name]


@dataclass
class Scripted:
    """The worker, seen from the test.

    Attributes:
        listing: what it plays when it is asked for its models; None = it lists `model`.
        plan: what it plays for a request when no script is left; None = `default`.
        reads_bodies: False = it plays a script as soon as it has seen a head.
        seen: requests in order, without those for its models.
        asked: how often its models were asked for.
        closed_by_peer: connections that the gateway closed while a script waited.
    """

    port: int = 0
    model: str = "m"
    tls: ssl.SSLContext | None = None
    listing: Script | None = None
    reads_bodies: bool = True
    default: Script = (answer(),)
    plan: "Callable[[Seen], Script] | None" = None
    scripts: list[Script] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    asked: int = 0
    connections: int = 0
    open: int = 0
    closed_by_peer: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def release(self) -> None:
        """Let every script that waits go on."""
        self.gate.set()

    async def until(self, condition, seconds: float = 5.0) -> None:
        """Wait until `condition()` holds; fails after `seconds`."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                if condition():
                    return
                try:
                    async with asyncio.timeout(0.02):
                        await self.changed.wait()
                except TimeoutError:
                    continue

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        me = self.connections
        self.changed.set()
        try:
            while (request := await self._read(reader, me)) is not None:
                if not await self._answer(request, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_by_peer += 1
        finally:
            self.open -= 1
            self.changed.set()
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, me: int) -> Seen | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        line, *raw = head[:-4].split(b"\r\n")
        fields = [(n, v.strip()) for n, _, v in (f.partition(b":") for f in raw)]
        length = next((int(v) for n, v in fields if n.lower() == b"content-length"), 0)
        body = await reader.readexactly(length) if self.reads_bodies else b""
        return Seen(me, line, fields, body)

    async def _answer(self, request: Seen, reader, writer: asyncio.StreamWriter) -> bool:
        """Play the script; whether the connection goes on."""
        if request.line.startswith(b"GET"):
            self.asked += 1
            script = self.listing or (models(self.model),)
        else:
            self.seen.append(request)
            script = self.scripts.pop(0) if self.scripts else self._planned(request)
        self.changed.set()
        return await self._play(script, reader, writer)

    def _planned(self, request: Seen) -> Script:
        return self.default if self.plan is None else self.plan(request)

    async def _play(self, script: Script, reader, writer: asyncio.StreamWriter) -> bool:
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
                await asyncio.sleep(0)
            elif step is CLOSE:
                return False
            elif step is RESET:
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            elif not await self._wait(step, reader):
                return False
        return True

    async def _wait(self, step: Step, reader: asyncio.StreamReader) -> bool:
        """Wait for the gate, or for good; a peer that closes meanwhile is counted."""
        gone = asyncio.ensure_future(reader.read(1))
        gate = asyncio.ensure_future(self.gate.wait() if step is WAIT else asyncio.Event().wait())
        try:
            await asyncio.wait({gone, gate}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.closed_by_peer += 1
                self.changed.set()
                return False
            return True
        finally:
            gone.cancel()
            gate.cancel()


@asynccontextmanager
async def scripted(**attributes: object) -> AsyncIterator[Scripted]:
    """Start one, on a free port if none is said."""
    worker = Scripted(**attributes)  # type: ignore[arg-type]
    serving: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(worker._serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", worker.port, ssl=worker.tls)
    worker.port = server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
