"""Bodies of requests: how they come, how they are packed, how large they may be."""

import gzip
import tracemalloc
import zlib

import msgspec
import pytest

from gateway.settings import Limits
from tests.support.client import Cut, Response, chunked, connected, post
from tests.support.delivery import send_in_pieces
from tests.support.fronts import both_fronts, on_uvloop, settled, stand

BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"hello " * 2000 + b'"}]}'
MB = 1 << 20


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _padded(size: int) -> bytes:
    """A request body of just this size."""
    start, end = b'{"model":"m","messages":["', b'"]}'
    return start + b"x" * (size - len(start) - len(end)) + end


def _error(response: Response) -> dict[str, object]:
    return msgspec.json.decode(response.body)["error"]


@both_fronts
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/responses"])
@on_uvloop
async def test_a_request_byte_by_byte(lane: bool, path: bytes):
    wire = post(BODY[:80] + b'"}]}', path=path)
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        await send_in_pieces(gateway, client, [wire[n : n + 1] for n in range(len(wire))])
        assert (await client.response()).status == 200
    assert worker.seen[0].body == BODY[:80] + b'"}]}'


@both_fronts
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BODY)),
        ("GZip", gzip.compress(BODY)),
        ("gzip", gzip.compress(BODY[:100]) + gzip.compress(BODY[100:])),
        ("deflate", zlib.compress(BODY)),
        ("deflate", _raw_deflate(BODY)),
        ("identity", BODY),
    ],
    ids=["gzip", "capitals", "two-streams", "zlib", "raw", "identity"],
)
@on_uvloop
async def test_packed_bodies_are_unpacked(lane: bool, encoding: str, packed: bytes):
    field = b"content-encoding: %b" % encoding.encode()
    pieces = [packed[n : n + 50] for n in range(0, len(packed), 50)]
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        for wire in (post(packed, field), chunked(*pieces, fields=(field,)), post(packed, field)):
            client.send(wire)
            assert (await client.response()).status == 200
    for seen in worker.seen:
        assert seen.body == BODY
        assert seen.values(b"content-length") == [b"%d" % len(BODY)]
        assert not seen.values(b"content-encoding")
        assert not seen.values(b"transfer-encoding")
    assert len(worker.seen) == 3


@both_fronts
@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip", "aes128gcm", "x"])
@on_uvloop
async def test_unknown_packing_is_refused(lane: bool, encoding: str):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(BODY, b"content-encoding: %b" % encoding.encode()))
        response = await client.response()
        assert response.status == 415
        assert _error(response)["code"] == "unsupported_content_encoding"
        assert _error(response)["param"] == "content-encoding"
        await settled(gateway)
    assert not worker.seen


_PACKED = gzip.compress(BODY)


@both_fronts
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", b"hello, I am not packed"),
        ("gzip", BODY),
        ("gzip", b""),
        ("gzip", _PACKED[:-1]),
        ("gzip", _PACKED[: len(_PACKED) // 2]),
        ("gzip", _PACKED[:5]),
        ("gzip", _PACKED[:-8] + b"\0\0\0\0" + _PACKED[-4:]),
        ("gzip", _PACKED[:30] + b"\xff\xff\xff" + _PACKED[33:]),
        ("gzip", _PACKED + b"and more"),
        ("deflate", zlib.compress(BODY)[:-2]),
        ("deflate", zlib.compress(BODY) + b"and more"),
        ("deflate", b"\xff\xff\xff\xff"),
    ],
    ids=[
        *("not packed", "JSON", "nothing", "a byte short", "half", "only a head", "wrong sum"),
        *("damaged", "more behind", "zlib cut", "zlib and more", "not deflate"),
    ],
)
@on_uvloop
async def test_broken_packing_is_refused(lane: bool, encoding: str, packed: bytes):
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(packed, b"content-encoding: %b" % encoding.encode()))
        response = await client.response()
        assert response.status == 400
        assert _error(response)["code"] == "invalid_body"
        await settled(gateway)
    assert not worker.seen


@both_fronts
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@on_uvloop
async def test_a_bomb_is_refused_before_it_bursts(lane: bool, encoding: str):
    packer = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
    zeros = bytes(MB)
    bomb = b"".join(packer.compress(zeros) for _ in range(200)) + packer.flush()
    limits = Limits(body_bytes=2 * MB)
    async with stand(lane, limits=limits) as (worker, gateway), connected(gateway.port) as client:
        tracemalloc.start()
        try:
            client.send(post(bomb, b"content-encoding: %b" % encoding.encode()))
            response = await client.response()
            await client.closed()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert response.status == 413
        assert peak < 8 * MB
        await settled(gateway)
    assert not worker.seen


