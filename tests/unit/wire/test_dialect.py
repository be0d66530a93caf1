"""How each protocol is told apart, says that something failed, and ends its streams."""

import json

import pytest

from gateway import errors
from gateway.wire import sse
from gateway.wire.dialect import ANTHROPIC, OPENAI, RESPONSES, of_path

DIALECTS = [OPENAI, RESPONSES, ANTHROPIC]


def every_error(kind: type[errors.GatewayError]) -> list[type[errors.GatewayError]]:
    return [kind, *[below for sub in kind.__subclasses__() for below in every_error(sub)]]


ERRORS = every_error(errors.GatewayError)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        (b"/v1/chat/completions", OPENAI),
        (b"/v1/embeddings", OPENAI),
        (b"/v1/messages", ANTHROPIC),
        (b"/v1/messages/", ANTHROPIC),
        (b"/v1/messages?beta=true", ANTHROPIC),
        (b"/v1/messages/count_tokens?beta=true", ANTHROPIC),
        (b"/team/a/v1/messages", ANTHROPIC),
        (b"/v1/responses", RESPONSES),
        (b"/v1/responses/resp_1/cancel", RESPONSES),
        (b"/x/v1/responses?stream=true", RESPONSES),
        (b"/v1/messagesandmore", OPENAI),
        (b"/v1/responses2", OPENAI),
        (b"/v1/threads/t/messages", OPENAI),
        (b"/v1/chat/completions/c/messages", OPENAI),
        (b"/v1/rerank?next=/v1/messages", OPENAI),
        (b"/", OPENAI),
        (b"", OPENAI),
    ],
)
def test_the_path_tells_the_dialect(path, dialect):
    assert of_path(path) is dialect


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_openai_bodies_have_all_four_members(kind):
    error = kind('what "was" wrong 🌍', param="model")
    for dialect in (OPENAI, RESPONSES):
        body = dialect.body(error)
        assert dialect.is_error(body)
        assert json.loads(body) == {
            "error": {
                "message": 'what "was" wrong 🌍',
                "type": kind.kind,
                "param": "model",
                "code": kind.code,
            }
        }


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_anthropic_bodies_have_a_type_that_sdks_know(kind):
    body = ANTHROPIC.body(kind("m"))
    assert ANTHROPIC.is_error(body)
    said = json.loads(body)
    assert said["error"]["message"] == "m"
    assert said["error"]["type"] in {
        "invalid_request_error", "authentication_error", "billing_error", "permission_error",
        "not_found_error", "conflict_error", "request_too_large", "rate_limit_error",
        "timeout_error", "api_error", "overloaded_error",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.MalformedBody("m"), "invalid_request_error"),
        (errors.UnknownModel("m"), "not_found_error"),
        (errors.BodyTooLarge("m"), "request_too_large"),
        (errors.NoWorker("m"), "overloaded_error"),
        (errors.WorkerHungUp("m"), "api_error"),
        (errors.WorkerTimedOut("m"), "timeout_error"),
        (errors.InternalError("m"), "api_error"),
    ],
)
def test_anthropic_types_follow_the_status(error, kind):
    assert json.loads(ANTHROPIC.body(error))["error"]["type"] == kind


def test_a_broken_stream_ends_in_one_event():
    error = errors.WorkerHungUp("the worker hung up")
    for dialect in DIALECTS:
        data = dialect.event(error)
        assert sse.whole(data) == len(data)
        (event,) = sse.Decoder().feed(data)
        assert "the worker hung up" in event.data
        assert "[DONE]" not in event.data
        assert dialect.ended(data, b"")
    assert OPENAI.event(error) == b"data: %b\n\n" % OPENAI.body(error)
    assert ANTHROPIC.event(error) == b"event: error\ndata: %b\n\n" % ANTHROPIC.body(error)


