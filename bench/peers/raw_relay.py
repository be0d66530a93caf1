"""A raw asyncio.Protocol relay on uvloop: the floor for any gateway written in Python.

usage: raw_relay.py PORT UPSTREAM_URL

It parses request head and JSON body, sends the request over a pooled upstream connection, relays
the answer's bytes verbatim, and watches for the end of the answer and for a usage record. It is
not a server for anything else: it believes every length it reads.
"""

import asyncio
import sys
from urllib.parse import urlsplit

import orjson
import uvloop

PORT = int(sys.argv[1])
UPSTREAM = urlsplit(sys.argv[2])
POOL = []
CONNECTING = set()
USAGE = {"requests": 0, "usage_seen": 0}


def content_length(head):
    i = head.find(b"content-length:")
    return int(head[i + 15 : head.index(b"\r\n", i)]) if i >= 0 else None


class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.t, self.client, self.left, self.head, self.tail = transport, None, None, True, b""

    def begin(self, client, data):
        self.client, self.head, self.left, self.tail = client, True, None, b""
        self.t.write(data)

    def data_received(self, data):
        client = self.client
        if client is None:
            self.t.close()
            return
        client.t.write(data)
        if b'"usage":{' in data:
            USAGE["usage_seen"] += 1
        if self.is_last(data):
            self.client = None
            POOL.append(self)
            client.finished()

    def is_last(self, data):
        if self.head:
            self.tail += data
            i = self.tail.find(b"\r\n\r\n")
            if i < 0:
                return False
            length = content_length(self.tail[: i + 2].lower())
            self.head = False
            if length is not None:
                self.left = length - (len(self.tail) - i - 4)
            data = self.tail
        elif self.left is not None:
            self.left -= len(data)
        if self.left is not None:
            return self.left <= 0
        self.tail = (self.tail[-5:] + data)[-5:]
        return self.tail == b"0\r\n\r\n"

    def connection_lost(self, exc):
        if self in POOL:
            POOL.remove(self)
        if self.client:
            self.client.t.close()

    def pause_writing(self):
        pass

    def resume_writing(self):
        pass


class Client(asyncio.Protocol):
    def connection_made(self, transport):
        self.t, self.buf, self.need, self.up, self.busy = transport, bytearray(), 0, None, False

    def data_received(self, data):
        self.buf += data
        if not self.busy and len(self.buf) >= self.need:
            self.try_request()

    def try_request(self):
        i = self.buf.find(b"\r\n\r\n")
        if i < 0:
            return
        head = bytes(self.buf[: i + 2])
        length = content_length(head.lower()) or 0
        self.need = i + 4 + length
        if len(self.buf) < self.need:
            return
        body = bytes(self.buf[i + 4 : self.need])
        del self.buf[: self.need]
        self.need = 0
        if body:
            orjson.loads(body)
        USAGE["requests"] += 1
        self.send(head[: head.index(b"\r\n")], body)

    def send(self, request_line, body):
        fields = (
            b"\r\nhost: upstream\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        )
        request = request_line + fields % len(body) + body
        self.busy = True
        if POOL:
            self.up = POOL.pop()
            self.up.begin(self, request)
        else:
            task = asyncio.ensure_future(self.connect(request))
            CONNECTING.add(task)
            task.add_done_callback(CONNECTING.discard)

    async def connect(self, request):
        loop = asyncio.get_running_loop()
        try:
            _, self.up = await loop.create_connection(Upstream, UPSTREAM.hostname, UPSTREAM.port)
        except OSError:
            self.t.write(b"HTTP/1.1 502 X\r\ncontent-length: 0\r\n\r\n")
            return
        self.up.begin(self, request)

    def finished(self):
        self.up, self.busy = None, False
        if self.buf:
            self.try_request()

    def connection_lost(self, exc):
        if self.up:
            self.up.client = None
            self.up.t.close()

    def pause_writing(self):
        if self.up:
            self.up.t.pause_reading()

    def resume_writing(self):
        if self.up:
            self.up.t.resume_reading()


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Client, "127.0.0.1", PORT, backlog=4096)
    await server.serve_forever()


uvloop.run(main())