@both_fronts
@pytest.mark.parametrize("way", ["length", "chunks", "gzip"])
@on_uvloop
async def test_the_limit_is_exact(lane: bool, way: str):
    limit = Limits().body_bytes
    assert limit == 32 * MB

    def wire(size: int) -> bytes:
        body = _padded(size)
        if way == "length":
            return post(body)
        if way == "chunks":
            return chunked(*(body[n : n + 4 * MB] for n in range(0, size, 4 * MB)))
        return post(gzip.compress(body, 1), b"content-encoding: gzip")

    async with stand(lane) as (worker, gateway):
        async with connected(gateway.port) as client:
            client.send(wire(limit))
            assert (await client.response()).status == 200
            assert len(worker.seen[0].body) == limit
        async with connected(gateway.port) as client:
            client.send(wire(limit + 1))
            response = await client.response()
            assert response.status == 413
            assert str(limit) in str(_error(response)["message"])
            assert _error(response)["code"] == "body_too_large"
        await settled(gateway)
    assert len(worker.seen) == 1


@both_fronts
@pytest.mark.parametrize("way", ["length", "chunks"])
@on_uvloop
async def test_the_refusal_can_be_read_while_still_sending(lane: bool, way: str):
    size = 3 * MB
    body = _padded(size)
    if way == "length":
        head, rest = post(body).split(b"\r\n\r\n", 1)
    else:
        head, rest = chunked(body).split(b"\r\n\r\n", 1)
    async with stand(lane, limits=Limits(body_bytes=MB)) as (worker, gateway):
        async with connected(gateway.port) as client:
            client.send(head + b"\r\n\r\n" + rest[: 2 * MB])
            response = await client.response()
            assert response.status == 413
            assert response.closes
            client.send(rest[2 * MB :])  # it may be sent to its end, and nothing is torn
            await client.closed()
            assert not client.received
            assert client.error is None
        await settled(gateway)
    assert not worker.seen


@both_fronts
@on_uvloop
async def test_expect_100_continue(lane: bool):
    wire = post(BODY, b"Expect: 100-continue")
    at = wire.index(b"\r\n\r\n") + 4
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        for _ in range(2):
            client.send(wire[:at])
            assert (await client.response()).status == 100
            client.send(wire[at:])
            assert (await client.response()).status == 200
        assert [seen.body for seen in worker.seen] == [BODY, BODY]
        assert not worker.seen[0].values(b"expect")
        client.send(wire.replace(b'"m"', b'"x"'))
        assert (await client.response()).status == 100
        assert (await client.response()).status == 404


@both_fronts
@on_uvloop
async def test_a_body_that_ends_early(lane: bool):
    async with stand(lane) as (worker, gateway):
        for wire in (post(BODY)[:-1], chunked(BODY)[:-5], chunked(BODY)[:-30]):
            async with connected(gateway.port) as client:
                client.send(wire)
                client.transport.write_eof()
                with pytest.raises(Cut):
                    await client.response()
        await settled(gateway)
    assert not worker.seen


@both_fronts
@on_uvloop
async def test_unknown_fields_of_a_body_pass_as_they_are(lane: bool):
    odd = (
        b'{ "model" : "m",\r\n\t"messages":[{"content":"\\u00e9\\ud83d\\ude00 \xc3\xa9"}],'
        b'"x":1.000,"y":1e400,"z":{"a":[ ]},"z":null,"big":12345678901234567890123, "n":-0 } '
    )
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        for path in (b"/v1/chat/completions", b"/v1/responses", b"/v1/rerank", b"/v1/anything/new"):
            client.send(post(odd, path=path))
            assert (await client.response()).status == 200
    assert [seen.body for seen in worker.seen] == [odd] * 4


@both_fronts
@on_uvloop
async def test_only_what_must_be_is_changed_in_a_body(lane: bool):
    """The wish for usage is put in; all other bytes of the body stay where they were."""
    odd = b'{ "stream" : true ,"messages":[ ],"x":1.000,  "model" : "m" }'
    async with stand(lane) as (worker, gateway), connected(gateway.port) as client:
        client.send(post(odd))
        await client.response()
    sent = worker.seen[0].body
    added = msgspec.json.decode(sent)["stream_options"]
    assert added == {"include_usage": True}
    at = next(n for n in range(len(odd) + 1) if odd[n:] == sent[len(sent) - len(odd) + n :])
    assert sent.startswith(odd[:at])
