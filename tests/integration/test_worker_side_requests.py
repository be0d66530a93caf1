"""What a worker is sent: its own model name, what it can take, where it stands, and no secret."""

import asyncio
import json
import ssl
import subprocess
from pathlib import Path

import pytest

from gateway.settings import Log, PoolSettings, WorkerSettings
from gateway.wire import openai
from tests.support.client import connected, post
from tests.support.scripted import (
    ANSWER,
    CLOSE,
    DONE_EVENT,
    Scripted,
    answer,
    delta,
    models,
    scripted,
    streamed,
)
from tests.support.stand import CHAT, Stand, body, standing

KEY = "sk-worker-0123456789"
ASKED = b'"stream_options"'
STREAM = streamed(delta("a"), DONE_EVENT)
NO = answer(
    b'{"object":"error","message":"Extra inputs are not permitted: stream_options",'
    b'"type":"BadRequestError","param":null,"code":400}',
    "400 Bad Request",
)


def pool(worker: Scripted, model: str | None = None, **more: object) -> dict[str, object]:
    """Settings of one pool with one worker."""
    url = str(more.pop("url", worker.url))
    workers = (WorkerSettings(url=url, **more),)  # type: ignore[arg-type]
    return {"pools": (PoolSettings(name="p", model=model, workers=workers),)}


# ---- learning on first refusal


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Entity"])
async def test_a_worker_that_doesnt_know_stream_options(status: str):
    async with standing() as stand:
        no = NO.replace(b"400 Bad Request", status.encode())
        stand.worker.scripts += [[no], STREAM, STREAM]
        for _ in range(2):
            got = await stand.stream()
            assert (got.status, got.body, got.whole) == (200, delta("a") + DONE_EVENT, True)
        asked = [ASKED in seen.body for seen in stand.worker.seen]
        assert asked == [True, False, False]  # once more without, and remembered


async def test_a_400_that_is_the_clients_fault():
    async with standing() as stand:
        bad = answer(b'{"error":{"message":"max_tokens is too large"}}', "400 Bad Request")
        stand.worker.scripts += [[bad], [bad], STREAM, [bad]]
        got = await stand.stream()
        assert (got.status, got.error["message"]) == (400, "max_tokens is too large")
        assert (await stand.stream()).status == 200
        assert ASKED in stand.worker.seen[2].body  # nothing was learnt from that
        assert (await stand.stream()).status == 400
        assert len(stand.worker.seen) == 4  # and it is never sent twice again


async def test_a_client_that_asks_itself_hears_the_refusal():
    async with standing() as stand:
        stand.worker.scripts.append([NO])
        got = await stand.stream(stream_options={"include_usage": True})
        assert got.status == 400
        assert len(stand.worker.seen) == 1


async def test_what_comes_back_at_an_address_is_found_out_anew():
    async with standing() as stand:
        stand.worker.scripts += [[NO], STREAM]
        await stand.stream()
        worker = stand.running.gateway.parts.fleet.workers[0]
        assert worker.takes_stream_options is False
        worker.endpoint.port = 1
        while worker.endpoint.idle:
            worker.endpoint.idle.pop().close()
        assert (await stand.stream()).status == 502
        assert worker.takes_stream_options is None


# ---- errors of every server's form

ERRORS = {
    "vllm": {"object": "error", "message": "MSG", "type": "BadRequestError", "code": 400},
    "vllm nested": {"error": {"message": "MSG", "type": "BadRequestError", "code": 400}},
    "sglang": {"object": "error", "message": "MSG", "type": "BadRequest", "code": 400},
    "llama.cpp": {"error": {"code": 400, "message": "MSG", "type": "invalid_request_error"}},
    "tgi": {"error": "MSG", "error_type": "validation"},
    "tei": {"error": "MSG", "error_type": "Validation", "message": "MSG", "type": "Validation"},
    "ollama": {"error": "MSG"},
    "fastapi": {"detail": "MSG"},
    "fastapi fields": {"detail": [{"loc": ["body", "n"], "msg": "MSG", "type": "int"}]},
    "openai": {"error": {"message": "MSG", "type": "x", "param": "n", "code": "bad_n"}},
    "text": "MSG",
}


@pytest.mark.parametrize("path", [CHAT, b"/v1/embeddings", b"/v1/messages"])
@pytest.mark.parametrize("form", ERRORS)
async def test_an_error_passes_in_the_form_that_sdks_read(path: bytes, form: str):
    said = ERRORS[form]
    raw = said.encode() if isinstance(said, str) else json.dumps(said).encode()
    async with standing() as stand:
        for status in ("400 Bad Request", "401 Unauthorized", "404 Not Found", "500 Oh"):
            stand.worker.scripts.append([answer(raw, status, b"x-own: 1")])
            got = await stand.ask(path=path)
            assert got.status == int(status[:3])
            assert "MSG" in got.error["message"]
            assert isinstance(got.error["type"], str)
            assert got.values(b"content-type") == [b"application/json"]
            assert got.values(b"x-own") == [b"1"]
        assert len(stand.worker.seen) == 4  # none is sent again


