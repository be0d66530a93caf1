"""What is read of a request, and edits that change what they are told to and nothing else."""

import json

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.errors import MalformedBody
from gateway.wire import openai
from gateway.wire.openai import read_facts, splice, wants_usage

# ------------------------------------------------------------------------------------------- facts


def test_the_fields_that_decide_are_read():
    facts = read_facts(
        b' {"messages": [{"role": "user"}], "model": "a/b \\u00fc", "stream": true, "n": 2,'
        b'"stream_options": {"include_usage" : true}, "max_tokens": 5, "service_tier": "flex",'
        b'"max_completion_tokens": 6, "unknown": {"model": 3}}\r\n'
    )
    assert facts.model == "a/b ü"
    assert facts.stream is True
    assert bytes(facts.stream_options) == b'{"include_usage" : true}'
    assert (facts.max_tokens, facts.max_completion_tokens) == (5, 6)
    assert (facts.service_tier, facts.n) == ("flex", 2)


def test_what_is_absent_or_null_is_none():
    for body in (b'{"model":"m"}', b'{"model":"m","stream":null,"max_tokens":null,"n":null}'):
        facts = read_facts(body)
        assert facts.stream is None
        assert facts.max_tokens is facts.max_completion_tokens is facts.service_tier is None
        assert bytes(facts.stream_options) == b""


@pytest.mark.parametrize("odd", ['"5"', "5.5", "[1]", "{}", "true", "1e999", "9" * 5000])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n", "service_tier"])
def test_an_odd_value_is_for_the_worker_to_refuse(name, odd):
    facts = read_facts(f'{{"{name}": {odd}, "model": "m", "stream": true}}'.encode())
    assert facts.model == "m"
    assert facts.stream is True
    assert getattr(facts, name) in (None, "5")


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        (b"", None, "empty"),
        (b" \r\n", None, "empty"),
        (b"hello", None, "at byte 0"),
        (b'{"model": "m", "stream": tru}', None, "at byte 26"),
        (b'{"model": "m"} x', None, "at byte 16"),
        (b'{"model": "m"', None, "too early, at byte 13"),
        (b"{'model': 'm'}", None, "at byte 1"),
        (b'{"model": "m", "temperature": NaN}', None, "at byte 30"),
        (b'{"model": "m", "text": "a\nb"}', None, "at byte 25"),
        (b'\xef\xbb\xbf{"model": "m"}', None, "byte order mark"),
        ('{"model": "m"}'.encode("utf-16"), None, "at byte 0"),
        (b'{"model": "m", "text": "\\ud83d"}', None, "surrogate"),
        (b'{"model": "m", "x": ' + b"[" * 9999 + b"]" * 9999 + b"}", None, "nested too deeply"),
        (b"[]", None, "JSON object"),
        (b"null", None, "JSON object"),
        (b'"model"', None, "JSON object"),
        (b"{}", "model", "missing"),
        (b'{"Model": "m", "x": {"model": "m"}}', "model", "missing"),
        (b'{"model": null}', "model", "string"),
        (b'{"model": ["m"]}', "model", "string"),
        (b'{"model": "\xff"}', "model", "string"),
        (b'{"model": "m", "model": 1}', "model", "string"),
        (b'{"model": "m", "stream": "true"}', "stream", "true or false"),
        (b'{"model": "m", "stream": 1}', "stream", "true or false"),
        (b'{"\xff": 1, "model": 2}', None, "UTF-8"),
    ],
)
def test_a_body_that_cannot_be_is_refused_in_words(body, param, says):
    with pytest.raises(MalformedBody) as refused:
        read_facts(body)
    assert refused.value.param == param
    assert says in refused.value.message


def test_the_last_of_two_names_counts_however_it_is_spelled():
    assert read_facts(b'{"model":"a","model":"b"}').model == "b"
    assert read_facts(b'{"model":"a","mod\\u0065l":"b"}').model == "b"
    assert read_facts(b'{"model":1,"model":"b"}').model == "b"


def test_text_that_is_not_read_is_not_judged():
    assert read_facts(b'{"model":"m","text":"\xff\xfe","\xff":1}').model == "m"


@pytest.mark.parametrize(
    ("options", "wants"),
    [
        (None, False),
        ("null", False),
        ("{}", False),
        ('{"include_usage": null}', False),
        ('{"include_usage": false}', False),
        ('{"include_usage": true}', True),
        ('{"include_\\u0075sage":true}', True),
        ('{"include_usage": 1}', True),
        ('{"include_usage": "yes"}', True),
        ('{"other": {"include_usage": true}}', False),
        ("[]", False),
        ('"include_usage"', False),
        ("3", False),
    ],
)
def test_who_wants_usage(options, wants):
    tail = "" if options is None else f', "stream_options": {options}'
    assert wants_usage(read_facts(f'{{"model": "m"{tail}}}'.encode())) is wants


