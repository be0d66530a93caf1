"""Streams through the gateway: byte for byte, and broken ones look broken in their own dialect."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.support.client import connected, post
from tests.support.scripted import (
    CLOSE,
    DONE_EVENT,
    LAST_CHUNK,
    RESET,
    STREAM_HEAD,
    USAGE_EVENT,
    chunk,
    delta,
    event,
    streamed,
)
from tests.support.stand import CHAT, STREAMING, Reply, Stand, body, reply, standing

BY_CLOSE = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
ASKING = {"include_usage": True}


@pytest.fixture(params=["lane", "bridge"])
async def stand(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with standing(with_lane=request.param == "lane") as stand:
        yield stand
        await stand.worker.until(stand.settled)


def is_error_event(reply: Reply, path: bytes) -> bool:
    """Whether the last event tells a failure, in the words of the path's dialect."""
    said = reply.last_event
    if path == b"/v1/messages":
        assert b"event: error\ndata: " in reply.body
        return said["type"] == "error" and bool(said["error"]["message"])
    if path == b"/v1/responses":
        assert b"event: error\ndata: " in reply.body
        return said["type"] == "error" and bool(said["message"])
    return said["error"]["type"] == "server_error" and bool(said["error"]["code"])


# ---- broken streams


@pytest.mark.parametrize("path", STREAMING)
@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("torn", [b"", b'data: {"choi'])
async def test_a_cut_stream(stand: Stand, path: bytes, end: object, torn: bytes):
    """An error event, no end mark, no last chunk; what was torn isn't glued to the error."""
    first = b'data: {"sequence_number":4}\n\n'
    stand.worker.scripts.append([STREAM_HEAD, chunk(first + torn), end])
    got = await stand.stream(path=path)
    assert got.status == 200
    assert not got.whole
    assert got.body.startswith(first)
    assert b"choi" not in got.body
    assert is_error_event(got, path)
    assert STREAMING[path] not in got.body
    if path == b"/v1/responses":
        assert got.last_event["sequence_number"] == 5


@pytest.mark.parametrize("path", STREAMING)
@pytest.mark.parametrize(
    "sent",
    {
        "framed": [STREAM_HEAD, chunk(b'data: {"a":1}\n\ndata: {"to'), LAST_CHUNK],
        "bad chunk size": [STREAM_HEAD, chunk(b'data: {"a":1}\n\n'), b"zz\r\ndata: 2"],
        "by close": [BY_CLOSE, b'data: {"a":1}\n\ndata: {"to', CLOSE],
        "short length": [
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\n",
            b'data: {"a":1}\n\ndata: {"to',
            CLOSE,
        ],
    }.items(),
    ids=lambda p: p[0] if isinstance(p, tuple) else None,
)
async def test_a_stream_without_its_end_mark(stand: Stand, path: bytes, sent: tuple):
    stand.worker.scripts.append(sent[1])
    got = await stand.stream(path=path)
    assert not got.whole
    assert got.body.startswith(b'data: {"a":1}\n\n')
    assert b'"to' not in got.body
    assert is_error_event(got, path)


@pytest.mark.parametrize("path", STREAMING)
@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("head", [STREAM_HEAD, BY_CLOSE])
async def test_cut_behind_the_end_mark_is_a_clean_end(
    stand: Stand, path: bytes, end: object, head: bytes
):
    said = b'data: {"a":1}\n\n' + STREAMING[path]
    stand.worker.scripts.append([head, said if head is BY_CLOSE else chunk(said), end])
    got = await stand.stream(path=path)
    assert (got.body, got.whole) == (said, True)


async def test_a_finish_without_done_is_an_end(stand: Stand):
    """Not every server sends [DONE]."""
    said = delta("a") + delta("", "stop")
    stand.worker.scripts.append([BY_CLOSE, said, CLOSE])
    got = await stand.stream()
    assert (got.body, got.whole) == (said, True)


@pytest.mark.parametrize("path", STREAMING)
async def test_an_error_that_the_worker_tells_in_the_stream_passes(stand: Stand, path: bytes):
    told = {
        CHAT: event({"error": {"message": "out of memory", "type": "x", "code": 500}}),
        b"/v1/responses": b"event: error\n"
        + event({"type": "error", "message": "out of memory", "sequence_number": 1}),
        b"/v1/messages": b"event: error\n"
        + event({"type": "error", "error": {"type": "api_error", "message": "out of memory"}}),
    }
    said = delta("a") + told.get(path, told[CHAT])
    stand.worker.scripts.append([STREAM_HEAD, chunk(said), CLOSE])
    got = await stand.stream(path=path)
    assert (got.body, got.whole) == (said, True)


async def test_a_stream_that_ends_before_its_first_byte_is_a_502(stand: Stand):
    stand.worker.default = [STREAM_HEAD, CLOSE]
    got = await stand.stream()
    assert got.status == 502
    assert got.error["code"] == "worker_hung_up"
    stand.worker.default = [STREAM_HEAD, LAST_CHUNK]
    assert (await stand.stream()).status == 502


async def test_an_error_event_goes_out_while_an_event_of_megabytes_is_open(stand: Stand):
    stand.worker.scripts.append([STREAM_HEAD, chunk(b"data: " + b"x" * (3 << 20)), RESET])
    got = await stand.stream()
    assert is_error_event(got, CHAT)