async def test_not_now_passes_with_its_retry_after():
    async with standing() as stand:
        for status in (429, 502, 503, 504):
            raw = answer(b'{"error":{"message":"busy"}}', f"{status} No", b"retry-after: 7")
            stand.worker.scripts.append([raw])
            got = await stand.ask()
            assert (got.status, got.values(b"retry-after")) == (status, [b"7"])


async def test_an_error_larger_than_any_error():
    async with standing() as stand:
        page = b"<html>" + b"x" * (1 << 20)
        stand.worker.scripts.append([answer(page, "500 Oh")])
        got = await stand.ask()
        assert (got.status, got.body == page) == (500, True)


# ---- names of models


async def test_a_worker_gets_its_own_name_for_the_model():
    async with scripted() as worker:
        settings = pool(worker, "m", upstream_model="own/M")
        async with standing(worker, **settings) as stand:
            await stand.ask(b'{ "n": 1.0, "model" : "m", "\xf0\x9f\x98\x80": 1e400 }')
            assert worker.seen[0].body == (
                b'{ "n": 1.0, "model" : "own/M", "\xf0\x9f\x98\x80": 1e400 }'
            )
            await stand.ask(b'{"x": {"model": "y"}, "model": "m", "n": 1.0}')
            assert worker.seen[1].body == b'{"x":{"model": "y"},"model":"own/M","n":1.0}'


async def test_the_only_name_that_a_worker_lists_is_its_name():
    async with (
        scripted(listing=[models("own/M")]) as worker,
        standing(worker, **pool(worker, "m")) as stand,
    ):
        await stand.ask()
        assert json.loads(worker.seen[0].body) == {"model": "own/M"}
        assert json.loads((await stand.get(b"/v1/models")).body)["data"][0]["id"] == "m"


async def test_a_form_gets_the_name_too():
    form = b"--B\r\ncontent-disposition: form-data; name=%b\r\n\r\n%b\r\n"
    data = form % (b'"file"; filename="model"', b"\0\r\n--b\r\nm") + form % (b'"model"', b"m")
    async with scripted() as worker:
        settings = pool(worker, "m", upstream_model="own/M")
        async with standing(worker, **settings) as stand:
            kind = b"multipart/form-data; boundary=B"
            data += b"--B--\r\n"
            request = post(data, path=b"/v1/audio/transcriptions")
            async with connected(stand.running.port) as client:
                client.send(request.replace(b"application/json", kind))
                assert (await client.response()).body == ANSWER
            assert worker.seen[0].body == data.replace(b"\r\n\r\nm\r\n", b"\r\n\r\nown/M\r\n")
            assert worker.seen[0].values(b"content-type") == [kind]


async def test_a_large_body_is_sent_in_parts_not_copied(monkeypatch: pytest.MonkeyPatch):
    sent: list[list[openai.Part]] = []
    real = openai.splice

    def spy(*args: object, **more: object) -> list[openai.Part]:
        sent.append(real(*args, **more))  # type: ignore[arg-type]
        return sent[-1]

    monkeypatch.setattr(openai, "splice", spy)
    large = body(stream=True, input="x" * (10 << 20))
    async with scripted(default=STREAM) as worker:
        settings = pool(worker, "m", upstream_model="own/M")
        async with standing(worker, **settings) as stand:
            assert (await stand.ask(large)).whole
            expected = {**json.loads(large), "model": "own/M"}
            expected["stream_options"] = {"include_usage": True}
            assert json.loads(worker.seen[0].body) == expected
    (parts,) = sent
    assert all(isinstance(part, memoryview) for part in parts if len(part) > 100)


# ---- where a worker stands, and its key


async def test_a_prefix_stands_before_every_path():
    async with (
        scripted() as worker,
        standing(worker, **pool(worker, url=f"{worker.url}/engines/a")) as stand,
    ):
        await stand.ask(path=b"/v1/chat/completions?api-version=1")
        await stand.ask(path=b"/v1/rerank")
        assert [seen.line for seen in worker.seen] == [
            b"POST /engines/a/v1/chat/completions?api-version=1 HTTP/1.1",
            b"POST /engines/a/v1/rerank HTTP/1.1",
        ]


