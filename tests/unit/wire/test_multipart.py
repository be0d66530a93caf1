"""Fields of forms as clients write them, and forms that two readers could read in two ways."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import MalformedBody
from gateway.wire.multipart import field_of, model_of

TYPE = b"multipart/form-data; boundary=edge"
FILE = (
    b'--edge\r\nContent-Disposition: form-data; name="file"; filename="C:\\\\a;\\"b.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\n\x00\r\n--edg\r\n\xff--edge\n\r\n"
)


def part(name: bytes, value: bytes, more: bytes = b"") -> bytes:
    return b'--edge\r\nContent-Disposition: form-data; name="%b"\r\n%b\r\n%b\r\n' % (
        name,
        more,
        value,
    )


END = b"--edge--\r\n"
MODEL = part(b"model", b"whisper-1")


@pytest.mark.parametrize(
    "body", [MODEL + FILE + END, FILE + MODEL + END, FILE + MODEL + b"--edge--"]
)
def test_the_model_and_its_place_are_found(body):
    value, start, end = model_of(TYPE, body)
    assert value == "whisper-1"
    assert body[start:end] == b"whisper-1"


@pytest.mark.parametrize(
    "content_type",
    [
        b'multipart/form-data; boundary="edge"',
        b"Multipart/Form-Data;charset=utf-8 ;  BOUNDARY=edge",
        b"multipart/form-data; boundary=edge;",
    ],
)
def test_a_boundary_may_be_quoted(content_type):
    assert model_of(content_type, MODEL + END)[0] == "whisper-1"


def test_a_quoted_boundary_may_hold_more_than_a_token():
    content_type = b'multipart/form-data; boundary="--a b/c=?"'
    body = (MODEL + END).replace(b"--edge", b"----a b/c=?")
    assert model_of(content_type, body)[0] == "whisper-1"


@pytest.mark.parametrize(
    "head",
    [
        b"content-disposition:form-data;name=model",
        b'Content-Disposition:  FORM-DATA ; NAME="model" \r\nContent-Type: text/plain',
        b'Content-Disposition: form-data; name="model"\r\ncontent-type: text/plain; charset=UTF-8',
        (
            b'Content-Type: text/plain; charset="utf-8"\r\n'
            b'Content-Disposition: form-data; name="model"\r\n'
            b"Content-Transfer-Encoding: 8bit\r\nContent-Length: 3"
        ),
    ],
)
def test_a_part_may_be_written_in_several_ways(head):
    body = b"--edge \t\r\n" + head + b"\r\n\r\n\xc3\xbc!\r\n" + END
    assert model_of(TYPE, body)[0] == "ü!"


def test_other_fields_are_found_or_absent():
    body = part(b"stream", b"true") + part(b"prompt", b"") + FILE + MODEL + END
    stream = field_of(TYPE, body, "stream")
    assert stream is not None
    assert stream[0] == "true"
    prompt = field_of(TYPE, body, "prompt")
    assert prompt is not None
    assert prompt[0] == ""
    assert prompt[1] == prompt[2]
    assert field_of(TYPE, body, "language") is None


def test_a_value_may_have_several_lines():
    found = field_of(TYPE, part(b"prompt", b"a\r\n\r\nb\r\n") + END, "prompt")
    assert found is not None
    assert found[0] == "a\r\n\r\nb\r\n"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (b"application/json", b'{"model":"m"}'),
        (b"multipart/form-datax; boundary=edge", MODEL + END),
        (b"multipart/mixed; boundary=edge", MODEL + END),
        (b"multipart/form-data", MODEL + END),
        (b"multipart/form-data; boundary=", MODEL + END),
        (b'multipart/form-data; boundary="edge', MODEL + END),
        (b"multipart/form-data; boundary=edge; boundary=other", MODEL + END),
        (b'multipart/form-data; boundary="ed\\ge"', MODEL + END),
        (b"multipart/form-data; boundary=" + b"e" * 71, MODEL + END),
        (b"", MODEL + END),
    ],
    ids=str,
)
def test_a_type_without_a_clear_boundary_is_refused(content_type, body):
    refuse(content_type, body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--edge",
        END,
        FILE + END,
        MODEL,
        MODEL[:-2],
        MODEL + b"--edge",
        MODEL + b"--edge\r\n",
        b"\r\n" + MODEL + END,
        b"preamble\r\n" + MODEL + END,
        MODEL + END + b"epilogue",
        MODEL + END + MODEL + END,
        MODEL + MODEL + END,
        part(b"model", b"") + END,
        part(b"model", b"\xff") + END,
        part(b"model", b"m" * 5000) + END,
        part(b"mod\\el", b"m") + MODEL + END,
        part(b'model"; filename="x', b"m") + END,
        part(b'model"; name="other', b"m") + END,
        part(b"model\"; name*=utf-8''x; x=\"", b"m") + END,
        part(b"model", b"m", b"Content-Type: application/json\r\n") + END,
        part(b"model", b"m", b"Content-Type: text/plain; charset=utf-16\r\n") + END,
        part(b"model", b"m", b"Content-Transfer-Encoding: base64\r\n") + END,
        part(b"model", b"m", b'Content-Disposition: form-data; name="x"\r\n') + END,
        part(b"model", b"m", b" folded\r\n") + END,
        part(b"model", b"m", b"no colon\r\n") + END,
        part(b"model", b"m", b"X: " + b"a" * 20_000 + b"\r\n") + END,
        MODEL.replace(b"\r\n", b"\n") + END,
        MODEL.replace(b'"model"\r\n', b'"model"\n\r\n') + END,
        MODEL.replace(b"form-data", b"attachment") + END,
        MODEL.replace(b'; name="model"', b"") + END,
        MODEL.replace(b"whisper-1", b"whisper\r\n--edgework") + END,
        b"--edge\r\n\r\nm\r\n" + MODEL + END,
    ],
    ids=lambda body: body[:200].decode("latin-1").encode("unicode_escape").decode()[-70:],
)
def test_a_form_in_doubt_is_refused(body):
    refuse(TYPE, body)


def refuse(content_type: bytes, body: bytes) -> None:
    with pytest.raises(MalformedBody) as refused:
        model_of(content_type, body)
    assert refused.value.param == "model"


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["file", "prompt", "stream", "models"]),
            st.binary(max_size=30) | st.sampled_from([b"\r\n", b"--edge", b"\r\n--edg", b"--"]),
        ),
        max_size=5,
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.integers(0, 5),
)
def test_any_contents_around_the_model(fields, model, place):
    if "\r\n--edge" in model or any(b"\r\n--edge" in value for _, value in fields):
        return
    parts = [part(name.encode(), value) for name, value in fields]
    parts.insert(place, part(b"model", model.encode()))
    body = b"".join(parts) + END
    value, start, end = model_of(TYPE, body)
    assert value == model
    assert body[start:end] == model.encode()


@settings(max_examples=200)
@given(st.binary(max_size=80), st.binary(max_size=40))
def test_noise_is_refused_and_nothing_else(noise, kind):
    for content_type, body in (
        (TYPE, noise),
        (TYPE, b"--edge\r\n" + noise),
        (TYPE, MODEL + noise),
        (b"multipart/form-data; " + kind, MODEL + END),
    ):
        try:
            value, start, end = model_of(content_type, body)
        except MalformedBody:
            continue
        assert body[start:end].decode() == value