# ---- bytes pass as they are


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_events_in_pieces(stand: Stand, line_end: bytes, size: int):
    """However an event is cut, usage is found and taken out, and nothing else is changed."""
    events = [delta("a"), b": ping\n\n", delta("b", "stop"), USAGE_EVENT, DONE_EVENT]
    events = [e.replace(b"\n", line_end) for e in events]
    stand.worker.scripts.append([STREAM_HEAD, *map(chunk, cut(b"".join(events), size)), LAST_CHUNK])
    got = await stand.stream()
    del events[3]
    assert (got.body, got.whole) == (b"".join(events), True)


@pytest.mark.parametrize("size", [1, 3])
async def test_bytes_of_the_framing_in_pieces(stand: Stand, size: int):
    sent = STREAM_HEAD + chunk(delta("a")) + chunk(DONE_EVENT) + LAST_CHUNK
    stand.worker.scripts.append(cut(sent, size))
    got = await stand.stream()
    assert (got.body, got.whole) == (delta("a") + DONE_EVENT, True)


async def test_ten_megabytes_of_small_events(stand: Stand):
    events = b"".join(delta(f"token {i}") for i in range(100))
    count = (10 << 20) // len(events)
    stand.worker.scripts.append([STREAM_HEAD, *[chunk(events)] * count, *streamed(DONE_EVENT)[1:]])
    got = await stand.stream()
    assert got.whole
    assert got.body == events * count + DONE_EVENT


@pytest.mark.parametrize("size", [64 << 10, 3 << 20])
async def test_one_event_of_two_megabytes(stand: Stand, size: int):
    said = delta("x" * (2 << 20)) + DONE_EVENT
    stand.worker.scripts.append([STREAM_HEAD, *map(chunk, cut(said, size)), LAST_CHUNK])
    got = await stand.stream()
    assert got.whole
    assert got.body == said


async def test_an_answer_of_many_megabytes(stand: Stand):
    said = json.dumps({"data": ["x" * (10 << 20)], "usage": {"prompt_tokens": 3}}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    stand.worker.scripts.append([head % len(said), *cut(said, 1 << 20)])
    got = await stand.ask(path=b"/v1/embeddings")
    assert (got.body == said, got.whole) == (True, True)


async def test_a_stream_of_no_known_kind_passes_untouched(stand: Stand):
    said = b"data: 1\r\n\r\ndata: " + json.dumps({"usage": {"x": 1}}).encode() + b"\n\nretry: 1"
    stand.worker.scripts.append([STREAM_HEAD, *map(chunk, cut(said, 5)), LAST_CHUNK])
    got = await stand.stream(path=b"/v1/audio/speech")
    assert (got.body, got.whole) == (said, True)


async def test_a_slow_reader_gets_everything(stand: Stand):
    """The worker is paused while the client doesn't read, and neither loses a byte."""
    events = b"".join(delta(f"token {i}") for i in range(1000))
    stand.worker.scripts.append([STREAM_HEAD, *[chunk(events)] * 200, *streamed(DONE_EVENT)[1:]])
    fleet = stand.running.gateway.parts.fleet
    async with connected(stand.running.port, receive_buffer=4096) as client:
        client.transport.pause_reading()
        client.send(post(body(stream=True)))
        await stand.worker.until(
            lambda: any(c._paused for c in fleet.workers[0].endpoint.busy), seconds=20
        )
        client.transport.resume_reading()
        got = await reply(client)
    assert got.whole
    assert got.body == events * 200 + DONE_EVENT


# ---- usage


async def test_usage_is_asked_for_and_taken_out(stand: Stand):
    stand.worker.default = streamed(delta("a"), delta("", "stop"), USAGE_EVENT, DONE_EVENT)
    got = await stand.stream()
    assert got.body == delta("a") + delta("", "stop") + DONE_EVENT
    assert json.loads(stand.worker.seen[0].body) == {
        "model": "m",
        "stream": True,
        "stream_options": ASKING,
    }


@pytest.mark.parametrize("path", [CHAT, b"/v1/completions"])
async def test_usage_that_the_client_asked_for_stays(stand: Stand, path: bytes):
    said = [delta("a"), delta("", "stop"), USAGE_EVENT, DONE_EVENT]
    stand.worker.default = streamed(*said)
    sent = body(stream=True, stream_options=ASKING)
    got = await stand.ask(sent, path=path)
    assert got.body == b"".join(said)
    assert stand.worker.seen[0].body == sent


async def test_options_with_other_keys_keep_them(stand: Stand):
    stand.worker.default = streamed(delta("a"), USAGE_EVENT, DONE_EVENT)
    options = {"continuous_usage_stats": False, "include_usage": False}
    got = await stand.stream(stream_options=options)
    assert got.body == delta("a") + DONE_EVENT
    sent = json.loads(stand.worker.seen[0].body)["stream_options"]
    assert sent == {"continuous_usage_stats": False, "include_usage": True}


async def test_usage_null_and_usage_beside_a_choice_are_left_alone(stand: Stand):
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    said = [
        event({"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": None}),
        event({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        DONE_EVENT,
    ]
    stand.worker.default = streamed(*said)
    assert (await stand.stream()).body == b"".join(said)


@pytest.mark.parametrize("path", [b"/v1/responses", b"/v1/messages", b"/v1/embeddings"])
async def test_nothing_is_asked_where_it_is_told_anyway(stand: Stand, path: bytes):
    stand.worker.default = streamed(STREAMING.get(path, DONE_EVENT))
    sent = body(stream=True)
    await stand.ask(sent, path=path)
    assert stand.worker.seen[0].body == sent


async def test_nor_of_a_request_that_isnt_a_stream(stand: Stand):
    sent = body(stream=False, stream_options=None)
    await stand.ask(sent)
    assert stand.worker.seen[0].body == sent
