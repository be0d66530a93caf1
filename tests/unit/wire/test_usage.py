"""Token counts in all the forms that workers give them, and in forms that nobody should."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.usage import UsageScanner, usage_of_answer, usage_of_tail
from policies.model import Usage


def event(data: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def answer(**members: object) -> bytes:
    return json.dumps(members).encode()


def scanned(*events: bytes, strip: bool = False) -> Usage | None:
    scanner = UsageScanner(strip=strip)
    for data in events:
        scanner.scan(data)
    return scanner.usage


PLAIN = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

# ------------------------------------------------------------------------------------ whole answers

FORMS = [
    (answer(choices=[], usage=PLAIN), Usage(input_tokens=10, output_tokens=5)),
    (
        answer(usage={**PLAIN, "prompt_tokens_details": None, "completion_tokens_details": None}),
        Usage(input_tokens=10, output_tokens=5),
    ),
    (
        answer(object="list", data=[], usage={"prompt_tokens": 8, "total_tokens": 8}),
        Usage(input_tokens=8),
    ),
    (answer(results=[], usage={"total_tokens": 56}), Usage(input_tokens=56)),
    (
        answer(
            object="response",
            usage={
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 2},
            },
        ),
        Usage(input_tokens=9, cached_tokens=4, output_tokens=3, reasoning_tokens=2),
    ),
    (
        answer(
            type="message",
            usage={
                "input_tokens": 9,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 0,
                "output_tokens": 3,
            },
        ),
        Usage(input_tokens=109, cached_tokens=100, cache_write_tokens=0, output_tokens=3),
    ),
    (
        answer(type="message", usage={"input_tokens": 9, "output_tokens": 3}),
        Usage(input_tokens=9, output_tokens=3),
    ),
    (
        answer(usage={**PLAIN, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1}),
        Usage(input_tokens=10, cached_tokens=4, cache_write_tokens=1, output_tokens=5),
    ),
    (
        answer(usage={**PLAIN, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}),
        Usage(input_tokens=10, cached_tokens=4, output_tokens=5),
    ),
    (
        answer(results=[], meta={"billed_units": {"input_tokens": 7}, "api_version": {}}),
        Usage(input_tokens=7),
    ),
    (
        answer(meta={"billed_units": {"input_tokens": 7}, "tokens": {"input_tokens": 9}}),
        Usage(input_tokens=9),
    ),
    (answer(results=[], meta={"billed_units": {"search_units": 1}}), None),
    (
        answer(text="…", meta_info={"prompt_tokens": 6, "completion_tokens": 2, "id": "x"}),
        Usage(input_tokens=6, output_tokens=2),
    ),
    (
        answer(content="…", timings={"cache_n": 30, "prompt_n": 6, "predicted_n": 2}),
        Usage(input_tokens=36, cached_tokens=30, output_tokens=2),
    ),
    (answer(content="…", timings={"prompt_n": 6, "predicted_n": 2}), Usage(output_tokens=2)),
    (
        answer(usage=PLAIN, timings={"cache_n": 3, "prompt_n": 99, "predicted_n": 99}),
        Usage(input_tokens=10, cached_tokens=3, output_tokens=5),
    ),
    (
        answer(done=True, prompt_eval_count=26, eval_count=8),
        Usage(input_tokens=26, output_tokens=8),
    ),
    (answer(usage=None), None),
    (answer(usage={}), None),
    (answer(usage=[1]), None),
    (answer(usage="none"), None),
    (answer(input_tokens=3), None),
    (b"[[0.1, 0.2]]", None),
    (b'"usage"', None),
    (b"", None),
    (b'{"usage":{"prompt_tokens":1', None),
    (b'{"usage":' + b"[" * 5000 + b"]" * 5000 + b"}", None),
]


@pytest.mark.parametrize(("body", "usage"), FORMS)
def test_usage_of_an_answer(body, usage):
    assert usage_of_answer(body) == usage


counts = st.sampled_from([0, 3, 7, 12, 10**9, 10**9 + 1, -1, None, True, 1.0, "3", {}])
detail_counts = st.none() | st.dictionaries(
    st.sampled_from(["cached_tokens", "reasoning_tokens", "cache_write_tokens", "audio_tokens"]),
    counts,
    max_size=2,
)
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": counts,
        "completion_tokens": counts,
        "total_tokens": counts,
        "prompt_tokens_details": detail_counts,
        "completion_tokens_details": detail_counts,
        "reasoning_tokens": counts,
    },
)


@settings(max_examples=200)
@given(usages, st.booleans())
def test_the_common_form_is_read_like_any_other(usage, timed):
    more = {"timings": {"cache_n": 2, "prompt_n": 3, "predicted_n": 4}} if timed else {}
    # What nobody knows makes it an uncommon form, and must change nothing.
    uncommon = answer(usage={**usage, "unheard_of": 1}, **more)
    assert usage_of_answer(answer(usage=usage, **more)) == usage_of_answer(uncommon)


def test_absent_is_not_zero():
    said = usage_of_answer(answer(usage={**PLAIN, "prompt_tokens_details": {"cached_tokens": 0}}))
    assert said is not None
    assert said.cached_tokens == 0
    assert said.cache_write_tokens is None
    assert said.reasoning_tokens is None
    nothing = usage_of_answer(answer(usage={"prompt_tokens": 0, "completion_tokens": 0}))
    assert nothing == Usage(input_tokens=0, output_tokens=0)


@pytest.mark.parametrize(
    "value", [-1, True, False, 1.5, 5.0, 10**9 + 1, 10**40, "5", None, [5], {}]
)
def test_a_number_that_cannot_be_is_ignored_alone(value):
    body = answer(usage={**PLAIN, "completion_tokens": value})
    assert usage_of_answer(body) == Usage(input_tokens=10)
    assert scanned(event({"choices": [], "usage": PLAIN}), event(json.loads(body))) == Usage(
        input_tokens=10, output_tokens=5
    )


def test_a_part_larger_than_its_whole_is_left_out():
    body = answer(
        usage={
            **PLAIN,
            "prompt_tokens_details": {"cached_tokens": 11, "cache_write_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 6},
        }
    )
    assert usage_of_answer(body) == Usage(input_tokens=10, cache_write_tokens=10, output_tokens=5)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["usage", "prompt_tokens", "input_tokens_details", "cached_tokens"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
names = st.sampled_from(
    ["usage", "choices", "type", "error", "meta", "response", "message", "timings", "object"]
)


@settings(max_examples=200)
@given(st.dictionaries(names, json_values, max_size=6))
def test_no_json_is_too_odd(members):
    try:
        body = json.dumps(members, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    usage_of_answer(body)
    usage_of_tail(body)
    scanner = UsageScanner(strip=True)
    data = b"data: %b\n\n" % body
    assert scanner.scan(data) in (data, b"")


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_no_bytes_are_too_odd(noise):
    scanner = UsageScanner(strip=True)
    for data in (noise, b'data: {"usage": {' + noise + b"\n\n", b'"error"' + noise):
        assert scanner.scan(data) is data or b'"usage"' in data
        usage_of_answer(data)
        usage_of_tail(data)


# --------------------------------------------------------------------------------------------- tail


@pytest.mark.parametrize(("body", "usage"), FORMS)
@pytest.mark.parametrize("room", [200, 100_000])
def test_usage_of_the_tail_is_that_of_the_answer(body, usage, room):
    if b'"usage": {' not in body or b'"timings"' in body or usage is None:
        return
    large = b'{"data": [' + b'"\\"usage\\": {\\"prompt_tokens\\": 1}", ' * 500 + b"0], " + body[1:]
    assert usage_of_tail(large[-room:]) == usage


@pytest.mark.parametrize(
    "tail",
    [
        b'"x"}], "usage": {"prompt_tokens": 3}, "user": "a } b \\" {", "more": [{"a": 1}]}',
        b'"x"}], "usage": {"prompt_tokens": 3, "x": "}"}}\r\n',
        b'"usage": {"prompt_tokens": 9}}], "usage": {"prompt_tokens": 3}, "z": {"q": 1}}',
        b'"usage":\n{"prompt_tokens": 3}, "meta": {"usage": {"prompt_tokens": 9}}}',
    ],
)
def test_only_a_member_of_the_outermost_object_counts(tail):
    assert usage_of_tail(tail) == Usage(input_tokens=3)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b'{"choices": [{"usage": {"prompt_tokens": 9}}]}',
        b'"usage": {"prompt_tokens": 9}',
        b'"usage": {"prompt_tokens": 9',
        b'"usage": {"prompt_tokens": 9}, "text": "not the end',
        b'"usage": {"prompt_tokens": 9}} and more',
        b'{"text": "\\"usage\\": {\\"prompt_tokens\\": 9}}"}',
        b'"usage": null}',
    ],
)
def test_a_tail_in_doubt_says_nothing(tail):
    assert usage_of_tail(tail) is None


# ------------------------------------------------------------------------------------------ streams


def test_the_last_count_of_each_kind_stands():
    assert scanned(
        event({"choices": [{}], "usage": {**PLAIN, "prompt_tokens_details": {"cached_tokens": 4}}}),
        event({"choices": [{}], "usage": {"completion_tokens": 6}}),
        event({"choices": [{}], "usage": None}),
        event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}),
    ) == Usage(input_tokens=11, cached_tokens=4, output_tokens=7)


def test_anthropic_counts_are_put_together_over_events():
    start = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 1}
    message = event({"type": "message_start", "message": {"usage": start}}, "message_start")
    end = event({"type": "message_delta", "usage": {"output_tokens": 40}}, "message_delta")
    assert scanned(message) == Usage(input_tokens=95, cached_tokens=90, output_tokens=1)
    assert scanned(message, end) == Usage(input_tokens=95, cached_tokens=90, output_tokens=40)
    again = {"input_tokens": 6, "cache_read_input_tokens": 91, "output_tokens": 40}
    last = event({"type": "message_delta", "usage": again}, "message_delta")
    assert scanned(message, last) == Usage(input_tokens=97, cached_tokens=91, output_tokens=40)


def test_an_anthropic_worker_without_a_cache():
    message = {"type": "message_start", "message": {"usage": {"input_tokens": 5}}}
    end = {"type": "message_delta", "usage": {"input_tokens": 5, "output_tokens": 9}}
    assert scanned(event(message), event(end)) == Usage(input_tokens=5, output_tokens=9)


@pytest.mark.parametrize(
    "data",
    [
        {"choices": [], "usage": PLAIN},
        {"id": "a", "choices": [], "usage": PLAIN, "timings": {}, "x_engine": {"y": 1}},
        {"id": "a", "object": "chat.completion.chunk", "usage": PLAIN},
        {"choices": None, "usage": PLAIN, "model": "m"},
    ],
)
def test_an_event_of_usage_alone_is_taken_out_if_asked(data):
    before, after = event({"choices": [{"index": 0}]}), b"data: [DONE]\n\n"
    ours = b": about usage\nevent: message\n" + event(data)
    scanner = UsageScanner(strip=True)
    assert scanner.scan(before + ours + after) == before + after
    assert scanner.scan(ours) == b""
    assert scanner.usage == Usage(input_tokens=10, output_tokens=5)
    assert UsageScanner(strip=False).scan(ours) is ours


@pytest.mark.parametrize(
    "data",
    [
        {"choices": [{"index": 0}], "usage": PLAIN},
        {"choices": [], "usage": None},
        {"choices": [], "usage": {}, "error": {"message": "no"}},
        {"choices": [], "prompt_filter_results": [{"note": "usage"}]},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}},
        {"type": "response.completed", "response": {"usage": PLAIN}},
        {"usage": PLAIN, "text": "a form we don't know"},
        {"choices": {}, "usage": PLAIN},
    ],
)
def test_an_event_with_anything_else_in_it_passes(data):
    passed = event(data)
    assert UsageScanner(strip=True).scan(passed) is passed


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"choices":[],"usage":{"prompt_tokens":1}\n\n',
        b'data: {"choices":[],"usage":{}}}\n\n',
        b'data: "usage": {\n\n',
        b'data: {"usage": {"prompt_tokens": 1}} trailing\n\n',
        b'data: {"usage": {' + b'"a":{' * 3000 + b"\n\n",
    ],
)
def test_a_malformed_event_passes(data):
    scanner = UsageScanner(strip=True)
    assert scanner.scan(data) is data
    assert scanner.usage is None


def test_data_over_several_lines_is_one_event():
    data = b'data: {"choices": [],\r\ndata: "usage": {\r\ndata: "prompt_tokens": 3}}\r\n\r\n'
    scanner = UsageScanner(strip=True)
    assert scanner.scan(data) == b""
    assert scanner.usage == Usage(input_tokens=3)


@pytest.mark.parametrize(
    "data",
    [
        event({"error": {"message": "m", "code": 500}}),
        event({"error": "m"}),
        event({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "error"),
        event({"type": "error", "code": None, "message": "m"}, "error"),
        event({"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
        event({"object": "error", "message": "m", "code": 400}),
    ],
)
def test_an_error_in_the_stream_is_noticed_and_passes(data):
    scanner = UsageScanner(strip=True)
    assert scanner.scan(data) is data
    assert scanner.failed


@pytest.mark.parametrize(
    "data",
    [
        event({"choices": [{"delta": {"content": "error"}}]}),
        event({"choices": [{"delta": {"content": '"error": {"message": "no"}'}}]}),
        event({"choices": [{"error": {"a": 1}}], "error": None}),
        event({"type": "response.completed", "response": {"error": None, "usage": PLAIN}}),
        event({"type": "response.output_item.done", "item": {"error": {"message": "a tool's"}}}),
    ],
)
def test_talk_of_errors_is_none(data):
    scanner = UsageScanner(strip=True)
    assert scanner.scan(data) is data
    assert not scanner.failed


def test_usage_beside_a_failure_is_read():
    failed = {"type": "response.failed", "response": {"error": {"code": "x"}, "usage": PLAIN}}
    assert scanned(event(failed)) == Usage(input_tokens=10, output_tokens=5)
