"""Workers' error bodies of every form, brought to what the SDKs of each dialect read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.dialect import ANTHROPIC, OPENAI, RESPONSES
from gateway.wire.openai import normalise_error

ENVELOPE = {"message", "type", "param", "code"}


def error_of(status: int, body: bytes) -> dict[str, object]:
    """Normalise for OpenAI and return the error, after checking its form."""
    error = json.loads(normalise_error(status, body, OPENAI))["error"]
    assert error.keys() >= ENVELOPE
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert error["message"]
    assert error["type"]
    assert error["code"] is None or isinstance(error["code"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    return error


def expect(message, kind, param=None, code=None, **extra):
    return {"message": message, "type": kind, "param": param, "code": code, **extra}


FORMS = [
    (  # vLLM
        400,
        (b'{"error":{"message":"max_tokens is too large","type":"BadRequestError",'
        b'"param":"max_tokens","code":400}}'),
        expect("max_tokens is too large", "BadRequestError", "max_tokens"),
    ),
    (401, b'{"error":"Unauthorized"}', expect("Unauthorized", "authentication_error")),
    (  # SGLang
        400,
        b'{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}',
        expect("bad", "BadRequestError"),
    ),
    (  # TGI
        429,
        b'{"error":"Model is overloaded","error_type":"overloaded"}',
        expect("Model is overloaded", "overloaded"),
    ),
    (  # llama.cpp
        503,
        b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
        expect("Loading model", "unavailable_error"),
    ),
    (  # llama.cpp, a prompt too long
        400,
        (b'{"error":{"code":400,"message":"too long","type":"exceed_context_size_error",'
        b'"n_prompt_tokens":9000,"n_ctx":4096}}'),
        expect("too long", "exceed_context_size_error", n_prompt_tokens=9000, n_ctx=4096),
    ),
    (503, b'{"error":"server busy, please try again."}',
     expect("server busy, please try again.", "server_error")),
    (  # TEI
        413,
        (b'{"message":"batch size 64 > maximum allowed batch size 32","code":413,'
        b'"type":"Validation"}'),
        expect("batch size 64 > maximum allowed batch size 32", "Validation"),
    ),
    (  # FastAPI
        422,
        (b'{"detail":[{"type":"missing","loc":["body","messages",0,"role"],"msg":"Field required",'
        b'"input":{}},{"loc":["body","n"],"msg":"Input should be a valid integer"}]}'),
        expect(
            "messages.0.role: Field required; n: Input should be a valid integer",
            "invalid_request_error",
            "messages.0.role",
        ),
    ),
    (404, b'{"detail":"Not Found"}', expect("Not Found", "invalid_request_error")),
    (500, b'{"detail":{"error":{"message":"inner","code":7}}}',
     expect("inner", "server_error", None, "7")),
    (400, b'{"detail":{"message":"inner","type":"t"}}', expect("inner", "t")),
    (422, b'{"detail":[]}', expect('{"detail":[]}', "invalid_request_error")),
    (422, b'{"detail":["a"]}', expect('{"detail":["a"]}', "invalid_request_error")),
    (
        401,
        b'{"error":"invalid_client","error_description":"The token has expired"}',
        expect("The token has expired", "authentication_error", None, "invalid_client"),
    ),
    (  # Anthropic
        529,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        expect("Overloaded", "overloaded_error"),
    ),
    (400, b'{"error":{"message":"m","code":"context_length_exceeded"}}',
     expect("m", "invalid_request_error", None, "context_length_exceeded")),
    (400, b'{"error":{"message":"m","type":"t","param":["a"],"code":1234}}',
     expect("m", "t", None, "1234")),
    (400, b'{"error":{"message":"m","type":5,"param":null,"code":true}}',
     expect("m", "invalid_request_error")),
    (400, b'{"error":{}}', expect('{"error":{}}', "invalid_request_error")),
    (400, b'{"error":{"message":""}}', expect('{"error":{"message":""}}', "invalid_request_error")),
    (400, b'{"error":null}', expect('{"error":null}', "invalid_request_error")),
    (400, b"[1]", expect("[1]", "invalid_request_error")),
    (403, b"Forbidden\n", expect("Forbidden", "permission_error")),
    (429, b"", expect("The worker answered with status 429 and nothing else.",
                      "rate_limit_exceeded")),
    (500, b"\x00\xff", expect("\ufffd", "server_error")),
    (
        502,
        b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body></html>",
        expect("502 Bad Gateway", "server_error"),
    ),
    (
        500,
        b"<!DOCTYPE html><style>p {}</style><p>It <b>broke</b>.</p><script>x()</script>",
        expect("It broke .", "server_error"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "expected"), FORMS)
def test_every_form_becomes_the_envelope(status, body, expected):
    assert error_of(status, body) == expected
    # What was made is right, so it is left alone.
    made = normalise_error(status, body, RESPONSES)
    assert normalise_error(status, made, OPENAI) is made


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"m","type":"t","param":null,"code":null}}',
        (
            b' {"error" : {"message":"m","type":"t","param":"p","code":"c","misalignment":{"a":1}},'
            b'"request_id":"r"}\n'
        ),
    ],
)
def test_a_body_that_is_right_is_the_same_object(body):
    assert normalise_error(400, body, OPENAI) is body
    assert normalise_error(400, body, RESPONSES) is body


def test_what_came_with_an_error_stays_with_it():
    body = b'{"error":{"message":"m","type":"t","param":null,"code":5,"x":{"y":1.0}},"id":"r"}'
    assert json.loads(normalise_error(400, body, OPENAI)) == {
        "error": expect("m", "t", None, "5", x={"y": 1.0}),
        "id": "r",
    }


def test_long_texts_are_cut():
    for body in (b"x" * 100_000, json.dumps({"error": "x" * 100_000}).encode()):
        assert error_of(500, body)["message"] == "x" * 4096
    page = b"<p>" + b"word " * 10_000
    assert len(error_of(500, page)["message"]) == 300


def test_anthropic_errors_are_left_to_anthropic_clients():
    body = b'{"type":"error","error":{"type":"new_kind","message":"m"},"request_id":"req_1"}'
    assert normalise_error(400, body, ANTHROPIC) is body


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_other_errors_are_put_into_anthropic_words(status, kind):
    for body in (b"m", b'{"error":{"message":"m","type":"BadRequestError","code":400}}'):
        assert json.loads(normalise_error(status, body, ANTHROPIC)) == {
            "type": "error",
            "error": {"type": kind, "message": "m"},
        }


def test_a_kind_that_anthropic_knows_is_kept():
    body = b'{"error":{"type":"overloaded_error","message":"m"}}'
    assert json.loads(normalise_error(500, body, ANTHROPIC))["error"]["type"] == "overloaded_error"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "detail", "code", "type", "loc", "msg"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=200)
@given(st.sampled_from([400, 404, 429, 500, 503]), json_values | st.binary(max_size=30))
def test_nothing_a_worker_sends_is_too_odd(status, said):
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    error_of(status, body)
    made = json.loads(normalise_error(status, body, ANTHROPIC))
    assert made["type"] == "error"
    assert isinstance(made["error"]["message"], str)


def test_deep_nesting_is_text():
    deep = b'{"detail":' * 20_000
    assert error_of(500, deep)["message"].startswith('{"detail":')
    closed = b'{"detail":' * 400 + b"1" + b"}" * 400
    assert error_of(500, closed)["message"].startswith('{"detail":')