# ------------------------------------------------------------------------------------------- edits


def edit(body: bytes, model: str | None = None, *, ask_usage: bool = False) -> bytes:
    return b"".join(splice(body, read_facts(body), model=model, ask_usage=ask_usage))


@pytest.mark.parametrize(
    ("body", "model", "ask_usage"),
    [
        (b'{"model":"m"}', None, False),
        (b'{"model":"m"}', "m", False),
        (b'{"m\\u006fdel":"m"}', "m", False),
        (b'{"model":"m","stream_options":{"include_usage":true}}', None, True),
        (b'{"model":"m","stream_options":{"include_usage":1}}', "m", True),
        (b'{"model":"m","stream_options":[]}', None, True),
        (b'{"model":"m","stream_options":"x"}', None, True),
    ],
)
def test_unchanged_is_the_same_object(body, model, ask_usage):
    (part,) = splice(body, read_facts(body), model=model, ask_usage=ask_usage)
    assert part is body


ASK = b'"stream_options":{"include_usage":true}'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model": "m", "x" : 1.0}', b'{"model": "new \xc3\xbc", "x" : 1.0,%b}' % ASK),
        (b'{"model": "m" }\r\n', b'{"model": "new \xc3\xbc" ,%b}\r\n' % ASK),
        (b'{ "model"\t:\n"\\"m\\\\" }', b'{ "model"\t:\n"new \xc3\xbc" ,%b}' % ASK),
        (
            b'{"role": "model", "model": "m", "tools": {"model": {"type": "string"}}}',
            b'{"role": "model", "model": "new \xc3\xbc",'
            b' "tools": {"model": {"type": "string"}},%b}' % ASK,
        ),
        (
            b'{"stream_options": null, "model": "m"}',
            b'{"stream_options": {"include_usage":true}, "model": "new \xc3\xbc"}',
        ),
        (
            b'{"model": "m", "stream_options" : {"a": 1.50, "include_usage": false} , "z": 0}',
            (
                b'{"model": "new \xc3\xbc",'
                b' "stream_options" : {"a":1.50,"include_usage":true} , "z": 0}'
            ),
        ),
    ],
)
def test_all_but_the_edit_is_byte_equal(body, expected):
    assert edit(body, "new ü", ask_usage=True) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "moderation": {"model": "inner"}, "x":  [1 , 2]}',
        b'{"moderation": {"model": "inner"}, "m\\u006fdel": "m", "x":  [1 , 2]}',
        b'{"x\\"model": "inner", "model": "m", "x":  [1 , 2]}',
        b'{"model": "first", "model": "m", "x":  [1 , 2]}',
    ],
)
def test_in_doubt_the_object_is_rebuilt_around_its_values(body):
    edited = edit(body, "new", ask_usage=True)
    assert json.loads(edited) == {
        **json.loads(body),
        "model": "new",
        "stream_options": {"include_usage": True},
    }
    assert b'"x":[1 , 2]' in edited


def test_an_unreadable_name_in_doubt_is_refused():
    body = b'{"model": "a", "model": "b", "\xff": 1}'
    with pytest.raises(MalformedBody, match="UTF-8"):
        edit(body, "new")


def test_a_large_body_is_not_copied():
    large = b'{"image": "' + b"a" * 200_000 + b'", "model": "m", "more": "' + b"b" * 9 + b'"}'
    parts = splice(large, read_facts(large), model="new", ask_usage=True)
    held = [part for part in parts if isinstance(part, memoryview)]
    assert all(part.obj is large for part in held)
    assert sum(map(len, parts)) - sum(map(len, held)) < 100
    assert json.loads(b"".join(parts)) == {
        **json.loads(large),
        "model": "new",
        "stream_options": {"include_usage": True},
    }


def test_a_large_body_in_doubt_is_not_copied_either():
    large = b'{"image": "' + b"a" * 200_000 + b'", "model": "m", "x": {"model": "inner"}}'
    parts = splice(large, read_facts(large), model="new", ask_usage=False)
    assert max(len(part) for part in parts if isinstance(part, bytes)) < 100
    assert json.loads(b"".join(parts)) == {**json.loads(large), "model": "new"}