async def test_a_workers_key_goes_to_it_and_nowhere_else(capfd: pytest.CaptureFixture[str]):
    echo = answer(b'{"error":{"message":"no"}}', "401 Unauthorized", b"x-own: 1")
    async with scripted() as worker:
        settings = pool(worker, api_key=KEY) | {"log": Log(requests=True)}
        async with standing(worker, **settings) as stand:
            worker.scripts += [[answer()], [echo], [b"HTTP/1.1 200 OK\r\nx", CLOSE]]
            mine = b"authorization: Bearer sk-client"
            got = [await stand.ask(None, mine, b"api-key: sk-client") for _ in range(3)]
            assert [g.status for g in got] == [200, 401, 502]
            for seen in worker.seen:
                assert seen.values(b"authorization") == [b"Bearer " + KEY.encode()]
                assert not seen.values(b"api-key")
            shown = b"".join(b"%r%b" % (str(g.head.fields).encode(), g.body) for g in got)
            shown += (await stand.get(b"/v1/models")).body + repr(stand.running.said).encode()
            shown += repr(stand.running.gateway._settings).encode()
    out = "".join(capfd.readouterr())
    assert '"status":401' in out
    for secret in (KEY, "sk-client"):
        assert secret not in out
        assert secret.encode() not in shown


async def test_without_a_key_none_is_sent():
    async with standing() as stand:
        await stand.ask(None, b"authorization: Bearer sk-client")
        assert not stand.worker.seen[0].values(b"authorization")


async def test_compressed_answers_are_never_asked_for():
    async with standing() as stand:
        for path in (CHAT, b"/v1/messages"):
            await stand.ask(None, b"accept-encoding: gzip, br", path=path)
        for seen in stand.worker.seen:
            assert seen.values(b"accept-encoding") == [b"identity"]


async def test_what_is_compressed_all_the_same_passes_untouched():
    raw = b"\x1f\x8b\x08\0" + b'"usage":{' * 10
    async with standing() as stand:
        for status in ("200 OK", "400 Bad Request"):
            stand.worker.scripts.append([answer(raw, status, b"content-encoding: gzip")])
            got = await stand.ask()
            assert (got.body, got.values(b"content-encoding")) == (raw, [b"gzip"])


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a key and a certificate for 127.0.0.1 that nobody vouches for."""
    folder = tmp_path_factory.mktemp("tls")
    options = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=worker",
        "-addext",
    ]
    subprocess.run(
        ["openssl", *options, "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "cert"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "both").write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return folder / "both"


def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


async def check_over_tls(stand: Stand) -> None:
    stand.worker.scripts += [STREAM, [answer()], [answer()]]
    assert (await stand.stream()).whole
    for _ in range(2):
        assert (await stand.ask()).body == ANSWER
    assert (await stand.ask(body(input="x" * (4 << 20)))).body == ANSWER
    assert stand.worker.connections <= 2


async def test_a_worker_over_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with scripted(tls=serving(certificate)) as worker, standing(worker) as stand:
        await check_over_tls(stand)


async def test_a_certificate_that_nobody_vouches_for(certificate: Path):
    async with (
        scripted(tls=serving(certificate)) as worker,
        standing(worker, **pool(worker, "m")) as stand,
    ):
        got = await stand.ask()
        assert (got.status, got.error["code"]) == (502, "worker_unreachable")
        assert "certificate isn't trusted (self-signed certificate)" in got.error["message"]
        assert "certificate isn't trusted" in " ".join(stand.running.said)


async def test_a_worker_that_speaks_no_tls():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        server,
        scripted() as worker,
        standing(worker, **pool(worker, "m", url=url)) as stand,
    ):
        got = await stand.ask()
        assert (got.status, got.error["code"]) == (502, "worker_unreachable")
        assert "TLS failed" in got.error["message"]


# ---- reaching it at all


async def test_a_host_that_cant_be_a_name_harms_only_its_own_requests():
    async with scripted() as worker:
        settings = pool(worker, "m", url="http://a..b")
        async with standing(worker, **settings) as stand:
            for _ in range(2):
                got = await stand.ask()
                assert (got.status, got.error["code"]) == (502, "worker_unreachable")
                assert "a..b" not in got.error["message"]


async def test_a_list_of_models_that_makes_no_sense_harms_nobody():
    listings = [
        b"[" * 100_000,
        b'{"data":[{"id":"\xff"}]}',
        b'{"data":null}',
        b"",
        b'{"data":[{}]}',
    ]
    for listing in listings:
        async with (
            scripted(listing=[answer(listing)]) as worker,
            standing(worker, **pool(worker, "m")) as stand,
        ):
            assert (await stand.ask()).body == ANSWER
