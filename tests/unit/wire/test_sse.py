"""Where events end, and what they say: examples from the standard, then every way to cut them."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import sse
from gateway.wire.sse import Decoder, Event, EventTooLarge

LINE_ENDS = (b"\n", b"\r\n", b"\r")

STREAM = (
    b"\xef\xbb\xbf: hello\n\n"
    b"event: ping\ndata: {}\n\n"
    b"id: 7\nretry: 1500\ndata: one\ndata:two\ndata:  three\n\n"
    b"event: ignored\n\n"
    b"data\n\n"
    b"data: \xf0\x9f\x8c\x8d\xe4\xb8\x96\xc3\xbc: colon\nunknown: x\n\n"
    b"id: a\0b\ndata: last\n\n"
    b"data: torn"
)
EVENTS = [
    Event("ping", "{}"),
    Event("message", "one\ntwo\n three", "7", 1500),
    Event("message", "", "7"),
    Event("message", "🌍世ü: colon", "7"),
    Event("message", "last", "7"),
]


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at these places."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def decode(pieces: list[bytes]) -> list[Event]:
    decoder = Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def cut_by_whole(pieces: list[bytes]) -> list[bytes]:
    """Cut a stream as a relay does: pass on what is whole, keep the rest."""
    out, rest = [], b""
    for piece in pieces:
        data = rest + piece
        end = sse.whole(data, len(rest))
        assert end == sse.whole(data)
        out.append(data[:end])
        rest = data[end:]
    return [*out, rest]


# ------------------------------------------------------------------------------------------- whole


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"data: x", 0),
        (b"data: x\n", 0),
        (b"data: x\n\n", 9),
        (b"data: x\n\ndata: y", 9),
        (b"data: x\n\ndata: y\n\n", 18),
        (b"data: x\r\n\r\n", 11),
        (b"data: x\r\n\r\ndata", 11),
        (b"data: x\r\n\ndata", 10),
        (b"data: x\n\r\ndata", 10),
        (b"data: x\n\rdata", 9),
        (b"data: x\r\rdata", 9),
        (b"data: x\r\r\ndata", 10),
        (b"data: x\r\ndata: y\r\n", 0),
        (b"\ndata", 1),
        (b"\r\ndata", 2),
        (b"\rdata", 1),
        (b"\r", 0),
    ],
)
def test_whole_ends_after_the_last_blank_line(data, end):
    assert sse.whole(data) == end


@pytest.mark.parametrize(
    ("data", "end", "why"),
    [
        (b"data: x\r\n\r", 0, "its LF is still to come"),
        (b"data: x\n\r", 0, "its LF may still come"),
        (b"data: x\r\r", 9, "a stream of CRs isn't held back"),
        (b"a\n\nb\r\n\r", 3, "what is whole before it isn't held back either"),
    ],
)
def test_a_cr_at_the_very_end(data, end, why):
    assert sse.whole(data) == end, why


def test_whole_does_not_search_again_what_it_knows():
    held = b"data: " + b"x" * 1000 + b"\n"
    assert sse.whole(held) == 0
    for rest in (b"\n", b"\ndata", b"data: y\n\ndata"):
        assert sse.whole(held + rest, len(held)) == sse.whole(held + rest)


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_cut_at_every_byte_no_event_is_torn(line_end):
    stream = STREAM.replace(b"\n", line_end)
    events = set(sse.split(stream))
    for cut in range(len(stream) + 1):
        out = cut_by_whole([stream[:cut], stream[cut:]])
        assert b"".join(out) == stream
        assert {event for piece in out for event in sse.split(piece)} == events


mixed_streams = st.lists(
    st.sampled_from((b"data: x", b"data:", b": c", b"\n", b"\r\n", b"\r", b"\n\n")), max_size=12
).map(b"".join)


@settings(max_examples=200)
@given(mixed_streams, st.lists(st.integers(0, 100), max_size=6))
def test_mixed_line_ends_are_passed_on_and_mean_the_same(stream, cuts):
    out = cut_by_whole(pieces_of(stream, cuts))
    assert b"".join(out) == stream
    # Each piece by itself says what it said in the stream: nothing was torn.
    assert [event for piece in out for event in Decoder().feed(piece)] == decode([stream])


@settings(max_examples=200)
@given(mixed_streams)
def test_split_parts_what_it_joins(stream):
    assert b"".join(sse.split(stream)) == stream


def test_payload_joins_data_lines_and_leaves_out_the_rest():
    assert sse.payload(b'event: x\r\ndata: {"a":\r\ndata:1}\r\nid: 3\r\n\r\n') == b'{"a":\n1}'
    assert sse.payload(b": nothing\n\n") == b""
    assert sse.payload(b"\xef\xbb\xbfdata: first\n\n") == b"first"


# ----------------------------------------------------------------------------------------- decoder


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_decoding_is_the_same_for_every_cut(line_end):
    stream = STREAM.replace(b"\n", line_end)
    for cut in range(len(stream) + 1):
        assert decode([stream[:cut], stream[cut:]]) == EVENTS
    assert decode([bytes([byte]) for byte in stream]) == EVENTS


@settings(max_examples=200)
@given(mixed_streams, st.lists(st.integers(0, 100), max_size=6))
def test_decoding_is_the_same_for_any_cuts_and_line_ends(stream, cuts):
    assert decode(pieces_of(stream, cuts)) == decode([stream])


@settings(max_examples=200)
@given(st.binary(max_size=80), st.lists(st.integers(0, 100), max_size=4))
def test_decoding_never_fails_over_what_it_reads(stream, cuts):
    assert decode(pieces_of(stream, cuts)) == decode([stream])


def test_a_mark_is_skipped_at_the_start_only():
    assert decode([b"\xef", b"\xbb", b"\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"]) == [
        Event("message", "a")
    ]
    assert decode([b"\xef\xbb", b"data: a\n\ndata: b\n\n"]) == [Event("message", "b")]


@pytest.mark.parametrize("retry", [b"", b"1s", b"-1", b"1.5", "٣".encode(), b"9" * 40])
def test_a_retry_that_is_no_number_is_ignored(retry):
    assert decode([b"retry: %b\ndata: x\n\n" % retry]) == [Event("message", "x")]


def test_an_id_can_be_taken_back():
    events = decode([b"id: 1\ndata: a\n\nid\ndata: b\n\n"])
    assert [event.id for event in events] == ["1", ""]


def test_bytes_that_are_not_text_are_replaced():
    assert decode([b"data: \xff\xf0\x9f\n\n"]) == [Event("message", "\ufffd\ufffd")]


@pytest.mark.parametrize("piece_size", [1, 7, 1000])
def test_the_limit_is_per_event_and_exact(piece_size):
    event = b"data: 0123456789\n\n"

    def feed(limit: int, stream: bytes) -> int:
        decoder = Decoder(limit)
        pieces = [stream[i : i + piece_size] for i in range(0, len(stream), piece_size)]
        return sum(len(decoder.feed(piece)) for piece in pieces)

    assert feed(16, event * 50) == 50
    assert feed(16, b": comment\n" * 50 + event) == 1
    with pytest.raises(EventTooLarge, match="15 bytes"):
        feed(15, event)
    with pytest.raises(EventTooLarge):
        feed(40, b"data: 0123456789\n" * 3 + b"\n")
    with pytest.raises(EventTooLarge):
        feed(40, b"data: never a line end in all of this, and no end of it")


# ---------------------------------------------------------------------------------------- encoding


def test_encode_writes_one_event():
    assert sse.encode(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert sse.encode(b"{}", b"error") == b"event: error\ndata: {}\n\n"
    assert sse.encode(b"a\r\nb\rc\n") == b"data: a\ndata: b\ndata: c\ndata: \n\n"
    assert sse.encode(b"") == b"data: \n\n"


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_what_is_encoded_is_decoded(text):
    (event,) = decode([sse.encode(text.encode(), b"note")])
    assert event == Event("note", re.sub("\r\n|\r", "\n", text))


def test_a_comment_says_nothing():
    assert decode([sse.COMMENT]) == []
    assert sse.whole(sse.COMMENT) == len(sse.COMMENT)