# Bodies as a hostile or careless client may write them: names that look like ours at any depth and
# in any spelling, twice over, with any white space.

words = st.sampled_from(
    [
        "model",
        "stream_options",
        "include_usage",
        'x"model',
        'x": "y", "model": "z',
        '"model": "',
        "model\\",
        '\\"model',
        "Model",
        "模型🌍",
        "stream_options\": {",
        "",
    ]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)  # fmt: skip
spaces = st.text(" \t\r\n", max_size=2)


@st.composite
def strings(draw, text=words):
    """Return a JSON string with some of its characters escaped."""
    said = draw(text)
    escaped = draw(st.sets(st.integers(0, 20), max_size=3))
    out = []
    for place, char in enumerate(said):
        if place in escaped and char <= "\uffff":
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(json.dumps(char, ensure_ascii=draw(st.booleans()))[1:-1])
    return '"' + "".join(out) + '"'


def written(pairs, space):
    inner = f"{space},{space}".join(f"{k}{space}:{space}{v}" for k, v in pairs)
    return "{" + space + inner + space + "}"


scalars = st.sampled_from(["null", "true", "false", "0", "1", "-1.50", "1e3", "[]", "{}"])
values = st.recursive(
    scalars | strings(),
    lambda inner: (
        st.builds(written, st.lists(st.tuples(strings(), inner), max_size=3), spaces)
        | st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
    ),
    max_leaves=8,
)
model_names = strings(st.just("model"))
options_names = strings(st.just("stream_options"))
usage_names = strings(st.just("include_usage"))
options = st.builds(
    written, st.lists(st.tuples(usage_names | strings(), scalars), max_size=3), spaces
)


@st.composite
def bodies(draw):
    """Return the text of a body whose last `model`, at least, is a string."""
    pairs = draw(
        st.lists(
            st.tuples(strings(), values) | st.tuples(options_names, options | values), max_size=4
        )
    )
    pairs = [(name, value) for name, value in pairs if json.loads(name) not in ("model", "stream")]
    pairs += draw(st.lists(st.tuples(model_names, strings()), min_size=1, max_size=2))
    return written(draw(st.permutations(pairs)), draw(spaces)) + draw(spaces)


def intended(body: str, model: str | None, *, ask_usage: bool) -> dict[str, object]:
    wanted = json.loads(body)
    if model is not None:
        wanted["model"] = model
    if ask_usage:
        asked = wanted.get("stream_options")
        if asked is None:
            wanted["stream_options"] = {"include_usage": True}
        elif isinstance(asked, dict) and (
            asked.get("include_usage") is None or asked["include_usage"] is False
        ):
            asked["include_usage"] = True
    return wanted


@pytest.mark.parametrize("large", [64 << 10, 0], ids=["joined", "parts"])
@settings(max_examples=200, deadline=None)
@given(bodies(), st.none() | words, st.booleans())
@example('{"model": "a", "x\\"model": "b"}', "new", True)
@example('{"x\\"model": "b", "m\\u006fdel": "a"}', "new", True)
@example('{"x": {"model": "b"}, "m\\u006Fdel": "a"}', "new", False)
@example('{"x": {"stream_options": null}, "stream\\u005foptions": {}, "model": "a"}', None, True)
@example(
    '{"stream_options": {"include_usage": true, "include_usage": false}, "model": ""}', "", True
)
def test_what_comes_out_is_what_was_meant(large, body, model, ask_usage):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai, "_LARGE", large)
        data = body.encode()
        facts = read_facts(data)
        parts = splice(data, facts, model=model, ask_usage=ask_usage)
    result = b"".join(parts)
    # As text, since Python holds 1 and true for equal.
    assert json.dumps(json.loads(result), sort_keys=True) == json.dumps(
        intended(body, model, ask_usage=ask_usage), sort_keys=True
    )
    if ask_usage and isinstance(json.loads(result)["stream_options"], dict):
        assert wants_usage(read_facts(result))
    assert (result == data) or parts != [data]


def test_facts_hold_what_msgspec_reads_at_once():
    """The quick way and the field-by-field way agree."""
    body = b'{"model":"m","stream":false,"n":1,"max_tokens":7,"stream_options":{"a":[]}}'
    quick = read_facts(body)
    slow = read_facts(body[:-1] + b',"service_tier":5}')
    assert msgspec.structs.asdict(quick) | {"stream_options": b""} == msgspec.structs.asdict(
        slow
    ) | {"stream_options": b""}
    assert bytes(quick.stream_options) == bytes(slow.stream_options)