def test_a_responses_error_goes_on_with_the_numbers():
    error = errors.WorkerHungUp("m", param=None)
    last = (
        b'event: x\ndata: {"type":"x","sequence_number":8}\n\n'
        b'event: x\ndata: {"sequence_number": 9, "type": "x"}\n\n'
    )
    (event,) = sse.Decoder().feed(RESPONSES.event(error, last))
    assert event.event == "error"
    assert json.loads(event.data) == {
        "type": "error",
        "code": "worker_hung_up",
        "message": "m",
        "param": None,
        "sequence_number": 10,
    }
    assert json.loads(sse.payload(RESPONSES.event(error)))["sequence_number"] == 0


CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'


@pytest.mark.parametrize(
    ("last", "previous", "ended"),
    [
        (b"", b"", False),
        (CONTENT, CONTENT, False),
        (FINISH, CONTENT, True),
        (USAGE, FINISH, True),
        (USAGE, CONTENT, False),
        (CONTENT + FINISH + USAGE, b"", True),
        (b"data: [DONE]\n\n", CONTENT, True),
        (b"data:[DONE]\r\n\r\n", CONTENT, True),
        (CONTENT + b"data: [DONE]\n\n", CONTENT, True),
        (b": bye\n\n", b"data: [DONE]\n\n", True),
        # The second of two choices isn't done.
        (FINISH + CONTENT, CONTENT, False),
        (CONTENT, FINISH, False),
        (b'data: {"choices":[{"delta":{"audio":{"expires_at":1}}}]}\n\n', FINISH, True),
        (b'data: {"choices":[{"text":"data: [DONE]","finish_reason":null}]}\n\n', CONTENT, False),
        (
            b'data: {"choices":[{"text":"\\"finish_reason\\":\\"x\\"","finish_reason":null}]}\n\n',
            CONTENT,
            False,
        ),
        (b'data: {"error":{"message":"m"}}\n\n', CONTENT, True),
        (b'data: {"error":"m"}\n\n', CONTENT, True),
        (b'data: {"error":null,"choices":[]}\n\n', CONTENT, False),
        (b'data: {"choices":[{"delta":{"content":"error"}}]}\n\n', b"", False),
        (b'event: x\ndata: {"type":"transcript.text.done","text":"a"}\n\n', b"", True),
        (b'event: x\ndata: {"type": "speech.audio.done"}\n\n', b"", True),
        (b'data: {"type":"transcript.text.delta","delta":"a"}\n\n', b"", False),
    ],
)
def test_when_an_openai_stream_has_ended(last, previous, ended):
    assert OPENAI.ended(last, previous) is ended


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        ("response.completed", True),
        ("response.failed", True),
        ("response.incomplete", True),
        ("response.cancelled", True),
        ("error", True),
        ("response.in_progress", False),
        ("response.output_text.done", False),
    ],
)
def test_when_a_responses_stream_has_ended(kind, ended):
    event = f'data: {{"type":"{kind}","response":{{}}}}\n\n'.encode()
    assert RESPONSES.ended(event, b"") is ended
    assert RESPONSES.ended(b"data: [DONE]\n\n", event) is ended
    assert RESPONSES.ended(b": bye\n\n", event) is ended


def test_types_inside_an_event_are_not_the_events_own():
    inner = b'data: {"item":{"type":"error"},"delta":"response.completed","type":"x"}\n\n'
    assert not RESPONSES.ended(inner, b"")
    assert not ANTHROPIC.ended(inner, inner)
    assert not ANTHROPIC.ended(b'data: {"type":"error"\n\n', b'data: {"type":[]}\n\n')


@pytest.mark.parametrize(
    ("kind", "ended"),
    [("message_stop", True), ("error", True), ("message_delta", False), ("ping", False)],
)
def test_when_an_anthropic_stream_has_ended(kind, ended):
    event = f'event: {kind}\ndata: {{"type": "{kind}"}}\n\n'.encode()
    assert ANTHROPIC.ended(event, b"") is ended
