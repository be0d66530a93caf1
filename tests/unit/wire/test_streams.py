"""Golden streams of every worker, cut at every byte: the same bytes out, the same usage read."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import dialect, sse
from gateway.wire.usage import UsageScanner
from policies.model import Usage

GOLDEN = Path(__file__).parent / "golden"


class Golden(NamedTuple):
    name: str
    path: bytes
    usage: Usage | None
    strips: bool = True  # an event is there only for usage
    failed: bool = False


CHAT = b"/v1/chat/completions"
STREAMS = [
    Golden(
        "vllm",
        CHAT,
        Usage(
            input_tokens=42,
            cached_tokens=32,
            cache_write_tokens=10,
            output_tokens=29,
            reasoning_tokens=0,
        ),
    ),
    Golden("vllm_continuous", CHAT, Usage(input_tokens=42, output_tokens=4)),
    Golden("vllm_error", CHAT, None, strips=False, failed=True),
    Golden(
        "sglang",
        CHAT,
        Usage(input_tokens=118, cached_tokens=64, output_tokens=57, reasoning_tokens=21),
    ),
    Golden("tgi", CHAT, Usage(input_tokens=17, output_tokens=9), strips=False),
    Golden("llamacpp", CHAT, Usage(input_tokens=37, cached_tokens=31, output_tokens=16)),
    Golden("ollama", CHAT, Usage(input_tokens=26, output_tokens=104)),
    Golden(
        "openai",
        CHAT,
        Usage(
            input_tokens=2006,
            cached_tokens=1920,
            cache_write_tokens=80,
            output_tokens=300,
            reasoning_tokens=192,
        ),
    ),
    Golden("completions", b"/v1/completions", Usage(input_tokens=5, output_tokens=4)),
    Golden(
        "responses",
        b"/v1/responses",
        Usage(
            input_tokens=36,
            cached_tokens=0,
            cache_write_tokens=0,
            output_tokens=87,
            reasoning_tokens=64,
        ),
        strips=False,
    ),
    Golden(
        "anthropic",
        b"/v1/messages",
        Usage(
            input_tokens=2125,
            cached_tokens=2000,
            cache_write_tokens=100,
            output_tokens=189,
            reasoning_tokens=40,
        ),
        strips=False,
    ),
]
LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}

each_golden = pytest.mark.parametrize("golden", STREAMS, ids=lambda golden: golden.name)
each_line_end = pytest.mark.parametrize("line_end", LINE_ENDS.values(), ids=LINE_ENDS.keys())


def read(golden: Golden, line_end: bytes = b"\n") -> bytes:
    return (GOLDEN / f"{golden.name}.sse").read_bytes().replace(b"\n", line_end)


def relay(pieces: list[bytes], scanner: UsageScanner) -> list[bytes]:
    """Pass pieces on as an exchange does: what is whole is scanned, the rest waits."""
    out, rest = [], b""
    for piece in pieces:
        data = rest + piece
        end = sse.whole(data, len(rest))
        out.append(scanner.scan(data[:end]))
        rest = data[end:]
    return [*out, scanner.scan(rest)]


def without_usage(stream: bytes, golden: Golden) -> bytes:
    """Take the usage event out by position: it is the last but one, before [DONE]."""
    events = list(sse.split(stream))
    if golden.strips:
        del events[-2]
    return b"".join(events)


def test_every_golden_stream_is_tested():
    assert {path.stem for path in GOLDEN.glob("*.sse")} == {golden.name for golden in STREAMS}


@each_golden
@each_line_end
def test_cut_at_every_byte(golden, line_end):
    stream = read(golden, line_end)
    expected = without_usage(stream, golden)
    for cut in range(len(stream) + 1):
        scanner = UsageScanner(strip=True)
        out = relay([stream[:cut], stream[cut:]], scanner)
        assert b"".join(out) == expected
        assert scanner.usage == golden.usage
        assert scanner.failed == golden.failed


@each_golden
@each_line_end
def test_a_client_that_asked_gets_every_byte(golden, line_end):
    stream = read(golden, line_end)
    for cut in range(0, len(stream) + 1, 13):
        scanner = UsageScanner(strip=False)
        assert b"".join(relay([stream[:cut], stream[cut:]], scanner)) == stream
        assert scanner.usage == golden.usage


@each_golden
@each_line_end
def test_byte_by_byte(golden, line_end):
    stream = read(golden, line_end)
    scanner = UsageScanner(strip=True)
    out = relay([bytes([byte]) for byte in stream], scanner)
    assert b"".join(out) == without_usage(stream, golden)
    assert scanner.usage == golden.usage


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(STREAMS),
    st.sampled_from(list(LINE_ENDS.values())),
    st.lists(st.integers(0, 9999), max_size=8),
)
def test_cut_anywhere(golden, line_end, cuts):
    stream = read(golden, line_end)
    edges = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    scanner = UsageScanner(strip=True)
    assert b"".join(relay(pieces, scanner)) == without_usage(stream, golden)
    assert scanner.usage == golden.usage
    decoder, whole = sse.Decoder(), sse.Decoder()
    assert [event for piece in pieces for event in decoder.feed(piece)] == whole.feed(stream)


@each_golden
def test_decoded_alike_with_any_line_end_and_cut(golden):
    expected = sse.Decoder().feed(read(golden))
    assert len(expected) > 2
    for line_end in LINE_ENDS.values():
        stream = read(golden, line_end)
        for cut in range(len(stream) + 1):
            decoder = sse.Decoder()
            assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == expected


@each_golden
def test_a_chunk_without_usage_comes_back_as_the_same_object(golden):
    scanner = UsageScanner(strip=True)
    same = 0
    for event in sse.split(read(golden)):
        same += scanner.scan(event) is event
    assert same == len(list(sse.split(read(golden)))) - golden.strips


@each_golden
@each_line_end
@pytest.mark.parametrize("strip", [True, False])
def test_only_a_whole_stream_has_ended(golden, line_end, strip):
    speaks = dialect.of_path(golden.path)
    scanner = UsageScanner(strip=strip)
    pieces = list(filter(None, map(scanner.scan, sse.split(read(golden, line_end)))))
    ended = [
        speaks.ended(last, previous) for previous, last in zip([b"", *pieces], pieces, strict=False)
    ]
    assert ended[-1]
    # An OpenAI stream counts as done once a choice has its finish and no other goes on after it.
    # The stream with two choices has such a moment early.
    if golden.name != "completions":
        assert not any(ended[:-4])
    assert speaks.ended(b"".join(pieces), b"")


@each_golden
def test_a_stream_cut_in_its_text_has_not_ended(golden):
    speaks = dialect.of_path(golden.path)
    events = list(sse.split(read(golden)))
    assert not speaks.ended(events[1], events[0])
    assert not speaks.ended(b"".join(events[:2]), b"")
