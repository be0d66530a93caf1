"""The request log: a line for every request however it ends, true to it, and without its words."""

import asyncio
import io
import json
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.requests import Record
from gateway.settings import Log
from gateway.telemetry.log import MAX_KNOWN, MAX_WAITING_BYTES, RequestLog
from tests.support.client import connected, post
from tests.support.clock import ManualClock, until
from tests.support.scripted import (
    CLOSE,
    DONE_EVENT,
    HANG,
    STREAM_HEAD,
    USAGE_EVENT,
    answer,
    chunk,
    delta,
    streamed,
)
from tests.support.stand import CHAT, Stand, body, standing

PROMPT, SAID, KEY = "the-prompt", "the-answer", "sk-the-key"
FIELDS = (b"authorization: Bearer " + KEY.encode(), b"x-request-id: mine", b"api-key: sk-the-key")


class Lines:
    """What was logged, in order."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()

    async def wait(self, count: int) -> list[dict[str, Any]]:
        """So many lines, and not one more."""
        await until(lambda: self.buffer.getvalue().count(b"\n") >= count)
        text = self.buffer.getvalue()
        for word in (PROMPT, SAID, KEY):
            assert word.encode() not in text
        assert text.count(b"\n") == count
        assert text.endswith(b"\n")
        return [json.loads(line) for line in text.split(b"\n")[:-1]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    monkeypatch.setattr(sys, "stdout", lines)
    return lines


@pytest.fixture(params=["lane", "bridge"])
async def stand(lines: Lines, request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    with_lane = request.param == "lane"
    async with standing(with_lane=with_lane, log=Log(requests=True)) as stand:
        yield stand


def prompt(**more: object) -> bytes:
    return body(messages=[{"role": "user", "content": PROMPT}], **more)


def check(line: dict[str, Any]) -> None:
    """What holds for every line."""
    ms = line["ms"]
    assert abs(ms["before"] + ms["upstream"] + ms["after"] - ms["total"]) < 0.005
    assert all(value >= 0 for value in ms.values())
    assert ms["ttft"] <= ms["total"] + 0.001
    assert line["id"].startswith("req-")
    assert line["at"].endswith("Z")
    assert set(line) <= {
        *("at", "id", "path", "status", "outcome", "stream", "model", "worker", "attempts", "code"),
        *("ms", "bytes_in", "bytes_out", "usage", "client_id"),
    }


async def test_a_plain_answer(stand: Stand, lines: Lines):
    said = answer(json.dumps({"c": SAID, "usage": {"prompt_tokens": 3}}).encode())
    stand.worker.default = [said]
    sent = prompt()
    got = await stand.ask(sent, *FIELDS)
    (line,) = await lines.wait(1)
    check(line)
    assert line["id"].encode() == got.values(b"x-request-id")[0]
    assert line["client_id"] == "mine"
    assert (line["path"], line["model"]) == (CHAT.decode(), "m")
    assert (line["status"], line["outcome"], line["stream"]) == (200, "ok", False)
    assert (line["worker"], line["attempts"]) == (stand.worker.url, 1)
    assert line["usage"]["input_tokens"] == 3
    assert (line["bytes_in"], line["bytes_out"]) == (len(sent), len(got.body))


async def test_a_stream(stand: Stand, lines: Lines):
    stand.worker.default = streamed(delta(SAID), delta("", "stop"), USAGE_EVENT, DONE_EVENT)
    got = await stand.ask(prompt(stream=True), *FIELDS)
    (line,) = await lines.wait(1)
    check(line)
    assert (line["outcome"], line["stream"]) == ("ok", True)
    assert (line["usage"]["input_tokens"], line["usage"]["output_tokens"]) == (3, 5)
    assert line["bytes_out"] == len(got.body)


async def test_a_worker_that_says_no(stand: Stand, lines: Lines):
    said = json.dumps({"error": {"message": f"not {PROMPT}"}}).encode()
    stand.worker.default = [answer(said, "400 Bad Request")]
    assert (await stand.ask(prompt(), *FIELDS)).status == 400
    (line,) = await lines.wait(1)
    check(line)
    assert (line["status"], line["outcome"]) == (400, "worker_refused")
    assert "code" not in line


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b'{"model": "m", "the-prompt', 400, "invalid_body"),
        (b'{"model": 1, "x": "the-prompt"}', 400, "invalid_body"),
        (b'{"model": "none", "x": "the-prompt"}', 404, "model_not_found"),
    ],
)
async def test_a_request_that_makes_no_sense(
    stand: Stand, lines: Lines, sent: bytes, status: int, code: str
):
    assert (await stand.ask(sent, *FIELDS)).status == status
    (line,) = await lines.wait(1)
    check(line)
    assert (line["status"], line["outcome"], line["code"]) == (status, "bad_request", code)
    assert (line["worker"], line["attempts"]) == ("", 0)
    assert line["ms"]["upstream"] == 0


async def test_a_path_that_leads_nowhere(stand: Stand, lines: Lines):
    assert (await stand.ask(prompt(), *FIELDS, path=b"/nowhere?key=sk-the-key")).status == 404
    (line,) = await lines.wait(1)
    check(line)
    assert line["path"].startswith("/nowhere")


async def test_a_query_is_not_logged(stand: Stand, lines: Lines):
    assert (await stand.ask(prompt(), path=CHAT + b"?key=sk-the-key")).status == 200
    (line,) = await lines.wait(1)
    assert line["path"] == CHAT.decode()
    assert stand.worker.seen[0].line == b"POST %b?key=sk-the-key HTTP/1.1" % CHAT


async def test_a_worker_that_fails(stand: Stand, lines: Lines):
    stand.worker.default = [CLOSE]
    assert (await stand.ask(prompt(), *FIELDS)).status == 502
    (line,) = await lines.wait(1)
    check(line)
    assert (line["outcome"], line["code"]) == ("upstream_failed", "worker_hung_up")


async def test_a_broken_stream(stand: Stand, lines: Lines):
    stand.worker.default = [STREAM_HEAD, chunk(delta(SAID)), CLOSE]
    assert not (await stand.ask(prompt(stream=True), *FIELDS)).whole
    (line,) = await lines.wait(1)
    check(line)
    assert (line["status"], line["outcome"]) == (200, "stream_broken")
    assert line["code"] == "worker_hung_up"


@pytest.mark.parametrize("said", [[], [STREAM_HEAD, chunk(delta(SAID))]])
async def test_a_client_that_leaves(stand: Stand, lines: Lines, said: list):
    stand.worker.default = [*said, HANG]
    async with connected(stand.running.port) as client:
        client.send(post(prompt(stream=True), *FIELDS))
        await stand.worker.until(lambda: stand.worker.seen)
        if said:
            await client.until(lambda: SAID.encode() in client.received)
        client.hang_up()
        (line,) = await lines.wait(1)
    check(line)
    assert (line["outcome"], line["status"]) == ("client_gone", 200 if said else 0)


async def test_as_many_lines_as_requests(stand: Stand, lines: Lines):
    async with asyncio.TaskGroup() as tasks:
        for i in range(50):
            tasks.create_task(stand.ask(prompt() if i % 2 else b"{"))
    got = await lines.wait(50)
    for line in got:
        check(line)
    assert len({line["id"] for line in got}) == 50


async def test_words_of_the_client_are_kept_short_and_harm_no_line(stand: Stand, lines: Lines):
    name = 'x"\\\n\u2028\x7f' + "y" * 100_000
    mine = b'x-request-id: "\xff\\' + b"z" * 4000
    assert (await stand.ask(json.dumps({"model": name}).encode(), mine)).status == 404
    (line,) = await lines.wait(1)
    assert line["model"] == name[:200]
    assert len(line["client_id"]) <= 512


# ---- the writer


def ended(log: RequestLog, **more: object) -> None:
    log.ended(Record(b"req-1", b"", b"/v1/x", 0.0, **more))  # type: ignore[arg-type]


def test_a_reader_that_doesnt_read_costs_lines_and_says_so():
    gate = threading.Event()
    out = io.BytesIO()

    class Slow(io.RawIOBase):
        def write(self, data: Any) -> int:
            gate.wait(10)
            return out.write(data)

    log = RequestLog(ManualClock(), Slow())  # type: ignore[arg-type]
    size = 0
    while log.dropped == 0:
        assert size < 4 * MAX_WAITING_BYTES
        for i in range(1000):
            ended(log, model=str(i))
        log.flush()
        size += 200_000
    gate.set()
    log.close()
    gate.clear()
    assert out.getvalue().endswith(b"}\n")


def test_a_reader_that_has_gone_costs_lines_only():
    class Gone(io.RawIOBase):
        def write(self, data: Any) -> int:
            raise BrokenPipeError

    log = RequestLog(ManualClock(), Gone())  # type: ignore[arg-type]
    for _ in range(3):
        ended(log)
        log.flush()
    log.close()
    assert not log._writer.is_alive()
    assert log.dropped >= 3


def test_what_it_remembers_of_clients_is_bounded():
    log = RequestLog(ManualClock(), io.BytesIO())
    for i in range(10_000):
        ended(log, model=f"{i}-" + "x" * 1000)
        log._lines.clear()
    assert len(log._known) <= MAX_KNOWN
    assert max(len(key[1]) for key in log._known) <= 200  # type: ignore[arg-type]
    log.close()
